"""Every figure and claim of the two-choice paper, in parts. Each part uses the runs of one ground;
runs of different grounds are never pooled. Another part is one line in `PARTS`."""

from __future__ import annotations

from functools import partial

from analysis.core.figures import FigureEntry
from analysis.core.papers import Part
from analysis.papers.twochoice import figures, variations
from analysis.papers.twochoice.claims import CLAIMS
from analysis.papers.twochoice.objects.catalogue import OBJECTS
from analysis.papers.twochoice.runs import table
from analysis.papers.twochoice.tables import tables

BANNER = (
    "<b>Simulated</b> where a figure says so: bursts of writes on modelled servers, as in section "
    "III of the paper, placed by the very code that places writes on a store. The paper's figures "
    "3 and 4 are simulations too; their pictures are not in its text, which states relations and "
    "hardly a number (docs/twochoice-experiments.md)."
)

_MEAN = "Means over runs with 95 % intervals; all schedulers meet the same bursts."

FIGURES: tuple[FigureEntry, ...] = (
    FigureEntry(
        "3",
        "Write response time of different strategies",
        f"{_MEAN} 1,000 servers, 10,000 processes of one 1 MB write each, 5 ms round trip, "
        "stragglers with 5 times the load. Preassign is shown alone and with the collaborative "
        "probe; cold: nothing was learned.",
        figures.responses,
        "3",
    ),
    FigureEntry(
        "4",
        "What servers of each load are given",
        f"{_MEAN} The most of any server of that load in a burst.",
        figures.placements,
        "4",
    ),
    FigureEntry(
        "learning",
        "How long servers need to learn P(load) (not in the paper)",
        "Mean over runs, band: 95 % interval.",
        variations.learning,
        "learning",
    ),
    FigureEntry(
        "nodes",
        "Processes that share a scheduler (not in the paper)",
        f"{_MEAN} The paper does not say how many share a compute node in figure 3.",
        variations.nodes,
        "nodes",
    ),
    FigureEntry(
        "spread",
        "Processes that do not begin at once (not in the paper)",
        f"{_MEAN} In figure 3 all begin at once.",
        variations.spread,
        "spread",
    ),
    FigureEntry(
        "light",
        "Servers with half the load (not in the paper)",
        f"{_MEAN} As figure 3, with loads of mean 5 and deviation 1, which fit the text of figure "
        "4 as well: 61 servers have a load of 7.",
        partial(figures.responses, setting={"load_mean": 5.0, "load_sd": 1.0}),
        "light",
    ),
    FigureEntry(
        "home",
        "Home and a random server, or two random ones (not in the paper)",
        f"{_MEAN} A redirected write counts when its home server has recorded it (section V.A). "
        "Dotted: two random servers.",
        variations.home,
        "home",
    ),
    FigureEntry(
        "scale",
        "Larger clusters (not in the paper)",
        "(a) Geometric means of the response over the oracle's with the same bursts, (b) means; "
        "over runs, with 95 % intervals.",
        variations.scale,
        "scale",
    ),
)

SIMULATED = Part(CLAIMS, FIGURES, "twochoice", True, tabulate=table, tables=tables)

PARTS: tuple[Part, ...] = (SIMULATED, OBJECTS)
