"""Faults and loads that a person makes on a testbed: their record.

`faults.json` in the testbed's folder holds the faults in force. It is written before a fault is
made, so that every fault can be undone after any crash. `faults.jsonl` has a line with both times
for each fault that has ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from schemas.errors import UserError

if TYPE_CHECKING:
    from testbed.sites.contract import Testbed

RECORD, LOG = "faults.json", "faults.jsonl"
FaultKind = Literal["link", "disk", "osd", "mon", "node", "load"]


@dataclass(frozen=True)
class Fault:
    """A fault, or a load by hand, on a node. `settings`: for a link ``cut``, ``rate`` (bits/s),
    ``delay`` (s) and ``loss`` (0 to 1); for a disk ``slow`` (a factor) and ``error``; for a load
    ``load`` (hotspot or background) and ``share`` (of the disk's reads a second). Times are
    seconds since the epoch; `until_s` None lasts until it is cleared."""

    kind: FaultKind
    node: str
    settings: Mapping[str, float | bool | str]
    since_s: float
    until_s: float | None = None

    def what(self) -> str:
        """Return the fault in words, without its times."""
        whose = "node" if self.kind == "node" else f"{_WORDS[self.kind]} of node"
        return f"{whose} {self.node} {self._how()}"

    def _how(self) -> str:
        from testbed.spec.quantities import format_si  # here: `--help` needs no pydantic

        given = self.settings
        if self.kind == "link":
            shown = {
                "rate": lambda rate: f"a rate of {format_si(rate, 'bit/s')}",
                "delay": lambda delay: f"a delay of {format_si(delay, 's')}",
                "loss": lambda loss: f"a loss of {loss:.3g} of its packets",
            }
            parts = [words(given[name]) for name, words in shown.items() if name in given]
            return "is cut" if given.get("cut") else f"has {' and '.join(parts)}"
        if self.kind == "disk":
            slow = f"is {given['slow']:g} times as slow" if "slow" in given else ""
            error = "fails every request" if given.get("error") else ""
            return " and ".join(filter(None, (slow, error)))
        if self.kind == "load":
            share = f" of {given['share']:.0%}" if "share" in given else ""
            return f"reads for a {given['load']} load{share}"
        return "is stopped" if self.kind == "node" else "is killed"

    def sentence(self, now_s: float | None = None) -> str:
        """Return the fault with its times, for people."""
        said = f"{self.what()} since {_clock(self.since_s)}"
        if self.until_s is None:
            return said
        over = (time.time() if now_s is None else now_s) >= self.until_s
        return f"{said}, {'overdue' if over else 'until'} {_clock(self.until_s)}"

    def as_json(self) -> dict[str, Any]:
        """Return the fields and the sentence."""
        return {
            "kind": self.kind,
            "node": self.node,
            "settings": dict(self.settings),
            "since_s": self.since_s,
            "until_s": self.until_s,
            "sentence": self.sentence(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Fault:
        """Return the fault of `as_json`. KeyError, TypeError: it is something else."""
        until_s = data["until_s"]
        return cls(
            data["kind"],
            str(data["node"]),
            dict(data["settings"]),
            float(data["since_s"]),
            None if until_s is None else float(until_s),
        )


_WORDS: Mapping[FaultKind, str] = {
    "link": "the link",
    "disk": "the disk",
    "osd": "the OSD",
    "mon": "the monitor",
    "load": "the disk",
}


def _clock(at_s: float) -> str:
    return time.strftime("%H:%M:%S UTC", time.gmtime(at_s))


def faults_in_force(testbed: Testbed) -> list[Fault]:
    """Return the faults and loads by hand that are in force, oldest first; overdue ones too. No
    node is asked. UserError: the record cannot be read."""
    return in_force(testbed.directory)


def in_force(folder: Path) -> list[Fault]:
    """Return `faults_in_force` of the testbed with this folder."""
    return [Fault.from_json(entry["fault"]) for entry in _entries(folder)]


def _entries(folder: Path) -> Sequence[Mapping[str, Any]]:
    try:
        entries: Sequence[Mapping[str, Any]] = json.loads((folder / RECORD).read_text())["faults"]
        for entry in entries:
            Fault.from_json(entry["fault"])
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"cannot be read ({error})",
            where=folder / RECORD,
            do="remove it, and repair the testbed with `hotbed up SPEC`",
        ) from error
    return entries
