"""Where two pieces of data differ, in words: numbers by value, everything else as it stands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TOLERANCE = 1e-9
"""Relative. The same runs give the same numbers; another processor's arithmetic may round
otherwise in the last digits."""


@dataclass(frozen=True)
class Difference:
    """One place in which two things differ; `bundled` and `derived` as short texts."""

    file: str
    where: str
    bundled: str
    derived: str


def differences(
    file: str, bundled: Any, derived: Any, *, scale: float = 0.0, where: str = ""
) -> Iterator[Difference]:
    """Every difference between two values of JSON types.

    Args:
        file: what they are of.
        bundled: one of them.
        derived: the other.
        scale: numbers closer than `TOLERANCE` times it are the same (around zero, a relative
            tolerance means nothing); it grows with the numbers of a list.
        where: place within the file.
    """
    if isinstance(bundled, Mapping) and isinstance(derived, Mapping):
        for key in [*bundled, *(key for key in derived if key not in bundled)]:
            place = f"{where}.{key}" if where else str(key)
            if key not in bundled or key not in derived:
                left = _text(bundled[key]) if key in bundled else "missing"
                right = _text(derived[key]) if key in derived else "missing"
                yield Difference(file, place, left, right)
            else:
                yield from differences(file, bundled[key], derived[key], scale=scale, where=place)
    elif _is_list(bundled) and _is_list(derived):
        if len(bundled) != len(derived):
            yield Difference(file, where, f"{len(bundled)} entries", f"{len(derived)} entries")
            return
        scale = max([scale, *(abs(one) for one in (*bundled, *derived) if _is_number(one))])
        for index, pair in enumerate(zip(bundled, derived, strict=True)):
            yield from differences(file, *pair, scale=scale, where=f"{where}[{index}]")
    elif not same(bundled, derived, scale):
        yield Difference(file, where, _text(bundled), _text(derived))


def same(one: Any, other: Any, scale: float = 0.0) -> bool:
    """Whether two single values are the same; numbers within `TOLERANCE`."""
    if _is_number(one) and _is_number(other):
        room = TOLERANCE * max(abs(one), abs(other), scale)
        both_nan = math.isnan(one) and math.isnan(other)
        return bool(one == other or abs(one - other) <= room or both_nan)
    return type(one) is type(other) and bool(one == other)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isinf(value)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _text(value: object) -> str:
    text = repr(value) if isinstance(value, float) else str(value)
    if not text.isprintable():  # a stranger's text must not speak to the terminal
        text = "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
    return text if len(text) <= 60 else text[:57] + "..."
