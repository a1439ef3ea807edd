"""The PriorityMeister paper: its claims and figures, simulated and on a testbed. Grounds are never
pooled: each ground has a part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from analysis.core.claims import Evidence
from analysis.core.figures import FigureEntry, Missing, Table
from analysis.core.papers import Part
from analysis.papers.prioritymeister import figures
from analysis.papers.prioritymeister.claims import CLAIMS, LOCAL, LOCAL_CLAIMS
from analysis.papers.prioritymeister.runs import table
from analysis.papers.prioritymeister.statements import STATEMENTS, TAIL_LOCAL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BANNER = (
    "<b>Simulated</b> where a figure says so: the enforcers are the very code of the NFS proxy, on "
    "virtual time; disk, network and traces are modelled. The numbers of the SLOs are not in the "
    "paper's text; docs/prioritymeister.md has the rules by which they were chosen."
)
_BARS = (
    "Medians over blocks with 95 % bootstrap intervals; in red, how many of the runs missed their "
    "SLO at that percentile."
)
_LINES = (
    "Lines are medians over blocks, bands their range; shown as far as ten requests are slower."
)
_LOCAL_SLOS = (
    "An SLO is met at the highest percentile with ten requests beyond it. Where SLOs are not given "
    "they are k times the 95th percentile alone (pm-local-quick: the 90th)."
)

FIGURES: tuple[FigureEntry, ...] = (
    FigureEntry(
        "1",
        "Bursts and SLO violations over time",
        "The first block's run. The paper: Cake is acceptable when there is little burstiness and "
        "has many violations when bursts occur, PM has few.",
        figures.over_time,
    ),
    FigureEntry(
        "4",
        "One token bucket or several, while B misbehaves",
        f"{_LINES} The paper: with any one bucket both others miss their SLOs, with several both "
        "meet them.",
        figures.buckets,
    ),
    FigureEntry(
        "5",
        "Tail latency by policy",
        f"{_BARS} The paper: PM alone meets every SLO at every percentile.",
        figures.tail_bars,
    ),
    FigureEntry(
        "6",
        "Latency at every percentile",
        f"{_LINES} The paper: PM alone violates no SLO.",
        figures.tail_lines,
    ),
    FigureEntry(
        "7",
        "Burstiness, PM and Cake",
        f"{_LINES} The paper: Cake meets the 99th percentile at low burstiness and drops below "
        "96 %; PM meets it up to C_A² = 40. One SLO: k times what F has alone.",
        figures.burstiness,
    ),
    FigureEntry(
        "7-all",
        "Burstiness, every policy (not in the paper)",
        "Means over blocks with 95 % intervals.",
        figures.others,
        "7",
    ),
    FigureEntry(
        "8",
        "A workload that misbehaves",
        f"{_BARS} The paper: all policies meet the SLOs under normal conditions, and PM alone "
        "contains D.",
        figures.misbehaving,
    ),
    FigureEntry(
        "9",
        "The network as the bottleneck",
        f"{_LINES} The paper: PM alone meets all SLOs; client ingress is similar.",
        figures.network,
    ),
    FigureEntry(
        "10",
        "A less accurate estimator",
        f"{_BARS} The paper: the same priority order, similar latencies.",
        figures.estimators,
    ),
    FigureEntry(
        "11",
        "Six permutations of three SLOs",
        f"{_BARS} The paper: PM meets all in all six, bySLO in five.",
        figures.permutations,
    ),
    FigureEntry(
        "table2",
        "Table 2's columns of the stand-ins",
        "One point a trace.",
        figures.stand_ins,
    ),
    FigureEntry(
        "settings",
        "The share of settings that each policy meets (not in the paper)",
        "Means over blocks with 95 % t intervals, cut at 0 and 100 %.",
        figures.share_of_settings,
    ),
    FigureEntry(
        "bounds",
        "Measured against proven (not in the paper)",
        "Every request of every run of PM that keeps to its trace, also while others do not.",
        figures.bounds,
        "5",
    ),
    FigureEntry(
        "levels",
        "Network levels (not in the paper)",
        "Twelve workloads on one link, SLOs 1 to 8 times as loose. Means over blocks with 95 % "
        "intervals.",
        figures.levels,
    ),
    FigureEntry(
        "cake",
        "Cake's upper bound (not in the paper)",
        "Means over blocks with 95 % intervals. The paper increased it and does not say how far; "
        "the pilot (pm-pilot) chose 4.",
        figures.cake_upper,
    ),
    FigureEntry(
        "why",
        "Where figures differ from the paper: suspected causes",
        "Means over blocks with 95 % intervals; each setting differs from the figure's own cells "
        "in one thing.",
        figures.causes,
        "7",
        command="hotbed run pm-why",
    ),
)

# The same figures of runs on a testbed.

_COPIED = {"1": "burst", "5": "disk", "6": "disk", "7": "burst"}
"""Figures with a copy workload, and their scenarios."""
_BURSTS_HERE = "the scenario burst with {} under pm and cake, all of one k (pm-local: 3)"
_DISK_HERE = "the scenario disk with given SLOs"
_NEEDED_HERE = {
    "1": _BURSTS_HERE.format("F and B"),
    "5": _DISK_HERE,
    "6": _DISK_HERE,
    "7": _BURSTS_HERE.format("F and H"),
    "8": "the scenario misbehave with given SLOs, behaving and misbehaving",
    "9": "the scenario network with given SLOs",
}
"""Runs that figures need from a testbed's campaign. The campaign declares its k, which may differ
from the simulated runs' k (`runs.cells`)."""
_NETWORK_HERE = (
    " Here all four share the node with the fast disk and its link out; the clients' link in is "
    "not run."
)
_BOUNDS_HERE = (
    " Here only runs count in which the network was enforced as planned and the server was no "
    "further behind its charges than its profile allows; to the bound is added by how much the "
    "replayer was late at most."
)


