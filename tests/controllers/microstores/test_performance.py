"""Model of performance: scarcest resource, monotonicity, JSON, and errors of malformed models."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mos_stores import MODEL, A, C, curves

from controllers.microstores.performance import (
    CapacityCurve,
    PiecewiseLinear,
    WorkloadClass,
)
from controllers.microstores.problem import BANDWIDTH, LATENCY, Sla, sla_from_json, sla_to_json
from schemas.errors import UserError
from testbed.stores.microstores import MEASURES, RESOURCE_NAMES, Resources, Tenant
from tests.errors import raises

HELD = Resources(0.5, 0.5, 1e7, 1, 1)
amounts = st.builds(
    Resources,
    st.floats(0, 2),
    st.floats(0, 2),
    st.floats(0, 1e8),
    ssds=st.integers(0, 3),
    hdds=st.integers(0, 3),
)


@settings(max_examples=20, deadline=None)
@given(curves(), st.floats(0, 6), st.floats(0, 40))
def test_the_inverse_is_the_least_that_is_enough(curve, amount, value):
    least = curve.inverse(value)
    if math.isinf(least):
        assert value > curve.most
    else:
        assert curve.value(least) == pytest.approx(value) or curve.value(0) >= value
        assert curve.value(least * 0.99 - 1e-6) <= value + 1e-9
    assert curve.value(amount) <= curve.value(amount + 0.5)
    assert curve.inverse(curve.value(amount)) <= amount + 1e-9


def test_beyond_the_last_breakpoint_nothing_is_promised():
    curve = CapacityCurve(((0.0, 0.0), (2.0, 6.0)))
    assert (curve.value(-1), curve.value(1), curve.value(9)) == (0, 3, 6)
    assert curve.concave
    assert not CapacityCurve(((0.0, 0.0), (1.0, 1.0), (2.0, 5.0))).concave


@settings(max_examples=20, deadline=None)
@given(amounts, st.sampled_from(RESOURCE_NAMES), st.integers(0, 64), st.sampled_from(["A", "C"]))
def test_more_of_anything_never_makes_anything_slower(held, name, offered, letter):
    table = MODEL.tables[letter]
    more = replace(held, **{name: getattr(held, name) + 1})
    before, after = table.predict(held, offered), table.predict(more, offered)
    assert after.requests_s >= before.requests_s - 1e-9
    assert after.mean_latency_s <= before.mean_latency_s + 1e-9
    assert set(before.utilization) == set(MEASURES)
    assert all(0 <= busy <= 1 for busy in before.utilization.values())


def test_the_scarcest_part_decides():
    got = MODEL.predict(A.workload, HELD, 8)
    assert got.requests_s == pytest.approx(90)  # storage servers: 0.5 cores
    assert got.bytes_s == pytest.approx(90 * 65e3)
    assert got.mean_latency_s == pytest.approx(8 / 90)
    assert got.utilization["storage_cpu"] == pytest.approx(1)
    assert got.utilization["proxy_cpu"] == pytest.approx(90 / 170)
    assert got.utilization["network"] == pytest.approx(90 * 70e3 / 1e7)
    few = MODEL.predict(A.workload, HELD, 0.1)
    assert (few.requests_s, few.mean_latency_s) == pytest.approx((20, 0.005))
    assert MODEL.predict(A.workload, HELD, 0).requests_s == 0
    assert math.isinf(MODEL.predict(A.workload, Resources(), 1).mean_latency_s)


def test_a_class_without_a_table_takes_the_nearest_and_its_own_size():
    table = MODEL.table(WorkloadClass("E", 17e6, 0.1))
    assert table.proxy_cores == C.proxy_cores
    assert table.network.value(9e6) == pytest.approx(0.5)
    assert MODEL.table(WorkloadClass("F", 1e4)).proxy_cores == A.proxy_cores
    assert WorkloadClass("F", 1e4).small
    assert not C.workload.small


def test_json_there_and_back():
    data = json.loads(json.dumps(MODEL.to_json()))
    assert PiecewiseLinear.from_json(data) == MODEL


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
        (("classes",), 3, "classes: 3"),
        ((*IN_A, "idle_s"), 0, "class A"),
        ((*IN_A, "mean_bytes"), "x", "mean_bytes: 'x'"),
        ((*IN_A, "write_share"), 2, "write_share: 2"),
        ((*IN_A, "colour"), 2, "unknown key 'colour'"),
        ((*IN_A, "curves", "cores"), [], "unknown key 'cores'"),
        ((*IN_A, "curves", "network"), None, "network is missing"),
        ((*IN_A, "curves", "network"), [], "must be a list"),
        ((*IN_A, "curves", "network"), [[0, 0], [1]], "no breakpoint"),
        ((*IN_A, "curves", "network"), [[1, 0], [2, 1]], "allowed: at 0"),
        ((*IN_A, "curves", "network"), [[0, 0], [0, 1]], "amounts must rise"),
        ((*IN_A, "curves", "network"), [[0, 0], [1, 5], [2, 4]], "never cost throughput"),
    ],
)
def test_malformed_models_are_told(path, value, words):
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


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (90, "90 is not allowed; allowed: a mapping"),
        ({"latency": 90}, "unknown key 'latency'"),
        ({"latency_ms": 90, "bandwidth_mb_s": 9}, "exactly one"),
        ({"latency_ms": "fast"}, "above 0"),
        ({"latency_ms": {"high": 9}}, "low is missing"),
        ({"latency_ms": {"low": 9, "mid": 9}}, "unknown key 'mid'"),
        ({"latency_ms": {"low": 9, "high": 10}}, "at least high"),
        ({"bandwidth_mb_s": {"low": 9, "high": 8}}, "at most high"),
        ({"bandwidth_mb_s": 9, "per_worker": 1}, "true or false"),
    ],
)
def test_malformed_slas_are_told(data, words):
    with raises(UserError, words):
        sla_from_json(data, "tenant web")
