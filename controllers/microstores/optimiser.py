"""A plan for tenants, their SLAs and a pool: equations 1 to 6 of the paper.

Two solvers give the same plans. ``highs`` is the mixed-integer program (`milp`). ``exact`` is
Hotbed's own search (`search`) in the standard library. MOS++ needs it on the testbed's admin node,
which has no highspy, and its journal must replay identically on every machine.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from controllers.microstores import search
from controllers.microstores.performance import PiecewiseLinear
from controllers.microstores.problem import Demand, Plan, Pool, Prices, asked, check_demands
from schemas.errors import UserError

EXACT, HIGHS = "exact", "highs"
SOLVERS = (EXACT, HIGHS)
COST, VALUE = "cost", "value"
OBJECTIVES = (COST, VALUE)


def check_solver(solver: str, objective: str = COST) -> None:
    """Raise UserError if the solver is unknown, cannot run here, or lacks the objective."""
    if solver not in SOLVERS:
        raise UserError(f"solver {solver!r}: allowed are {', '.join(SOLVERS)}")
    if objective not in OBJECTIVES:
        raise UserError(f"objective {objective!r}: allowed are {', '.join(OBJECTIVES)}")
    if objective == VALUE and solver != HIGHS:
        raise UserError("the objective value needs the solver highs")
    if solver == HIGHS and importlib.util.find_spec("highspy") is None:
        raise UserError(
            "the solver highs needs highspy, which is not installed here; use the solver exact"
        )


def plan(
    performance: PiecewiseLinear,
    demands: Sequence[Demand],
    pool: Pool,
    *,
    prices: Prices | None = None,
    headroom: float = 1.0,
    solver: str = EXACT,
    objective: str = COST,
) -> Plan:
    """Return the best plan for `demands`; see `problem` for the order if some SLAs cannot be met.

    Args:
        performance: model of a workload's performance on given resources (cospurf).
        demands: one for each tenant, at most `problem.MOST_TENANTS`.
        pool: all resources.
        prices: the prices to minimise; without them, equation 2 (fractions of the pool).
        headroom: factor on the need of an SLA's low, at least 1.
        solver: ``exact`` or ``highs``.
        objective: ``cost``, or ``value`` for the most performance per price (``highs`` only).

    Raises:
        UserError: no such solver or objective, no highspy, or a pool with less than a step of
            everything for each tenant.
    """
    check_demands(demands)
    check_solver(solver, objective)
    wanted = [asked(demand, performance, headroom) for demand in demands]
    paid = prices or Prices()
    if solver == HIGHS:
        from controllers.microstores import milp

        return milp.solve(wanted, pool, paid, objective)
    return search.solve(wanted, pool, paid)
