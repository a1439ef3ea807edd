"""HiGHS, asked the same way every time: one thread, a fixed seed, quiet.

Who uses a solution checks loads exactly, whatever the solver's tolerances, and the bound of a
linear programme is recomputed from its prices (`relaxation.certify`, `bounds.certify_joint`). What
an integer programme proves is the solver's own dual bound.

Without a time limit HiGHS 1.15 looks at the clock in one place that decides anything: its presolve
gives up the search for dependent equations when that is expected to take more than 1000 seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.instance import Float64, Int32

INFINITE = float("inf")
SEED = 1
_OPTIMAL, _INFEASIBLE = 0, 2  # states of scipy's results


@dataclass
class HighsModel:
    """Minimise ``cost @ x`` with ``lower <= A x <= upper``, ``0 <= x <= 1``; A by columns.

    Column c is ``start[c]:start[c + 1]`` of `row` and `value`. `integer`: x are whole numbers.
    """

    cost: Float64
    start: Int32
    row: Int32
    value: Float64
    lower: Float64
    upper: Float64
    integer: bool = False

    @property
    def columns(self) -> int:
        """Number of variables."""
        return len(self.cost)


@dataclass(frozen=True)
class Solution:
    """Answer of the solver.

    Attributes:
        status: "optimal", "infeasible", or "stopped" at a limit, with or without a solution.
        x: [columns], None without a solution.
        price: [rows], what one more unit of a full row would save (of a covering row: one unit
            less); at least 0. Zeros for integer models.
        bound: no solution costs less.
    """

    status: str
    x: Float64 | None
    price: Float64 = field(default_factory=lambda: np.zeros(0))
    bound: float = -INFINITE


def add_row(
    model: HighsModel,
    columns: NDArray[np.integer],
    value: Float64 | float,
    lower: float,
    upper: float,
) -> None:
    """Add ``lower <= sum of value * x[columns] <= upper`` to `model`."""
    order = np.argsort(columns, kind="stable")
    columns = np.asarray(columns)[order]
    values = np.broadcast_to(np.asarray(value, float), len(columns))[order]
    count = np.bincount(columns, minlength=model.columns)
    at = model.start[1:][columns]
    model.row = np.insert(model.row, at, len(model.lower)).astype(np.int32)
    model.value = np.insert(model.value, at, values)
    model.start = (model.start + np.r_[0, np.cumsum(count)]).astype(np.int32)
    model.lower = np.r_[model.lower, lower]
    model.upper = np.r_[model.upper, upper]


def by_columns(
    columns: int, *entries: tuple[NDArray[np.integer], NDArray[np.integer], Float64 | float]
) -> tuple[Int32, Int32, Float64]:
    """Return (start, row, value) of the sum of ``(row, column, value)`` entries; no pair twice."""
    row = np.concatenate([np.asarray(e[0]) for e in entries])
    column = np.concatenate([np.asarray(e[1]) for e in entries])
    value = np.concatenate([np.broadcast_to(np.asarray(e[2], float), len(e[0])) for e in entries])
    order = np.argsort(column, kind="stable")
    start = np.zeros(columns + 1, dtype=np.int32)
    np.cumsum(np.bincount(column, minlength=columns), out=start[1:])
    return start, row[order].astype(np.int32), value[order]


def solve(
    model: HighsModel,
    *,
    seconds: float = INFINITE,
    nodes: int | None = None,
    gap: float = 0.0,
    first: Float64 | None = None,
) -> Solution:
    """Solve `model`, through scipy where highspy is not installed.

    With `seconds` results depend on the machine's speed, with `nodes` of branch and bound they do
    not. `gap` is the relative gap that is good enough for an integer model, and `first` [columns]
    an integer solution to begin from.
    """
    try:
        import highspy
    except ImportError:
        return solve_by_scipy(model, seconds=seconds, nodes=nodes, gap=gap)
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    for name, value in {
        "output_flag": False,
        "threads": 1,
        "random_seed": SEED,
        "mip_rel_gap": gap,
        "mip_abs_gap": 0.0 if gap == 0 else 1e-9,
    }.items():
        solver.setOptionValue(name, value)
    if seconds != INFINITE:
        solver.setOptionValue("time_limit", max(0.0, seconds))
    if nodes is not None:
        solver.setOptionValue("mip_max_nodes", nodes)
    solver.passModel(_lp(highspy, model))
    if first is not None:
        hint = highspy.HighsSolution()
        hint.col_value = first.tolist()
        solver.setSolution(hint)
    solver.run()
    return _solution(highspy, solver, model)


def _lp(highspy: Any, model: HighsModel) -> Any:
    lp = highspy.HighsLp()
    lp.num_col_ = model.columns
    lp.num_row_ = len(model.lower)
    lp.col_cost_ = model.cost
    lp.col_lower_ = np.zeros(model.columns)
    lp.col_upper_ = np.ones(model.columns)
    lp.row_lower_ = model.lower
    lp.row_upper_ = model.upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = model.start
    lp.a_matrix_.index_ = model.row
    lp.a_matrix_.value_ = model.value
    if model.integer:
        lp.integrality_ = [highspy.HighsVarType.kInteger] * model.columns
    return lp


def _solution(highspy: Any, solver: Any, model: HighsModel) -> Solution:
    status = solver.getModelStatus()
    kinds = highspy.HighsModelStatus
    info = solver.getInfo()
    if status in {kinds.kInfeasible, kinds.kUnboundedOrInfeasible}:
        return Solution("infeasible", None)
    has_solution = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    found = solver.getSolution()
    x = np.array(found.col_value) if has_solution and model.columns else None
    if model.columns == 0:
        x = np.zeros(0)
    name = "optimal" if status in {kinds.kOptimal, kinds.kModelEmpty} else "stopped"
    if model.integer:
        return Solution(name, x, bound=float(info.mip_dual_bound))
    bound = float(info.objective_function_value) if name == "optimal" else -INFINITE
    price = np.abs(np.array(found.row_dual)) if found.dual_valid else np.zeros(len(model.lower))
    return Solution(name, x, price=price, bound=bound)


def solve_by_scipy(
    model: HighsModel, *, seconds: float = np.inf, nodes: int | None = None, gap: float = 0.0
) -> Solution:
    """Solve `model` as `solve` does where highspy is not installed (an admin node).

    scipy takes no seed, no limit on threads (its HiGHS uses one here), and no first solution.
    """
    none = np.zeros(len(model.lower))
    if model.columns == 0:
        if bool((model.lower > 0).any() or (model.upper < 0).any()):
            return Solution("infeasible", None)
        return Solution("optimal", np.zeros(0), price=none, bound=0.0)
    options: dict[str, Any] = {} if seconds == np.inf else {"time_limit": max(0.0, seconds)}
    if model.integer:
        found, price = _scipy_integer(model, options, nodes, gap), none
    else:
        found, price = _scipy_linear(model, options)
    if found.status == _INFEASIBLE:
        return Solution("infeasible", None)
    name = "optimal" if found.status == _OPTIMAL else "stopped"
    bound = getattr(found, "mip_dual_bound", None) if model.integer else None
    if bound is None:
        bound = float(found.fun) if name == "optimal" else -INFINITE
    x = found.x if model.integer or name == "optimal" else None
    return Solution(name, None if x is None else np.asarray(x), price=price, bound=float(bound))


def _scipy_linear(model: HighsModel, options: dict[str, Any]) -> tuple[Any, Float64]:
    """Return (scipy's result, [rows] prices); an equality is two rows."""
    from scipy.optimize import linprog
    from scipy.sparse import vstack

    matrix = _scipy_matrix(model).tocsr()
    above = np.flatnonzero(np.isfinite(model.upper))
    below = np.flatnonzero(np.isfinite(model.lower))
    found = linprog(
        model.cost,
        A_ub=vstack([matrix[above], -matrix[below]]),
        b_ub=np.concatenate([model.upper[above], -model.lower[below]]),
        bounds=(0, 1),
        method="highs",
        options=options,
    )
    price = np.zeros(len(model.lower))
    if found.status == _OPTIMAL:
        np.add.at(price, np.concatenate([above, below]), np.abs(found.ineqlin.marginals))
    return found, price


def _scipy_integer(
    model: HighsModel, options: dict[str, Any], nodes: int | None, gap: float
) -> Any:
    from scipy.optimize import Bounds, LinearConstraint, milp

    limit = {} if nodes is None else {"node_limit": nodes}
    return milp(
        model.cost,
        integrality=np.ones(model.columns),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(_scipy_matrix(model), model.lower, model.upper),
        options={"mip_rel_gap": gap, **options, **limit},
    )


def _scipy_matrix(model: HighsModel) -> Any:
    from scipy.sparse import csc_matrix

    shape = (len(model.lower), model.columns)
    return csc_matrix((model.value, model.row, model.start), shape=shape)
