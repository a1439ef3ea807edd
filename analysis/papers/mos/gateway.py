"""COSBench's workloads on Ceph's object gateway, planned by DLR's authors: the same hotspots and
controllers as in the DLR paper, S3 clients instead of rados bench.

Runs are paired by block: its cells share the hot nodes and the driver's draws. n counts blocks. No
paper has numbers of it: everything was declared before a run was made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.core import style
from analysis.core.claims import Claim, Compute, Evidence, Measured, NotRun, declared
from analysis.core.evidence import quotient
from analysis.core.figures import FigureEntry, Missing
from analysis.core.load import LoadedRun, origin
from analysis.core.papers import Part
from analysis.core.stats import Estimate, counts
from analysis.papers.dlr.runs import BLOCKS
from schemas.cells.dlr import Gateway

OP = "s3"
LETTERS = ("A", "B", "C", "D")
SCENARIOS = {"heterogeneity": "hotspots that stay", "interference": "hotspots that move"}
CALM = "no hotspot"
METRICS = {"throughput": "throughput_mb_s", "latency": "latency_s"}
COLUMNS = (
    *("index", "run_id", "campaign", "block", "seed", "ground", "time_scale", "workload"),
    *("workers", "scenario", "controller", "variant", "inert", "throughput_mb_s", "iops"),
    *("latency_s", "operations", "failed"),
)


def table(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """Return one row per run: `COLUMNS`. MB (10^6 bytes) per second and seconds, for reads and
    writes together; ``iops`` and ``operations`` also count deletions, ``failed`` everything."""
    rows = [_row(index, loaded) for index, loaded in enumerate(runs)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _row(index: int, loaded: LoadedRun) -> dict[str, Any]:
    run, summary = loaded.run, loaded.summary
    parameters = run.parameters
    whole = next(one for one in summary.whole if one.op == OP)
    return {
        **origin(index, run),
        "time_scale": run.time_scale,
        **{name: parameters[name] for name in ("workload", "workers", "scenario", "controller")},
        "variant": json.dumps(parameters.get("controller_parameters") or {}, sort_keys=True),
        "inert": bool(summary.inert),
        "throughput_mb_s": whole.throughput_mb_s,
        "iops": whole.iops,
        "latency_s": whole.latency_mean_s,
        "operations": whole.operations,
        "failed": whole.errors,
    }


def cells(rows: pd.DataFrame, letter: str, scenario: str, controller: str) -> pd.DataFrame:
    """Return the runs of one workload with the controller's default parameters."""
    chosen = rows[(rows["workload"] == letter) & (rows["variant"] == "{}")]
    return chosen[(chosen["scenario"] == scenario) & (chosen["controller"] == controller)]


def against(
    rows: pd.DataFrame, letter: str, what: str, treated: tuple[str, str], base: tuple[str, str]
) -> Estimate | None:
    """Return the ratio of two (scenario, controller) over blocks, without inert runs."""
    acted = [_acted(cells(rows, letter, *one)) for one in (treated, base)]
    return quotient(acted[0], acted[1], METRICS[what], keys=BLOCKS)


def _acted(runs: pd.DataFrame) -> pd.DataFrame:
    return runs[~runs["inert"].astype(bool)]


@dataclass(frozen=True)
class Bar:
    """A ratio to default Ceph; `inert`: True if the controller was inert in every run."""

    ratio: Estimate
    inert: bool


def bar_of(
    rows: pd.DataFrame, letter: str, what: str, treated: tuple[str, str], base: tuple[str, str]
) -> Bar | None:
    """Return the bar for one (scenario, controller) over another; None without a shared block."""
    acted = against(rows, letter, what, treated, base)
    if acted is not None:
        return Bar(acted, inert=False)
    runs = cells(rows, letter, *treated)
    if not _acted(runs).empty:
        return None
    all_runs = quotient(runs, cells(rows, letter, *base), METRICS[what], keys=BLOCKS)
    return None if all_runs is None else Bar(all_runs, inert=True)


def by_workload(evidence: Evidence, folder: Path, name: str, what: str) -> Path | Missing:
    """Draw each controller over default Ceph under the same hotspots, by workload; next to them
    default Ceph without hotspots."""
    rows = evidence.table
    there = style.in_order([str(one) for one in rows["controller"].dropna().unique()])
    series = [CALM, *(one for one in there if one != "default")]
    found: dict[tuple[str, str, str], Bar] = {}
    for scenario in SCENARIOS:
        for letter in LETTERS:
            for one in series:
                treated = ("none", "default") if one == CALM else (scenario, one)
                bar = bar_of(rows, letter, what, treated, (scenario, "default"))
                if bar is not None:
                    found[scenario, letter, one] = bar
    shown = [scenario for scenario in SCENARIOS if any(key[0] == scenario for key in found)]
    if not any(one != CALM for _, _, one in found):
        return Missing("blocks with default and another controller on the object gateway")
    with style.figure(1, len(shown), width=1.2 + 5.2 * len(shown), height=4.2) as (drawn, axes):
        for panel, scenario in zip(axes, shown, strict=True):
            mine = {key[1:]: one for key, one in found.items() if key[0] == scenario}
            _bars(panel, mine, series)
            n = counts(one.ratio for one in mine.values())
            panel.set_title(f"{SCENARIOS[scenario]} ({n} blocks)", loc="left")
        noun = "Throughput" if what == "throughput" else "Mean latency"
        axes[0].set_ylabel(f"{noun} / default Ceph")
        style.legend(drawn, axes, columns=4)
        return style.save(drawn, folder, name)


