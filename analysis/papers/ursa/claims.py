"""Claims of the Ursa paper, and claims beyond it.

**The planner** (abstract, sections 1, 2.1, 5, 5.1 and 7). The paper's *ALP* is Algorithm 1
(`alp`, DC+LP); Hotbed's own (`alp-fast`) has separate claims. Costs and numbers of operations
depend on the algorithms, not on the machine. Seconds depend on this machine and program,
and the paper does not name its machine: they are only compared with the paper's bounds, met or not.
The paper's instances are Hotmail's and are not public: all instances are of kind S1 unless a claim
says otherwise (docs/ursa.md).

**The running system** (sections 2.2 and 5.2). The paper ran on Windows Azure and moved blocks of
32 MB between its own storage nodes. Here placement groups of a Ceph are moved, with a size that
fits a small machine. Settling times therefore depend on the amount of data in a group. Only their
ratios and directions are compared with the paper; the paper's seconds are shown next to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pandas as pd

from analysis.core.claims import EVERY, Claim, Compute, Evidence, Measured, NotRun, declared
from analysis.core.evidence import (
    Choice,
    Mean,
    Pair,
    Rows,
    ShareOf,
    assigned,
    average,
    ends,
    extreme,
    extreme_over,
    kept,
    mean_of,
    pairs,
    result,
)
from analysis.core.stats import amount, fraction
from analysis.papers.ursa.runs import (
    ALP,
    COMBINATIONS,
    CONTROLLED,
    INSTANCE,
    LIVE_BLOCK,
    OURS,
    RANDOM,
    at,
    cells,
    controlled_by,
    large,
    of,
    rebalancing,
    sizes,
)
from schemas.cells.ursa import INPUTS
from schemas.claim import SHARE, Rule
from schemas.settling import HOLD_S, STABLE_S

LARGEST = "10K-10M"
SMALLEST = "0.1K-0.1M"
ILP_SIZE = "150-150K"
TWO_DAYS_S = 2 * 86400.0
ROOM = 0.01

PAPERS = large(of(ALP, kind="s1"))
_OURS = large(of(OURS, kind="s1"))
HTOC = large(of("htoc", kind="s1"))
SA = large(of("sa", kind="s1"))
_RANDOM = large(of(ALP, kind="s1", selection="random"))
_SECONDS = "this machine's seconds; the paper does not name its machine"


claim = partial(declared, prefix="ursa", paper="ursa", machines=False)
less = partial(claim, larger=False)
"""A claim that a number is less than that of the baseline, or than the number without an effect."""
exact = partial(claim, rule="within", kind="exact", tolerance=0.0)
"""A claim that a number is the paper's by construction."""
same = partial(claim, value=1.0, rule="within", tolerance=0.05)
"""A claim that two values are the same: they differ by at most 5 %."""


def over(
    treated: Rows,
    baseline: Rows,
    column: str,
    why: str,
    note: Callable[..., str | None] | None = None,
) -> Pair:
    """Compare plans for the same instances. Without moves a cost is 0 and says nothing."""
    return Pair(treated, baseline, column, why, keys=INSTANCE, note=note)


def at_size(treated: Rows, baseline: Rows, column: str, size: str) -> Compute:
    """Compute treated/baseline at one size."""
    why = f"no instance of {size} was planned for by both with something to move"
    return over(at(treated, size), at(baseline, size), column, why)


def over_sizes(treated: Rows, baseline: Rows, column: str, which: Choice) -> Compute:
    """Compute treated/baseline at the size that a claim about all of them depends on. The note
    names a side that left nodes hot: a partial plan costs less."""

    def partial_plans(top: pd.DataFrame, bottom: pd.DataFrame) -> str | None:
        sides = (("it", bottom), ("the other", top))
        left = [(side, rows["hot_after"].mean()) for side, rows in sides]
        texts = [f"{side} leaves {n:,.3g} nodes hot there on average" for side, n in left if n > 0]
        return "; ".join(texts) or None

    why = "no size has instances that both planned for, with something to move"
    pair = over(treated, baseline, column, why, partial_plans)
    return extreme_over(pair, "size", which, order=sizes, intervals=True, text=str)


