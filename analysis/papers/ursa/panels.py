"""Panels of Ursa's figures: a value against the size of the instance, one line per method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.core import stats, style
from analysis.core.stats import Estimate
from analysis.papers.ursa.runs import COLOURS, LABELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DODGE = 0.09  # offset between neighbouring lines, as a share of the distance between two sizes
MARKERS = "osD^vP"
ROOM = 8.0  # maximum length of an interval on a logarithmic axis, below and above all points
MARGIN = 1.5
LIMITED = "some ended by their time limit"

Estimator = Callable[[pd.DataFrame, str], Estimate | None]


@dataclass(frozen=True)
class Line:
    """A line of a panel: estimates by size, and the sizes with runs ended by a time limit."""

    name: str
    points: dict[str, Estimate]
    limited: frozenset[str] = field(default_factory=frozenset)
    style: str = "-"
    label: str | None = None

    @property
    def text(self) -> str:
        """Name in the legend."""
        return self.label or LABELS.get(self.name, self.name)


def line(
    name: str,
    rows: pd.DataFrame,
    column: str,
    estimate: Estimator,
    *,
    style: str = "-",
    label: str | None = None,
) -> Line:
    """Return a column of the rows by size."""
    points, limited = {}, set()
    for size, here in rows.groupby("size"):
        found = estimate(here, column)
        if found is not None:
            points[str(size)] = found
            if "limited" in here.columns and bool((here["limited"] > 0).any()):
                limited.add(str(size))
    return Line(name, points, frozenset(limited), style, label)


def draw(axes: Axes, order: Sequence[str], lines: Sequence[Line], *, log: bool = True) -> None:
    """Draw lines over the sizes in `order`, side by side so that intervals stay distinguishable."""
    shown = [one for one in lines if one.points]
    names = list(dict.fromkeys(one.name for one in lines))
    for index, one in enumerate(shown):
        at = [place for place, size in enumerate(order) if size in one.points]
        found = [one.points[order[place]] for place in at]
        x = np.array(at) + (index - (len(shown) - 1) / 2) * DODGE
        axes.errorbar(
            x,
            [estimate.value for estimate in found],
            yerr=np.array([estimate.error for estimate in found]).T.reshape(2, -1),
            fmt=MARKERS[names.index(one.name) % len(MARKERS)],
            linestyle=one.style,
            color=COLOURS.get(one.name, "#444444"),
            markersize=5,
            linewidth=1.3,
            elinewidth=1.0,
            capsize=2.5,
            label=one.text,
        )
        limits = [place for place, size in enumerate(at) if order[size] in one.limited]
        if limits:
            axes.plot(
                x[limits],
                [found[place].value for place in limits],
                "o",
                markersize=11,
                markerfacecolor="none",
                markeredgecolor="black",
                label=LIMITED,
                zorder=5,
            )
    if log:
        style.magnitudes(axes)
        _limit(axes, [estimate for one in shown for estimate in one.points.values()])
    axes.set_xticks(range(len(order)), order, rotation=20 if len(order) > 3 else 0)
    axes.set_xlim(-0.4, len(order) - 0.6)
    axes.set_xlabel("nodes-partitions")


def _limit(axes: Axes, found: Sequence[Estimate]) -> None:
    """Set limits with room for the points, and for intervals up to a maximum: two differing
    instances have an interval of many magnitudes."""
    if not found:
        return
    low, high = min(one.value for one in found), max(one.value for one in found)
    ends = [end for one in found for end in (one.low, one.high) if np.isfinite(end) and end > 0]
    least, most = min([low, *ends]), max([high, *ends])
    axes.set_ylim(max(least, low / ROOM) / MARGIN, min(most, high * ROOM) * MARGIN)


def counts(lines: Sequence[Line]) -> str:
    """Format the number of instances per point: ``n = 3``."""
    return stats.counts(one for line in lines for one in line.points.values())


def stated_line(axes: Axes, value: float, text: str) -> None:
    """Draw the paper's statement about all sizes, as a dashed line."""
    axes.axhline(value, color="black", linestyle="--", linewidth=1.0, label=text)
