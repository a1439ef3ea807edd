"""Panels of the two-choice figures: a value against a setting, one line per scheduler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.core import stats
from analysis.core.stats import Estimate
from analysis.papers.twochoice.runs import COLOURS, LABELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DODGE = 0.07  # offset between neighbouring lines, as a share of the distance between two settings
MARKERS = "osD^vPX*<>phd"
DASHED = ("-cold",)

Points = Mapping[float, Estimate]
"""Estimates by setting."""


def points(
    rows: pd.DataFrame, by: str, estimate: Callable[[pd.DataFrame], Estimate | None]
) -> dict[float, Estimate]:
    """Return estimates of the rows, by a parameter."""
    settings = sorted(set(rows[by].tolist()))
    found = {float(at): estimate(rows[rows[by] == at]) for at in settings}
    return {at: one for at, one in found.items() if one is not None}


def draw(
    axes: Axes,
    lines: Mapping[str, Points],
    order: Sequence[float],
    ticks: Sequence[str],
    *,
    to_scale: bool = False,
) -> None:
    """Draw lines over the settings in `order`: to scale, or evenly spaced with the lines side by
    side so that intervals stay distinguishable."""
    shown = {name: found for name, found in lines.items() if found}
    dodge = 0.0 if to_scale else DODGE
    for index, (name, found) in enumerate(shown.items()):
        there = [place for place, setting in enumerate(order) if setting in found]
        these = [found[order[place]] for place in there]
        at = [order[place] for place in there] if to_scale else there
        axes.errorbar(
            np.array(at) + (index - (len(shown) - 1) / 2) * dodge,
            [one.value for one in these],
            yerr=np.array([one.error for one in these]).T.reshape(2, -1),
            fmt=marker(name),
            linestyle="--" if name.endswith(DASHED) else "-",
            color=colour(name),
            markersize=5,
            linewidth=1.3,
            elinewidth=1.0,
            capsize=2.5,
            label=label(name),
        )
    axes.set_xticks(order if to_scale else range(len(order)), ticks)
    if not to_scale:
        axes.set_xlim(-0.45, len(order) - 0.55)


def colour(name: str) -> str:
    """Return a scheduler's colour, whatever its variant."""
    return COLOURS.get(name, COLOURS.get(name.partition(",")[0], "#444444"))


def marker(name: str) -> str:
    """Return a scheduler's marker, the same in every panel and whatever its variant."""
    known = list(LABELS)
    base = name.partition(",")[0]
    return MARKERS[known.index(base) % len(MARKERS)] if base in known else "."


def label(name: str) -> str:
    """Return a scheduler's name in a legend; a variant follows a comma."""
    base, comma, variant = name.partition(",")
    return f"{LABELS.get(base, base)}{comma}{variant}"


def counts(lines: Sequence[Points]) -> str:
    """Format the number of runs per point: ``n = 10 runs``."""
    return f"{stats.counts(one for line in lines for one in line.values())} runs"


def percent(shares: Sequence[float]) -> list[str]:
    """Format straggler ratios as ticks."""
    return [f"{100 * share:g}" for share in shares]
