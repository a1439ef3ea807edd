"""Parts of the figures of real microstores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.core import style
from analysis.core.stats import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAPER_LINE: dict[str, Any] = {"color": "black", "linestyle": ":", "linewidth": 1.2}
LATENCY_SLA = {"color": "#882255", "linestyle": "--", "linewidth": 1.2}
"""Purple dashes in the paper's figure 11."""
BANDWIDTH_SLA = {"color": "#E69F00", "linestyle": "--", "linewidth": 1.2}
"""Orange dashes in the paper's figure 11."""
PAPER_RATIO = "paper's ratio to our value"
WIDTH = 0.8


def errors(found: Sequence[Estimate]) -> Any:
    """Return error bars [2, n] of estimates."""
    return np.array([one.error for one in found], dtype=float).T.reshape(2, -1)


def grouped(
    panel: Axes,
    groups: Sequence[str],
    series: Sequence[tuple[str, str, Mapping[str, Estimate]]],
    stated: Mapping[tuple[str, str], float] | None = None,
) -> None:
    """Draw groups of bars, one bar per series, with 95 % intervals.

    Args:
        groups: names along the axis.
        series: name, colour, and estimate by group.
        stated: the paper's ratios applied to our values, by series and group.
    """
    width = WIDTH / max(1, len(series))
    values, ends = [], []
    for place, (name, shade, found) in enumerate(series):
        for group, text in enumerate(groups):
            one = found.get(text)
            if one is None:
                continue
            x = group + (place - (len(series) - 1) / 2) * width
            panel.bar(x, one.value, 0.92 * width, color=shade, label=name)
            values.append(one.value)
            if one.n > 1:
                panel.errorbar(
                    x, one.value, yerr=errors([one]), color="black", capsize=2.5, linewidth=0.9
                )
                ends.append((float(x), one.high))
            value = (stated or {}).get((name, text))
            if value is not None:
                style.paper_marker(panel, x, value, text=PAPER_RATIO)
                values.append(value)
    panel.set_xticks(range(len(groups)), list(groups))
    panel.set_xlim(-0.6, len(groups) - 0.4)
    if values:
        style.limit_intervals(panel, values, ends)


def line(
    panel: Axes,
    points: Sequence[tuple[float, Estimate]],
    *,
    shade: str,
    label: str,
    fmt: str = "o-",
) -> None:
    """Draw a line of estimates with 95 % intervals."""
    found = [one for _, one in points]
    panel.errorbar(
        [x for x, _ in points],
        [one.value for one in found],
        yerr=errors(found),
        fmt=fmt,
        color=shade,
        markersize=5,
        linewidth=1.3,
        capsize=2.5,
        label=label,
    )
