"""The simulated part of MOS's report: section 8.2 on fifty machines."""

from __future__ import annotations

from analysis.core.figures import FigureEntry
from analysis.core.papers import Part
from analysis.papers.mos import scale_figures as figures
from analysis.papers.mos.scale_claims import CLAIMS
from analysis.papers.mos.scale_runs import table
from analysis.papers.mos.scale_tables import tables

COMMAND = "hotbed run mos-sim --figure {figure}"

_BAND = (
    "Means of 15 minutes over runs, band: 95 % interval. Pool, loads and noise are drawn from a "
    "block's seed and are the same for both; the paper's pictures are not in its text, so levels "
    "of load are ours (docs/mos.md)."
)

FIGURES: tuple[FigureEntry, ...] = (
    FigureEntry(
        "14",
        "Throughput of MOS and MOS++ under workloads A and B",
        _BAND,
        figures.small,
        "14",
        COMMAND.format(figure="14"),
    ),
    FigureEntry(
        "15",
        "Bandwidth of MOS and MOS++ under workloads C and D",
        _BAND,
        figures.large,
        "15",
        COMMAND.format(figure="15"),
    ),
    FigureEntry(
        "error",
        "What a wrong model costs MOS++ (not in the paper)",
        "Each curve of the optimiser's cospurf is made wrong by a given part (docs/mos.md). "
        "Geometric means over blocks with 95 % intervals.",
        figures.errors,
        "error",
        COMMAND.format(figure="error"),
        figures.told_of_errors,
    ),
    FigureEntry(
        "division",
        "Who holds what of the pool (not in the paper)",
        "Means of 15 minutes over runs.",
        figures.division,
        "14",
        COMMAND.format(figure="14"),
    ),
)

SCALE = Part(
    CLAIMS,
    FIGURES,
    kind="mos",
    simulated=True,
    tabulate=table,
    tables=tables,
    commands={"Table 3": COMMAND.format(figure="14")},
)
