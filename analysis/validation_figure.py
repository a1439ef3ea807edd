"""Figures 6 and 8 on both grounds side by side, and the model's error cell by cell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis import stats, style
from analysis.dlr.compare import OP_NAMES, OPS
from analysis.validation import SCENARIOS, Cell, Validation, error_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_MOST = 200.0  # percent: what two pairs cannot tell needs no room
_CELL = 0.85  # inches a cell: its error and interval stand below it


def draw(made: Validation, scenario: str, folder: Path) -> Path | None:
    """Write figure 6 or 8 as `fig6-sim-<ground>`.png and .pdf; None without a cell of it.

    Above: means of runs with 95 % intervals, measured plain and simulated hatched. Below: the
    model's relative error over pairs of runs of the same seed.
    """
    cells = [
        c
        for c in made.cells
        if c.scenario == scenario and not c.setting and c.metric != "latency_s"
    ]
    ops = [op for op in OPS if any(c.op == op for c in cells)]
    if not ops:
        return None
    counts = [sum(c.op == op for c in cells) for op in ops]
    width = max(_CELL * sum(counts) + len(ops), 7.0)
    with style.figure(2, len(ops), width=width, height=6.2) as (drawn, axes):
        grid = axes[0].get_gridspec()
        assert grid is not None
        grid.set_height_ratios([3, 2])
        grid.set_width_ratios([max(count, 2) for count in counts])
        for column, op in enumerate(ops):
            mine = [c for c in cells if c.op == op]
            _bars(axes[column], mine, made.real, first=column == 0)
            _errors(axes[len(ops) + column], mine)
        axes[len(ops)].set_ylabel("simulated / measured - 1")
        drawn.suptitle(
            f"Figure {SCENARIOS[scenario]}, {scenario}: {made.real} beside sim "
            f"(pairs of one seed, {stats.counts(c.error for c in cells)})"
        )
        style.legend(drawn, axes)
        with style.marked("measured and simulated"):
            return style.save(drawn, folder, f"fig{SCENARIOS[scenario]}-sim-{made.real}")


def _bars(axes: Axes, cells: Sequence[Cell], real: str, *, first: bool) -> None:
    for index, cell in enumerate(cells):
        for side, (estimate, hatch, name) in enumerate(
            ((cell.measured, None, real), (cell.simulated, "///", "sim (simulated)"))
        ):
            axes.bar(
                index + (side - 0.5) * 0.4,
                estimate.value,
                0.37,
                color=style.colour(cell.controller),
                alpha=1.0 if side == 0 else 0.55,
                hatch=hatch,
                edgecolor="white",
                yerr=np.array(estimate.error).reshape(2, 1),
                capsize=2.5,
                label=name if first and index == 0 else None,
            )
    axes.set_xticks(range(len(cells)), [cell.controller for cell in cells])
    # Two runs have an interval of ten times the mean: the bars are what is to be seen.
    highest = max(max(cell.measured.value, cell.simulated.value) for cell in cells)
    axes.set_ylim(0, 1.6 * highest)
    axes.set_title(OP_NAMES[cells[0].op])
    axes.set_ylabel(cells[0].unit)


def _errors(axes: Axes, cells: Sequence[Cell]) -> None:
    for index, cell in enumerate(cells):
        low, high = cell.error.error
        axes.errorbar(
            [index],
            [100 * cell.error.value],
            yerr=np.array([[100 * low], [100 * high]]),
            fmt="o",
            capsize=4,
            color=style.colour(cell.controller),
        )
    axes.axhline(0, color="black", linewidth=0.8)
    names = [f"{cell.controller}\n{error_text(cell.error)}".replace(" [", "\n[") for cell in cells]
    axes.set_xticks(range(len(cells)), names, fontsize="small")
    axes.set_xlim(-0.5, len(cells) - 0.5)
    axes.margins(y=0.25)
    bottom, top = axes.get_ylim()
    axes.set_ylim(max(bottom, -100), min(top, _MOST))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:+.0f} %")
