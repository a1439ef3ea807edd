"""Error of the model against real runs, from cells that ran on both grounds with the same seed.

The same seed means the same hot nodes and moves, so a cell's error comes from pairs of runs: the
geometric mean of simulated/measured, minus 1, with a t interval on the log-ratios over seeds. This
comparison tests the model and supports no claim about controllers: claims never pair or pool
evidence of the two grounds (analysis/core/report.py). No run folder is changed.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.core import stats, style
from analysis.core.evidence import average, by_block, quotient, where
from analysis.core.load import SIM, LoadedRun, ground_of, load_campaign, table
from analysis.core.panels import errors
from analysis.core.report import in_markdown, markdown_table
from analysis.core.stats import Estimate
from analysis.core.style import in_order
from analysis.papers.dlr.runs import OP_NAMES, OPS, metric_of
from schemas.cells.dlr import DLR, HOT_NODES
from schemas.errors import UserError
from schemas.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCENARIOS = {"heterogeneity": "6", "interference": "8"}
"""The paper's figures of controllers, by scenario."""

_UNITS = {"throughput_mb_s": "MB/s", "iops": "IOPS", "latency_s": "s"}
BASELINE = "default"
MCLOCK = "mclock_scheduler"
QUINCY = 17
"""First release of Ceph whose OSDs schedule by mClock unless its configuration says otherwise."""
_MOST = 200.0  # percent: estimates from two pairs may exceed it
_CELL = 0.85  # inches per cell, with its error and interval below it


@dataclass(frozen=True)
class ValidatedCell:
    """One cell on both grounds, over the seeds that both have run.

    Attributes:
        setting: other differences from the paper's setting, in words; empty for the paper's.
        measured, simulated: means over runs with intervals, in the metric's unit.
        error: relative, simulated/measured - 1.
        effect_measured, effect_simulated: ratio to default Ceph of the same seeds; None for default
            itself and if no seed has both.
    """

    scenario: str
    op: str
    controller: str
    setting: str
    metric: str
    measured: Estimate
    simulated: Estimate
    error: Estimate
    effect_measured: Estimate | None = None
    effect_simulated: Estimate | None = None

    @property
    def name(self) -> str:
        """The controller, with its setting."""
        return f"{self.controller} ({self.setting})" if self.setting else self.controller

    @property
    def unit(self) -> str:
        """The metric's unit."""
        return _UNITS[self.metric]

    @property
    def word(self) -> str:
        """Difference between model and measurement, in words."""
        if math.isnan(self.error.low):
            return "one pair: no interval"
        if self.error.low <= 0 <= self.error.high:
            return "no difference shown"
        return "model too high" if self.error.value > 0 else "model too low"

    @property
    def agreement(self) -> str:
        """Agreement of both grounds on the controller's effect on throughput, in words."""
        if self.effect_measured is None or self.effect_simulated is None:
            return ""
        signs = [_sign(effect) for effect in (self.effect_measured, self.effect_simulated)]
        if 0 in signs:
            return "undecided"
        return "same direction" if signs[0] == signs[1] else "opposite"


def _sign(effect: Estimate) -> int:
    """Return 1 or -1 if the interval excludes no effect, else 0."""
    if math.isnan(effect.low) or effect.low <= 1 <= effect.high:
        return 0
    return 1 if effect.value > 1 else -1


