"""A plan for tenants, their SLAs and a pool: equations 1 to 6 of the paper.

Two solvers give the same plans. ``highs`` is the mixed-integer program (`milp`). ``exact`` is a
search in the standard library: MOS++ needs it on the testbed's admin node, which has no highspy,
and its journal must replay identically on every machine.

The search: a tenant's rate fixes the steps of cores and network through the tables, and a short
list of disk combinations. A sum then decides if rates fit the pool, and for disks a small dynamic
program. It goes through subsets of the tenants, heaviest first, to decide which SLAs are met;
bisection gives the rates of the others.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

from controllers.microstores.performance import PiecewiseLinear
from controllers.microstores.problem import (
    MicrostorePlan,
    NoPlanError,
    ResourcePool,
    TenantDemand,
    WantedRates,
    check_demands,
    disk_choices,
    disks_below_high,
    make_plan,
    rate_steps,
    wanted_rates,
)
from controllers.microstores.shares import Steps
from schemas.errors import UserError, not_allowed
from testbed.stores.microstores import Resources

EXACT, HIGHS = "exact", "highs"
SOLVERS = (EXACT, HIGHS)
COST, VALUE = "cost", "value"
OBJECTIVES = (COST, VALUE)


def check_solver(solver: str, objective: str = COST) -> None:
    """Raise UserError if the solver is unknown, cannot run here, or lacks the objective."""
    if solver not in SOLVERS:
        raise not_allowed("solver", solver, ", ".join(SOLVERS))
    if objective not in OBJECTIVES:
        raise not_allowed("objective", objective, ", ".join(OBJECTIVES))
    if objective == VALUE and solver != HIGHS:
        raise UserError("the objective value needs the solver highs")
    if solver == HIGHS and importlib.util.find_spec("highspy") is None:
        raise UserError(
            "the solver highs needs highspy, which is not installed here", do="use the solver exact"
        )


def plan(
    performance: PiecewiseLinear,
    demands: Sequence[TenantDemand],
    pool: ResourcePool,
    *,
    prices: Resources | None = None,
    headroom: float = 1.0,
    solver: str = EXACT,
    objective: str = COST,
) -> MicrostorePlan:
    """Return the best plan for `demands`; see `problem` for the order if some SLAs cannot be met.

    Args:
        performance: model of a workload's performance on given resources (cospurf).
        demands: one for each tenant, at most `problem.MOST_TENANTS`.
        pool: all resources.
        prices: the prices to minimise; without them, equation 2 (fractions of the pool).
        headroom: factor on the need of an SLA's low, at least 1.
        solver, objective: `exact` or `highs`; `cost` or (by `highs`) `value` for money.

    Raises:
        UserError: no such solver, or a pool with less than a step of everything for each tenant.
    """
    check_demands(demands)
    check_solver(solver, objective)
    wanted = [wanted_rates(demand, performance, headroom) for demand in demands]
    price = pool.step_prices(prices)
    if solver == HIGHS:
        from controllers.microstores import milp

        return milp.solve(wanted, pool, price, objective)
    return search(wanted, pool, price)


_GRAINS = 1_000_000
_GRAIN = 1 / _GRAINS
_SAME = _GRAIN / 2
"""Satisfactions are in grains, rounded down: less than one grain buys no container, but the
rounding of a step's amount could let such a gain through."""

Choices = list[tuple[int, int]]


def search(
    wanted: Sequence[WantedRates], pool: ResourcePool, price: Sequence[float]
) -> MicrostorePlan:
    """Return the best plan; see `problem` for the order of plans, `plan` for errors."""
    plans = _Search(wanted, pool, price)
    best: tuple[tuple[float, ...], list[Steps]] | None = None
    lightest: float | None = None
    for violated, weight in _by_weight(wanted):
        if lightest is not None and weight > lightest + _SAME:
            break
        found = plans.best(violated)
        if found is None:
            continue
        lightest = weight
        if best is None or _better(found[0], best[0]):
            best = found
    if best is None:
        raise NoPlanError.small(len(wanted))
    return make_plan(wanted, best[1], pool, price, EXACT)


def _by_weight(wanted: Sequence[WantedRates]) -> Iterator[tuple[frozenset[int], float]]:
    """Yield the sets of tenants with abandoned SLAs, and the weight of the avoidable ones, lightest
    first. Tenants with an SLA that no resources meet are in every set."""
    hopeless = frozenset(i for i, item in enumerate(wanted) if not item.attainable)
    others = [i for i in range(len(wanted)) if i not in hopeless]
    sets = [
        (hopeless.union(some), math.fsum(wanted[i].demand.weight for i in some))
        for count in range(len(others) + 1)
        for some in combinations(others, count)
    ]
    yield from sorted(sets, key=lambda item: (item[1], sorted(item[0])))


