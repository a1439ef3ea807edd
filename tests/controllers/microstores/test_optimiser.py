"""Plans (the exact search, the mixed-integer program and exhaustive search agree), the model of
performance behind them, and the rules R1 to R7."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from controllers.microstores.optimiser import plan
from controllers.microstores.performance import (
    CapacityCurve,
    PiecewiseLinear,
)
from controllers.microstores.problem import (
    BANDWIDTH,
    LATENCY,
    ResourcePool,
    Sla,
    TenantDemand,
    bills,
    prices_from_json,
    sla_from_json,
    sla_to_json,
)
from controllers.microstores.rules import (
    BROKEN,
    HOLDS,
    RULES,
    Allocation,
    broken,
    check_rules,
)
from schemas.errors import UserError
from testbed.stores.microstores import NOTHING, Resources, Tenant
from tests.controllers.mos_stores import (
    MODEL,
    STEP,
    TOTAL,
    A,
    C,
    best_of_all,
    judged,
    linear,
    problems,
)
from tests.errors import raises

POOL = ResourcePool(TOTAL, STEP)
WEB = TenantDemand("web", "small", A.workload, 8, Sla(LATENCY, 0.09, 0.045))
VIDEO = TenantDemand("video", "large", C.workload, 4, Sla(BANDWIDTH, 2e7, 4e7))
CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def same(one, other):
    assert one == pytest.approx(other, abs=1e-6)


def held(made):
    total = NOTHING
    for share in made.shares:
        total = total + share.resources
    return total


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=CHECKS)
@given(problems(most=3))
def test_the_search_finds_what_trying_everything_finds(problem):
    model, demands, pool = problem
    expected = best_of_all(model, demands, pool)
    if expected is None:
        with raises(UserError, "pool is too small"):
            plan(model, demands, pool)
        return
    made = plan(model, demands, pool)
    same(judged(made, demands), expected)
    assert held(made).within(pool.total)


@pytest.mark.slow
@settings(max_examples=80, deadline=None, suppress_health_check=CHECKS)
@given(problems(most_tenants=4, most=12))
def test_the_search_finds_what_highs_finds(problem):
    model, demands, pool = problem
    try:
        exact = plan(model, demands, pool)
    except UserError:
        with raises(UserError, "pool is too small"):
            plan(model, demands, pool, solver="highs")
        return
    highs = plan(model, demands, pool, solver="highs")
    same(judged(highs, demands), judged(exact, demands))
    assert held(highs).within(pool.total)


@pytest.mark.parametrize("solver", ["exact", "highs"])
def test_slas_that_fit_are_met_at_the_least_cost(solver):
    made = plan(MODEL, [WEB, VIDEO], POOL, solver=solver)
    assert made.violated == ()
    web, video = made.shares
    # 8 workers within 90 ms make 89 requests per second: 0.26 proxy and 0.49 storage cores.
    assert web.needed_s == pytest.approx(8 / 0.09)
    assert web.resources.proxy_cores == pytest.approx(0.3)
    assert web.resources.storage_cores == pytest.approx(0.5)
    assert web.resources.network == 7.5e6  # 70 KB per request
    assert (web.resources.ssds, web.resources.hdds) == (0, 1)  # 120 per second, a quarter of all
    assert video.resources.network == pytest.approx(2.25e7)
    assert made.left.within(TOTAL)
    assert (held(made) + made.left).within(TOTAL)


@pytest.mark.parametrize("solver", ["exact", "highs"])
def test_a_pool_without_disks_of_its_own(solver):
    """As on the local testbed: all microstores share disks that limit none of them."""
    plenty, none = CapacityCurve(((0.0, 1e6),)), CapacityCurve(((0.0, 0.0),))
    tables = {n: replace(t, ssds=plenty, hdds=none) for n, t in MODEL.tables.items()}
    pool = ResourcePool(replace(TOTAL, ssds=0, hdds=0), replace(STEP, ssds=0, hdds=0))
    made = plan(PiecewiseLinear(tables), [WEB, VIDEO], pool, solver=solver)
    assert made.violated == ()
    assert made.shares[0].resources == Resources(pytest.approx(0.3), 0.5, 7.5e6, 0, 0)
    greedy = [replace(WEB, offered=100), VIDEO]
    assert plan(PiecewiseLinear(tables), greedy, pool, solver=solver).violated == ("web",)


@pytest.mark.parametrize("solver", ["exact", "highs"])
def test_disks_keep_a_tenant_below_its_high_where_steps_of_cores_cannot(solver):
    """Equation 3's upper bound: cores and network carry 10 in one step, SSDs 10, HDDs 2 each."""
    coarse = {"proxy_cores": 10, "storage_cores": 10, "network": 10, "ssds": 10, "hdds": 2}
    most = dict.fromkeys(coarse, 9)
    table = linear(replace(A.workload, name="X", mean_bytes=1.0), coarse, most, 1e-9)
    demand = TenantDemand("x", "x", table.workload, 1, Sla(BANDWIDTH, 3, 6))
    model = PiecewiseLinear({"X": table})
    dear = prices_from_json(
        {"proxy_core": 1, "storage_core": 1, "network_gbit_s": 0, "ssd": 1, "hdd": 5}, "prices"
    )
    pool = ResourcePool(Resources(5, 5, 5, 2, 4), Resources(1, 1, 1, 1, 1))
    share = plan(model, [demand], pool, prices=dear, solver=solver).shares[0]
    assert (share.resources.ssds, share.resources.hdds) == (0, 2)
    none = ResourcePool(Resources(5, 5, 5, 2, 1), Resources(1, 1, 1, 1, 1))
    made = plan(model, [demand], none, prices=dear, solver=solver)
    assert made.shares[0].resources.ssds == 1
    assert "exceed its high" in made.notes[0]


