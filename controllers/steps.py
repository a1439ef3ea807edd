"""Agent verb for the steps of running controllers, read from the ends of their journals.

A look reads only the lines that a journal has got since the previous look. It is so cheap that a
live view can look every second.
"""

from __future__ import annotations

import io
import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from controllers.control import UNIT
from controllers.service import FOLDERS, JOURNAL, OUTCOME
from testbed.agent.contract import AgentConfig

_TAIL_BYTES = 1 << 20
_ASK_S = 5.0  # a call of systemctl takes 10 ms of processor time
_SPANS = ("sense_s", "decide_s", "act_s")
_SHOWN = 8


def is_running(name: str) -> bool:
    """Return True if systemd runs the controller."""
    call = ["systemctl", "is-active", "--quiet", f"{UNIT}{name}.service"]
    try:
        return subprocess.run(call, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def action_words(actions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return affinities one by one, at most eight, and the counts of all other actions."""
    words, counts = list[str](), Counter[str]()
    for action in actions:
        if action["action"] == "SetPrimaryAffinity" and len(words) < _SHOWN:
            words.append(f"osd.{action['osd']}={action['value']:.2f}")
        else:
            counts[action["action"]] += 1
    return words + [f"{count} {name}" for name, count in counts.items()]


class _Tail:
    """Last steps of one journal, and sums since the first look."""

    def __init__(self, path: Path) -> None:
        self._path, self._inode, self._offset = path, 0, 0
        self.seen: dict[str, Any] = {}

    def look(self) -> dict[str, Any]:
        """Read what is new; return the last step, {} before the first one."""
        try:
            with self._path.open("rb") as file:
                self._read(file)
        except OSError:
            return {}
        return self.seen

    def _read(self, file: io.BufferedReader) -> None:
        inode, size = self._path.stat().st_ino, file.seek(0, io.SEEK_END)
        if inode != self._inode:  # another run of the controller
            self._inode, self.seen = inode, {}
            self._offset = max(0, size - _TAIL_BYTES)
        file.seek(self._offset)
        data = file.read()
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        for line in data[:whole].splitlines():
            try:
                self._step(json.loads(line))
            except (ValueError, KeyError, TypeError):
                continue  # the first line may be a part of one

    def _step(self, line: Mapping[str, Any]) -> None:
        if "step" not in line:
            return
        words = action_words(line["actions"])
        step = {"step": line["step"], "at": line["wall"], "actions": words}
        acted = step if words else self.seen.get("acted")
        count = self.seen.get("actions_seen", 0) + len(line["actions"])
        spans = {name: line[name] for name in _SPANS}
        self.seen = step | spans | {"error": line["error"], "acted": acted, "actions_seen": count}


class RunningSteps:
    """Reader of the running controllers' steps under `folders`."""

    def __init__(
        self,
        folders: Path = FOLDERS,
        runs: Callable[[str], bool] = is_running,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folders, self._runs, self._ticks = folders, runs, ticks
        self._tails: dict[str, _Tail] = {}
        self._known: dict[str, tuple[float, bool]] = {}

    def look(self) -> dict[str, Any]:
        """Return by running controller its last step: {step, at, actions, sense_s, decide_s, act_s,
        error, acted, actions_seen}; {} before the first one.

        `at` is the time (epoch), `actions` are words, `acted` is the last step that did something
        (or null), and `actions_seen` counts the actions since about the first look.
        """
        found = {}
        for path in sorted(self._folders.glob(f"*/{JOURNAL}")):
            name = path.parent.name
            if not path.with_name(OUTCOME).exists() and self._running(name):
                found[name] = self._tails.setdefault(name, _Tail(path)).look()
        return found

    def _running(self, name: str) -> bool:
        asked, answer = self._known.get(name, (-_ASK_S, False))
        if self._ticks() >= asked + _ASK_S:
            asked, answer = self._ticks(), self._runs(name)
            self._known[name] = (asked, answer)
        return answer


def steps(config: AgentConfig, payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Stream {interval_s?: 1} -> the steps of the running controllers; see `RunningSteps.look`."""
    reader = RunningSteps()
    while True:
        yield reader.look()
        time.sleep(float(payload.get("interval_s", 1.0)))
