"""Panels of figures: estimates with 95 % intervals, as lines or as grouped bars."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.core import stats, style
from analysis.core.evidence import average, known, values_of
from analysis.core.stats import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = "osD^vPX*<>phd"
DODGE = 0.07  # offset between neighbouring lines, as a share of the distance between two settings
BAR_WIDTH = 0.8
GREY = "#444444"

Points = Mapping[Any, Estimate]
"""Estimates by setting."""
Estimator = Callable[[pd.DataFrame], Estimate | None]
"""Function that computes an estimate from rows."""


@dataclass(frozen=True)
class Look:
    """Appearance of a line or bar: the same for one thing in every panel of a figure."""

    label: str
    colour: str = GREY
    marker: str = "o"
    line: str = "-"


def points(rows: pd.DataFrame, by: str, of: str | Estimator) -> dict[Any, Estimate]:
    """Return estimates of the rows, by a parameter's values, ascending: the mean of the column
    `of`, or what it computes from rows."""
    estimate: Estimator = partial(average, column=of) if isinstance(of, str) else of
    return known({at: estimate(rows[rows[by] == at]) for at in values_of(rows, by)})


def lines(
    axes: Axes,
    series: Sequence[tuple[Look, Points]],
    order: Sequence[Any],
    ticks: Sequence[str] | None = None,
    *,
    to_scale: bool = False,
    ringed: Sequence[Collection[Any]] = (),
    ring: str = "",
) -> None:
    """Draw one line with 95 % intervals for each series that has estimates, over the settings in
    `order` with the texts `ticks`. `to_scale` places settings by their value; else evenly, with the
    lines side by side so that intervals stay distinguishable. `ringed`: settings of each series to
    mark with a circle, `ring`: its text in the legend."""
    shown = [(n, look, found) for n, (look, found) in enumerate(series) if found]
    for index, (number, look, found) in enumerate(shown):
        there = [place for place, setting in enumerate(order) if setting in found]
        these = [found[order[place]] for place in there]
        at = np.array([order[place] for place in there] if to_scale else there, dtype=float)
        x = at if to_scale else at + (index - (len(shown) - 1) / 2) * DODGE
        axes.errorbar(
            x,
            [one.value for one in these],
            yerr=errors(these),
            fmt=look.marker,
            linestyle=look.line,
            color=look.colour,
            markersize=5,
            linewidth=1.3,
            elinewidth=1.0,
            capsize=2.5,
            label=look.label,
        )
        circles = ringed[number] if number < len(ringed) else ()
        marked = [n for n, place in enumerate(there) if order[place] in circles]
        if marked:
            axes.plot(
                x[marked],
                [these[n].value for n in marked],
                "o",
                markersize=11,
                markerfacecolor="none",
                markeredgecolor="black",
                label=ring,
                zorder=5,
            )
    texts = [f"{setting:g}" for setting in order] if ticks is None else list(ticks)
    axes.set_xticks(list(order) if to_scale else range(len(order)), texts)
    if not to_scale:
        axes.set_xlim(-0.45, len(order) - 0.55)


def bars(
    axes: Axes,
    groups: Sequence[str],
    series: Sequence[tuple[Look, Points]],
    *,
    stated: Mapping[tuple[str, str], float] | None = None,
    stated_text: str = "paper's stated value",
    hatched: Collection[tuple[str, str]] = (),
) -> dict[tuple[str, str], float]:
    """Draw groups of bars, one bar per series, with 95 % intervals; return the place of each bar by
    label and group. `stated`: the paper's values by label and group, drawn as diamonds; `hatched`:
    label and group of bars to hatch."""
    width = BAR_WIDTH / max(1, len(series))
    values, ends = [], []
    places: dict[tuple[str, str], float] = {}
    for place, (look, found) in enumerate(series):
        in_legend = [name for name in groups if name in found][:1]
        for group, name in enumerate(groups):
            one = found.get(name)
            if one is None:
                continue
            x = places[look.label, name] = group + (place - (len(series) - 1) / 2) * width
            axes.bar(
                x,
                one.value,
                0.92 * width,
                color=look.colour,
                label=look.label if name in in_legend else "",
                edgecolor="white",
            )
            if (look.label, name) in hatched:  # on top, so that the legend shows the plain bar
                axes.bar(x, one.value, 0.92 * width, fill=False, hatch="///", edgecolor="white")
            values.append(one.value)
            if one.n > 1:
                axes.errorbar(
                    x, one.value, yerr=errors([one]), color="black", capsize=2.5, linewidth=0.9
                )
                ends.append((x, one.high))
            value = (stated or {}).get((look.label, name))
            if value is not None:
                style.paper_marker(axes, x, value, text=stated_text)
                values.append(value)
    axes.set_xticks(range(len(groups)), list(groups))
    axes.set_xlim(-0.6, len(groups) - 0.4)
    if values:
        style.limit_intervals(axes, values, ends)
    return places


def errors(found: Sequence[Estimate]) -> Any:
    """Return error bars, shape (2, n), of estimates."""
    return np.array([one.error for one in found], dtype=float).T.reshape(2, -1)


def counts(series: Sequence[tuple[Look, Points]], noun: str = "runs") -> str:
    """Format the number of runs per point: ``n = 10 runs``."""
    return f"{stats.counts(one for _, found in series for one in found.values())} {noun}".rstrip()
