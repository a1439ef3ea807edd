"""Pure parts of the open-loop writer: histogram, names, schedule, plan."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import UserError
from testbed.agent.openloop.plan import (
    WritePlan,
    arrivals,
    names_for,
    pg_of,
    plan_from_json,
)
from testbed.agent.openloop.writer import Histogram
from tests.errors import raises

PLAN = WritePlan(pool="bench", object_bytes=4096, duration_s=10.0, seed=1, rates={"1.0": 5.0})
TIMES = st.lists(st.floats(0, 5000), min_size=1, max_size=80)


# -- histogram ------------------------------------------------------------------------------------


@given(TIMES, st.floats(0.001, 1.0))
def test_quantiles_are_right_to_a_bucket(values, share):
    found = Histogram()
    for value in values:
        found.add(value)
    exact = sorted(values)[max(1, math.ceil(share * len(values) - 1e-9)) - 1]
    quantile = found.quantile_s(share)
    assert quantile is not None
    assert abs(quantile - exact) <= exact / 128 + 1e-6
    assert found.min_s <= quantile <= found.max_s == max(values)
    assert found.mean_s == pytest.approx(sum(values) / len(values))


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("pgid", ["3.0", "2.64"])
def test_a_group_of_another_pool_is_refused(pgid):
    with raises(ValueError, "pool 2", "2.0", "2.63"):
        names_for([pgid], 2, 100, 1)


# -- schedule -------------------------------------------------------------------------------------

RATES = st.dictionaries(
    st.integers(0, 50).map(lambda number: f"1.{number:x}"), st.floats(0, 20), min_size=1, max_size=6
)


@given(RATES, st.integers(0, 99), st.sampled_from(["poisson", "constant"]))
@settings(max_examples=30)
def test_arrivals_come_in_order_and_in_time(rates, seed, kind):
    found = list(arrivals(rates, 5.0, seed, kind, 4))
    times = [at for at, _, _ in found]
    assert times == sorted(times)
    assert all(0 <= at < 5.0 for at in times)
    assert {pgid for _, pgid, _ in found} <= {pgid for pgid, rate in rates.items() if rate > 0}
    assert {number for _, _, number in found} <= set(range(4))
    assert found == list(arrivals(rates, 5.0, seed, kind, 4))
    if kind == "constant":
        for pgid, rate in rates.items():
            count = sum(1 for _, other, _ in found if other == pgid)
            assert abs(count - 5.0 * rate) <= 1


def test_poisson_arrivals_have_the_rate_and_the_spread_of_poisson():
    # A fixed seed gives fixed numbers. Expected: 20,000 arrivals, sd 141.
    found = [at for at, _, _ in arrivals({"1.0": 200.0}, 100.0, 5, "poisson", 1)]
    assert abs(len(found) - 20_000) < 600
    counts = [0] * 1000
    for at in found:
        counts[int(at * 10)] += 1
    mean = sum(counts) / 1000
    variance = sum((count - mean) ** 2 for count in counts) / 1000
    assert 0.85 < variance / mean < 1.15


# -- plan -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rates": {}}, "one PG or more"),
        ({"rates": {"1.0": 0.0}}, "every PG has rate 0"),
        ({"rates": {"1.0": float("nan")}}, "PG 1.0 must get"),
        ({"rates": {"1.0\n": 1.0}}, "is no PG id"),
        ({"duration_s": 0}, "duration_s"),
        ({"object_bytes": "4k"}, "object_bytes"),
        ({"arrivals": "bursty"}, "'poisson'"),
        ({"max_in_flight": 10**6}, "at most 262144 here"),
        ({"rate": 3}, "'rate'"),
    ],
)
def test_a_wrong_plan_is_reported_in_a_sentence(change, said):
    with raises(UserError, said):
        plan_from_json(PLAN.to_json() | change)


def test_what_is_missing_is_named():
    body = PLAN.to_json()
    del body["seed"]
    with raises(UserError, "lacks 'seed'"):
        plan_from_json(body)
    with raises(UserError, "must be a JSON object"):
        plan_from_json([1])
    assert plan_from_json(json.loads(json.dumps(PLAN.to_json()))) == PLAN


RECORDED = Path(__file__).resolve().parents[3] / "data" / "ceph" / "16.2.15" / "osd-map-names.json"


def test_names_hash_to_the_groups_that_ceph_says():
    pools = json.loads(RECORDED.read_text())["pools"]
    assert {pool["pg_num"] for pool in pools} == {100, 128}
    for pool in pools:
        for name, pgid in pool["pgids"].items():
            assert pg_of(name, pool["pool"], pool["pg_num"]) == pgid
        # All lengths of the last block, and more than two blocks.
        assert {len(name) for name in pool["pgids"]} >= set(range(1, 38))
    assert (
        names_for(["2.1f"], 2, 100, 3)["2.1f"]
        == (names_for(["2.0", "2.1f", "2.63"], 2, 100, 3)["2.1f"])
    )