def _bars(panel: Any, found: dict[tuple[str, str], Bar], series: Sequence[str]) -> None:
    letters = [letter for letter in LETTERS if any(key[0] == letter for key in found)]
    width = 0.8 / len(series)
    ends: list[tuple[float, float]] = []
    for place, one in enumerate(series):
        mine = [(at, found[key, one]) for at, key in enumerate(letters) if (key, one) in found]
        if not mine:
            continue
        spots = [at + (place - (len(series) - 1) / 2) * width for at, _ in mine]
        ends += [(spot, bar.ratio.high) for spot, (_, bar) in zip(spots, mine, strict=True)]
        panel.bar(
            spots,
            [bar.ratio.value for _, bar in mine],
            width * 0.94,
            color=style.colour("none" if one == CALM else one),
            hatch=["//" if bar.inert else "" for _, bar in mine],
            edgecolor="white",
            yerr=np.array([bar.ratio.error for _, bar in mine]).T,
            capsize=2.5,
            label=CALM if one == CALM else style.label(one),
        )
    panel.axhline(1, color="black", linewidth=0.8)
    panel.set_xticks(range(len(letters)), [f"workload {letter}" for letter in letters])
    style.limit_intervals(panel, [bar.ratio.value for bar in found.values()], ends)


_CAPTION = (
    "COSBench's workloads (Table 1 of the MOS paper; C and D of 1 to 16 MB) through radosgw, four "
    "OSD nodes disturbed. Paired by block, geometric mean of ratios with 95 % intervals; reads "
    "and writes together. Runs of a controller that changed nothing are left out; hatched: it "
    "changed nothing in any."
)
_COMMAND = "hotbed run mos-gateway"

FIGURES: tuple[FigureEntry, ...] = tuple(
    FigureEntry(
        f"gateway-{what}",
        f"{noun} on Ceph's object gateway by controller (not in the paper)",
        _CAPTION,
        partial(by_workload, what=what),
        "gateway",
        _COMMAND,
    )
    for what, noun in (("throughput", "Throughput"), ("latency", "Mean latency"))
)


def _change(letter: str, what: str, treated: tuple[str, str], base: tuple[str, str]) -> Compute:
    """Compute relative change: T / T_base - 1 for throughput, 1 - L / L_base for latency."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        rows = evidence.table
        estimate = against(rows, letter, what, treated, base)
        runs = pd.concat([cells(rows, letter, *one) for one in (treated, base)])
        inert = len(runs) - len(_acted(runs))
        if estimate is None:
            why = f"; {inert} runs changed nothing and are left out" if inert else ""
            return NotRun(f"no block has both cells of workload {letter}{why}")
        grounds = "+".join(sorted(set(rows["ground"])))
        better = (lambda r: r - 1) if what == "throughput" else (lambda r: 1 - r)
        return Measured(estimate.map(better), grounds, float(rows["time_scale"].iloc[0]))

    return compute


def _claims(letter: str, what: str, verb: str) -> Iterator[Claim]:
    """Yield the claims of one workload: DLR against its baselines, and the cost of hotspots."""
    claim = partial(
        declared,
        figure=f"gateway-{what}",
        prefix="mos-gateway",
        paper="mos",
        unit="relative change",
        no_effect=0.0,
    )
    for (scenario, words), other in product(SCENARIOS.items(), ("default", "reweight")):
        yield claim(
            f"{scenario}-{letter.lower()}-{what}-dlr-over-{other}",
            statement=f"DLR {verb} {what} of workload {letter} on the object gateway under {words} "
            f"against {style.label(other)}",
            compute=_change(letter, what, (scenario, "dlr"), (scenario, other)),
            baseline=other,
        )
    yield claim(
        f"calm-{letter.lower()}-{what}",
        statement=f"Without hotspots {what} of workload {letter} on the object gateway "
        "is better than under hotspots that stay",
        compute=_change(letter, what, ("none", "default"), ("heterogeneity", "default")),
        baseline="default",
    )


CLAIMS: tuple[Claim, ...] = tuple(
    claim
    for letter in LETTERS
    for what, verb in (("throughput", "raises"), ("latency", "lowers"))
    for claim in _claims(letter, what, verb)
)
GATEWAY = Part(CLAIMS, FIGURES, simulated=False, models=(Gateway,), tabulate=table)
