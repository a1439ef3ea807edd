"""Gain over default Ceph along an axis (number of OSDs, share of hot nodes, time between moves of
the hotspots), and its end: where the lower end of its 95 % interval crosses zero. Claims, figures
and tables about large stores.

Between two measured points of an axis, the lower end is taken to be straight over the axis's
logarithm. The interpolation places a crossing; it adds no evidence.

The paper has no claims about sizes: its store had eight OSDs. All claims were declared before a run
of `dlr-scale` was made, and paper_value is null.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.core import style
from analysis.core.claims import Claim, Compute, Evidence, Measured, NotRun, declared
from analysis.core.evidence import Pair, Rows, compared, quotient, result, where
from analysis.core.figures import FigureEntry, Missing, Table
from analysis.core.panels import Points, errors, points
from analysis.core.papers import Part
from analysis.core.stats import Estimate, counts
from analysis.papers.dlr.runs import BLOCKS, OP_NAMES, STANDARD, active, metric_of
from schemas.cells.dlr import Bench

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BASELINE = "default"


@dataclass(frozen=True)
class Axis:
    """One axis: its column of `analysis.core.load.table`, the scenario in which it is varied, its
    name in tables and in figures, the format of its values, and the columns that are constant along
    a curve."""

    id: str
    column: str
    scenario: str
    name: str
    label: str
    write: Callable[[float], str]
    fixed: tuple[str, ...]


def _osds(value: float) -> str:
    return f"{value:,.0f}"


def _share(value: float) -> str:
    return f"{100 * value:.2g} %"


def _seconds(value: float) -> str:
    return f"{value:.3g} s"


OSDS = Axis(
    *("osds", "osds", "heterogeneity", "OSDs", "OSDs"),
    lambda value: f"{_osds(value)} OSDs",
    ("hot_share", "duration_s"),
)
HOT = Axis(
    *("hot", "hot_share", "heterogeneity", "share of hot nodes", "Share of hot nodes"),
    _share,
    ("osds",),
)
MOVE = Axis(
    *("move", "move_every_s", "interference", "hotspots move every"),
    "Seconds between two moves of the hotspots",
    _seconds,
    ("osds", "hot_share"),
)
AXES = (OSDS, HOT, MOVE)


@dataclass(frozen=True)
class Stretch:
    """A part of an axis. `from_start`, `to_end`: it begins or ends where the runs do."""

    low: float
    high: float
    from_start: bool
    to_end: bool


@dataclass(frozen=True)
class Curve:
    """One controller along an axis: its gain, a share, by the place on the axis; without one it was
    inert in every run. `parameters`: the non-default parameters, for people."""

    axis: Axis
    op: str
    osds: float | None
    hot_share: float | None
    controller: str
    gains: Points
    parameters: str = "–"

    @property
    def helps(self) -> tuple[Stretch, ...]:
        """Stretches where the interval is above zero."""
        return stretches([(x, gain.low) for x, gain in self.gains.items()])

    @property
    def harms(self) -> tuple[Stretch, ...]:
        """Stretches where the interval is below zero."""
        return stretches([(x, -gain.high) for x, gain in self.gains.items()])


def stretches(ends: Sequence[tuple[float, float]]) -> tuple[Stretch, ...]:
    """Return the parts of an axis where a value is above zero. `ends`: (x, value) by x, x above
    zero; NaN (no interval) counts as not above."""
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


def usual(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with the usual parameters, by controller and store size: the defaults if a
    run has them, else the parameters of most runs (a campaign may let them grow with the store).
    Other parameters are variants; no curve mixes variants."""
    if rows.empty:
        return rows
    groups = rows.groupby(["controller", "osds"], dropna=False)
    kept = [part[part["variant"] == _most(part["variant"])] for _, part in groups]
    return pd.concat(kept).sort_index()


def _most(variants: pd.Series) -> str:
    times = variants.value_counts()
    return str(min(times.index, key=lambda text: (text != "{}", -times[text], text)))


def parameters_text(rows: pd.DataFrame) -> str:
    """Return the non-default parameters of a controller's runs, for people. A value proportional to
    the number of OSDs is shown per OSD."""
    found: dict[str, dict[float, object]] = defaultdict(dict)
    for osds, variant in zip(rows["osds"], rows["variant"], strict=True):
        for name, value in json.loads(variant).items():
            found[name][float(osds)] = value
    return ", ".join(f"{name} {_value(found[name])}" for name in sorted(found)) or "–"


def _value(by_size: dict[float, object]) -> str:
    """Format values by number of OSDs."""
    values = [by_size[osds] for osds in sorted(by_size)]
    if all(value == values[0] for value in values):
        return f"{values[0]:,}" if isinstance(values[0], int) else f"{values[0]}"
    shares = {
        round(value / osds, 9) for osds, value in by_size.items() if isinstance(value, (int, float))
    }
    if len(shares) == 1:
        return f"{shares.pop():g} an OSD"
    return " to ".join(f"{value:,}" if isinstance(value, int) else f"{value}" for value in values)


