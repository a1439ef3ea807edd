"""Every figure and claim of the Ursa paper, in parts. Each part uses the runs of one ground; runs
of different grounds are never pooled. Another part is one line in `PARTS`."""

from __future__ import annotations

from functools import partial

from analysis.core.figures import FigureEntry
from analysis.core.papers import Part
from analysis.papers.ursa import figures, inputs
from analysis.papers.ursa.claims import CLAIMS
from analysis.papers.ursa.live import LIVE, LIVE_SIMULATED
from analysis.papers.ursa.runs import table
from analysis.papers.ursa.tables import tables

BANNER = (
    "<b>Simulated</b> where a figure says so: the planner's decisions for generated instances, as "
    "in section 5.1 of the paper. Costs and numbers of operations are what the algorithms decide, "
    "whatever the machine; seconds are those of the machine that planned. The instances are not "
    "the paper's, which are not public (docs/ursa.md)."
)

_MEAN = "Geometric means over instances with 95 % intervals; all methods plan for the same ones."
_LIMIT = "A circle: its time limit ended some decisions, and the best plan until then counts."

FIGURES: tuple[FigureEntry, ...] = (
    FigureEntry(
        "1",
        "Skew of the nodes' load",
        "Inputs, not a result: the paper shows Hotmail's clusters, these are generated. Bands: all "
        "instances.",
        inputs.skew,
        "1",
    ),
    FigureEntry(
        "3",
        "Loads, as a shape",
        "Inputs, not a result. The paper shows one server's requests over a week, which vary by "
        "about 10 times; a generated instance has no time: here are its nodes' loads against their "
        "capacities, and its partitions' loads.",
        inputs.shape,
        "3",
    ),
    FigureEntry(
        "7",
        "What swaps and migrations do",
        "Means over instances with 95 % intervals (numbers of operations: geometric ones). The "
        "paper states one third, and no numbers of operations.",
        figures.swaps,
        "7",
    ),
    FigureEntry(
        "8",
        "Which objects leave",
        f"{_MEAN} Both placed by Hotbed's ALP. The paper states no numbers.",
        figures.selection,
        "8",
    ),
    FigureEntry(
        "9",
        "Dividing and relaxing",
        f"Algorithm 1 as written, in its four variants. {_MEAN} {_LIMIT} The paper leaves out "
        "NONE+ILP and DC+ILP at 150-150K, which took it more than two days.",
        figures.speedup,
        "9",
    ),
    FigureEntry(
        "10",
        "ALP beside the optimum",
        f"Small instances that OPT relieved and in which something had to move. {_MEAN} {_LIMIT} "
        "The sizes are those of section 5.2; the paper's are not in its text.",
        figures.optimum,
        "10",
    ),
    FigureEntry(
        "11",
        "ALP beside HtoC and SA",
        f"{_MEAN} {_LIMIT}",
        partial(figures.methods, kinds=("s1",)),
        "11",
    ),
    FigureEntry(
        "11-tight",
        "The same on tight and clustered instances (not in the paper)",
        f"{_MEAN} {_LIMIT}",
        partial(figures.methods, kinds=("s2", "s3")),
        "11-tight",
    ),
)

PLANNER = Part(CLAIMS, FIGURES, "ursa", True, tabulate=table, tables=tables)

PARTS: tuple[Part, ...] = (PLANNER, LIVE, LIVE_SIMULATED)