def mean_at(rows: Rows, column: str, size: str, **more: Any) -> Compute:
    """Compute the mean of a column at one size; `more`: see `mean_of`."""
    return mean_of(
        at(rows, size), column, f"no plan for an instance of {size} has this number", **more
    )


def _at_largest(rows: Rows, column: str, why: str, of: Mean = amount) -> Compute:
    """Compute the mean of a column at the largest size with runs; the note has all sizes."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        found = rows(evidence.table)
        order = sizes(found)
        if not order:
            return NotRun(why)
        here = found[found["size"] == order[-1]]
        means = found.groupby("size")[column].mean()
        note = (
            f"at {order[-1]}; by size: {', '.join(f'{size} {means[size]:.2f}' for size in order)}"
        )
        return result(average(here, column, of=of), here, why, note)

    return compute


def _series(series: str) -> Compute:
    """Compute a combination's cost over NONE+ILP's, at the size where it is farthest from 1."""
    none = of(ALP, series=COMBINATIONS[0])
    return over_sizes(of(ALP, series=series), none, "cost", "farthest")


_TIMES: tuple[Claim, ...] = tuple(
    less(
        f"time-{name}",
        "11b",
        f"ALP decides for 10K nodes and 10M partitions within {words} ({where})",
        mean_at(PAPERS, "decision_s", LARGEST, note=_SECONDS, logarithmic=True),
        value=value,
        rule="at_most",
        unit="s",
        no_effect=value,
        size=False,
        tolerance=0.0,
    )
    for name, value, words, where in (
        ("two-minutes", 120.0, "about two minutes", "abstract, sections 1 and 7"),
        ("130", 130.0, "130 s", "section 5.1"),
    )
)

_ENDS: tuple[tuple[str, str, Rows, Rule, float], ...] = (
    ("sa", "SA", SA, "at_least", 80.0),
    ("sa", "SA", SA, "at_most", 300.0),
    ("htoc", "HtoC", HTOC, "at_least", 2.0),
    ("htoc", "HtoC", HTOC, "at_most", 20.0),
)
"""Ends of the ranges that section 5.1 states: "80-300 times cheaper", "2-20 times cheaper"."""

_COSTS: tuple[Claim, ...] = tuple(
    claim(
        f"{method}-cost-{rule.removeprefix('at_')}{suffix}",
        "11a",
        f"{planner} is {rule.replace('_', ' ')} {value:g} times cheaper than {name}",
        over_sizes(baseline, ours, "cost", "least" if rule == "at_least" else "largest"),
        value=value,
        rule=rule,
        baseline=method,
        stated=not suffix,
        family=f"ursa-costs{suffix}",
        tolerance=0.0,
    )
    for planner, ours, suffix in (("ALP", PAPERS, ""), ("ALP-fast", _OURS, "-hotbed"))
    for method, name, baseline, rule, value in _ENDS
)


def _proven(table: pd.DataFrame) -> pd.DataFrame:
    """Return OPT's plans that are proven and leave no node hot."""
    found = cells(table, "opt")
    if "note_optimal" not in found.columns:
        return found.iloc[:0]
    return found[(found["note_optimal"] == 1) & (found["hot_after"] == 0)]


def _worst(top: pd.DataFrame, bottom: pd.DataFrame) -> str:
    """Note the largest ratio of costs of an instance."""
    both = pairs(top, bottom, "cost", INSTANCE)
    both = both[(both > 0).all(axis=1)]
    return f"largest of an instance {(both['treated'] / both['baseline']).max():.3f}"


def relieved(rows: Rows) -> Rows:
    """Select plans that leave no node hot: a partial plan costs less and says nothing."""
    return kept(rows, lambda found: found["hot_after"] == 0)


