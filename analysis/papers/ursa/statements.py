"""Statements of the Ursa paper's text that are not a figure's main result. Where no run can support
one, its reason is stated."""

from __future__ import annotations

from functools import partial

import pandas as pd

from analysis.core.claims import Claim, Compute, by_column, unreachable
from analysis.core.evidence import (
    Pair,
    Rows,
    compared,
    ends,
    extreme,
    extreme_over,
    mean_of,
    mean_over,
)
from analysis.core.stats import fraction
from analysis.papers.ursa.claims import (
    HTOC,
    LARGEST,
    PAPERS,
    ROOM,
    SA,
    SMALLEST,
    at_least_a_second,
    at_size,
    before,
    claim,
    counted,
    exact,
    left,
    less,
    mean_at,
    on_store,
    over,
    over_sizes,
    relieved,
    same,
)
from analysis.papers.ursa.runs import (
    ALP,
    COMBINATIONS,
    CONTROLLED,
    INSTANCE,
    LIVE_BLOCK,
    RANDOM,
    RISE_S,
    controlled_by,
    of,
    rebalancing,
    sizes,
)
from schemas.claim import SHARE

SMALL_PROGRAMS = ("50-50K", SMALLEST)
"""Figure 9's sizes at which the paper has the seconds of all four combinations (50-50K, 100-100K)
as tables name them."""
COMPARABLE = 10.0
"""Ratio of running times below which they count as comparable."""

NO_PROGRAMS = "no instance of figure 9's smaller sizes was planned for by both"
NO_RADII = "no campaign has cells of ALP with several values of first_radius"
NO_JOINT = "no campaign has the method joint on instances of ALP"
NO_SIZES = "no block has both at two sizes"

_NONE_ILP, _DC_ILP, _NONE_LP, _DC_LP = (of(ALP, series=one) for one in COMBINATIONS)


def _program_time(treated: Rows, baseline: Rows) -> Compute:
    """Compute the mean ratio of running times over figure 9's smaller sizes."""
    pair = Pair(treated, baseline, "decision_s", NO_PROGRAMS, keys=INSTANCE, cluster="seed")
    return mean_over(pair, "size", wanted=lambda size: size in SMALL_PROGRAMS, text=str)


def _radii(table: pd.DataFrame) -> pd.DataFrame:
    """Return plans by ALP with a chosen first radius, with the seconds of one programme."""
    found = table[(table["method"] == ALP) & table["first_radius"].notna()]
    if not {"s_place", "note_programmes"} <= set(found.columns):
        return found
    return found.assign(each_s=found["s_place"] / found["note_programmes"])


_SOLVER: tuple[Claim, ...] = (
    exact(
        "variables-exact",
        "10",
        "The exact model has 300 billion variables for 10K nodes, 10M partitions and 3 replicas "
        "(section 3.1)",
        mean_at(counted, "variables", LARGEST),
        value=3e11,
        unit="variables",
    ),
    less(
        "variables-two-phase",
        "10",
        "The two-phase model has about 12 million variables for the same size (section 3.2)",
        "runs do not record the number of a programme's variables",
        value=12e6,
        rule="at_most",
        unit="variables",
        kind="count",
        no_effect=3e11,
        baseline="opt",
    ),
    claim(
        "third-left-small",
        "7a",
        f"About one third of the hot spots are left after swaps alone at {SMALLEST} too (read as "
        "within a quarter of that)",
        mean_at(left, "left", SMALLEST, of=fraction),
        value=1 / 3,
        rule="within",
        unit=SHARE,
        no_effect=1.0,
    ),
    same(
        "divide-cost",
        "9a",
        "Dividing loses no accuracy (section 3.2): the cost is the same with LP and with ILP (read "
        "as within 1 %)",
        extreme(
            [
                ("LP", over_sizes(_DC_LP, _NONE_LP, "cost", "farthest")),
                ("ILP", over_sizes(_DC_ILP, _NONE_ILP, "cost", "farthest")),
            ],
            "farthest",
        ),
        baseline="none",
        tolerance=ROOM,
    ),
    claim(
        "divide-suboptimal",
        "9a",
        "If regions do not overlap and one has no feasible solution, dividing costs more (section "
        "7)",
        "runs do not record which regions had no feasible solution",
        baseline="none",
    ),
    claim(
        "divide-time",
        "9b",
        "Dividing makes the integer programme significantly faster (section 3.2; mean of 50-50K "
        "and 100-100K)",
        _program_time(_NONE_ILP, _DC_ILP),
        baseline="dc+ilp",
    ),
    claim(
        "relax-time",
        "9b",
        "The integer programme is more expensive than the relaxed one (section 3.2; mean of 50-50K "
        "and 100-100K)",
        _program_time(_NONE_ILP, _NONE_LP),
        baseline="none+lp",
    ),
    *(
        claim(
            f"faster-{series.lower().replace('+', '-')}",
            "9b",
            f"DC+LP decides faster than {series} at the smaller sizes too, 50-50K and 100-100K",
            extreme_over(
                Pair(of(ALP, series=series), _DC_LP, "decision_s", NO_PROGRAMS, keys=INSTANCE),
                "size",
                "least",
                order=sizes,
                wanted=lambda size: size in SMALL_PROGRAMS,
                text=str,
            ),
            baseline="dc+lp",
            family="ursa-speedup-time",
        )
        for series in COMBINATIONS[:3]
    ),
    claim(
        "scaling-opt",
        "10b",
        "ALP scales better than OPT: OPT's running time over ALP's is larger on the largest small "
        "instances than on the smallest",
        ends(
            compared(of("opt"), of(ALP, kind="s2"), "decision_s", INSTANCE),
            "nodes",
            "ratio",
            NO_SIZES,
        ),
        baseline="alp",
    ),
)