@pytest.mark.parametrize("solver", ["exact", "highs"])
def test_prices_decide_between_disks(solver):
    base = {"proxy_core": 1, "storage_core": 1, "network_gbit_s": 1, "ssd": 1, "hdd": 1}
    demand = replace(VIDEO, sla=Sla(BANDWIDTH, 2e8, 4e8))  # 23.5 requests per second
    pool = ResourcePool(Resources(2, 2, 5e8, 2, 4), STEP)
    cheap_hdds = plan(
        MODEL, [demand], pool, prices=prices_from_json(base | {"ssd": 9}, ""), solver=solver
    )
    cheap_ssds = plan(
        MODEL, [demand], pool, prices=prices_from_json(base | {"hdd": 9}, ""), solver=solver
    )
    assert (cheap_hdds.shares[0].resources.ssds, cheap_hdds.shares[0].resources.hdds) == (0, 2)
    assert (cheap_ssds.shares[0].resources.ssds, cheap_ssds.shares[0].resources.hdds) == (1, 0)


def test_value_for_money_is_no_worse_than_the_cheapest_plan():
    prices = prices_from_json(
        {"proxy_core": 1, "storage_core": 1, "network_gbit_s": 1, "ssd": 5, "hdd": 1}, ""
    )
    demands = [replace(WEB, offered=6), replace(VIDEO, sla=Sla(BANDWIDTH, 1e7, 2e7))]
    cheap = plan(MODEL, demands, POOL, prices=prices, solver="highs")
    value = plan(MODEL, demands, POOL, prices=prices, solver="highs", objective="value")
    assert value.violated == cheap.violated == ()

    def ratio(made):
        got = sum(min(2.0, s.requests_s / s.needed_s) for s in made.shares)
        return got / made.cost

    assert ratio(value) >= ratio(cheap) * (1 - 1e-9)
    assert ratio(value) > ratio(cheap) * 1.05  # SSDs are paid for anyway and carry more
    assert value.cost > cheap.cost
    bill = bills(value, prices, {"web": 65e3, "video": 8.5e6})
    assert sum(b["price_an_hour"] for b in bill) == pytest.approx(value.cost)
    assert all(b["requests_per_price"] > 0 and b["gigabytes_per_price"] > 0 for b in bill)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"objective": "value"}, "needs the solver highs"),
        ({"demands": []}, "at least one tenant"),
        ({"demands": [WEB, WEB]}, "named twice"),
        ({"demands": [replace(WEB, tenant=f"t{i}") for i in range(13)]}, "at most 12"),
        ({"pool": ResourcePool(STEP, STEP), "demands": [WEB, VIDEO]}, "pool is too small for 2"),
    ],
)
def test_what_cannot_be_planned_is_reported(change, words):
    arguments = {"demands": [WEB], "pool": POOL} | change
    demands, pool = arguments.pop("demands"), arguments.pop("pool")
    with raises(UserError, words):
        plan(MODEL, demands, pool, **arguments)


# The model of performance: scarcest resource, monotonicity, JSON, SLAs.


def _broken(path, value):
    data = json.loads(json.dumps(MODEL.to_json()))
    at = data
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return data


IN_A = ("classes", "A")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("kind",), "magic", "kind: 'magic'"),
        (("classes",), {}, "classes: {}"),
        ((*IN_A, "idle_s"), 0, "class A"),
        ((*IN_A, "colour"), 2, "unknown key 'colour'"),
        ((*IN_A, "curves", "cores"), [], "unknown key 'cores'"),
        ((*IN_A, "curves", "network"), None, "network is missing"),
        ((*IN_A, "curves", "network"), [[1, 0], [2, 1]], "allowed: at 0"),
        ((*IN_A, "curves", "network"), [[0, 0], [0, 1]], "amounts must rise"),
        ((*IN_A, "curves", "network"), [[0, 0], [1, 5], [2, 4]], "never cost throughput"),
    ],
)
def test_malformed_models_are_reported(path, value, words):
    with raises(UserError, words):
        PiecewiseLinear.from_json(_broken(path, value), "profile.json")


