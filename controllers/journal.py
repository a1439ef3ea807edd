"""Journal of a controller: what was sensed, decided and done, one JSON line per step.

The first line is a header (policy, parameters, seed, interval, needs, code hash, signal). Then
follow one line per step, and a footer if the controller ended in an orderly way. Every line is on
the disk before the next step, so a kill loses at most the line being written: a reader leaves out a
torn last line.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Any

from schemas.durable import append, append_line, make_folder, open_log
from schemas.errors import UserError
from testbed.stores.contract import Effect, Needs

SCHEMA = 1
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def needs_to_json(needs: Needs) -> dict[str, list[str]]:
    """Return needs as sorted lists."""
    return {"senses": sorted(needs.senses), "acts": sorted(needs.acts)}


def needs_from_json(data: Mapping[str, Sequence[str]]) -> Needs:
    """Return the needs that `needs_to_json` wrote."""
    return Needs(frozenset(data["senses"]), frozenset(data["acts"]))


def canonical(value: object) -> object:
    """Return `value` as it comes back from JSON: tuples are lists, keys strings.

    Raises:
        ValueError, TypeError: it holds something that JSON cannot represent, NaN included.
    """
    return json.loads(json.dumps(value, allow_nan=False))


class Json(str):
    """Text from `encode` that is JSON already; a journal line takes it unchanged."""

    __slots__ = ()


def encode(value: object) -> Json:
    """Return `value` as JSON for a journal line; a `Json` is left alone.

    Raises:
        ValueError, TypeError: it holds something that JSON cannot represent, NaN included.
    """
    return value if isinstance(value, Json) else Json(_ENCODER.encode(value))


def joined(members: Mapping[str, object]) -> Json:
    """Return `encode` of a mapping, with each value encoded separately."""
    each = [f"{encode(name)}:{encode(value)}" for name, value in members.items()]
    return Json("{" + ",".join(each) + "}")


@dataclass(frozen=True)
class JournalStep:
    """One journal line. `observation` and the states are None if the step ended before them. A
    caller may pass the observation's JSON: a large one takes longer to encode than to decide on."""

    step: int
    t_s: float
    wall: float
    observation: Mapping[str, Any] | Json | None = None
    state_before: Mapping[str, Any] | None = None
    state_after: Mapping[str, Any] | None = None
    actions: Sequence[Mapping[str, Any]] = ()
    effects: Sequence[Mapping[str, Any]] = ()
    sense_s: float | None = None
    decide_s: float | None = None
    act_s: float | None = None
    error: str | None = None


class JournalWriter:
    """Writer that appends to one file; use as a context manager or call `close`."""

    def __init__(self, path: Path, *, sync: bool = True) -> None:
        """Create the file.

        Args:
            path: the journal.
            sync: False in virtual time, where a lost journal is made again.

        Raises:
            UserError: the file exists: a journal is never overwritten.
            OSError: it cannot be created. Every method raises OSError if it cannot write its line.
        """
        make_folder(path.parent)
        try:
            self._handle: int | None = open_log(path, exclusive=True)
        except FileExistsError:
            raise UserError(
                "exists: a journal is never overwritten", where=f"journal {path}"
            ) from None
        self._path, self._sync = path, sync

    def header(self, **values: object) -> None:
        """Write the first line."""
        self._line({"schema": SCHEMA, "header": True, **values})

    def step(self, step: JournalStep) -> None:
        """Write one step."""
        named = {member.name: getattr(step, member.name) for member in fields(step)}
        self._line({"schema": SCHEMA, **named})

    def footer(self, reason: str, restored: Sequence[Effect]) -> None:
        """Write the last line."""
        self._line(_footer(reason, restored))

    def _line(self, data: Mapping[str, object]) -> None:
        assert self._handle is not None, "the journal is closed"
        append(self._handle, f"{joined(data)}\n".encode(), self._path, sync=self._sync)

    def close(self) -> None:
        """Close the file."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def end_journal(path: Path, reason: str, restored: Sequence[Effect]) -> int | None:
    """Write the footer of a controller that died, after removing a torn last line.

    Returns:
        The number of steps in the journal; None if it has a footer already.

    Raises:
        UserError, OSError: the journal is damaged, or cannot be read or written.
    """
    text = path.read_bytes()
    whole = text.rfind(b"\n") + 1
    journal = parse_journal(text[:whole].decode(errors="replace"), str(path))
    if journal.footer is not None:
        return None
    os.truncate(path, whole)
    append_line(path, f"{joined(_footer(reason, restored))}\n".encode())
    return len(journal.steps)


def _footer(reason: str, restored: Sequence[Effect]) -> dict[str, object]:
    effects = [effect_to_json(effect) for effect in restored]
    return {"schema": SCHEMA, "footer": True, "reason": reason, "restored": effects}


def effect_to_json(effect: Effect) -> dict[str, Any]:
    """Return an effect as JSON-able data; numbers that JSON cannot represent become null."""
    detail = {k: v if math.isfinite(v) else None for k, v in effect.detail.items()}
    return {
        "ok": effect.ok,
        "message": effect.message,
        "seconds": effect.seconds,
        "detail": detail,
    }


@dataclass(frozen=True)
class Journal:
    """Journal that was read. `torn` is True if the last line was cut off and left out."""

    header: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]] = ()
    footer: Mapping[str, Any] | None = None
    torn: bool = field(default=False)


def read_journal(path: Path) -> Journal:
    """Read a journal file.

    Raises:
        UserError: missing, not a journal, or damaged elsewhere than in its last line.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=f"journal {path}") from None
    return parse_journal(text, str(path))


def parse_journal(text: str, where: str) -> Journal:
    """Parse a journal's text; `where` names it in errors."""
    lines = text.split("\n")
    torn = lines.pop() != ""
    parsed: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            data = json.loads(line)
        except ValueError:
            raise UserError(f"journal {where} line {number} is not JSON: it is damaged") from None
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise UserError(f"journal {where} line {number} is not of schema {SCHEMA}")
        parsed.append(data)
    if not parsed or not parsed[0].get("header"):
        raise UserError("has no header: it is no controller's journal", where=f"journal {where}")
    footer = parsed[-1] if parsed[-1].get("footer") else None
    steps = parsed[1 : len(parsed) - (footer is not None)]
    return Journal(header=parsed[0], steps=steps, footer=footer, torn=torn)


def controller_summary(journal: Journal) -> dict[str, float]:
    """Return the numbers of steps, actions and failures, mean and maximum seconds of a step, and
    ``stall_s``: mean seconds in which PGs were peering after a change."""
    steps = journal.steps
    effects = [effect for step in steps for effect in step["effects"]]
    summary = {
        "steps": float(len(steps)),
        "actions": float(sum(len(step["actions"]) for step in steps)),
        "failed_actions": float(sum(not effect["ok"] for effect in effects)),
        "failed_steps": float(sum(step["error"] is not None for step in steps)),
    }
    for name in ("sense_s", "decide_s", "act_s"):
        values = [float(step[name]) for step in steps if step[name] is not None]
        if values:
            summary[name] = math.fsum(values) / len(values)
            summary[f"{name}_max"] = max(values)
    details = [effect["detail"] for effect in effects]
    stalls = [one[n] for one in details for n in ("stall_s", "previous_stall_s") if n in one]
    if stalls := [float(stall) for stall in stalls if stall is not None]:
        summary["stall_s"] = math.fsum(stalls) / len(stalls)
    for name in ("weights_changed", "bytes_moved"):
        known = [effect["detail"][name] for effect in effects if name in effect["detail"]]
        if known:
            summary[name] = float(sum(value or 0.0 for value in known))
    return summary