_OPTIMUM: tuple[Claim, ...] = tuple(
    same(
        f"optimum{suffix}",
        "10a",
        f"{planner} costs about as much as the exact optimum on small instances (kind S2; read as "
        "within 5 %)",
        over(
            relieved(of(method)),
            _proven,
            "cost",
            "no instance was planned for by both with something to move",
            _worst,
        ),
        baseline="opt",
        stated=not suffix,
    )
    for planner, method, suffix in (("ALP", ALP, ""), ("ALP-fast", OURS, "-hotbed"))
)


counted = assigned(
    PAPERS,
    objects=lambda found: found["partitions"] * found["replicas"],
    variables=lambda found: found["nodes"] * found["objects"],
)
"""Plans by ALP, with the numbers of objects and of the variables Y_ijk of the exact model."""

left = assigned(
    PAPERS,
    left=lambda found: (
        found["hot_after_swaps"] / found["hot_before"].where(found["hot_before"] > 0)
    ),
)
"""Plans by ALP, with the share of the hot nodes that swaps leave hot."""

_varied = assigned(of(INPUTS, kind="s1"), times=lambda its: its["ratio_p95"] / its["ratio_p05"])
"""Descriptions of instances, with the ratio of a high load to a low one."""


def before(table: pd.DataFrame) -> pd.DataFrame:
    """Return SA's plans with the deviation before them as that after them (NONE in figure 11d)."""
    found = SA(table).drop(columns="load_sd_after", errors="ignore")
    return found.rename(columns={"load_sd_before": "load_sd_after"})


def _hotbed_bounded(table: pd.DataFrame) -> pd.DataFrame:
    """Return Hotbed's plans with their distance below a cost of 1 % above the certified bound."""
    found = _OURS(table)
    return found.assign(room=ROOM - found["gap"]) if "gap" in found.columns else found.iloc[:0]


_DEVIATION: tuple[Claim, ...] = (
    *(
        less(
            f"sa-deviation-small{suffix}",
            "11d",
            f"SA ends with the smallest deviation of the nodes' loads at {SMALLEST}: below {words}",
            at_size(SA, rows, "load_sd_after", SMALLEST),
            baseline=baseline,
            family="ursa-sa-lowest",
        )
        for suffix, words, rows, baseline in (
            ("", "ALP's", PAPERS, "alp"),
            ("-htoc", "HtoC's", HTOC, "htoc"),
            ("-none", "that before (NONE)", before, "none"),
        )
    ),
    *(
        less(
            f"{method}-deviation-{size.partition('-')[0].lower()}",
            "11d",
            f"{name} ends with a slightly smaller deviation of the nodes' loads than SA at {size}",
            at_size(rows, SA, "load_sd_after", size),
            baseline="sa",
        )
        for method, name, rows in (("alp", "ALP", PAPERS), ("htoc", "HtoC", HTOC))
        for size in ("5K-5M", LARGEST)
    ),
)

