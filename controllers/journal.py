"""Journal of a controller: what was sensed, decided and done, one JSON line per step.

The first line is a header (policy, parameters, seed, interval, needs, code hash, signal). Then
follow one line per step, and a footer if the controller ended in an orderly way. Every line is on
the disk before the next step, so a kill loses at most the line being written: a reader leaves out a
torn last line.
"""

from __future__ import annotations

import collections
import io
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any

from schemas.durable import append, append_line, make_folder, open_log
from schemas.errors import UserError
from testbed.stores.contract import REWEIGHT_BY_UTILIZATION, Effect, Needs

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

    def __exit__(self, *_: object) -> None:
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


class Journal:
    """Journal, read line by line. Iterating yields every step and reads further ones as needed;
    `steps` holds those that were read, as `kept` returned them. `footer` is None if the controller
    did not end in an orderly way. `torn` is True if the last line was cut off and left out."""

    def __init__(
        self,
        lines: Iterable[str],
        where: object,
        kept: Callable[[dict[str, Any]], Mapping[str, Any]] = dict,
    ) -> None:
        """Read the header. UserError, also by iterating: `where` is no journal or is damaged."""
        self.steps: list[Mapping[str, Any]] = []
        self.footer: Mapping[str, Any] | None = None
        self.torn = False
        self._kept, self._where = kept, f"journal {where}"
        self._further = self._parsed(lines)
        self.header: Mapping[str, Any] = next(self._further, {})
        if not self.header.get("header"):
            raise UserError("has no header: it is no controller's journal", where=self._where)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        yield from self.steps
        for data in self._further:
            if data.get("footer"):
                self.footer = data
            else:
                self.steps.append(self._kept(data))
                yield data

    def whole(self) -> Journal:
        """Read all further steps; return the journal."""
        collections.deque(self, maxlen=0)
        return self

    def _parsed(self, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
        for number, line in enumerate(lines, start=1):
            if not line.endswith("\n"):
                self.torn = True
                return
            try:
                data = json.loads(line)
            except ValueError:
                raise UserError(f"{self._where} line {number} is not JSON: it is damaged") from None
            if not isinstance(data, dict) or data.get("schema") != SCHEMA:
                raise UserError(f"{self._where} line {number} is not of schema {SCHEMA}")
            yield data


def read_journal(path: Path) -> Journal:
    """Read a journal file. UserError: missing, not a journal, or damaged before its last line."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return Journal(lines, path).whole()
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=f"journal {path}") from None


def parse_journal(text: str, where: str) -> Journal:
    """Parse a journal's text; `where` names it in errors."""
    return Journal(io.StringIO(text), where).whole()


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


def is_inert(journal: Journal) -> bool | None:
    """Return True if a controller that reweights has changed no weight. Return None for others: no
    reason to act is their answer, and excluding such runs would flatter them."""
    if REWEIGHT_BY_UTILIZATION not in journal.header["needs"]["acts"]:
        return None
    return controller_summary(journal).get("weights_changed", 0.0) == 0.0


def decided(journal: Journal) -> dict[str, float]:
    """Return all decisions of `ursa`, `nearest` and `htoc`, and their prediction errors; empty for
    others. `decided_s` is the time of the first decision on the controller's clock."""
    states = [step["state_after"] for step in journal.steps if step["state_after"]]
    kept = (state["decision"] for state in states if state.get("decision"))
    decisions = [decision for decision, _ in groupby(kept)]
    checks = [float(state["check"]["worst"] or 0.0) for state in states if state.get("check")]
    if not decisions:
        return {}
    found = {
        "decisions": float(len(decisions)),
        "decided_s": float(decisions[0]["t_s"]),
        "hot": float(len(decisions[0]["hot"])),
        "still_hot": float(len(decisions[-1]["still_hot"])),
        "swaps": float(sum(len(decision["swaps"]) for decision in decisions)),
        "moves": float(sum(len(decision["moves"]) for decision in decisions)),
        "first_moves": float(len(decisions[0]["moves"])),
        "cost": float(sum(decision["cost"] for decision in decisions)),
        "first_cost": float(decisions[0]["cost"]),
    }
    if decisions[0]["lower_bound"] is not None:
        found["first_lower_bound"] = float(decisions[0]["lower_bound"])
    if checks:
        found["prediction_off"] = max(checks)
    return found | _recovered(journal)


def _recovered(journal: Journal) -> dict[str, float]:
    """Return the times of the last moving PG and of the last action, on the same clock."""
    acted = [float(step["t_s"]) for step in journal.steps if step["actions"]]
    if not acted:
        return {}
    busy = [
        float(step["t_s"])
        for step in journal.steps
        if step["t_s"] >= acted[0]
        and ((step["observation"] or {}).get("activity") or {}).get("unclean")
    ]
    return {"acted_s": acted[-1], "moving_until_s": max([*busy, acted[-1]])}
