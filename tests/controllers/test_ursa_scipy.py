"""scipy's HiGHS instead of highspy: same optima, and prices that prove them."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from controllers.ursa.check import check
from controllers.ursa.generate import generate, shape
from controllers.ursa.place.highs import HighsModel, by_columns, solve
from controllers.ursa.plan import plan
from tests.controllers.ursa_instances import timer

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("method", ["alp-fast", "ilp", "opt"])
@pytest.mark.parametrize("seed", range(2))
def test_plans_cost_as_much_and_prices_prove_it(monkeypatch, method, seed):
    small = (12, 60) if method == "opt" else (30, 900)
    case = generate(shape("s2", *small, ratio_median=0.6, ratio_sigma=0.4), seed)
    theirs = plan(case, method, timer=timer(), success=0.5)
    monkeypatch.setitem(sys.modules, "highspy", None)
    ours = plan(case, method, timer=timer(), success=0.5)
    assert len(theirs.move_to)
    assert check(case, ours, ours.summary["cost"]).valid
    assert ours.summary["hot_after"] == theirs.summary["hot_after"]
    if method != "alp-fast":
        assert ours.summary["cost"] == pytest.approx(theirs.summary["cost"], rel=1e-6)
    bounds = [made.summary["notes"].get("lp_bound") or 0.0 for made in (ours, theirs)]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-6)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("domain", ["node", "rack"])
def test_algorithm_1_decides_alike_where_many_moves_cost_the_same(monkeypatch, domain, seed):
    case = generate(shape("s2", 30, 900, racks=6, domain=domain, ratio_sigma=0.4), seed)
    theirs = plan(case, "alp", timer=timer(), success=0.5)
    monkeypatch.setitem(sys.modules, "highspy", None)
    ours = plan(case, "alp", timer=timer(), success=0.5)
    assert len(theirs.move_to) and np.array_equal(ours.move_to, theirs.move_to)


@pytest.mark.parametrize("integer", [False, True])
def test_what_is_infeasible_is_called_so(monkeypatch, integer):
    """Two objects of 2 do not fit on two nodes of 1."""
    pair = np.arange(4)
    start, row, value = by_columns(4, (pair // 2, pair, 1.0), (2 + pair % 2, pair, 2.0))
    lower, upper = np.array([1, 1, -np.inf, -np.inf]), np.ones(4)
    model = HighsModel(np.ones(4), start, row, value, lower, upper, integer=integer)
    assert solve(model).status == "infeasible"
    monkeypatch.setitem(sys.modules, "highspy", None)
    assert solve(model).status == "infeasible"