def _better(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    for a, b in zip(one, other, strict=True):
        if abs(a - b) > _SAME:
            return a > b
    return False


@dataclass
class _Search:
    wanted: Sequence[WantedRates]
    pool: ResourcePool
    price: Sequence[float]

    def __post_init__(self) -> None:
        self._most = self.pool.steps
        # Heavier tenants first, then by name: the order of raises if not all can be raised.
        self._order = sorted(
            range(len(self.wanted)),
            key=lambda i: (-self.wanted[i].demand.weight, self.wanted[i].demand.tenant),
        )
        self._known: dict[tuple[int, float], tuple[tuple[int, int, int], Choices] | None] = {}

    def best(self, violated: frozenset[int]) -> tuple[tuple[float, ...], list[Steps]] | None:
        """Return (rank, steps) of the best plan that meets all SLAs but the violated ones; None if
        there is no plan."""
        share = [0.0 if i in violated else 1.0 for i in range(len(self.wanted))]
        if self._fit(share) is None:
            return None
        least = _bisect(partial(self._fits, share, violated))
        share = [least if i in violated else 1.0 for i in range(len(self.wanted))]
        for i in self._order:
            if i in violated:
                share[i] = _bisect(partial(self._fits, share, {i}), least)
        given = self._fit(share, keep_below_high=True) or self._fit(share)
        assert given is not None
        cost = math.fsum(
            price * count for steps in given for price, count in zip(self.price, steps, strict=True)
        )
        return (least if violated else 1.0, *(share[i] for i in self._order), -cost), given

    def _fits(self, share: list[float], which: frozenset[int] | set[int], level: float) -> bool:
        tried = [level if i in which else part for i, part in enumerate(share)]
        return self._fit(tried) is not None

    def _fit(self, share: Sequence[float], *, keep_below_high: bool = False) -> list[Steps] | None:
        """Return the cheapest steps that give each tenant `share` of its need; None if they exceed
        the pool."""
        rates: list[tuple[int, int, int]] = []
        disks: list[Choices] = []
        left = list(self._most[:3])
        for i, part in enumerate(share):
            asked = self._asked(i, part)
            if asked is None:
                return None
            steps, choices = asked
            left = [have - take for have, take in zip(left, steps, strict=True)]
            if min(left) < 0 or not choices:
                return None
            if keep_below_high and part >= 1:
                wanted = self.wanted[i]
                choices = disks_below_high(wanted, steps, choices, self.pool) or choices
            rates.append(steps)
            disks.append(choices)
        chosen = _cheapest(disks, self._most[3], self._most[4], self.price[3], self.price[4])
        if chosen is None:
            return None
        return [(*steps, *pair) for steps, pair in zip(rates, chosen, strict=True)]

    def _asked(self, i: int, part: float) -> tuple[tuple[int, int, int], Choices] | None:
        key = (i, part)
        if key not in self._known:
            item = self.wanted[i]
            steps = rate_steps(item, part * item.need, self.pool)
            choices = [] if steps is None else disk_choices(item, part * item.need, self.pool)
            self._known[key] = None if steps is None else (steps, choices)
        return self._known[key]


def _bisect(holds: Callable[[float], bool], low: float = 0.0) -> float:
    """Return the largest level in grains in [`low`, 1] that holds. If a level holds, so do lower
    ones; `low` is known to hold."""
    if holds(1.0):
        return 1.0
    known, beyond = math.floor(low * _GRAINS + 1e-3), _GRAINS
    while beyond - known > 1:
        middle = (known + beyond) // 2
        if holds(middle * _GRAIN):
            known = middle
        else:
            beyond = middle
    return max(low, known * _GRAIN)


def _cheapest(
    disks: Sequence[Choices], ssds: int, hdds: int, fast_price: float, slow_price: float
) -> Choices | None:
    """Return one combination for each tenant, together within the pool and at the lowest cost.

    For every number of SSDs given out so far, the fewest HDDs with it suffice: the cost depends on
    the two numbers alone.
    """
    reached: dict[int, tuple[int, Choices]] = {0: (0, [])}
    for choices in disks:
        after: dict[int, tuple[int, Choices]] = {}
        for used, (slow_used, chosen) in reached.items():
            for fast, slow in choices:
                key, total = used + fast, slow_used + slow
                if key <= ssds and total <= hdds and (key not in after or total < after[key][0]):
                    after[key] = (total, [*chosen, (fast, slow)])
        reached = after
    if not reached:
        return None
    key = min(reached, key=lambda k: (fast_price * k + slow_price * reached[k][0], k))
    return reached[key][1]
