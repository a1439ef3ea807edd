"""A non-decreasing piecewise linear function of one amount, from a table of breakpoints."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from controllers.common.numbers import finite
from schemas.errors import UserError

Point = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """Breakpoints (amount, value). Amounts rise from 0, values never fall.

    Between breakpoints the value is linear. Beyond the last breakpoint the value stays constant, as
    no measurement promises more.
    """

    points: tuple[Point, ...]

    def value(self, amount: float) -> float:
        """Return the value at `amount`; for 0 or less, the first breakpoint's."""
        points = self.points
        at = bisect_right(points, (amount, math.inf))
        if at == 0:
            return points[0][1]
        if at == len(points):
            return points[-1][1]
        (x0, y0), (x1, y1) = points[at - 1], points[at]
        return y0 + (y1 - y0) * (amount - x0) / (x1 - x0)

    def inverse(self, value: float) -> float:
        """Return the smallest amount with at least `value`; infinite if no amount has it."""
        points = self.points
        if value <= points[0][1]:
            return points[0][0]
        if value > points[-1][1]:
            return math.inf
        at = bisect_left(points, value, key=lambda point: point[1])
        (x0, y0), (x1, y1) = points[at - 1], points[at]
        return x0 + (x1 - x0) * (value - y0) / (y1 - y0)

    @property
    def most(self) -> float:
        """The largest value."""
        return self.points[-1][1]

    def times(self, factor: float) -> Curve:
        """Return the curve with `factor` times the values at the same amounts."""
        return Curve(tuple((x, y * factor) for x, y in self.points))

    @property
    def concave(self) -> bool:
        """True if every further unit adds no more than the unit before (diminishing returns)."""
        slopes = [(y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in pairwise(self.points)]
        return all(after <= before * (1 + 1e-12) for before, after in pairwise(slopes))


NOTHING_GAINED = Curve(((0.0, 0.0),))
"""Curve of a resource that is absent: disks of a class that was not measured."""


def curve_from_json(data: object, where: str) -> Curve:
    """Read a curve from a list of [amount, value].

    Raises:
        UserError: not such a list, or it does not begin at 0, rise, and stay or rise. The message
            names `where`.
    """
    if not isinstance(data, Sequence) or isinstance(data, (str, bytes)) or not data:
        raise UserError(f"{where}: must be a list of [amount, requests a second], not {data!r}")
    points: list[Point] = []
    for item in data:
        pair = list(item) if isinstance(item, Sequence) and not isinstance(item, str) else []
        if len(pair) != 2 or not all(finite(value) and value >= 0 for value in pair):
            raise UserError(f"{where}: {item!r} is no breakpoint; it must be two numbers from 0")
        points.append((float(pair[0]), float(pair[1])))
    if points[0][0] != 0:
        raise UserError(f"{where}: the first breakpoint is at {points[0][0]:g}; it must be at 0")
    for (x0, y0), (x1, y1) in pairwise(points):
        if x1 <= x0:
            raise UserError(f"{where}: amounts must rise, but {x1:g} follows {x0:g}")
        if y1 < y0:
            raise UserError(
                f"{where}: {y1:g} requests a second at {x1:g} is less than {y0:g} at {x0:g}; more "
                "of a resource must never cost throughput, so smooth what was measured"
            )
    return Curve(tuple(points))
