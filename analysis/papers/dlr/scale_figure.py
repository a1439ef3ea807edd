"""Figures over sizes: gain over default Ceph against OSDs, hot nodes, and moves of the hotspots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.figures import Missing
from analysis.core.stats import counts
from analysis.papers.dlr.compare import OP_NAMES
from analysis.papers.dlr.scale import AXES, Axis, Curve, curves

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_PANEL = 5.2  # inches
_DODGE = 0.02  # share of the axis's length, between neighbouring controllers
_ROOM = 1.6  # maximum length of intervals on the axis, relative to the range of the points
_LABELS = {
    "osds": "OSDs",
    "hot": "Share of hot nodes",
    "move": "Seconds between two moves of the hotspots",
}


def told(evidence: Evidence, axis_id: str) -> str:
    """Return an explanation of the triangles, if the figure has any."""
    axis = next(axis for axis in AXES if axis.id == axis_id)
    if any(_ends(curve) for curve in curves(evidence.table, axis)):
        return " Triangles on the zero line: there the interval's lower end is zero."
    return ""


def _ends(curve: Curve) -> list[float]:
    """Return where on the axis a controller starts or stops helping."""
    found = ((part.low, part.from_start, part.high, part.to_end) for part in curve.helps)
    return [at for low, a, high, b in found for at, inside in ((low, a), (high, b)) if not inside]


def gain(evidence: Evidence, folder: Path, name: str, axis_id: str) -> Path | Missing:
    """Draw the gain along an axis: a panel per op and size, a line per controller. Filled: the
    interval excludes no effect. A triangle on the zero line: helping starts or stops there."""
    axis = next(axis for axis in AXES if axis.id == axis_id)
    found = [curve for curve in curves(evidence.table, axis) if curve.points]
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
        handles: dict[str, Artist] = {}
        for panel in axes:
            for handle, text in zip(*panel.get_legend_handles_labels(), strict=True):
                handles.setdefault(text, handle)
        order = [style.label(name) for name in names if style.label(name) in handles]
        drawn.legend(
            handles=[handles[text] for text in order],
            labels=order,
            loc="outside upper center",
            ncols=min(4, len(order)),
            fontsize="small",
        )
        return style.save(drawn, folder, name)


def _panel(panel: Axes, axis: Axis, mine: Sequence[Curve], names: Sequence[str]) -> None:
    xs = sorted({point.x for curve in mine for point in curve.points})
    span = np.log(xs[-1] / xs[0])
    panel.set_xscale("log")
    panel.axhline(0, color="black", linewidth=0.8)
    for curve in sorted(mine, key=lambda curve: names.index(curve.controller)):
        shift = (names.index(curve.controller) - (len(names) - 1) / 2) * _DODGE * span
        _line(panel, curve, float(np.exp(shift)))
    values = [point.gain.value for curve in mine for point in curve.points]
    low, high = min(0.0, *values), max(0.0, *values)
    room = _ROOM * max(high - low, 0.05)
    ends = [point.gain for curve in mine for point in curve.points]
    least = min([low, *(e.low for e in ends if not np.isnan(e.low))])
    most = max([high, *(e.high for e in ends if not np.isnan(e.high))])
    panel.set_ylim(max(least, low - room / 2) - 0.02, min(most, high + room / 2) + 0.02)
    panel.set_xticks(xs, [axis.write(x) for x in xs], rotation=35 if len(xs) > 5 else 0)
    panel.minorticks_off()
    panel.yaxis.set_major_formatter(lambda value, _: f"{100 * value:+.0f} %" if value else "0")
    panel.set_xlabel(_LABELS[axis.id])
    panel.set_title(_title(mine), loc="left")


def _line(panel: Axes, curve: Curve, shift: float) -> None:
    x = np.array([point.x * shift for point in curve.points])
    y = np.array([point.gain.value for point in curve.points])
    error = np.array([point.gain.error for point in curve.points]).T
    colour = style.colour(curve.controller)
    panel.errorbar(
        x,
        y,
        yerr=error,
        fmt="-",
        color=colour,
        linewidth=1.6,
        elinewidth=1.1,
        capsize=2.5,
        label=style.label(curve.controller),
    )
    shown = np.array([point.gain.low > 0 or point.gain.high < 0 for point in curve.points])
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
    n = counts(point.gain for one in curves for point in one.points)
    return f"{', '.join(parts)} ({n})"
