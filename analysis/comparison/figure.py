"""The ranking as a figure: throughput of every controller against the baseline, best on top."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.comparison.ranking import Panel, Standing
from analysis.comparison.table import places
from analysis.core import style
from analysis.papers.dlr.compare import OP_NAMES
from schemas.comparison import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 6.2  # inches per panel, including the words at its right
_ROW = 0.36
_FURNITURE = 1.05
_TROUBLE = "#b3362f"
_SOFT = "#5b6672"
_LONGEST = 62  # characters of a reason
_LETTERS = 80  # characters of title and legend above and below a panel


def draw(comparison: Comparison, panels: Sequence[Panel], folder: Path, name: str) -> Path:
    """Write `name`.png and .pdf into `folder` and return the PNG's path.

    A filled dot: the 95 % interval excludes no effect. A hollow dot: it includes no effect, or
    there is no interval. Squares are inert runs. A controller without runs has its reason instead.
    """
    rows, columns = len(comparison.scenarios), len(comparison.ops)
    height = rows * (_FURNITURE + _ROW * len(comparison.controllers)) + 0.9
    with style.figure(rows, columns, width=_WIDTH * columns, height=height) as (drawn, axes):
        for axis, panel in zip(axes, panels, strict=True):
            _panel(axis, panel, blocks=comparison.blocks)
        letters = _LETTERS * columns
        drawn.suptitle(textwrap.fill(_title(comparison), letters), fontsize="large")
        words = textwrap.fill(_legend(comparison, panels), letters)
        drawn.supxlabel(words, fontsize="small", color=_SOFT)
        return style.save(drawn, folder, name)


def _title(comparison: Comparison) -> str:
    where = "simulated" if comparison.ground == "sim" else f"ground {comparison.ground}"
    blocks = f"{comparison.blocks} block{'s' if comparison.blocks > 1 else ''}"
    return (
        f"Throughput against {comparison.baseline} ({where}, {blocks}, "
        f"times × {comparison.time_scale:.3g})"
    )


def _legend(comparison: Comparison, panels: Sequence[Panel]) -> str:
    if comparison.blocks < 2:
        return "one block has no interval: it shows no difference"
    text = (
        "bars: 95 % intervals over paired blocks; filled: a difference is shown; "
        "hollow: none is, the interval includes no effect"
    )
    inert = any(s.state == "inert" for panel in panels for s in panel.standings)
    return f"{text}; square: inert, it changed nothing" if inert else text


def _panel(axis: Axes, panel: Panel, *, blocks: int) -> None:
    standings = panel.standings
    axis.set_ylim(len(standings) - 0.5, -0.5)
    axis.set_yticks(range(len(standings)), [s.controller for s in standings])
    axis.axvline(0, color="black", linewidth=0.8, zorder=1)
    axis.grid(axis="y", visible=False)
    for y, standing in enumerate(standings):
        if standing.gain is None:
            axis.annotate(
                _reason(standing),
                (0.02, y),
                xycoords=("axes fraction", "data"),
                va="center",
                color=_TROUBLE,
                fontsize="small",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
            )
            continue
        _dot(axis, y, standing)
        axis.annotate(
            _words(standing, blocks),
            (1.02, y),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize="small",
            annotation_clip=False,
        )
    axis.set_title(f"{OP_NAMES[panel.op]}, {_disturbance(panel.scenario)}", loc="left")
    unit = "IOPS" if panel.op == "rand" else "throughput"
    axis.set_xlabel(f"{unit} against {panel.baseline}, %")
    axis.margins(x=0.08)


def _disturbance(scenario: str) -> str:
    return "no disturbance" if scenario == "none" else scenario


def _dot(axis: Axes, y: int, standing: Standing) -> None:
    gain = standing.gain
    assert gain is not None
    value, low, high = (100 * (end - 1) for end in (gain.value, gain.low, gain.high))
    colour = style.colour(standing.controller)
    if not math.isnan(low):
        axis.plot([low, high], [y, y], color=colour, linewidth=2.4, solid_capstyle="butt", zorder=2)
    filled = standing.state in ("better", "worse", "baseline")
    axis.plot(
        [value],
        [y],
        marker="s" if standing.state == "inert" else "o",
        markersize=7,
        markerfacecolor=colour if filled else "white",
        markeredgecolor=colour,
        markeredgewidth=1.6,
        linestyle="none",
        zorder=3,
    )


def _words(standing: Standing, blocks: int) -> str:
    """Return the text at the right of a row."""
    gain = standing.gain
    assert gain is not None
    few = f", n = {standing.n}" if standing.n < blocks else ""
    if standing.state == "baseline":
        return f"baseline, place {places(standing)}{few}"
    text = f"{100 * (gain.value - 1):+.1f} %"
    if standing.state == "inert":
        return f"{text}, inert{few}"
    idle = ", no action" if standing.idle else ""
    return f"{text}, place {places(standing)}{few}{idle}"


def _reason(standing: Standing) -> str:
    """Return why nothing is drawn, on at most two lines. The table keeps the common beginning of
    the reasons."""
    text = standing.notes[0] if standing.notes else "no run"
    text = text.split(" runs missing: ")[-1].removeprefix(f"the controller {standing.controller} ")
    text = f"failed: {text.removeprefix('failed: ')}"
    return "\n".join(textwrap.wrap(text, _LONGEST, max_lines=2, placeholder=" …"))
