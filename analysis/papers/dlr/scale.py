"""Gain over default Ceph along an axis (number of OSDs, share of hot nodes, time between moves of
the hotspots), and its end: where the lower end of its 95 % interval crosses zero.

Between two measured points of an axis, the lower end is taken to be straight over the axis's
logarithm. The interpolation places a crossing; it adds no evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.core.figures import Table
from analysis.core.stats import Estimate
from analysis.papers.dlr.compare import STANDARD, compare, metric_of
from analysis.papers.dlr.scale_variants import told, usual

BASELINE = "default"


@dataclass(frozen=True)
class Axis:
    """One axis: its column of `analysis.core.load.table`, the scenario in which it is varied, the
    format of its values, and the columns that are constant along a curve."""

    id: str
    column: str
    scenario: str
    name: str
    write: Callable[[float], str]
    fixed: tuple[str, ...]


def _osds(value: float) -> str:
    return f"{value:,.0f}"


def _share(value: float) -> str:
    return f"{100 * value:.2g} %"


def _seconds(value: float) -> str:
    return f"{value:.3g} s"


OSDS = Axis("osds", "osds", "heterogeneity", "OSDs", _osds, ("hot_share", "duration_s"))
HOT = Axis("hot", "hot_share", "heterogeneity", "share of hot nodes", _share, ("osds",))
MOVE = Axis(
    "move", "move_every_s", "interference", "hotspots move every", _seconds, ("osds", "hot_share")
)
AXES = (OSDS, HOT, MOVE)


@dataclass(frozen=True)
class Point:
    """The gain at one place of an axis: a share, with its interval over blocks."""

    x: float
    gain: Estimate


@dataclass(frozen=True)
class Stretch:
    """A part of an axis. `from_start`, `to_end`: it begins or ends where the runs do."""

    low: float
    high: float
    from_start: bool
    to_end: bool


@dataclass(frozen=True)
class Curve:
    """One controller along an axis: `points` by x; without points it was inert in every run.
    `parameters`: the non-default parameters, for people."""

    axis: Axis
    op: str
    osds: float | None
    hot_share: float | None
    controller: str
    points: tuple[Point, ...]
    parameters: str = "–"

    @property
    def helps(self) -> tuple[Stretch, ...]:
        """Stretches where the interval is above zero."""
        return stretches([(point.x, point.gain.low) for point in self.points])

    @property
    def harms(self) -> tuple[Stretch, ...]:
        """Stretches where the interval is below zero."""
        return stretches([(point.x, -point.gain.high) for point in self.points])


def stretches(ends: Sequence[tuple[float, float]]) -> tuple[Stretch, ...]:
    """Return the parts of an axis where a value is above zero.

    Args:
        ends: (x, value) by x, x above zero; NaN (no interval) counts as not above.
    """
    found: list[Stretch] = []
    start: float | None = None
    previous: tuple[float, float] | None = None
    for x, value in ends:
        above = value > 0
        if above and start is None:
            start = x if previous is None else _crossing(previous, (x, value))
        elif not above and start is not None:
            assert previous is not None
            end = _crossing(previous, (x, value))
            found.append(Stretch(start, end, start == ends[0][0], to_end=False))
            start = None
        previous = (x, value)
    if start is not None:
        found.append(Stretch(start, ends[-1][0], start == ends[0][0], to_end=True))
    return tuple(found)


def _crossing(first: tuple[float, float], second: tuple[float, float]) -> float:
    """Return where the line between two points, over the logarithm of x, is zero. If one end is
    unknown, return the point above zero, because nothing is shown beyond it."""
    (x0, y0), (x1, y1) = first, second
    if math.isnan(y0):
        return x1
    if math.isnan(y1):
        return x0
    share = y0 / (y0 - y1)
    return math.exp(math.log(x0) + share * (math.log(x1) - math.log(x0)))


def curves(table: pd.DataFrame, axis: Axis) -> list[Curve]:
    """Return every controller's gain along `axis`, by op and by the constant columns. If an axis
    was run in several settings (such as durations), the setting with the most values counts."""
    rows = table[table["scenario"] == axis.scenario]
    for name in ("object_size", "signal"):
        rows = rows[rows[name] == STANDARD[name]]
    rows = usual(rows)
    found: list[Curve] = []
    for setting, here in _settings(rows, axis):
        names = [str(name) for name in here["controller"].unique() if name != BASELINE]
        for name in sorted(names):
            points = _points(here, axis, name)
            its = here[here["controller"] == name]
            if its[axis.column].nunique() < 2:
                continue  # a cell shared with another figure
            if points or bool(its["inert"].all()):
                found.append(
                    Curve(
                        axis,
                        str(setting["op"]),
                        None if axis is OSDS else float(setting["osds"]),
                        None if axis is HOT else float(setting["hot_share"]),
                        name,
                        points,
                        told(its),
                    )
                )
    return found


def _settings(rows: pd.DataFrame, axis: Axis) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield the constants of a curve and its runs, only if the axis has several values."""
    if rows.empty:
        return
    if axis is OSDS:  # one curve per op: the share of hot nodes with the most sizes
        rows = pd.concat([_widest(part, axis) for _, part in rows.groupby("op")])
    keys = ["op", *(name for name in axis.fixed if name != "duration_s")]
    for values, part in rows.groupby(keys):
        if part[axis.column].nunique() > 1:
            yield dict(zip(keys, values, strict=True)), _longest(part, axis)


