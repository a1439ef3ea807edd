"""The part of the Ursa report about runs on a running store: figures 4, 12 and 13."""

from __future__ import annotations

from functools import partial

from analysis.core.figures import FigureEntry
from analysis.core.papers import Part
from analysis.papers.ursa import live_figures
from analysis.papers.ursa.live_claims import CLAIMS, SIMULATED_CLAIMS
from analysis.papers.ursa.live_runs import CONTROLLED, table
from schemas.cells.dlr import OpenLoop
from schemas.settling import HOLD_S, STABLE_S, WINDOW_S

_COMMAND = "hotbed run ursa-live --figure {figure}"
_ONE = (
    "The first block's run of each. L: the controller decides. Dotted: 1 s, what counts as stable."
)
_SETTLED = (
    f"Stable: from then on, for {HOLD_S:g} s, 99 % of the writes of every {WINDOW_S:g} s are "
    f"answered within {STABLE_S:g} s. Squares: the same to the end of the run; crosses: from then "
    "on to the end not one takes longer. Runs that never get there count with all that was seen of "
    "them."
)

FIGURES: tuple[FigureEntry, ...] = (
    FigureEntry(
        "4",
        "Response time against the load on one node",
        "Open-loop writes: a latency counts from when the write was due. The paper's system is its "
        "own store on Azure, with larger blocks.",
        live_figures.load,
        "4",
        _COMMAND.format(figure="4"),
    ),
    FigureEntry(
        "12",
        "Response time of each request over elapsed time",
        f"{_ONE} Stable after: for {HOLD_S:g} s. The paper, 30-900: ALP stable about 30 s (Random) "
        "and 140 s (Controlled) before "
        "HtoC.",
        live_figures.response,
        "12",
        _COMMAND.format(figure="12"),
    ),
    FigureEntry(
        "13",
        "Time until stable and migrations, Controlled",
        f"Means over blocks with 95 % intervals. {_SETTLED} The paper: two times "
        "faster at 50-2500, and a "
        "similar number of migrations.",
        partial(live_figures.settling, network=CONTROLLED),
        "13",
        _COMMAND.format(figure="13"),
    ),
)


LIVE = Part(CLAIMS, FIGURES, simulated=False, models=(OpenLoop,), tabulate=table)

_SIMULATED = "hotbed run ursa-live-50 --figure {figure}"

SIMULATED_FIGURES: tuple[FigureEntry, ...] = tuple(
    FigureEntry(
        f"{entry.id}-sim",
        f"{entry.title} (simulated)",
        entry.caption,
        entry.draw,
        entry.campaign,
        _SIMULATED.format(figure=entry.campaign),
    )
    for entry in FIGURES
)

LIVE_SIMULATED = Part(
    SIMULATED_CLAIMS, SIMULATED_FIGURES, simulated=True, models=(OpenLoop,), tabulate=table
)
"""Open-loop writes on a modelled store: fifty OSDs, or the stores run with ``--ground sim``."""
