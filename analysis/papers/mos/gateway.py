"""COSBench's workloads on Ceph's object gateway, planned by DLR's authors: the same hotspots and
controllers as in the DLR paper, S3 clients instead of rados bench. Runs, figures and claims.

Runs are paired by block: its cells share the hot nodes and the driver's draws. n counts blocks. No
paper has numbers of it: everything was declared before a run was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import pandas as pd

from analysis.core import style
from analysis.core.claims import Claim, Evidence, declared
from analysis.core.evidence import Pair, quotient, where
from analysis.core.figures import FigureEntry, Missing
from analysis.core.panels import Look, bars
from analysis.core.papers import Part
from analysis.core.stats import Estimate, counts
from analysis.papers.dlr.runs import BLOCKS
from schemas.cells.dlr import GatewayWorkload

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LETTERS = ("A", "B", "C", "D")
SCENARIOS = {"heterogeneity": "hotspots that stay", "interference": "hotspots that move"}
CALM = "no hotspot"
METRICS = {"throughput": "throughput_mb_s", "latency": "latency_s"}
Arm = tuple[str, str]
"""Scenario and controller."""


def cells(rows: pd.DataFrame, letter: str, arm: Arm) -> pd.DataFrame:
    """Return the runs of one workload with the controller's default parameters."""
    return where(rows, workload=letter, variant="{}", scenario=arm[0], controller=arm[1])


def acted(rows: pd.DataFrame, letter: str, arm: Arm) -> pd.DataFrame:
    """Return the runs of `cells`, without numbers if the controller changed nothing."""
    runs = cells(rows, letter, arm)
    kept = ~runs["inert"].astype(bool)
    return runs.assign(**{metric: runs[metric].where(kept) for metric in METRICS.values()})


@dataclass(frozen=True)
class GatewayBar:
    """A ratio to default Ceph; `inert`: True if the controller was inert in every run."""

    ratio: Estimate
    inert: bool


def bar_of(
    rows: pd.DataFrame, letter: str, what: str, treated: Arm, base: Arm
) -> GatewayBar | None:
    """Return the bar for one (scenario, controller) over another; None without a shared block."""
    metric = METRICS[what]
    top, bottom = (acted(rows, letter, arm) for arm in (treated, base))
    found = quotient(top, bottom, metric, keys=BLOCKS)
    if found is not None:
        return GatewayBar(found, inert=False)
    if top[metric].notna().any():
        return None
    idle = quotient(cells(rows, letter, treated), cells(rows, letter, base), metric, keys=BLOCKS)
    return None if idle is None else GatewayBar(idle, inert=True)


def by_workload(evidence: Evidence, what: str) -> Figure | Missing:
    """Draw each controller over default Ceph under the same hotspots, by workload; next to them
    default Ceph without hotspots."""
    rows = evidence.table
    there = style.in_order([str(one) for one in rows["controller"].dropna().unique()])
    series = [CALM, *(one for one in there if one != "default")]
    looks = {one: Look(style.label(one), style.colour(one)) for one in there}
    looks[CALM] = Look(CALM, style.colour("none"))
    found: dict[str, dict[tuple[str, str], GatewayBar]] = {}
    for scenario, letter, one in product(SCENARIOS, LETTERS, series):
        treated = ("none", "default") if one == CALM else (scenario, one)
        bar = bar_of(rows, letter, what, treated, (scenario, "default"))
        if bar is not None:
            found.setdefault(scenario, {})[letter, one] = bar
    if not any(one != CALM for its in found.values() for _, one in its):
        return Missing("blocks with default and another controller on the object gateway")
    with style.figure(1, len(found), width=1.2 + 5.2 * len(found), height=4.2) as (drawn, axes):
        for panel, (scenario, its) in zip(axes, found.items(), strict=True):
            letters = [letter for letter in LETTERS if any(letter == key[0] for key in its)]
            bars(
                panel,
                [f"workload {letter}" for letter in letters],
                [
                    (looks[one], {f"workload {x}": its[x, one].ratio for x, y in its if y == one})
                    for one in series
                ],
                hatched=[
                    (looks[one].label, f"workload {letter}")
                    for (letter, one), bar in its.items()
                    if bar.inert
                ],
            )
            panel.axhline(1, color="black", linewidth=0.8)
            n = counts(one.ratio for one in its.values())
            panel.set_title(f"{SCENARIOS[scenario]} ({n} blocks)", loc="left")
        noun = "Throughput" if what == "throughput" else "Mean latency"
        axes[0].set_ylabel(f"{noun} / default Ceph")
        return style.legend(drawn, axes, columns=4)


_CAPTION = (
    "COSBench's workloads (Table 1 of the MOS paper; C and D of 1 to 16 MB) through radosgw, four "
    "OSD nodes disturbed. Paired by block, geometric mean of ratios with 95 % intervals; reads "
    "and writes together. Runs of a controller that changed nothing are left out; hatched: it "
    "changed nothing in any."
)

FIGURES: tuple[FigureEntry, ...] = tuple(
    FigureEntry(
        f"gateway-{what}",
        f"{noun} on Ceph's object gateway by controller (not in the paper)",
        _CAPTION,
        partial(by_workload, what=what),
        "gateway",
    )
    for what, noun in (("throughput", "Throughput"), ("latency", "Mean latency"))
)


def _change(letter: str, what: str, treated: Arm, base: Arm) -> Pair:
    """Compute relative change: T / T_base - 1 for throughput, 1 - L / L_base for latency."""

    def why(top: pd.DataFrame, bottom: pd.DataFrame) -> str:
        inert = int(top["inert"].sum() + bottom["inert"].sum())
        left_out = f"; {inert} runs changed nothing and are left out" if inert else ""
        return f"no block has both cells of workload {letter}{left_out}"

    return Pair(
        partial(acted, letter=letter, arm=treated),
        partial(acted, letter=letter, arm=base),
        METRICS[what],
        why,
        keys=BLOCKS,
        function=(lambda ratio: ratio - 1) if what == "throughput" else (lambda ratio: 1 - ratio),
        against=base[1],
    )


def _claims(letter: str, what: str, verb: str) -> Iterator[Claim]:
    """Yield the claims of one workload: DLR against its baselines, and the cost of hotspots."""
    claim = partial(
        declared,
        figure=f"gateway-{what}",
        prefix="mos-gateway",
        paper="mos",
        stated=False,
        unit="relative change",
    )
    for (scenario, words), other in product(SCENARIOS.items(), ("default", "reweight")):
        yield claim(
            f"{scenario}-{letter.lower()}-{what}-dlr-over-{other}",
            statement=f"DLR {verb} {what} of workload {letter} on the object gateway under {words} "
            f"against {style.label(other)}",
            compute=_change(letter, what, (scenario, "dlr"), (scenario, other)),
        )
    yield claim(
        f"calm-{letter.lower()}-{what}",
        statement=f"Without hotspots {what} of workload {letter} on the object gateway "
        "is better than under hotspots that stay",
        compute=_change(letter, what, ("none", "default"), ("heterogeneity", "default")),
    )


CLAIMS: tuple[Claim, ...] = tuple(
    claim
    for letter in LETTERS
    for what, verb in (("throughput", "raises"), ("latency", "lowers"))
    for claim in _claims(letter, what, verb)
)
GATEWAY = Part(
    CLAIMS, FIGURES, simulated=False, models=(GatewayWorkload,), command="hotbed run mos-gateway"
)