def _widest(rows: pd.DataFrame, axis: Axis) -> pd.DataFrame:
    groups = [part for _, part in rows.groupby(list(axis.fixed))]
    return max(groups, key=lambda part: (part[axis.column].nunique(), len(part)))


def _longest(rows: pd.DataFrame, axis: Axis) -> pd.DataFrame:
    """Return the runs of the longest duration at each value of the axis."""
    most = rows.groupby(axis.column)["duration_s"].transform("max")
    return rows[rows["duration_s"] == most]


def _points(rows: pd.DataFrame, axis: Axis, controller: str) -> tuple[Point, ...]:
    active = rows[~rows["inert"].astype(bool)]
    metric = metric_of(str(rows["op"].iloc[0]), "throughput")
    points = []
    for x in sorted({float(value) for value in active[axis.column]}):
        here = active[active[axis.column] == x]
        gain = compare(
            here[here["controller"] == controller], here[here["controller"] == BASELINE], metric
        )
        if gain is not None:
            points.append(Point(x, gain.map(lambda ratio: ratio - 1)))
    return tuple(points)


def cells(
    table: pd.DataFrame, controller: str, *, op: str, osds: int, hot_share: float
) -> pd.DataFrame:
    """Return runs of a controller on `osds` OSDs with static hotspots, with the duration of most
    sizes: runs that are compared over sizes must have the same duration."""
    rows = table[(table["scenario"] == OSDS.scenario) & (table["op"] == op)]
    rows = rows[rows["hot_share"] == hot_share]
    for name in ("object_size", "signal"):
        rows = rows[rows[name] == STANDARD[name]]
    if rows.empty:
        return rows
    rows = usual(_widest(rows, OSDS))
    rows = rows[(rows["osds"] == osds) & (rows["controller"] == controller)]
    return rows[~rows["inert"].astype(bool)]


def words(curve: Curve, parts: Sequence[Stretch]) -> str:
    """Describe stretches of a curve in words: ``up to 12 %``, ``from 34 s``, ``3 % to 20 %``."""
    write = curve.axis.write
    texts = []
    for part in parts:
        if part.low == part.high:
            texts.append(f"at {write(part.low)}")
        elif part.from_start and part.to_end:
            texts.append(f"everywhere, {write(part.low)} to {write(part.high)}")
        elif part.from_start:
            texts.append(f"up to {write(part.high)}")
        elif part.to_end:
            texts.append(f"from {write(part.low)}")
        else:
            texts.append(f"{write(part.low)} to {write(part.high)}")
    return "; ".join(texts) or "nowhere"


def tables(table: pd.DataFrame) -> list[Table]:
    """Return where each controller stops helping, one table per axis that has runs."""
    made = []
    for axis in AXES:
        found = curves(table, axis)
        if found:
            rows = [_row(curve) for curve in found]
            title = f"Where each stops helping: {axis.name}"
            made.append(Table(f"stops-{axis.id}", title, _HEADS, tuple(rows)))
    return made


_HEADS = (
    *("op", "OSDs", "hot nodes", "controller", "parameters", "helps", "harms"),
    *("largest gain", "least", "n"),
)


def _row(curve: Curve) -> tuple[str, ...]:
    setting = (
        curve.op,
        "axis" if curve.osds is None else _osds(curve.osds),
        "axis" if curve.hot_share is None else _share(curve.hot_share),
        curve.controller,
        curve.parameters,
    )
    if not curve.points:
        return (*setting, "inert: it changed nothing", "–", "–", "–", "–")
    best = max(curve.points, key=lambda point: point.gain.value)
    least = min(curve.points, key=lambda point: point.gain.value)
    counts = [point.gain.n for point in curve.points]
    n = str(max(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    return (
        *setting,
        words(curve, curve.helps),
        words(curve, curve.harms),
        f"{_percent(best.gain.value)} at {curve.axis.write(best.x)}",
        f"{_percent(least.gain.value)} at {curve.axis.write(least.x)}",
        n,
    )


def _percent(share: float) -> str:
    """Format a share as a percentage with its sign, without a sign if it rounds to zero."""
    percent = round(100 * share)
    return f"{percent:+d} %" if percent else "0 %"