PLANNER_CLAIMS: tuple[Claim, ...] = (
    claim(
        "input-variation",
        "3",
        "The load of servers varies by about 10 times (inputs, 5 % to 95 % of the nodes' load over "
        "capacity; the paper's figure is of one server over a week)",
        _at_largest(_varied, "times", "no cell describes its instance"),
        value=10.0,
    ),
    exact(
        "size",
        "11",
        "Plans for ten thousand nodes and thirty million objects",
        mean_at(counted, "objects", LARGEST),
        value=30e6,
        unit="objects",
    ),
    less(
        "third-left",
        "7a",
        "About one third of the hot spots are left after swaps alone",
        _at_largest(left, "left", "no plan was made", fraction),
        value=1 / 3,
        unit=SHARE,
        no_effect=1.0,
    ),
    claim(
        "all-removed",
        "7b",
        "Swaps and migrations remove every hot spot",
        ShareOf(
            large(of(ALP)),
            lambda rows: rows["hot_after"] == 0,
            "no plan was made",
            "instances, of every size and kind",
        ),
        **EVERY,
    ),
    *(
        claim(
            f"selection-{column}",
            figure,
            f"Random objects {words} than highest-load-first at every size",
            over_sizes(_RANDOM, PAPERS, column, "least"),
            baseline="highest-load-first",
        )
        for column, figure, words in (
            ("cost", "8a", "cost more"),
            ("moves", "8b", "take more migrations"),
        )
    ),
    same(
        "speedup-same-cost",
        "9a",
        "Divided or not, LP or ILP: the cost is the same or almost the same (read as within 5 %)",
        extreme([(series, _series(series)) for series in COMBINATIONS[1:]], "farthest"),
        baseline="none+ilp",
    ),
    *(
        claim(
            f"speedup-time-{series.lower().replace('+', '-')}",
            "9b",
            f"DC+LP decides faster than {series} at {ILP_SIZE}",
            at_size(of(ALP, series=series), of(ALP), "decision_s", ILP_SIZE),
            baseline="dc+lp",
            family="ursa-speedup-time",
        )
        for series in COMBINATIONS[:3]
    ),
    *(
        claim(
            f"ilp-two-days-{series.partition('+')[0].lower()}",
            "9b",
            f"{series} takes more than two days at {ILP_SIZE}",
            mean_at(
                of(ALP, series=series), "decision_s", ILP_SIZE, note=_SECONDS, logarithmic=True
            ),
            value=TWO_DAYS_S,
            rule="at_least",
            unit="s",
            no_effect=TWO_DAYS_S,
            size=False,
            family="ursa-two-days",
            tolerance=0.0,
        )
        for series in COMBINATIONS[:2]
    ),
    *_OPTIMUM,
    claim(
        "optimum-time",
        "10b",
        "OPT takes longer than ALP on small instances (at the size with the largest ratio)",
        over_sizes(of("opt"), of(ALP, kind="s2"), "decision_s", "largest"),
        baseline="alp",
    ),
    *_COSTS,
    *_TIMES,
    claim(
        "time-htoc",
        "11b",
        f"ALP takes longer to decide than HtoC at {LARGEST} (a winner except in running time)",
        at_size(PAPERS, HTOC, "decision_s", LARGEST),
        baseline="htoc",
    ),
    same(
        "same-moves",
        "11c",
        "ALP and HtoC make the same number of migrations (read as within 5 %)",
        over_sizes(PAPERS, HTOC, "moves", "farthest"),
        baseline="htoc",
    ),
    *_DEVIATION,
    *(
        less(
            f"hotbed-{name}",
            figure,
            f"ALP-fast {words} than ALP at {LARGEST}",
            at_size(_OURS, PAPERS, column, LARGEST),
            baseline="alp",
            stated=False,
        )
        for name, figure, words, column in (
            ("cost", "11a", "costs less", "cost"),
            ("time", "11b", "decides faster", "decision_s"),
        )
    ),
    claim(
        "hotbed-gap",
        "11a",
        f"ALP-fast stays within 1 % of the least cost for its objects at {LARGEST} (certified)",
        mean_at(_hotbed_bounded, "room", LARGEST, note="1 % minus the gap to the bound"),
        unit="relative change",
        baseline="lower-bound",
        stated=False,
    ),
)


def at_least_a_second(rows: Rows) -> Rows:
    """Count a settling time as at least a second, the width of a window: a store that is stable
    when the controller is called has settled in no time."""
    return lambda table: (it := rows(table)).assign(censored_s=it["censored_s"].clip(lower=1.0))


def _on_store(
    treated: str,
    baseline: str,
    column: str,
    network: str,
    osds: int,
    *,
    counted: Callable[[Rows], Rows] = lambda rows: rows,
    **more: Any,
) -> Pair:
    """Compare two controllers on a store of one size; `more`: see `Pair`."""
    why = f"no block has {treated} and {baseline}, {network}, with {osds} OSDs"
    top, bottom = (counted(controlled_by(one, network, osds)) for one in (treated, baseline))
    return Pair(top, bottom, column, why, keys=LIVE_BLOCK, **more)


def _slower(baseline: str, network: str, osds: int) -> Compute:
    """Compute the ratio of the baseline's settling time to ursa's."""

    def bound(top: pd.DataFrame, _: pd.DataFrame) -> str | None:
        never = "some runs of the baseline never became stable: they count with their observed time"
        return never if top["settled_s"].isna().any() else None

    sides = (baseline, "ursa", "censored_s", network, osds)
    return _on_store(*sides, counted=at_least_a_second, note=bound)