def _copies(evidence: Evidence, scenario: str) -> str:
    """Return a caption sentence on the size of the copy's requests on a testbed."""
    rows = evidence.table
    sizes = rows[(rows["scenario"] == scenario) & rows["usual"].astype(bool)]["copy_kib"]
    found = ", ".join(f"{size:g} KiB" for size in sorted(set(sizes.dropna().astype(float))))
    if found == "1024 KiB":
        return " Here the copy's requests are of 1 MiB: it fills the server's link, not the disk."
    return (
        f" Here the copy's requests are of {found}: of 1 MiB it fills the server's link and not "
        "the disk."
    )


def _drawn_here(entry: FigureEntry, evidence: Evidence) -> Figure | Missing:
    """Draw a figure of runs on a testbed, or return the runs that it needs."""
    made = entry.draw(evidence)
    if isinstance(made, Missing) and entry.id in _NEEDED_HERE:
        return Missing(_NEEDED_HERE[entry.id])
    return made


def _on_a_testbed(entry: FigureEntry) -> FigureEntry:
    caption = entry.caption + (_NETWORK_HERE if entry.id == "9" else "")
    return replace(
        entry,
        id=f"{entry.id}-{LOCAL}",
        title=f"{entry.title}, on a testbed",
        caption=caption + (_BOUNDS_HERE if entry.id == "bounds" else f" {_LOCAL_SLOS}"),
        draw=partial(_drawn_here, entry),
        facts=partial(_copies, scenario=_COPIED[entry.id]) if entry.id in _COPIED else None,
    )


LOCAL_FIGURES = tuple(
    _on_a_testbed(entry) for entry in FIGURES if entry.id in (*_NEEDED_HERE, "bounds")
)


def tables(rows: pd.DataFrame) -> Sequence[Table]:
    """Return the tables next to the figures."""
    return [*figures.bound_tables(rows), *figures.table2(rows)]


PARTS: tuple[Part, ...] = (
    Part((*CLAIMS, *STATEMENTS), FIGURES, "prioritymeister", True, tabulate=table, tables=tables),
    Part(
        (*LOCAL_CLAIMS, *TAIL_LOCAL),
        LOCAL_FIGURES,
        "prioritymeister",
        False,
        tabulate=table,
        tables=figures.bound_tables,
        command="hotbed run pm-local --figure {figure}",
    ),
)
