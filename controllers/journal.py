"""A controller's journal: what was sensed, decided and done, one JSON line a step.

The first line is a header (policy, parameters, seed, interval, needs, code hash, signal), then
one line a step, and a footer when the controller ended in an orderly way. Every line is on the
disk before the next step, so that a kill loses at most the line that was being written: a torn last
line is left out when reading.
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
    """Needs as sorted lists."""
    return {"senses": sorted(needs.senses), "acts": sorted(needs.acts)}


def needs_from_json(data: Mapping[str, Sequence[str]]) -> Needs:
    """The inverse of `needs_to_json`."""
    return Needs(frozenset(data["senses"]), frozenset(data["acts"]))


def canonical(value: object) -> object:
    """`value` as it comes back from JSON: tuples are lists, keys strings.

    Raises:
        ValueError, TypeError: it holds something that JSON cannot say, NaN included.
    """
    return json.loads(json.dumps(value, allow_nan=False))


class Json(str):
    """Text that is JSON already, from `encode`: a journal's line takes it as it is."""

    __slots__ = ()


def encode(value: object) -> Json:
    """`value` as it stands in a journal's line; a `Json` is left alone.

    Raises:
        ValueError, TypeError: it holds something that JSON cannot say, NaN included.
    """
    return value if isinstance(value, Json) else Json(_ENCODER.encode(value))


def joined(members: Mapping[str, object]) -> Json:
    """`encode` of a mapping whose values are encoded one by one."""
    each = [f"{encode(name)}:{encode(value)}" for name, value in members.items()]
    return Json("{" + ",".join(each) + "}")


@dataclass(frozen=True)
class Step:
    """One line. `observation` and the states are None where it did not come to them; who has the
    observation's JSON at hand gives that, as a large one takes longer to encode than to decide on.
    """

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
    """Appends to one file; use as a context manager or call `close`."""

    def __init__(self, path: Path, *, sync: bool = True) -> None:
        """Make the file.

        Args:
            path: the journal.
            sync: False in virtual time, where a lost journal is made again.

        Raises:
            UserError: the file exists: a journal is never overwritten.
            OSError: it cannot be made. Every method raises OSError when it cannot write its line.
        """
        make_folder(path.parent)
        try:
            self._handle: int | None = open_log(path, exclusive=True)
        except FileExistsError:
            raise UserError(f"journal {path} exists: a journal is never overwritten") from None
        self._path, self._sync = path, sync

    def header(self, **values: object) -> None:
        """The first line."""
        self._line({"schema": SCHEMA, "header": True, **values})

    def step(self, step: Step) -> None:
        """One step."""
        named = {member.name: getattr(step, member.name) for member in fields(step)}
        self._line({"schema": SCHEMA, **named})

    def footer(self, reason: str, restored: Sequence[Effect]) -> None:
        """The last line."""
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
    """Write the footer of a controller that died; a torn last line is removed.

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
    """An effect; numbers that JSON cannot say become null."""
    detail = {k: v if math.isfinite(v) else None for k, v in effect.detail.items()}
    return {
        "ok": effect.ok,
        "message": effect.message,
        "seconds": effect.seconds,
        "detail": detail,
    }


@dataclass(frozen=True)
class Journal:
    """A journal that was read. `torn` tells that the last line was cut off and left out."""

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
        raise UserError(f"journal {path} cannot be read: {error.strerror}") from None
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
        raise UserError(f"journal {where} has no header: it is no controller's journal")
    footer = parsed[-1] if parsed[-1].get("footer") else None
    steps = parsed[1 : len(parsed) - (footer is not None)]
    return Journal(header=parsed[0], steps=steps, footer=footer, torn=torn)