def curves(table: pd.DataFrame, axis: Axis) -> list[Curve]:
    """Return every controller's gain along `axis`, by op and by the constant columns. If an axis
    was run in several settings (such as durations), the setting with the most values counts."""
    rows = table[table["scenario"] == axis.scenario]
    rows = usual(_standard(rows))
    found: list[Curve] = []
    for setting, here in _settings(rows, axis):
        names = [str(name) for name in here["controller"].unique() if name != BASELINE]
        for name in sorted(names):
            gains = _gains(here, axis, name)
            its = here[here["controller"] == name]
            if its[axis.column].nunique() < 2:
                continue  # a cell shared with another figure
            if gains or bool(its["inert"].all()):
                found.append(
                    Curve(
                        axis,
                        str(setting["op"]),
                        None if axis is OSDS else float(setting["osds"]),
                        None if axis is HOT else float(setting["hot_share"]),
                        name,
                        gains,
                        parameters_text(its),
                    )
                )
    return found


def _standard(rows: pd.DataFrame) -> pd.DataFrame:
    """Return runs with the paper's object size and signal."""
    return where(rows, **{name: STANDARD[name] for name in ("object_size", "signal")})


def _settings(rows: pd.DataFrame, axis: Axis) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield the constants of a curve and its longest runs, if the axis has several values."""
    if rows.empty:
        return
    if axis is OSDS:  # one curve per op: the share of hot nodes with the most sizes
        rows = pd.concat([_widest(part, axis) for _, part in rows.groupby("op")])
    keys = ["op", *(name for name in axis.fixed if name != "duration_s")]
    for values, part in rows.groupby(keys):
        if part[axis.column].nunique() > 1:
            most = part.groupby(axis.column)["duration_s"].transform("max")
            yield dict(zip(keys, values, strict=True)), part[part["duration_s"] == most]


def _widest(rows: pd.DataFrame, axis: Axis) -> pd.DataFrame:
    groups = [part for _, part in rows.groupby(list(axis.fixed))]
    return max(groups, key=lambda part: (part[axis.column].nunique(), len(part)))


def _gains(rows: pd.DataFrame, axis: Axis, controller: str) -> Points:
    rows = active(rows)
    metric = metric_of(str(rows["op"].iloc[0]), "throughput") if len(rows) else ""

    def ratio(here: pd.DataFrame) -> Estimate | None:
        mine, base = (here[here["controller"] == name] for name in (controller, BASELINE))
        return quotient(mine, base, metric, keys=BLOCKS)

    found = points(rows, axis.column, ratio)
    return {float(x): one.map(lambda ratio: ratio - 1) for x, one in found.items()}


def cells(
    table: pd.DataFrame, controller: str, *, op: str, osds: int, hot_share: float
) -> pd.DataFrame:
    """Return runs of a controller on `osds` OSDs with static hotspots, with the duration of most
    sizes: runs that are compared over sizes must have the same duration."""
    rows = _standard(where(table, scenario=OSDS.scenario, op=op, hot_share=hot_share))
    if rows.empty:
        return rows
    rows = usual(_widest(rows, OSDS))
    return active(rows[(rows["osds"] == osds) & (rows["controller"] == controller)])


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
    if not curve.gains:
        return (*setting, "inert: it changed nothing", "–", "–", "–", "–")
    values = {x: gain.value for x, gain in curve.gains.items()}
    best, least = (choose(values, key=values.__getitem__) for choose in (max, min))
    n = counts(curve.gains.values()).removeprefix("n = ")
    return (
        *setting,
        words(curve, curve.helps),
        words(curve, curve.harms),
        *(f"{_percent(values[x])} at {curve.axis.write(x)}" for x in (best, least)),
        n,
    )


def _percent(share: float) -> str:
    """Format a share as a percentage with its sign, without a sign if it rounds to zero."""
    percent = round(100 * share)
    return f"{percent:+d} %" if percent else "0 %"


OP = "rand"
METRIC = metric_of(OP, "throughput")
SHARE = 0.25
"""Share of hot nodes where it is not varied."""


def _gain_at(axis: Axis, x: float, controller: str, *, osds: float | None = None) -> Compute:
    """Compute the gain over default Ceph at a place of an axis, as its figure shows it."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        rows = evidence.table
        rows = rows[rows["controller"].isin([controller, "default"])]
        for curve in curves(rows if osds is None else rows[rows["osds"] == osds], axis):
            if (curve.op, curve.controller, curve.osds) != (OP, controller, osds):
                continue
            if x in curve.gains and (axis is HOT or curve.hot_share == SHARE):
                return result(curve.gains[x], rows, "")
        at = axis.write(x) if osds is None else f"{axis.write(x)} of {osds:g} OSDs"
        return NotRun(f"no block has {controller} and default Ceph at {at}")

    return compute