@dataclass(frozen=True)
class Validation:
    """Every cell of both grounds; `folder` holds figures and tables once written."""

    real: str
    cells: tuple[ValidatedCell, ...]
    pairs: int
    figures: tuple[Path, ...] = ()
    folder: Path | None = None

    @property
    def throughput(self) -> list[ValidatedCell]:
        """Cells of throughput; those of latency are left out."""
        return [c for c in self.cells if c.metric != "latency_s"]

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        judged = [c for c in self.throughput if not c.setting]
        if not judged:
            return f"no cell of figures 6 and 8 ran on both {self.real} and sim with one seed."
        effects = [c.agreement for c in judged if c.agreement]
        off = []
        for op in OPS:
            errors = [abs(c.error.value) for c in judged if c.op == op]
            if errors:
                name = OP_NAMES[op].lower()
                off.append(
                    f"{name} by {median(errors):.0%} in the median, {max(errors):.0%} at most"
                )
        least, most = min(c.error.n for c in judged), max(c.error.n for c in judged)
        n = f"{least}" if least == most else f"{least} to {most}"
        return (
            f"{len(judged)} cells in the paper's setting, n = {n} pairs of runs a cell, "
            f"{self.pairs} pairs in all: the model's throughput is off in {'; '.join(off)}; "
            f"of {len(effects)} effects of controllers {effects.count('same direction')} "
            f"point the same way, {effects.count('opposite')} the opposite way, "
            f"{effects.count('undecided')} are undecided."
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per cell and metric, for tables and programs."""
        return [
            {
                "scenario": c.scenario,
                "op": c.op,
                "controller": c.controller,
                "setting": c.setting,
                "metric": c.metric,
                "n": c.error.n,
                self.real: c.measured.value,
                "simulated": c.simulated.value,
                "error": c.error.value,
                "error_low": _finite(c.error.low),
                "error_high": _finite(c.error.high),
                "finding": c.word,
                f"effect_{self.real}": c.effect_measured and c.effect_measured.value,
                "effect_simulated": c.effect_simulated and c.effect_simulated.value,
                "effects": c.agreement,
            }
            for c in self.cells
        ]

    def markdown(self) -> str:
        """Return the table for a document: throughput, with latency next to it."""
        heads = ("scenario", "operation", "controller", "n", self.real, "simulated")
        more = ("error [95 % interval]", "of latency", f"effect {self.real} / simulated")
        latency = {_key(c): error_text(c.error) for c in self.cells if c.metric == "latency_s"}
        rows = (
            (
                *(c.scenario, OP_NAMES[c.op], c.name, str(c.error.n)),
                *(f"{c.measured.value:.1f} {c.unit}", f"{c.simulated.value:.1f}"),
                *(error_text(c.error), latency.get(_key(c), ""), effects_text(c)),
            )
            for c in self.throughput
        )
        return markdown_table((*heads, *more), rows)

    def _repr_html_(self) -> str:
        table = pd.DataFrame(self.rows()).to_html(index=False, float_format="{:.3g}".format)
        return f"<p>{html.escape(self.sentence)}</p>{table}"


def error_text(error: Estimate) -> str:
    """Format an error with its interval: ``+12 % [-3, +29]``."""
    text = f"{100 * error.value:+.0f} %"
    if math.isnan(error.low):
        return text
    return f"{text} [{100 * error.low:+.0f}, {100 * error.high:+.0f}]"


def effects_text(cell: ValidatedCell) -> str:
    """Format a controller's effects on both grounds: ``1.45 / 1.43, same direction``."""
    if cell.effect_measured is None or cell.effect_simulated is None:
        return ""
    both = f"{cell.effect_measured.value:.2f} / {cell.effect_simulated.value:.2f}"
    return f"{both}, {cell.agreement}"


def validate(artifacts: Sequence[Path], *, real: str = "local") -> Validation:
    """Compare every cell that the folders (of campaigns, or campaigns) hold on the ground `real`
    and on sim. UserError: one of the grounds has no runs, or no cell has runs on both with one
    seed."""
    found: dict[str, list[LoadedRun]] = {real: [], SIM: []}
    for folder in artifacts:
        if not folder.is_dir():
            raise UserError("no such folder of campaigns", where=folder)
        for campaign in _campaigns(folder):
            ground = ground_of(campaign)
            if ground in found:
                found[ground] += load_campaign(campaign).runs
    for ground, runs in found.items():
        if not runs:
            raise UserError(
                f"no finished run of ground {ground}",
                where=", ".join(map(str, artifacts)),
                do=f"run the same campaign on {real} and with --ground sim",
            )
    sides = [_rows(runs) for runs in found.values()]
    shared = set(sides[0]["cell"]) & set(sides[1]["cell"])
    if not shared:
        raise UserError(
            f"no cell ran on both {real} and sim with the same parameters and seed",
            do="run the same campaign on both",
        )
    pairs = [rows[rows["cell"].isin(shared)] for rows in sides]
    if pairs[0]["queue"].nunique() > 1:
        pairs = [_with_queue(rows) for rows in pairs]
    return Validation(real, tuple(_cells(*pairs)), len(shared))


def _with_queue(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with mClock as a part of the setting."""
    clocked = rows["queue"] == MCLOCK
    named = rows["setting"].where(~clocked, (rows["setting"] + ", mClock").str.removeprefix(", "))
    return rows.assign(setting=named)


def _campaigns(folder: Path) -> list[Path]:
    """Return the campaigns in a folder, or the folder itself if it is a campaign."""
    if (folder / "campaign.json").is_file():
        return [folder]
    return sorted(path for path in folder.iterdir() if path.is_dir())


def build(artifacts: Sequence[Path], out: Path, *, real: str = "local") -> Validation:
    """Call `validate`, then write figures, validation.md, .csv and .json into `out`."""
    made = validate(artifacts, real=real)
    out.mkdir(parents=True, exist_ok=True)
    drawn = [draw(made, scenario, out) for scenario in SCENARIOS]
    rows = made.rows()
    pd.DataFrame(rows).to_csv(out / "validation.csv", index=False)
    (out / "validation.md").write_text(in_markdown(f"{made.sentence}\n\n{made.markdown()}"))
    body = {"sentence": made.sentence, "cells": rows}
    (out / "validation.json").write_text(json.dumps(body, indent=1) + "\n")
    figures = tuple(path for path in drawn if path is not None)
    return replace(made, figures=figures, folder=out)


def draw(made: Validation, scenario: str, folder: Path) -> Path | None:
    """Write figure 6 or 8 as `fig6-sim-<ground>`.png and .pdf; return None without a cell.

    Above: means of runs with 95 % intervals, measured plain and simulated hatched. Below: the
    model's relative error over pairs of runs of the same seed.
    """
    cells = [c for c in made.throughput if c.scenario == scenario and not c.setting]
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
            f"Figure {SCENARIOS[scenario]}, {scenario}: {made.real} and sim "
            f"(pairs of one seed, {stats.counts(c.error for c in cells)})"
        )
        style.legend(drawn, axes)
        with style.marked("measured and simulated"):
            return style.save(drawn, folder, f"fig{SCENARIOS[scenario]}-sim-{made.real}")


def _bars(axes: Axes, cells: Sequence[ValidatedCell], real: str, *, first: bool) -> None:
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
                yerr=errors([estimate]),
                capsize=2.5,
                label=name if first and index == 0 else None,
            )
    axes.set_xticks(range(len(cells)), [cell.controller for cell in cells])
    # Two runs have an interval of ten times the mean: the axis must show the bars.
    highest = max(max(cell.measured.value, cell.simulated.value) for cell in cells)
    axes.set_ylim(0, 1.6 * highest)
    axes.set_title(OP_NAMES[cells[0].op])
    axes.set_ylabel(cells[0].unit)


def _errors(axes: Axes, cells: Sequence[ValidatedCell]) -> None:
    for index, cell in enumerate(cells):
        axes.errorbar(
            [index],
            [100 * cell.error.value],
            yerr=100 * errors([cell.error]),
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


def _rows(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """Return the table of runs with ``cell``, which is equal for the same experiment, ``against``,
    which is equal for all its controllers, ``setting`` and ``queue``."""
    known = [one for one in runs if one.run.kind == "dlr" and one.run.parameters["op"] in OPS]
    keys: dict[str, list[str]] = {"cell": [], "against": [], "setting": [], "queue": []}
    for run in (one.run for one in known):
        shared = {k: v for k, v in run.parameters.items() if not k.startswith("controller")}
        queue = _queue(run)
        same = [run.parameters, run.seed, round(run.time_scale, 9), run.osd_count, queue]
        keys["cell"].append(json.dumps(same, sort_keys=True))
        keys["against"].append(json.dumps([shared, run.seed, queue], sort_keys=True))
        keys["queue"].append(queue)
        keys["setting"].append(_setting(run.parameters))
    return table(known).assign(**keys)


def _queue(run: Run) -> str:
    """Return the scheduler of the run's OSDs: the model's, or the default of a Ceph's release."""
    if run.ground == SIM:
        model = run.provenance.calibration.get("model", {})
        return str(model.get("op_queue", "wpq"))
    major = run.provenance.versions.get("ceph", "").partition(".")[0]
    return MCLOCK if major.isdecimal() and int(major) >= QUINCY else "wpq"


def _cells(real: pd.DataFrame, simulated: pd.DataFrame) -> Iterator[ValidatedCell]:
    """Yield the results of every cell; both tables hold the same cells."""
    sides = (real, simulated)
    order = {name: at for at, name in enumerate(in_order(list(set(real["controller"]))))}
    places = real[["scenario", "setting", "op", "controller"]].drop_duplicates()
    for scenario, setting, op, controller in sorted(
        places.itertuples(index=False, name=None),
        key=lambda place: (*place[:2], OPS.index(place[2]), order[place[3]]),
    ):
        its = {"scenario": scenario, "setting": setting, "op": op}
        mine = [where(rows, **its, controller=controller) for rows in sides]
        base = [where(rows, **its, controller=BASELINE) for rows in sides]
        for metric in (metric_of(op, "throughput"), "latency_s"):
            measured, model = (average(by_block(rows, metric, ("cell",)), metric) for rows in mine)
            error = quotient(mine[1], mine[0], metric, keys=("cell",))
            if measured is None or model is None or error is None:
                continue
            cell = ValidatedCell(
                scenario,
                op,
                controller,
                setting,
                metric,
                measured,
                model,
                error.map(lambda value: value - 1),
            )
            if controller != BASELINE and metric != "latency_s":
                effects = [
                    quotient(one, other, metric, keys=("against",))
                    for one, other in zip(mine, base, strict=True)
                ]
                cell = replace(cell, effect_measured=effects[0], effect_simulated=effects[1])
            yield cell


def _key(cell: ValidatedCell) -> tuple[str, str, str, str]:
    return cell.scenario, cell.op, cell.setting, cell.controller


def _setting(parameters: dict[str, Any]) -> str:
    """Return differences from the paper's setting, in words. Durations do not make another cell:
    each pair has the same duration on both grounds."""
    usual = DLR.row({"hot_nodes": HOT_NODES})
    parameters = usual | parameters
    parts = []
    if parameters["object_size"] != usual["object_size"]:
        parts.append(f"{int(parameters['object_size']) // 1024} KiB")
    if parameters["concurrency"] != usual["concurrency"]:
        parts.append(f"{parameters['concurrency']} in flight")
    if parameters["signal"] != usual["signal"]:
        parts.append(f"signal {parameters['signal']}")
    for name in ("mix", "spread"):
        if parameters[name] is not None:
            parts.append(f"{name} {parameters[name]}")
    if parameters["hot_nodes"] != usual["hot_nodes"]:
        parts.append(f"{parameters['hot_nodes']} hot nodes")
    given = parameters["controller_parameters"]
    parts += [f"{name} {value}" for name, value in sorted(given.items())]
    return ", ".join(parts)


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else value
