"""Engine side of a controller on a testbed: start, stop, status and journal.

Everything that can be checked without the testbed is checked here first.
"""

from __future__ import annotations

import base64
import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from controllers.decider import declared
from controllers.registry import FOREIGN, Controller, find
from controllers.service import check_settings
from schemas.durable import write_file
from schemas.errors import RemoteError, UserError
from testbed.agent.contract import Agent

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 200.0
AGAIN_S = 2.0
"""Seconds until a broken connection is tried again."""


def start(
    agent: Agent,
    name: str,
    *,
    parameters: Mapping[str, object] | None = None,
    seed: int = 0,
    interval_s: float = 20.0,
    signal: str = "node",
    controllers_dirs: Sequence[Path] = (),
) -> Mapping[str, Any]:
    """Start controller `name`; return {name, journal, healed}.

    Args:
        interval_s: the control interval in real seconds (time scale applied).
        signal: ``node``, ``osd`` or ``op_r_latency``.
        controllers_dirs: folders of controllers outside this package; their code is sent along.

    Raises:
        UserError: unknown controller or parameter, or another controller is running.
        StoreError, RemoteError: the controller could not be started.
    """
    controller = find(name, controllers_dirs)
    declared(controller, parameters or {}, seed)  # fail early, not on the node
    payload: dict[str, Any] = {
        "name": controller.name,
        "parameters": dict(parameters or {}),
        "seed": seed,
        "interval_s": interval_s,
        "signal": signal,
    }
    check_settings(payload)
    if controller.outside:
        payload["code"] = pack(controller)
    result: Mapping[str, Any] = agent.call("control-start", payload, timeout_s=START_TIMEOUT_S)
    return result


def cautious(
    name: str,
    parameters: Mapping[str, object],
    *,
    act: bool,
    controllers_dirs: Sequence[Path] = (),
) -> dict[str, object]:
    """Return `parameters` of controller `name` for a person's command: a controller with a
    ``dry_run`` changes nothing unless `act` is True. A given ``dry_run`` stays.

    Raises:
        UserError: unknown controller or parameter.
    """
    _, known = declared(find(name, controllers_dirs), parameters)
    if "dry_run" not in known or "dry_run" in parameters:
        return dict(parameters)
    return {**parameters, "dry_run": not act}


def stop(agent: Agent, name: str | None = None) -> Mapping[str, Any]:
    """Stop the running controller; return {name, was_running, code, reason, steps, restored,
    healed}. Safe to repeat."""
    payload = {} if name is None else {"name": name}
    result: Mapping[str, Any] = agent.call("control-stop", payload, timeout_s=STOP_TIMEOUT_S)
    return result


def status(agent: Agent) -> Mapping[str, Any]:
    """Return {running, controllers: [{name, running, settings, last, outcome, leftover}]}."""
    result: Mapping[str, Any] = agent.call("control-status")
    return result


def journal_text(agent: Agent, name: str) -> str:
    """Return the journal of the controller's last (or present) run."""
    text, offset = "", 0
    while True:
        piece = agent.call("control-log", {"name": name, "offset": offset})
        text += str(piece["text"])
        if piece["offset"] == offset or piece["offset"] >= piece["size"]:
            return text
        offset = piece["offset"]


class StreamingAgent(Protocol):
    """An agent that streams, such as `testbed.client.AgentClient`."""

    def stream(self, verb: str, payload: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """Yield a streaming verb's answers as they come."""


def follow(
    agent: StreamingAgent, name: str, lost: Callable[[str], None]
) -> Iterator[Mapping[str, Any]]:
    """Yield the journal's lines as they come, until the controller has ended. After a broken
    connection, call `lost` with the reason and resume at the same place."""
    offset, rest = 0, ""
    while True:
        try:
            for piece in agent.stream("control-follow", {"name": name, "offset": offset}):
                offset = piece["offset"]
                *lines, rest = (rest + piece["text"]).split("\n")
                yield from map(json.loads, lines)
            return
        except RemoteError as error:
            if not error.retry:
                raise
            lost(str(error))
            time.sleep(AGAIN_S)


def fetch_journal(agent: Agent, name: str, path: Path) -> Path:
    """Write the journal to `path`; raise UserError if the file exists."""
    if path.exists():
        raise UserError(
            "exists: a journal is never overwritten", where=path, do="give another file"
        )
    write_file(path, journal_text(agent, name), exclusive=True)
    return path


def pack(controller: Controller) -> str:
    """Pack a controller's folder as a base64 tar; the same files give the same text."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(controller.folder.rglob("*")):
            relative = path.relative_to(controller.folder)
            skipped = path.suffix == ".pyc" or "__pycache__" in relative.parts
            hidden = relative.parts[0].startswith(".") and relative.name != FOREIGN
            if not path.is_file() or skipped or hidden:
                continue
            member = tarfile.TarInfo(f"{controller.folder.name}/{relative.as_posix()}")
            content = path.read_bytes()
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return base64.b64encode(buffer.getvalue()).decode()
