"""Claims of the Ursa paper about its planner (abstract, sections 1, 2.1, 5, 5.1 and 7), and claims
beyond it. Section 5.2 is about a running store.

The paper's *ALP* is Algorithm 1 as written (`algorithm1`, DC+LP); Hotbed's own (`alp`) has separate
claims. Costs and numbers of operations depend on the algorithms, not on the machine. Seconds depend
on this machine and program, and the paper does not name its machine: they are only compared with
the paper's bounds, met or not. The paper's instances are Hotmail's and are not public: all
instances are of kind S1 unless a claim says otherwise (docs/ursa.md).
"""

from __future__ import annotations

from functools import partial

import pandas as pd

from analysis.core.claims import Claim, Compute, declared
from analysis.papers.ursa.figures import COMBINATIONS
from analysis.papers.ursa.measured import (
    Rows,
    farthest_of,
    geometric_at,
    large,
    mean_at,
    mean_at_largest,
    of,
    quotient_at,
    quotient_over_sizes,
    share,
    shared_instances,
    where,
)
from analysis.papers.ursa.runs import ALGORITHM, OURS, cells
from schemas.cells.ursa import INPUTS
from schemas.claim import Kind

LARGEST = "10K-10M"
SMALLEST = "0.1K-0.1M"
ILP_SIZE = "150-150K"
TWO_DAYS_S = 2 * 86400.0
ROOM = 0.01

_PAPERS = large(of(ALGORITHM, kind="s1"))
_OURS = large(of(OURS, kind="s1"))
_HTOC = large(of("htoc", kind="s1"))
_SA = large(of("sa", kind="s1"))
_RANDOM = large(of(OURS, kind="s1", selection="random"))
_SECONDS = "this machine's seconds; the paper does not name its machine"


_claim = partial(declared, prefix="ursa", paper="ursa", machines=False)


def _series(series: str) -> Compute:
    """Compute a combination's cost over NONE+ILP's, at the size where it is farthest from 1."""
    return quotient_over_sizes(
        of(ALGORITHM, series=series), of(ALGORITHM, series=COMBINATIONS[0]), "cost", "farthest"
    )


_TIMES: tuple[Claim, ...] = tuple(
    _claim(
        f"time-{name}",
        "11b",
        f"ALP decides for 10K nodes and 10M partitions within {words} ({where})",
        geometric_at(_PAPERS, "decision_s", LARGEST, _SECONDS),
        value=value,
        kind="at_most",
        unit="s",
        no_effect=0.0,
        tolerance=0.0,
    )
    for name, value, words, where in (
        ("two-minutes", 120.0, "about two minutes", "abstract, sections 1 and 7"),
        ("130", 130.0, "130 s", "section 5.1"),
    )
)

_ENDS: tuple[tuple[str, str, Rows, Kind, float], ...] = (
    ("sa", "SA", _SA, "at_least", 80.0),
    ("sa", "SA", _SA, "at_most", 300.0),
    ("htoc", "HtoC", _HTOC, "at_least", 2.0),
    ("htoc", "HtoC", _HTOC, "at_most", 20.0),
)
"""Ends of the ranges that section 5.1 states: "80-300 times cheaper", "2-20 times cheaper"."""

_COSTS: tuple[Claim, ...] = tuple(
    _claim(
        f"{method}-cost-{kind.removeprefix('at_')}{suffix}",
        "11a",
        f"{who} is {kind.replace('_', ' ')} {value:g} times cheaper than {name}",
        quotient_over_sizes(
            baseline,
            ours,
            "cost",
            "least" if kind == "at_least" else "largest",
        ),
        value=value,
        kind=kind,
        baseline=name,
        tolerance=0.0,
    )
    for who, ours, suffix in (("ALP", _PAPERS, ""), ("Hotbed's ALP", _OURS, "-hotbed"))
    for method, name, baseline, kind, value in _ENDS
)


def _proven(table: pd.DataFrame) -> pd.DataFrame:
    """Return OPT's plans that are proven and leave no node hot."""
    found = cells(table, "opt")
    if "note_optimal" not in found.columns:
        return found.iloc[:0]
    return found[(found["note_optimal"] == 1) & (found["hot_after"] == 0)]


def _relieved(rows: Rows) -> Rows:
    """Select plans that leave no node hot: a partial plan costs less and says nothing."""
    return where(rows, lambda found: found["hot_after"] == 0)


_OPTIMUM: tuple[Claim, ...] = tuple(
    _claim(
        f"optimum{suffix}",
        "10a",
        f"{who} costs about as much as the exact optimum on small instances (kind S2; read as "
        "within 5 %)",
        shared_instances(_relieved(of(method)), _proven, "cost"),
        value=1.0,
        kind="within",
        baseline="OPT",
        tolerance=0.05,
    )
    for who, method, suffix in (("ALP", ALGORITHM, ""), ("Hotbed's ALP", OURS, "-hotbed"))
)


def _objects(table: pd.DataFrame) -> pd.DataFrame:
    """Return plans by ALP, with the number of objects."""
    found = _PAPERS(table)
    return found.assign(objects=found["partitions"] * found["replicas"])


def _hotbed_bounded(table: pd.DataFrame) -> pd.DataFrame:
    """Return Hotbed's plans with their distance below a cost of 1 % above the certified bound."""
    found = _OURS(table)
    return found.assign(room=ROOM - found["gap"]) if "gap" in found.columns else found.iloc[:0]


