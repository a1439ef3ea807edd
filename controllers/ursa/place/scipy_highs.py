"""The same models through scipy's HiGHS, where highspy is not installed (an admin node).

scipy takes fewer options: no limit on threads (its HiGHS uses one for these models), no seed, and
no solution to begin from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from controllers.ursa.instance import Float64

if TYPE_CHECKING:
    from controllers.ursa.place.highs import Model, Solution

_OPTIMAL, _LIMIT, _INFEASIBLE = 0, 1, 2


def solve(
    model: Model, *, seconds: float = np.inf, nodes: int | None = None, gap: float = 0.0
) -> Solution:
    """See `highs.solve`."""
    if model.columns == 0:
        return _empty(model)
    return _integer(model, seconds, nodes, gap) if model.integer else _linear(model, seconds)


def _empty(model: Model) -> Solution:
    from controllers.ursa.place.highs import Solution

    if bool((model.lower > 0).any() or (model.upper < 0).any()):
        return Solution("infeasible", None)
    return Solution("optimal", np.zeros(0), price=np.zeros(len(model.lower)), bound=0.0)


def _matrix(model: Model) -> Any:
    from scipy.sparse import csc_matrix

    shape = (len(model.lower), model.columns)
    return csc_matrix((model.value, model.row, model.start), shape=shape)


def _bound(model: Model) -> Float64:
    return np.ones(model.columns) if model.bound is None else model.bound


def _linear(model: Model, seconds: float) -> Solution:
    from scipy.optimize import linprog
    from scipy.sparse import vstack

    from controllers.ursa.place.highs import INFINITE, Solution

    matrix = _matrix(model).tocsr()
    equal = model.lower == model.upper
    above = np.flatnonzero(~equal & np.isfinite(model.upper))
    below = np.flatnonzero(~equal & np.isfinite(model.lower))
    same = np.flatnonzero(equal)
    sides = np.concatenate([model.upper[above], -model.lower[below]])
    found = linprog(
        model.cost,
        A_ub=vstack([matrix[above], -matrix[below]]) if len(sides) else None,
        b_ub=sides if len(sides) else None,
        A_eq=matrix[same] if len(same) else None,
        b_eq=model.lower[same] if len(same) else None,
        bounds=np.column_stack([np.zeros(model.columns), _bound(model)]),
        method="highs",
        options=_limits(seconds),
    )
    if found.status == _INFEASIBLE:
        return Solution("infeasible", None)
    if found.status != _OPTIMAL:
        return Solution("stopped", None, price=np.zeros(len(model.lower)))
    price = np.zeros(len(model.lower))
    marginals = np.abs(found.ineqlin.marginals) if len(sides) else np.zeros(0)
    np.add.at(price, np.concatenate([above, below]), marginals)
    if len(same):
        price[same] = np.abs(found.eqlin.marginals)
    bound = float(found.fun) if found.fun is not None else -INFINITE
    return Solution("optimal", np.asarray(found.x), price=price, bound=bound)


def _integer(model: Model, seconds: float, nodes: int | None, gap: float) -> Solution:
    from scipy.optimize import Bounds, LinearConstraint, milp

    from controllers.ursa.place.highs import INFINITE, Solution

    options: dict[str, Any] = {"mip_rel_gap": gap, **_limits(seconds)}
    if nodes is not None:
        options["node_limit"] = nodes
    found = milp(
        model.cost,
        integrality=np.ones(model.columns),
        bounds=Bounds(np.zeros(model.columns), _bound(model)),
        constraints=LinearConstraint(_matrix(model), model.lower, model.upper),
        options=options,
    )
    if found.status == _INFEASIBLE:
        return Solution("infeasible", None)
    x = None if found.x is None else np.asarray(found.x)
    bound = getattr(found, "mip_dual_bound", None)
    name = "optimal" if found.status == _OPTIMAL else "stopped"
    if bound is None:
        bound = float(found.fun) if name == "optimal" else -INFINITE
    return Solution(name, x, bound=float(bound))


def _limits(seconds: float) -> dict[str, float]:
    return {} if seconds == np.inf else {"time_limit": max(0.0, seconds)}