def test_slas_are_levels_of_performance():
    slow = Sla(LATENCY, 0.09, 0.045)
    assert slow.level(0.045) == pytest.approx(2) == pytest.approx(slow.high_level)
    assert slow.required(9, 1.0) == pytest.approx((100, 200))
    wide = Sla(BANDWIDTH, 1e7, 2e7)
    assert wide.level(5e6) == 0.5
    assert wide.required(9, 1e6) == (10, 20)
    each = Sla(BANDWIDTH, 1e6, 2e6, per_worker=True)
    assert each.at(4) == Sla(BANDWIDTH, 4e6, 8e6)
    tenant = Tenant("web", "small", 10, 5e6, 0, 0.03)
    assert slow.of(tenant) == pytest.approx(3)
    assert wide.of(tenant) == 0.5
    assert slow.of(Tenant("web", "small")) is None


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"latency_ms": 90}, Sla(LATENCY, 0.09, 0.045)),
        ({"latency_ms": {"low": 90, "high": 30}}, Sla(LATENCY, 0.09, 0.03)),
        ({"bandwidth_mb_s": 20}, Sla(BANDWIDTH, 2e7, 4e7)),
        ({"bandwidth_mb_s": {"low": 2}, "per_worker": True}, Sla(BANDWIDTH, 2e6, 4e6, True)),
    ],
)
def test_slas_from_json_and_back(data, expected):
    read = sla_from_json(data, "x")
    assert (read.kind, read.per_worker) == (expected.kind, expected.per_worker)
    assert (read.low, read.high) == pytest.approx((expected.low, expected.high))
    again = sla_from_json(sla_to_json(read), "x")
    assert (again.low, again.high) == pytest.approx((read.low, read.high))


# R1 to R7: the optimiser's plans satisfy them, a violation is reported with its numbers.


KINDS = {"web": A.workload, "video": C.workload}
GOOD = Allocation(
    Resources(8, 8, 1e9, 4, 4),
    {"small": Resources(6, 6, 2e8, 2, 0), "large": Resources(2, 2, 8e8, 1, 2)},
    {"web": "small", "video": "large"},
    link={"small": 2e8, "large": 8e8},
)


def verdict(findings, rule, store=""):
    (found,) = [f for f in findings if f.rule == rule and f.microstore == store]
    return found


def test_a_division_by_the_rules_keeps_them_all():
    assert not broken(check_rules(GOOD, KINDS))
    found = check_rules(GOOD, KINDS)
    assert sorted({f.rule for f in found}) == list(RULES)
    assert all(f.sentence and f.to_json()["rule"] == f.rule for f in found)


def test_r1_who_serves_both_is_named():
    mixed = replace(GOOD, tenants={"web": "small", "video": "small"})
    found = verdict(check_rules(mixed, KINDS), "R1")
    assert found.verdict == BROKEN
    assert "small serves both" in found.sentence
    assert found.numbers["mixed"] == 1


PARTS, BY_MODEL = (), (MODEL,)


@pytest.mark.parametrize(
    ("model", "rule", "store", "held", "words"),
    [
        (PARTS, "R2", "small", Resources(1, 1, 9e8, 1, 0), "12 % of the proxies' cores and 90 %"),
        (PARTS, "R3", "large", Resources(6, 6, 1e8, 1, 0), "10 % of the network and 75 %"),
        (PARTS, "R4", "small", Resources(8, 1, 2e8, 1, 0), "8 cores of proxies and 1 of storage"),
        (PARTS, "R5", "large", Resources(2, 2, 2e8, 1, 0), "200 MB/s to the clients and 800 MB/s"),
        (BY_MODEL, "R2", "small", Resources(6, 6, 1e6, 1, 0), "the network ends before the CPU"),
        (BY_MODEL, "R3", "large", Resources(0.1, 2, 8e8, 4, 0), "its tenants need"),
        (BY_MODEL, "R6", "small", Resources(0.1, 0.1, 9e8, 1, 0), "would serve large objects"),
        (BY_MODEL, "R7", "large", Resources(2, 2, 8e8, 0, 1), "disks carry 15 requests a second"),
        (BY_MODEL, "R7", "large", Resources(2, 2, 1e8, 2, 2), "would carry as much for less"),
    ],
)
def test_a_broken_rule_is_reported_with_its_numbers(model, rule, store, held, words):
    """By parts of the pool, and by the model where there is one."""
    needy = replace(GOOD, needed={"small": 500, "large": 40}) if model else GOOD
    division = replace(needy, stores={**GOOD.stores, store: held})
    found = verdict(check_rules(division, KINDS, *model), rule, store)
    assert found.verdict == BROKEN, found
    assert words in found.sentence
    assert found.numbers
    assert model or verdict(check_rules(GOOD, KINDS), rule, store).verdict == HOLDS
