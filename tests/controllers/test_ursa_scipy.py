"""scipy's HiGHS instead of highspy: same optima, and prices that prove them."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from controllers.ursa.place import highs
from controllers.ursa.place.highs import HighsModel, by_columns, solve_by_scipy

pytestmark = pytest.mark.slow


def assignment(seed: int, *, integer: bool, tight: float = 1.2) -> HighsModel:
    """Return objects to place on nodes: one equality per object, one upper bound per node."""
    rng = np.random.default_rng(seed)
    objects, nodes = int(rng.integers(2, 9)), int(rng.integers(2, 6))
    weight = rng.uniform(1, 5, objects)
    pair = np.arange(objects * nodes)
    who, where = pair // nodes, pair % nodes
    start, row, value = by_columns(
        len(pair), (who, pair, 1.0), (objects + where, pair, weight[who])
    )
    room = np.full(nodes, tight * weight.sum() / nodes)
    return HighsModel(
        cost=rng.integers(1, 20, len(pair)).astype(float),
        start=start,
        row=row,
        value=value,
        lower=np.r_[np.ones(objects), np.full(nodes, -np.inf)],
        upper=np.r_[np.ones(objects), room],
        integer=integer,
    )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("integer", [False, True])
def test_both_find_the_optimum(seed, integer):
    model = assignment(seed, integer=integer)
    ours, theirs = solve_by_scipy(model), highs.solve(model)
    assert ours.status == theirs.status
    if theirs.x is None:
        return
    assert ours.x is not None
    assert model.cost @ ours.x == pytest.approx(model.cost @ theirs.x, rel=1e-6)
    assert ours.bound == pytest.approx(theirs.bound, rel=1e-6)
    if not integer:
        # Strong duality: the prices of either solver prove the optimum.
        objects = int((model.lower == 1).sum())
        room = model.upper[objects:]
        cheapest = _reduced(model, ours.price)
        proven = cheapest.sum() - ours.price[objects:] @ room
        assert proven == pytest.approx(model.cost @ ours.x, rel=1e-6)


def _reduced(model: HighsModel, price: np.ndarray) -> np.ndarray:
    """Return [objects], the cheapest placement of each if nodes cost their price."""
    objects = int((model.lower == 1).sum())
    best = np.full(objects, np.inf)
    for column in range(model.columns):
        rows = model.row[model.start[column] : model.start[column + 1]]
        values = model.value[model.start[column] : model.start[column + 1]]
        who = int(rows[rows < objects][0])
        extra = sum(price[r] * v for r, v in zip(rows, values, strict=True) if r >= objects)
        best[who] = min(best[who], model.cost[column] + extra)
    return best


@pytest.mark.parametrize("integer", [False, True])
def test_what_cannot_be_is_told(integer):
    assert solve_by_scipy(assignment(3, integer=integer, tight=0.2)).status == "infeasible"


def test_without_highspy_scipy_is_asked(monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)
    model = assignment(1, integer=False)
    found = highs.solve(model)
    assert found.status == "optimal"
    assert found.bound == pytest.approx(solve_by_scipy(model).bound)
