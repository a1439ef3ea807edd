"""Differences between two pieces of data: numbers by value, everything else literally."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

BAR = "bar"
"""Key of a bar's position and size in `analysis.core.style.describe`."""
TOLERANCE = 1e-9
"""Relative. The same runs give the same numbers; the arithmetic of another processor may round the
last digits differently."""


@dataclass(frozen=True)
class Difference:
    """One place in which two values differ; `bundled` and `derived` as short texts."""

    file: str
    where: str
    bundled: str
    derived: str


def differences(
    file: str, bundled: Any, derived: Any, *, scale: float | Sequence[float] = 0.0, where: str = ""
) -> Iterator[Difference]:
    """Yield every difference between two values of JSON types.

    Args:
        file: file that holds the values.
        bundled: the value from the bundle.
        derived: the value derived again.
        scale: numbers closer than `TOLERANCE` times `scale` are the same (around zero, a relative
            tolerance means nothing). A list of numbers uses its largest number; rows use one scale
            per column, because small numbers may be next to large ones.
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
                pair = bundled[key], derived[key]
                room = _sides(pair) if key == BAR else scale
                yield from differences(file, *pair, scale=room, where=place)
    elif _is_list(bundled) and _is_list(derived):
        if len(bundled) != len(derived):
            yield Difference(file, where, f"{len(bundled)} entries", f"{len(derived)} entries")
            return
        both = [*bundled, *derived]
        scales: Sequence[Any]
        if both and all(map(_is_list, both)):
            scales = [_columns(both)] * len(bundled)
        elif isinstance(scale, Sequence):
            scales = [*scale, *[0.0] * len(bundled)]
        else:
            scales = [max(scale, _largest(both))] * len(bundled)
        for index, pair in enumerate(zip(bundled, derived, strict=True)):
            yield from differences(file, *pair, scale=scales[index], where=f"{where}[{index}]")
    elif not same(bundled, derived, scale if isinstance(scale, (int, float)) else 0.0):
        yield Difference(file, where, _text(bundled), _text(derived))


def _largest(values: Iterable[Any]) -> float:
    return max([0.0, *(abs(float(one)) for one in values if _is_number(one))])


def _columns(rows: Sequence[Sequence[Any]]) -> list[float]:
    return [_largest(column) for column in zip_longest(*rows)]


def _sides(bars: Iterable[Any]) -> list[float]:
    """Return the largest width and height of a pair of bars (x, y, width, height)."""
    columns = _columns([bar for bar in bars if _is_list(bar)])
    return [max(columns[side::2]) for side in (0, 1)] * 2 if len(columns) == 4 else columns


def same(one: Any, other: Any, scale: float = 0.0) -> bool:
    """Return True if two single values are the same; numbers within `TOLERANCE`."""
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
    return text if len(text) <= 60 else text[:57] + "..."