_METHODS: tuple[Claim, ...] = (
    *(
        less(
            f"time-comparable-{method}",
            "11b",
            f"ALP's running time is comparable to that of {name} at every size (read as less than "
            f"{COMPARABLE:g} times as long)",
            over_sizes(PAPERS, rows, "decision_s", "largest"),
            no_effect=COMPARABLE,
            baseline=method,
            family="ursa-comparable",
        )
        for method, name, rows in (("htoc", "HtoC", HTOC), ("sa", "SA", SA))
    ),
    claim(
        "sa-moves",
        "11c",
        "SA makes more migrations than ALP at every size (a winner in all but running time)",
        over_sizes(SA, PAPERS, "moves", "least"),
        baseline="alp",
    ),
    claim(
        "sa-less-effective",
        "11d",
        "SA becomes less effective as the scale increases: it leaves more of the deviation of the "
        "nodes' loads at the largest size than at the smallest",
        ends(compared(SA, before, "load_sd_after", INSTANCE), "nodes", "ratio", NO_SIZES),
        baseline="smallest-size",
    ),
    same(
        "deviation-slightly",
        "11d",
        "At 5K-5M and 10K-10M the deviations of ALP and HtoC differ only slightly from SA's (read "
        "as within 10 %)",
        extreme(
            [
                (f"{name} at {size}", at_size(rows, SA, "load_sd_after", size))
                for name, rows in (("ALP", PAPERS), ("HtoC", HTOC))
                for size in ("5K-5M", LARGEST)
            ],
            "farthest",
        ),
        tolerance=0.1,
        baseline="sa",
    ),
    claim(
        "sa-untuned",
        "11c",
        "Without tuned parameters SA may make excessive migrations (section 5.1)",
        "cells have no parameters of SA (measured once: docs/ursa.md)",
        baseline="sa",
    ),
)

_KNOBS: tuple[Claim, ...] = (
    *by_column(
        claim,
        "radius",
        "9",
        "A large first radius {} (section 7; largest over smallest first radius)",
        lambda column: ends(_radii, "first_radius", column, NO_RADII, keys=INSTANCE),
        ("rounds", "needs fewer programmes", "note_programmes", False),
        ("time", "needs costlier programmes, in seconds", "each_s", True),
        ("cost", "may have a higher reconfiguration cost", "cost", True),
        baseline="smallest-radius",
        family="ursa-radius",
    ),
    *by_column(
        claim,
        "joint",
        "8",
        "Choosing objects and targets jointly {} (section 7)",
        lambda column: over(relieved(of("joint")), relieved(of(ALP)), column, NO_JOINT),
        ("cost", "reduces the cost", "cost", False),
        ("time", "may take longer to decide", "decision_s", True),
        baseline="alp",
        family="ursa-joint",
    ),
    less(
        "coarser-unit",
        "11c",
        "A coarser unit of migration needs fewer operations (section 7)",
        "cells of the planner have no groups of partitions as the unit of migration",
        baseline="single-objects",
    ),
)

_unreachable = partial(unreachable, prefix="ursa", paper="ursa", machines=False)
_of_hotmail = partial(
    _unreachable,
    why="a fact about Hotmail's servers, whose data are not public; here it is put in",
    unit=SHARE,
)
_ELSEWHERE: tuple[Claim, ...] = (
    _of_hotmail(
        "hot-few",
        "1",
        "Hot spots are few compared to the system's size (a power law; sections 1 and 2.1)",
        larger=False,
    ),
    _of_hotmail(
        "partition-skew",
        "1",
        "CPU utilization is highly skewed to a few partitions (sections 1 and 2.1)",
    ),
    _of_hotmail(
        "read-heavy",
        "3",
        "Hotmail is read-heavy, which is the source of disk latency (section 2.1)",
    ),
    _unreachable(
        "terabytes",
        "1",
        "Services shuffle terabytes a day to balance load (section 1)",
        "a fact about production services, which the paper cites",
        unit="terabytes a day",
        kind="count",
        no_effect=1.0,
    ),
    _unreachable(
        "everest-reads",
        "11",
        "Off-loading writes (Everest) can delay reads, unlike Ursa (section 6)",
        "Everest's program is not public, and the paper did not run it",
        baseline="everest",
    ),
    _unreachable(
        "prior-small",
        "11",
        "Earlier solvers were evaluated on six nodes and do not scale (section 6)",
        "a survey of the literature; their programs are not public",
        unit="nodes",
        kind="count",
        no_effect=10_000.0,
        larger=False,
        baseline="kunkle-schindler",
    ),
)