def _on(controller: str, osds: int) -> Rows:
    """Select a controller's runs on `osds` OSDs with static hotspots."""
    return partial(cells, controller=controller, op=OP, osds=osds, hot_share=SHARE)


def _against(controller: str, baseline: str, osds: int) -> Compute:
    """Compute throughput of one controller over another on `osds` OSDs with static hotspots."""
    why = f"no block has {controller} and {baseline} on {osds:,} OSDs"
    sides = _on(controller, osds), _on(baseline, osds)
    return Pair(*sides, METRIC, why, keys=BLOCKS, function=lambda ratio: ratio - 1)


def _holds(small: int, large: int) -> Compute:
    """Compute DLR's gain on the larger store over the smaller, block by block (same seed)."""

    def gains(osds: int) -> Rows:
        return compared(_on("dlr", osds), _on(BASELINE, osds), METRIC, BLOCKS)

    why = f"no block has DLR and default Ceph on {small:,} and {large:,} OSDs"
    return Pair(
        gains(large), gains(small), "ratio", why, keys=BLOCKS, function=lambda ratio: ratio - 1
    )


_claim = partial(
    declared,
    prefix="scale",
    paper="dlr",
    stated=False,
    unit="relative change",
    baseline="default",
)


_NAMES = {"dlr": "DLR", "dlr-pg": "dlr-pg"}
_QUARTER = "a quarter of the nodes hot"

SCALE_CLAIMS: tuple[Claim, ...] = (
    *(
        _claim(
            f"dlr-{osds}",
            "osds",
            f"DLR raises random read IOPS over default Ceph on {osds:,} OSDs, {_QUARTER}",
            _gain_at(OSDS, osds, "dlr"),
        )
        for osds in (100, 1000, 10000)
    ),
    *(
        _claim(
            f"dlr-gain-{large}",
            "osds",
            f"DLR's gain over default Ceph is larger on {large:,} OSDs than on {small:,}",
            _holds(small, large),
            baseline=f"gain-{small}-osds",
        )
        for small, large in ((100, 1000), (1000, 10000))
    ),
    *(
        _claim(
            f"dlr-pg-beats-dlr-{osds}",
            "osds",
            f"dlr-pg raises random read IOPS over DLR on {osds:,} OSDs, {_QUARTER}",
            _against("dlr-pg", "dlr", osds),
            baseline="dlr",
        )
        for osds in (100, 1000, 10000)
    ),
    *(
        _claim(
            f"dlr-hot-{round(100 * share)}-of-{osds}",
            "hot",
            f"DLR raises random read IOPS with {100 * share:.0f} % of {osds:,} OSD nodes hot",
            _gain_at(HOT, share, "dlr", osds=osds),
        )
        for osds in (100, 1000)
        for share in (0.01, 0.5)
    ),
    *(
        _claim(
            f"{controller}-move-{every}",
            "move",
            f"{_NAMES[controller]} raises random read IOPS on 100 OSDs while hotspots move every "
            f"{every} s",
            _gain_at(MOVE, every, controller, osds=100),
        )
        for controller in ("dlr", "dlr-pg")
        for every in (60, 600)
    ),
    _claim(
        "dlr-move-5",
        "move",
        "DLR lowers random read IOPS on 100 OSDs while hotspots move every 5 s, four times in one "
        "control interval",
        _gain_at(MOVE, 5, "dlr", osds=100),
        larger=False,
    ),
)


_PANEL = 5.2  # inches
_DODGE = 0.02  # share of the axis's length, between neighbouring controllers
_ROOM = 1.6  # maximum length of intervals on the axis, relative to the range of the points


def triangles(evidence: Evidence, axis: Axis) -> str:
    """Return an explanation of the triangles, if the figure has any."""
    if any(_ends(curve) for curve in curves(evidence.table, axis)):
        return " Triangles: the interval's lower end crosses zero."
    return ""


def _ends(curve: Curve) -> list[float]:
    """Return where on the axis a controller starts or stops helping."""
    found = ((part.low, part.from_start, part.high, part.to_end) for part in curve.helps)
    return [at for low, a, high, b in found for at, inside in ((low, a), (high, b)) if not inside]


