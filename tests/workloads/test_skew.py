"""Write rates of PGs that give each OSD its load."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.skew import hot_osds, osd_rates, rates_on_one, skewed_rates, worst_miss


def placed(osds: int, pgs: int, size: int, seed: int) -> dict[str, list[int]]:
    draw = random.Random(seed)
    return {f"1.{n:x}": draw.sample(range(osds), size) for n in range(pgs)}


def targets(osds: int, hot: tuple[int, ...], rate: float) -> dict[int, float]:
    return {osd: rate if osd in hot else 0.4 * rate for osd in range(osds)}


@pytest.mark.parametrize(("osds", "pgs"), [(10, 100), (30, 900)])
def test_the_papers_load_is_met(osds, pgs):
    placement = placed(osds, pgs, 3, 1)
    hot = hot_osds(range(osds), osds // 5, 1)
    wanted = targets(osds, hot, 24.0)
    rates = skewed_rates(placement, wanted)
    assert worst_miss(placement, rates, wanted) < 0.001
    assert all(rate >= 0 for rate in rates.values())
    assert sum(rates.values()) * 3 == pytest.approx(sum(wanted.values()), rel=1e-3)


def test_no_group_carries_a_nodes_heat_alone():
    placement = placed(10, 100, 3, 1)
    wanted = targets(10, (0, 1), 24.0)
    rates = skewed_rates(placement, wanted)
    mine = [rate for pg, rate in rates.items() if 0 in placement[pg]]
    assert max(mine) < 0.3 * 24


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 100), st.floats(0.5, 100))
def test_rates_scale_with_the_load(seed, rate):
    placement = placed(8, 64, 2, seed)
    one = skewed_rates(placement, targets(8, (0, 1), 1.0))
    many = skewed_rates(placement, targets(8, (0, 1), rate))
    assert all(many[pg] == pytest.approx(rate * one[pg], rel=0.02) for pg in one)


def test_what_cannot_be_met_is_told():
    placement = {"1.0": [0, 1], "1.1": [0, 1]}
    wanted = {0: 10.0, 1: 1.0}
    rates = skewed_rates(placement, wanted)
    assert worst_miss(placement, rates, wanted) > 0.5


def test_one_osd_alone():
    placement = placed(10, 100, 3, 2)
    rates = rates_on_one(placement, 4, 20.0)
    assert osd_rates(placement, rates)[4] == pytest.approx(20.0)
    assert all(4 in placement[pg] for pg in rates)
    assert max(rate for osd, rate in osd_rates(placement, rates).items() if osd != 4) < 20.0


def test_hot_osds_are_the_same_for_a_seed():
    assert hot_osds(range(30), 6, 7) == hot_osds(range(30), 6, 7)
    assert len({hot_osds(range(30), 6, seed) for seed in range(20)}) > 10