_DEVIATION: tuple[Claim, ...] = (
    _claim(
        "sa-deviation-small",
        "11d",
        f"SA ends with a smaller deviation of the nodes' loads than ALP at {SMALLEST}",
        quotient_at(_SA, _PAPERS, "load_sd_after", SMALLEST),
        baseline="ALP",
        larger=False,
    ),
    *(
        _claim(
            f"{method}-deviation-{size.partition('-')[0].lower()}",
            "11d",
            f"{name} ends with a slightly smaller deviation of the nodes' loads than SA at {size}",
            quotient_at(rows, _SA, "load_sd_after", size),
            baseline="SA",
            larger=False,
        )
        for method, name, rows in (("alp", "ALP", _PAPERS), ("htoc", "HtoC", _HTOC))
        for size in ("5K-5M", LARGEST)
    ),
)

CLAIMS: tuple[Claim, ...] = (
    _claim(
        "input-variation",
        "3",
        "The load of servers varies by about 10 times (inputs, 5 % to 95 % of the nodes' load over "
        "capacity; the paper's figure is of one server over a week)",
        mean_at_largest(
            of(INPUTS, kind="s1"),
            lambda rows: rows["ratio_p95"] / rows["ratio_p05"],
            "no cell describes its instance",
        ),
        value=10.0,
    ),
    _claim(
        "size",
        "11",
        "Plans for ten thousand nodes and thirty million objects",
        mean_at(_objects, "objects", LARGEST),
        value=30e6,
        kind="at_least",
        unit="objects",
        no_effect=0.0,
        tolerance=0.0,
    ),
    _claim(
        "third-left",
        "7a",
        "About one third of the hot spots are left after swaps alone",
        mean_at_largest(
            large(of(OURS, kind="s1")),
            lambda rows: rows["hot_after_swaps"] / rows["hot_before"].where(rows["hot_before"] > 0),
            "no plan was made",
        ),
        value=1 / 3,
        unit="share of the hot spots",
        baseline="before",
        larger=False,
    ),
    _claim(
        "all-removed",
        "7b",
        "Swaps and migrations remove every hot spot",
        share(large(of(OURS)), lambda rows: rows["hot_after"] == 0, "no plan was made"),
        value=1.0,
        kind="within",
        unit="share of the instances",
        tolerance=0.0,
    ),
    _claim(
        "selection-cost",
        "8a",
        "Random objects cost more than highest-load-first at every size",
        quotient_over_sizes(_RANDOM, _OURS, "cost", "least"),
        baseline="highest load first",
    ),
    _claim(
        "selection-moves",
        "8b",
        "Random objects take more migrations than highest-load-first at every size",
        quotient_over_sizes(_RANDOM, _OURS, "moves", "least"),
        baseline="highest load first",
    ),
    _claim(
        "speedup-same-cost",
        "9a",
        "Divided or not, LP or ILP: the cost is the same or almost the same (read as within 5 %)",
        farthest_of([(series, _series(series)) for series in COMBINATIONS[1:]]),
        value=1.0,
        kind="within",
        baseline="NONE+ILP",
        tolerance=0.05,
    ),
    *(
        _claim(
            f"speedup-time-{series.lower().replace('+', '-')}",
            "9b",
            f"DC+LP decides faster than {series} at {ILP_SIZE}",
            quotient_at(of(ALGORITHM, series=series), of(ALGORITHM), "decision_s", ILP_SIZE),
            baseline="DC+LP",
        )
        for series in COMBINATIONS[:3]
    ),
    *(
        _claim(
            f"ilp-two-days-{series.partition('+')[0].lower()}",
            "9b",
            f"{series} takes more than two days at {ILP_SIZE}",
            geometric_at(of(ALGORITHM, series=series), "decision_s", ILP_SIZE, _SECONDS),
            value=TWO_DAYS_S,
            kind="at_least",
            unit="s",
            no_effect=TWO_DAYS_S,
            tolerance=0.0,
        )
        for series in COMBINATIONS[:2]
    ),
    *_OPTIMUM,
    _claim(
        "optimum-time",
        "10b",
        "OPT takes longer than ALP on small instances, where both are slowest apart",
        quotient_over_sizes(of("opt"), of(ALGORITHM, kind="s2"), "decision_s", "largest"),
        baseline="ALP",
    ),
    *_COSTS,
    *_TIMES,
    _claim(
        "time-htoc",
        "11b",
        f"ALP takes longer to decide than HtoC at {LARGEST} (a winner except in running time)",
        quotient_at(_PAPERS, _HTOC, "decision_s", LARGEST),
        baseline="HtoC",
    ),
    _claim(
        "same-moves",
        "11c",
        "ALP and HtoC make the same number of migrations (read as within 5 %)",
        quotient_over_sizes(_PAPERS, _HTOC, "moves", "farthest"),
        value=1.0,
        kind="within",
        baseline="HtoC",
        tolerance=0.05,
    ),
    *_DEVIATION,
    _claim(
        "hotbed-cost",
        "11a",
        f"Hotbed's ALP costs less than Algorithm 1 at {LARGEST}",
        quotient_at(_OURS, _PAPERS, "cost", LARGEST),
        baseline="Algorithm 1",
        larger=False,
    ),
    _claim(
        "hotbed-time",
        "11b",
        f"Hotbed's ALP decides faster than Algorithm 1 at {LARGEST}",
        quotient_at(_OURS, _PAPERS, "decision_s", LARGEST),
        baseline="Algorithm 1",
        larger=False,
    ),
    _claim(
        "hotbed-gap",
        "11a",
        f"Hotbed's ALP stays within 1 % of the least cost for its objects at {LARGEST} (certified)",
        mean_at(_hotbed_bounded, "room", LARGEST, "1 % minus the gap to the bound"),
        unit="relative change",
        baseline="lower bound",
        no_effect=0.0,
    ),
)
