"""The engine's client of the agent: sends a verb over ssh, returns its result. No librados here."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Mapping
from typing import Any

from schemas.errors import HotbedError, RemoteError, StoreError, UserError
from testbed.agent.contract import Agent
from testbed.sites.contract import Testbed
from testbed.ssh import Shell, end_process

PROGRAM = "/usr/local/bin/hotbed-agent"
_NOT_FOUND = 127


class NotDeployedError(UserError):
    """The admin node has no agent: no store has been deployed."""


class AgentClient(Agent):
    """An `Agent` behind the shell of the admin node."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def call(
        self, verb: str, payload: Mapping[str, Any] | None = None, *, timeout_s: float = 60.0
    ) -> Any:
        """See `Agent.call`."""
        done = self._shell.run(
            [PROGRAM, verb], input=_request(payload), timeout_s=timeout_s, check=False
        )
        if done.returncode == _NOT_FOUND:
            raise self._not_deployed()
        lines = done.stdout.splitlines()
        if not lines:
            words = done.stderr.decode(errors="replace").strip().splitlines()
            why = words[-1][:300] if words else f"exit code {done.returncode}"
            raise RemoteError(f"hotbed-agent {verb} on node {self._shell.node} said nothing: {why}")
        return result_of(verb, lines[-1])

    def stream(
        self, verb: str, payload: Mapping[str, Any] | None = None
    ) -> Generator[Any, None, None]:
        """Yield a streaming verb's answers as they come; closing the iterator ends the verb."""
        process = self._shell.popen([PROGRAM, verb])
        assert process.stdin is not None and process.stdout is not None
        try:
            # If the node is down, ssh ends before it reads; its exit code is checked below.
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(_request(payload))
                process.stdin.flush()
            for line in process.stdout:
                yield result_of(verb, line)
            code = process.wait()
            if code == _NOT_FOUND:
                raise self._not_deployed()
            if code != 0:
                raise RemoteError(
                    f"hotbed-agent {verb} ended with {code}: node {self._shell.node} is down.",
                    retry=True,
                )
        finally:
            end_process(process, 2.0)

    def _not_deployed(self) -> NotDeployedError:
        return NotDeployedError(
            f"has no {PROGRAM}",
            where=f"node {self._shell.node}",
            do="deploy the testbed first (hotbed deploy)",
        )


def agent_client(testbed: Testbed) -> AgentClient:
    """Return the agent of a deployed testbed."""
    from testbed.reach import shell_to

    return AgentClient(shell_to(testbed, testbed.admin))


def result_of(verb: str, line: bytes) -> Any:
    """Return the result in an answer line, or raise the reported error."""
    try:
        answer = json.loads(line)
        if answer["ok"]:
            return answer["result"]
        message, kind = str(answer["error"]), answer["kind"]
    except (ValueError, KeyError, TypeError) as error:
        raise RemoteError(f"hotbed-agent {verb} answered garbage: {line[:120]!r}") from error
    if kind == "remote":
        raise RemoteError(message, retry=bool(answer.get("retry", False)))
    kinds: dict[str, type[HotbedError]] = {"user": UserError, "store": StoreError}
    raise kinds.get(kind, RemoteError)(message)


def _request(payload: Mapping[str, Any] | None) -> bytes:
    # One line: a streaming verb reads no further.
    return json.dumps(dict(payload or {})).encode() + b"\n"
