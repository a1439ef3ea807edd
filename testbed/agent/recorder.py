"""Recorder of the testbed during a run: one JSON line per second on the admin node.

It runs as the transient unit ``hotbed-recorder``: it outlives the ssh call that starts it and ends
after its time at the latest. A line is {"wall", "values": {node: {metric: value}}, "lost": {node:
why}}; the metrics are those of `testbed.agent.sampler`.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from schemas.durable import json_lines
from schemas.errors import RemoteError, UserError, not_allowed
from testbed.agent import units
from testbed.agent.contract import STATE, UNIT_PREFIX, AgentConfig, load_config
from testbed.agent.sampler import NodeSample, open_sampler

FOLDER = Path(STATE) / "recordings"
UNIT = f"{UNIT_PREFIX}recorder.service"
INTERVAL_S = 1.0
_STARTED_S = 20.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DIGITS = 5  # significant digits: the counters are no more precise, and the files stay small


def line_of(sample: NodeSample) -> str:
    """Return a sample as a JSON line."""
    values = {
        node: {metric: float(f"{value:.{_DIGITS}g}") for metric, value in metrics.items()}
        for node, metrics in sample.values.items()
    }
    line = {"wall": round(sample.wall, 3), "values": values, "lost": dict(sample.lost)}
    return json.dumps(line, separators=(",", ":")) + "\n"


def samples_of(text: str) -> list[dict[str, Any]]:
    """Return the complete lines of a recording; a truncated line is left out."""
    return list(json_lines(text))


def record(
    take: Callable[[], NodeSample],
    path: Path,
    ended: threading.Event,
    *,
    interval_s: float = INTERVAL_S,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Append a sample every `interval_s` until `ended`; return the number of samples.

    A slow sample delays the next ones; it never causes a burst.
    """
    count, due = 0, clock()
    with path.open("a", buffering=1) as file:
        while True:
            due = max(due + interval_s, clock())
            if ended.wait(max(0.0, due - clock())):
                return count
            file.write(line_of(take()))
            count += 1


def start(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, str]:
    """Start a recorder: {name, max_s, interval_s?: 1} -> {path}; return when it is sampling.

    A running recorder is stopped first. Raises UserError if the recording `name` exists.
    """
    name = _name(payload)
    max_s = float(payload.get("max_s", 0.0))
    if max_s <= 0:
        raise UserError(
            "the payload needs max_s, a positive number of seconds", where="recorder-start"
        )
    path = FOLDER / f"{name}.jsonl"
    if path.exists():
        raise UserError(
            "exists: a recording is never overwritten", where=path, do="give another name"
        )
    stop(config, {})
    FOLDER.mkdir(parents=True, exist_ok=True)
    interval_s = float(payload.get("interval_s", INTERVAL_S))
    program = ("testbed.agent.recorder", name, f"{interval_s:g}")
    units.start_module(config, UNIT, *program, about="recorder", max_s=max_s, stop_s=5)
    deadline = time.monotonic() + _STARTED_S
    while not path.exists():
        if not units.active(UNIT) or time.monotonic() > deadline:
            raise RemoteError(
                "the recorder did not start; `journalctl -u hotbed-recorder` on the admin node "
                "says why."
            )
        time.sleep(0.05)
    return {"path": str(path)}


def stop(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, bool]:
    """Stop the recorder: {} -> {stopped}; safe to repeat."""
    return {"stopped": units.end(UNIT)}


def fetch(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the lines: {name, forget?: false} -> {samples: [...]}; `forget` deletes them."""
    name = _name(payload)
    path = FOLDER / f"{name}.jsonl"
    try:
        samples = samples_of(path.read_text())
    except FileNotFoundError as error:
        raise UserError(f"there is no recording {name!r} on the admin node") from error
    if payload.get("forget", False):
        path.unlink()
    return {"samples": samples}


def _name(payload: Mapping[str, Any]) -> str:
    name = payload.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise not_allowed("a recording's name", name, "letters, digits, '.', '_' and '-'")
    return name


def main(arguments: list[str]) -> int:
    """Record until a signal; arguments are ``NAME INTERVAL``."""
    name, interval_s = arguments
    ended = units.until_signal()
    sampler = open_sampler(load_config())
    try:
        record(sampler.sample, FOLDER / f"{name}.jsonl", ended, interval_s=float(interval_s))
    finally:
        sampler.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