def _answered(table: pd.DataFrame) -> pd.DataFrame:
    """Return runs with writes to one node at several rates."""
    return table[table["scenario"] == "single"].dropna(subset=["latency_p99_s"])


def _stable(controller: str) -> Compute:
    """Compute the share of a controller's runs under the skewed load that become stable."""
    rows = partial(rebalancing, controller=controller)
    why = f"no run of {controller} under a skewed load"
    return ShareOf(rows, lambda rows: rows["settled_s"].notna(), why)


on_store = partial(declared, prefix="ursa-live", paper="ursa", baseline="htoc")


def _moves(figure: str, *stores: int) -> Iterator[Claim]:
    """Yield the claims about number and cost of moves on stores with these numbers of OSDs."""
    for osds in stores:
        yield on_store(
            f"migrations-{osds}",
            figure,
            f"Controlled, {osds} OSDs: ALP and HtoC move similarly often (first decisions)",
            _on_store("ursa", "htoc", "first_moves", CONTROLLED, osds),
            value=1.0,
            rule="within",
            tolerance=0.1,
        )
    for osds in stores:
        yield on_store(
            f"cost-{osds}",
            figure,
            f"Controlled, {osds} OSDs: ALP's moves cost less distance than HtoC's",
            _on_store("ursa", "htoc", "cost", CONTROLLED, osds),
            larger=False,
        )


LIVE_CLAIMS: tuple[Claim, ...] = (
    on_store(
        "knee",
        "4",
        "Response times rise far when a node's load exceeds its capacity",
        ends(
            _answered,
            "rate",
            "latency_p99_s",
            "no runs of one node at several rates",
            keys=LIVE_BLOCK,
        ),
        baseline=None,
    ),
    *(
        on_store(
            f"{network.lower()}-seconds",
            "12",
            f"{network}, 30-900: ALP is stable about {value:g} s earlier than HtoC",
            _on_store(
                *("htoc", "ursa", "censored_s", network, 30),
                by="difference",
                note="the data that is moved is not the paper's",
            ),
            value=value,
            unit="s",
            no_effect=0.0,
            size=False,
        )
        for network, value in ((RANDOM, 30.0), (CONTROLLED, 140.0))
    ),
    *(
        on_store(
            f"settling-{suffix}{osds}",
            figure,
            f"{network}, {osds} OSDs: ALP settles {words}",
            _slower("htoc", network, osds),
        )
        for network, suffix, figure, words in (
            (CONTROLLED, "", "13", "faster than HtoC (how many times)"),
            (RANDOM, "random-", "12", "no later than HtoC (how many times faster)"),
        )
        for osds in (10, 30)
    ),
    *_moves("13", 10, 30),
    *(
        on_store(
            f"{baseline}-{osds}",
            "12",
            f"Controlled, {osds} OSDs: {words} takes longer to become stable than Ursa",
            _slower(baseline, CONTROLLED, osds),
            baseline=baseline,
            stated=False,
        )
        for baseline, words in (
            ("upmap", "with Ceph's own balancer the store"),
            ("default", "without rebalancing the store"),
        )
        for osds in (10, 30)
    ),
    *(
        on_store(
            name,
            "12",
            f"After {controller}'s rebalancing 99 % of the writes are answered within "
            f"{STABLE_S:g} s, for {HOLD_S:g} s without a break (share of runs)",
            _stable(controller.lower()),
            baseline=None,
            family="ursa-live-stable",
            **EVERY,
        )
        for name, controller in (("stable", "Ursa"), ("stable-htoc", "HtoC"))
    ),
)

SIMULATED_CLAIMS: tuple[Claim, ...] = (
    on_store(
        "settling-50",
        "13-sim",
        "Controlled, 50-2500: ALP settles two times faster than HtoC",
        _slower("htoc", CONTROLLED, 50),
        value=2.0,
    ),
    *_moves("13-sim", 50),
)
"""Claims about a store that is too large for the local site's machine."""