PLANNER_STATEMENTS: tuple[Claim, ...] = (*_SOLVER, *_METHODS, *_KNOBS, *_ELSEWHERE)


def _gain(network: str) -> Rows:
    """Select blocks of 30 OSDs with HtoC's settling time minus Ursa's as ``difference``."""
    htoc, ursa = (controlled_by(name, network, 30) for name in ("htoc", "ursa"))
    return compared(htoc, ursa, "censored_s", LIVE_BLOCK)


def _of_any_size(controller: str) -> Rows:
    """Select a controller's runs under the skewed load on stores of every size, Controlled."""
    return at_least_a_second(partial(rebalancing, network=CONTROLLED, controller=controller))


_unreachable_live = partial(unreachable, prefix="ursa-live", paper="ursa")

LIVE_STATEMENTS: tuple[Claim, ...] = (
    *(
        _unreachable_live(
            f"knee-{operations}",
            "4",
            f"The 99th percentile is above 10 s from {rate} {operations} a second on, with blocks "
            "of 32 MB (section 2.2)",
            "about a small virtual machine of Windows Azure in 2011; here its shape is claimed",
            value=10.0,
            rule="at_least",
            unit="s",
            no_effect=10.0,
        )
        for operations, rate in (("reads", 50), ("writes", 20))
    ),
    on_store(
        "reads-bear-more",
        "4",
        "A node bears more reads than writes before its response times rise (50 against 20 a "
        "second, section 2.2)",
        "no campaign reads in an open loop",
        value=2.5,
        baseline="writes",
    ),
    on_store(
        "rise",
        "12",
        f"Response times rise rapidly before the balancer is called (mean of the last {RISE_S:g} s "
        "before it over the first)",
        mean_of(rebalancing, "rise", "no run under a skewed load", blocks=True, logarithmic=True),
        baseline=None,
    ),
    on_store(
        "clearer",
        "12",
        "30-900: ALP's gain over HtoC is much clearer in Controlled than in Random (140 s against "
        "30 s earlier)",
        Pair(
            _gain(CONTROLLED),
            _gain(RANDOM),
            "difference",
            "no block has ursa and HtoC with 30 OSDs, both Controlled and Random",
            by="difference",
            keys=("block",),
        ),
        value=110.0,
        unit="s",
        no_effect=0.0,
        size=False,
        baseline="random-network",
    ),
    on_store(
        "volume",
        "13",
        "Reconfiguration takes a time that is proportional to the migrated volume (section 1)",
        "no campaign varies ballast_mb, the data that each move copies",
        value=1.0,
        rule="within",
        baseline="smaller-volume",
    ),
    on_store(
        "interference",
        "12",
        "Reconfiguration interferes with requests, which become slower (sections 1 and 7)",
        "no campaign moves groups while no node is overloaded; otherwise slow requests may "
        "come from the overload",
        baseline="no-moves",
    ),
    on_store(
        "far-moves",
        "12",
        "Moving data to another rack takes significantly longer than within the rack",
        "runs do not record when each move ends",
        baseline="same-rack",
    ),
    _unreachable_live(
        "blocked-writes",
        "12",
        "Writes to an object that moves are blocked until it has moved (section 4)",
        "about the paper's own storage nodes; Ceph takes writes to a group that moves",
        unit=SHARE,
    ),
)

SIMULATED_STATEMENTS: tuple[Claim, ...] = (
    on_store(
        "gap-grows",
        "13-sim",
        "The gap between ALP and HtoC grows with the scale: HtoC's settling time over ALP's is "
        "larger on 50 OSDs than on 30",
        ends(  # the groups of the store with 10 OSDs hold eight times as much data
            compared(
                _of_any_size("htoc"), _of_any_size("ursa"), "censored_s", (*LIVE_BLOCK, "osds")
            ),
            "osds",
            "ratio",
            "no block has ursa and HtoC, Controlled, on 30 and on 50 OSDs",
            wanted=lambda osds: osds >= 30,
            keys=("block",),
        ),
        baseline="30-osds",
    ),
)
