"""Figures of runs on real object servers."""

from __future__ import annotations

from analysis.core.figures import FigureEntry
from analysis.core.papers import Part
from analysis.papers.twochoice.objects import figures
from analysis.papers.twochoice.objects.claims import CLAIMS
from analysis.papers.twochoice.objects.runs import table
from analysis.papers.twochoice.objects.tables import tables

LOCAL = "hotbed run twochoice-local --figure {figure}"
RADOS = "hotbed run twochoice-rados --figure {figure}"
MICRO = "hotbed run twochoice-micro --figure {figure}"

_MEAN = "Means over runs with 95 % intervals; all schedulers of a block meet the same jobs."

FIGURES: tuple[FigureEntry, ...] = (
    FigureEntry(
        "11",
        "Probing performance",
        "Means over runs with 95 % intervals. Every scheduler asks all of the servers at once, 100 "
        "times one after another; the slowest answer counts. All schedulers and servers share the "
        "testbed's processors.",
        figures.probing,
        "11",
        MICRO,
    ),
    FigureEntry(
        "12",
        "Redirect table performance",
        "Means over runs and their range. Redirected writes of random ranges of one object. A "
        "create ends when its record is on the home's disk.",
        figures.redirecting,
        "12",
        MICRO,
    ),
    FigureEntry(
        "13",
        "Server loads while scheduling all the workloads",
        "The first block's run; line: the mean. Jobs after Table II, each file from a random "
        "server on.",
        figures.balances,
        "13",
        LOCAL,
    ),
    FigureEntry(
        "14",
        "Completion times of the processes with different schedulers",
        "512 client processes on 64 object servers, among the jobs of Table II with fixed "
        "placement. Triangles: the last process.",
        figures.completions,
        "14",
        LOCAL,
    ),
    FigureEntry(
        "beyond",
        "Every scheduler on the same servers (not in the paper)",
        f"{_MEAN} The oracle joins the shortest queue of what the client processes have on their "
        "way, and knows nothing of fio.",
        figures.head_to_head,
        "beyond",
        LOCAL,
    ),
    FigureEntry(
        "cache",
        "Both strategies without remembered loads (not in the paper)",
        f"{_MEAN} A server that was probed remembers for 0.2 s what the scheduler heard of others, "
        "and tells the next one; without, it does not.",
        figures.remembered,
        "cache",
        LOCAL,
    ),
    FigureEntry(
        "rados",
        "CRUSH, DLR and agents on the same Ceph (not in the paper)",
        f"{_MEAN} Eight OSDs, 64 client processes with five writes each. Agents write two copies "
        "where CRUSH's pool has two replicas. DLR had seen the stragglers for 8 to 15 s.",
        figures.on_rados,
        "rados",
        RADOS,
    ),
)

OBJECTS = Part(
    CLAIMS,
    FIGURES,
    kind="twochoice-objects",
    tabulate=table,
    tables=tables,
    commands={"table1": MICRO.format(figure="table1")},
)
