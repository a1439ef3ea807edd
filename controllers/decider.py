"""A policy in a process of its own, so that one that hangs, dies or exits harms nobody else.

`ChildDecider` is the loop's side. The child (``python3 -m controllers.decider``) reads one JSON
line with the controller's name, parameters and seed, then one line a decision, and answers each
with one line. What a policy prints goes to standard error.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from controllers.contract import LoopPolicy
from controllers.decide import Decision, PolicyError, decide, initial
from controllers.journal import canonical, needs_from_json, needs_to_json
from controllers.registry import create, describe, find
from schemas.errors import UserError

START_LIMIT_S = 30.0
_CHUNK = 1 << 16
_PR_SET_PDEATHSIG = 1


class ChildDecider:
    """Starts the child and talks to it; `limit_s` is the time that one decision may take.

    `needs` and `parameters` are what the policy declares, defaults included: nobody but the child
    runs any of its code.
    """

    def __init__(
        self,
        name: str,
        parameters: Mapping[str, object],
        seed: int,
        controllers_dirs: Sequence[Path] = (),
        *,
        limit_s: float = 10.0,
    ) -> None:
        """Raises UserError for unknown names and parameters, PolicyError for a policy that fails
        to start within `START_LIMIT_S`."""
        self._limit_s = limit_s
        self._received = b""
        root = str(Path(__file__).parent.parent)
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "controllers.decider"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=path),
            bufsize=0,
            start_new_session=True,  # a Ctrl-C at the terminal is the loop's to handle
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        os.set_blocking(self._process.stdout.fileno(), False)
        request = {
            "name": name,
            "parameters": dict(parameters),
            "seed": seed,
            "controllers_dirs": [str(directory) for directory in controllers_dirs],
        }
        try:
            answer = self._ask(request, START_LIMIT_S, "the policy's start")
        except BaseException:
            self.close()
            raise
        self._initial = answer["state"]
        self.needs = needs_from_json(answer["needs"])
        self.parameters: dict[str, Any] = answer["parameters"]

    def initial(self) -> Mapping[str, Any]:
        """The policy's first state."""
        state: Mapping[str, Any] = self._initial
        return state

    def decide(self, state: Mapping[str, Any], observation: Mapping[str, Any]) -> Decision:
        """One decision. Raises PolicyError; the child is gone when it hung or died."""
        answer = self._ask({"state": state, "observation": observation}, self._limit_s, "decide()")
        return Decision(answer["state"], answer["actions"])

    def close(self) -> None:
        """End the child."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _ask(self, request: Mapping[str, Any], limit_s: float, what: str) -> dict[str, Any]:
        line = json.dumps(request, separators=(",", ":")).encode() + b"\n"
        try:
            answer = json.loads(self._exchange(line, time.monotonic() + limit_s))
        except TimeoutError:
            self._process.kill()
            raise PolicyError(f"{what} took more than {limit_s:g} s") from None
        except (BrokenPipeError, EOFError):
            code = self._process.wait()
            raise PolicyError(f"{what}: the policy's process ended with code {code}") from None
        if "error" in answer:
            kind = UserError if answer.get("user") else PolicyError
            raise kind(str(answer["error"]))
        result: dict[str, Any] = answer
        return result

    def _exchange(self, line: bytes, deadline: float) -> bytes:
        """Write `line` and read one, both without blocking beyond `deadline`."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        chunks = [self._received]
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            selector.register(stdin, selectors.EVENT_WRITE)
            rest = memoryview(line)
            while True:
                ready = selector.select(deadline - time.monotonic())
                if not ready:
                    if time.monotonic() >= deadline:
                        raise TimeoutError
                    continue
                for key, _ in ready:
                    if key.fileobj is stdin:
                        rest = rest[os.write(stdin.fileno(), rest[:_CHUNK]) :]
                        if not rest:
                            selector.unregister(stdin)
                        continue
                    chunk = os.read(stdout.fileno(), _CHUNK)
                    if not chunk:
                        raise EOFError
                    chunks.append(chunk)
                    if b"\n" in chunk:
                        answer, self._received = b"".join(chunks).split(b"\n", 1)
                        return answer


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """The child: create the policy, then decide until the other side is gone."""

    def answer(data: Mapping[str, Any]) -> None:
        answers.write(json.dumps(data, separators=(",", ":")).encode() + b"\n")
        answers.flush()

    start = json.loads(requests.readline())
    try:
        dirs = [Path(directory) for directory in start["controllers_dirs"]]
        policy = create(find(start["name"], dirs), start["parameters"], start["seed"])
        answer(_introduction(policy))
    except (UserError, PolicyError) as error:
        answer({"error": str(error), "user": isinstance(error, UserError)})
        return
    for line in requests:
        request = json.loads(line)
        try:
            decision = decide(policy, request["state"], request["observation"])
        except PolicyError as error:
            answer({"error": str(error)})
            continue
        answer({"state": decision.state, "actions": decision.actions})


def _introduction(policy: LoopPolicy) -> dict[str, Any]:
    try:
        parameters = canonical(dict(policy.parameters()))
    except Exception as error:
        raise PolicyError(f"parameters() raised {describe(error)}") from error
    needs = needs_to_json(policy.needs)
    return {"state": initial(policy), "needs": needs, "parameters": parameters}


def _main() -> None:
    # Whatever happens to the loop, this process goes with it, and only with it.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    _main()
