"""MOS++ and its variants: each branch, reachable SLAs, and the limits of the pool.
`FakeMicrostores.act` refuses every action beyond the available resources. Most tests are about
mos-pp-learning, which has all branches; test_mos_transcribed.py holds the others to the listing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controllers.journal import read_journal
from controllers.legality import illegal
from controllers.microstores.problem import promises_from_json
from controllers.registry import create, find
from controllers.replay import replay
from schemas.errors import UserError
from testbed.stores.contract import Observation
from testbed.stores.microstores import (
    Microstore,
    Microstores,
    Resources,
    SetResources,
    Tenant,
)
from tests.controllers.clusters import python_3_12
from tests.controllers.mos_stores import (
    HALF,
    MODEL,
    STEP,
    TABLES,
    TOTAL,
    off_by,
    served,
    two,
    with_model,
)
from tests.controllers.virtual import run_loop
from tests.errors import raises


def policy(name="mos-pp-learning", **parameters):
    return create(find(name), with_model(**parameters), 1)


def settle(store, made, epochs):
    """Run `epochs` epochs and return the states."""
    state, states = made.initial(), []
    for _ in range(epochs):
        observation = store.sense(made.needs.senses)
        state, actions = made.decide(state, observation)
        assert illegal(list(actions), observation, made.needs) is None
        store.act(actions)
        states.append(state)
    return states


def levels(store, workers, made=None):
    """Return the performance of web and video in multiples of their SLAs' low."""
    promises = promises_from_json(with_model()["tenants"], MODEL, "")
    found = {}
    for name, home in store.tenants.items():
        table = TABLES[name]
        got = served(table, store.held(home), workers[name])
        tenant = Tenant(name, home, got.requests_s, got.bytes_s, 0, got.mean_latency_s)
        found[name] = promises[name].sla.of(tenant)
    return found


def seen(small, large, **tenants):
    stores = (
        Microstore("small", HALF, small[0], small[1]),
        Microstore("large", HALF, large[0], large[1]),
    )
    return Observation(0, 10, microstores=Microstores(stores, tuple(tenants.values()), TOTAL, STEP))


BUSY, CALM, IDLE = {"proxy_cpu": 0.95}, {"proxy_cpu": 0.75}, {"proxy_cpu": 0.3}
NO = ()


def web(latency):
    return Tenant("web", "small", 8 / latency, 5e6, 0, latency, workers=8.0)


def video(rate):
    return Tenant("video", "large", rate / 8.5e6, rate, 0, 0.4, workers=4.0)


def decide(observation, **parameters):
    made = policy(**parameters)
    state, actions = made.decide(made.initial(), observation)
    return state, {a.microstore: a.resources for a in actions if isinstance(a, SetResources)}


def test_within_both_bands_nothing_happens():
    _, orders = decide(seen((CALM, NO), (CALM, NO), web=web(0.06), video=video(1.5e7)))
    assert orders == {}


def test_within_the_sla_and_too_busy_a_container_is_added():
    state, orders = decide(
        seen((BUSY, NO), (CALM, NO), web=web(0.06), video=video(1.5e7)), reclaim=False
    )
    assert orders == {}  # nothing is free
    assert state["why"]["small"].startswith("proxy_cpu above the band")
    half = seen((BUSY, NO), (CALM, NO), web=web(0.06), video=video(1.5e7))
    stores = half.microstores.stores
    spare = replace(stores[1], resources=replace(HALF, proxy_cores=0.2))
    free = replace(half, microstores=replace(half.microstores, stores=(stores[0], spare)))
    _, orders = decide(free)
    assert orders == {"small": replace(HALF, proxy_cores=0.5)}


def test_within_the_sla_and_too_idle_a_container_goes_back():
    _, orders = decide(seen((CALM, NO), (IDLE, NO), web=web(0.06), video=video(1.5e7)))
    assert orders == {"large": replace(HALF, proxy_cores=pytest.approx(0.3))}


def test_what_an_epoch_teaches():
    made = policy()
    observation = seen((BUSY, NO), (CALM, NO), web=web(0.12), video=video(1.5e7))
    state, _ = made.decide(made.initial(), observation)
    small = state["learnt"]["small"]
    # 66.7 requests per second, of the model's 136 for 0.4 cores, which were busy for 95 %.
    target = 8 / 0.12 / 136 / 0.95
    assert small["corrections"]["proxy_cores"] == pytest.approx((1 + target) / 2, abs=1e-5)
    assert set(small["corrections"]) == {"proxy_cores"}  # no other utilization was sensed
    assert small["knee"] == pytest.approx(1 / 1.1, abs=1e-5)  # missed at a higher utilization
    assert state["learnt"]["large"]["knee"] == pytest.approx(1 / 1.1, abs=1e-5)
    early = seen(({"proxy_cpu": 0.8}, NO), (CALM, NO), web=web(0.12), video=video(1.5e7))
    state, _ = made.decide(state, early)
    assert state["learnt"]["small"]["knee"] == 0.8  # an SLA missed before saturation
    state, _ = made.decide(state, seen((IDLE, NO), (CALM, NO), web=web(0.12)))
    assert state["learnt"]["small"]["knee"] == 0.8  # idle and missed: not a lack of resources
    met = seen(({"proxy_cpu": 0.85}, NO), (CALM, NO), web=web(0.06), video=video(1.5e7))
    state, _ = made.decide(state, met)
    assert state["learnt"]["small"]["knee"] == 0.85


def test_a_missed_sla_gets_what_the_plan_has_and_takes_it_from_who_has_more():
    observation = seen((BUSY, NO), (CALM, NO), web=web(0.12), video=video(1.5e7))
    state, orders = decide(observation, learn=0)
    assert orders["small"].storage_cores > HALF.storage_cores
    assert orders["large"].storage_cores < HALF.storage_cores
    assert state["plan"]["small"]["storage_cores"] == orders["small"].storage_cores
    _, orders = decide(observation, learn=0, reclaim=False)
    assert orders == {}