def gain(evidence: Evidence, axis: Axis) -> Figure | Missing:
    """Draw the gain along an axis: a panel per op and size, a line per controller. Filled: the
    interval excludes no effect. A triangle on the zero line: helping starts or stops there."""
    found = [curve for curve in curves(evidence.table, axis) if curve.gains]
    if not found:
        return Missing(
            f"runs of default Ceph and another controller at several values of {axis.column}"
        )
    panels: dict[tuple[str, float, float], list[Curve]] = {}
    for curve in found:
        panels.setdefault((curve.op, curve.osds or 0, curve.hot_share or 0), []).append(curve)
    names = style.in_order(list({curve.controller for curve in found}))
    with style.figure(1, len(panels), width=max(6.4, _PANEL * len(panels)), height=4.4) as (
        drawn,
        axes,
    ):
        for panel, mine in zip(axes, panels.values(), strict=True):
            _panel(panel, axis, mine, names)
        axes[0].set_ylabel("Throughput over default Ceph")
        return style.legend(drawn, axes, columns=4)


def _panel(panel: Axes, axis: Axis, mine: Sequence[Curve], names: Sequence[str]) -> None:
    xs = sorted({x for curve in mine for x in curve.gains})
    span = np.log(xs[-1] / xs[0])
    panel.set_xscale("log")
    panel.axhline(0, color="black", linewidth=0.8)
    for curve in sorted(mine, key=lambda curve: names.index(curve.controller)):
        shift = (names.index(curve.controller) - (len(names) - 1) / 2) * _DODGE * span
        _line(panel, curve, float(np.exp(shift)))
    gains = [gain for curve in mine for gain in curve.gains.values()]
    values = [gain.value for gain in gains]
    low, high = min(0.0, *values), max(0.0, *values)
    room = _ROOM * max(high - low, 0.05)
    least = min([low, *(e.low for e in gains if not np.isnan(e.low))])
    most = max([high, *(e.high for e in gains if not np.isnan(e.high))])
    panel.set_ylim(max(least, low - room / 2) - 0.02, min(most, high + room / 2) + 0.02)
    ticks = [axis.write(x).removesuffix(f" {axis.label}") for x in xs]
    panel.set_xticks(xs, ticks, rotation=35 if len(xs) > 5 else 0)
    panel.minorticks_off()
    panel.yaxis.set_major_formatter(lambda value, _: f"{100 * value:+.0f} %" if value else "0")
    panel.set_xlabel(axis.label)
    panel.set_title(_title(mine), loc="left")


def _line(panel: Axes, curve: Curve, shift: float) -> None:
    x, gains = shift * np.array(list(curve.gains)), list(curve.gains.values())
    y = np.array([gain.value for gain in gains])
    colour = style.colour(curve.controller)
    panel.errorbar(
        x,
        y,
        yerr=errors(gains),
        fmt="-",
        color=colour,
        linewidth=1.6,
        elinewidth=1.1,
        capsize=2.5,
        label=style.label(curve.controller),
    )
    shown = np.array([gain.low > 0 or gain.high < 0 for gain in gains])
    for filled in (True, False):
        which = shown if filled else ~shown
        panel.plot(
            x[which],
            y[which],
            "o",
            markersize=5.5,
            markerfacecolor=colour if filled else "white",
            markeredgecolor=colour,
            markeredgewidth=1.4,
        )
    for end in _ends(curve):
        panel.plot([end], [0], "^", markersize=7, color=colour, zorder=4, clip_on=False)


def _title(curves: Sequence[Curve]) -> str:
    curve = curves[0]
    parts = [OP_NAMES[curve.op]]
    if curve.osds is not None:
        parts.append(f"{curve.osds:,.0f} OSDs")
    if curve.hot_share is not None:
        parts.append(f"{100 * curve.hot_share:g} % hot")
    n = counts(gain for one in curves for gain in one.gains.values())
    return f"{', '.join(parts)} ({n})"


_GAIN = (
    "Paired by block, geometric mean of ratios with 95 % confidence intervals. Filled: the "
    "interval excludes no effect."
)

SCALE_FIGURES: tuple[FigureEntry, ...] = (
    FigureEntry(
        "osds",
        "Gain against the number of OSDs",
        f"{_GAIN} Two operations in flight to an OSD, placement groups by Ceph's rule.",
        partial(gain, axis=OSDS),
        facts=partial(triangles, axis=OSDS),
    ),
    FigureEntry(
        "hot",
        "Gain against the share of hot nodes",
        _GAIN,
        partial(gain, axis=HOT),
        facts=partial(triangles, axis=HOT),
    ),
    FigureEntry(
        "move",
        "Gain against how often the hotspots move",
        f"{_GAIN} The control interval is 20 s; runs last at least two moves.",
        partial(gain, axis=MOVE),
        facts=partial(triangles, axis=MOVE),
    ),
)

TABLE_NOTE = (
    "helps, harms: the 95 % interval is above, below zero. Between measured values its ends are\n"
    "interpolated linearly over the axis's logarithm."
)
PARTS = (Part(SCALE_CLAIMS, SCALE_FIGURES, models=(Bench,), sized=True, tables=tables),)