def test_as_printed_a_missed_sla_changes_nothing():
    observation = seen((BUSY, NO), (CALM, NO), web=web(0.12), video=video(1.5e7))
    assert decide(observation, reading="printed")[1] == {}
    exceeded = seen((IDLE, NO), (CALM, NO), web=web(0.01), video=video(1.5e7))
    assert decide(exceeded, reading="printed")[1] == {}


def test_utilization_within_its_band_meets_an_sla_too():
    slots = (0.7,) * 9 + (0.9,)
    observation = seen((BUSY, slots), (CALM, NO), web=web(0.12), video=video(1.5e7))
    assert decide(observation)[1] == {}
    assert set(decide(observation, either=False)[1]) == {"small", "large"}
    assert set(decide(observation, util_thresh=0.95)[1]) == {"small", "large"}


def test_what_exceeds_its_sla_gives_back_what_the_plan_does_not_have():
    fast = Tenant("web", "small", 2 / 0.03, 4e6, 0, 0.03, workers=2.0)
    observation = seen((IDLE, NO), (CALM, NO), web=fast, video=video(1.5e7))
    _, orders = decide(observation, learn=0)
    # 2 workers within 45 ms (the SLA's high) make 44 requests per second.
    assert set(orders) == {"small"}
    assert orders["small"].proxy_cores == pytest.approx(0.2)
    assert orders["small"].storage_cores == pytest.approx(0.3)
    assert orders["small"].network == pytest.approx(5e6)
    _, orders = decide(observation, learn=0, remove_to="low")
    # Within 90 ms with headroom they make 24.
    assert orders["small"].proxy_cores == pytest.approx(0.1)
    assert orders["small"].storage_cores == pytest.approx(0.2)
    assert orders["small"].network == pytest.approx(2.5e6)


def test_without_a_model_it_goes_by_single_containers():
    tenants = {"web": {"workload": "A", "sla": {"latency_ms": 90}}}
    made = create(find("mos-pp-learning"), {"tenants": tenants}, 1)
    observation = seen((BUSY, NO), (CALM, NO), web=web(0.12))
    stores = observation.microstores.stores
    spare = replace(stores[1], resources=Resources(0.1, 0.1, 2.5e6, 0, 1))
    there = replace(observation.microstores, stores=(stores[0], spare))
    free = replace(observation, microstores=there)
    _, actions = made.decide(made.initial(), free)
    assert list(actions) == [SetResources("small", Resources(0.5, 0.5, 2.75e7, 2, 2))]


WORKERS = {"web": 10, "video": 4}


@pytest.mark.parametrize("initial", ["keep", "plan"])
def test_slas_that_can_be_met_are_met_and_stay_so(initial):
    """10 workers within 90 ms make 111 requests per second, which needs over half of the pool."""
    store = two(lambda n: WORKERS)
    assert levels(store, WORKERS)["web"] < 1
    settle(store, policy(initial=initial), 12)
    for level in levels(store, WORKERS).values():
        assert level >= 1
    before = len([orders for orders in store.acted if orders])
    settle(store, policy(), 6)
    assert levels(store, WORKERS)["web"] >= 1
    assert len([orders for orders in store.acted if orders]) <= before + 6


@pytest.mark.parametrize("factor", [0.7, 1.3])
def test_a_model_that_is_wrong_is_corrected(factor):
    store = two(lambda n: WORKERS)
    made = policy(model=off_by(MODEL, factor).to_json())
    states = settle(store, made, 20)
    assert min(levels(store, WORKERS).values()) >= 1
    if factor > 1:
        learnt = states[-1]["learnt"]["small"]["corrections"]
        assert learnt["proxy_cores"] == pytest.approx(1 / factor, rel=0.05)
        blind = two(lambda n: WORKERS)
        settle(blind, policy(model=off_by(MODEL, factor).to_json(), learn=0, either=False), 20)
        assert levels(blind, WORKERS)["web"] >= 1  # by adding single containers


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), min_size=1, max_size=5),
    st.sampled_from(["mos-pp", "mos-pp-resource", "mos-pp-learning"]),
)
def test_whatever_comes_the_pool_is_kept(loads, name):
    store = two(lambda n: dict(zip(("web", "video"), loads[n % len(loads)], strict=True)))
    settle(store, policy(name), 8)
    for held in store.stores.values():
        assert Resources(0.1, 0.1, 2.5e6, 0, 0).within(held)
        assert held.ssds + held.hdds >= 1


def test_it_runs_in_the_loop_and_its_journal_replays(tmp_path):
    store = two(lambda n: {"web": 4 + 2 * (n // 5), "video": 4})
    outcome, journal = run_loop(tmp_path, store, policy(), steps=15)
    assert outcome.code == 0
    assert sum(bool(step["actions"]) for step in journal.steps) >= 3
    with python_3_12():
        found = replay(read_journal(tmp_path / "journal.jsonl"))
    assert found.equal
    assert found.decisions == 15


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"util_low": 0.9}, "util_low"),
        ({"objective": "value"}, "the objective value needs"),
        ({"model": {"kind": "tree"}}, "kind: 'tree'"),
        ({"tenants": {"web": {"workload": "A"}}}, "sla is missing"),
        ({"tenants": {"web": {"workload": "Z", "sla": {"latency_ms": 9}}}}, "allowed: A, C"),
        ({"prices": {"proxy_core": 1}}, "storage_core"),
    ],
)
def test_bad_parameters_are_reported(parameters, words):
    with raises(UserError, words):
        policy(**parameters)
