"""DLR (Algorithm 1), default, reweight, upmap, oracle, dlr-auto, and common properties of all
policies."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.decide import InProcessDecider, decide
from controllers.dlr_auto.memory import BINS, remember, split
from controllers.registry import available, create, find
from schemas.errors import UserError
from testbed.stores.contract import (
    Observation,
    Osd,
    ReweightByUtilization,
    RunSizeBalancer,
    SetPrimaryAffinity,
    observation_to_json,
)
from tests.controllers.clusters import PERCENT, observations, python_3_12, settle
from tests.testbed.fake_store import FakeStore

CONTROLLERS = available()
NAMES = sorted(CONTROLLERS)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("reweight", ReweightByUtilization(120, 1.0, 10_000)),  # Ceph 9.2.1, section V-A
        ("reweight-capped", ReweightByUtilization(120, 0.05, 4)),  # since Ceph 10.2.0
        ("jj", RunSizeBalancer(10)),
    ],
)
def test_a_command_is_given_every_interval(name, command):
    policy = create(find(name), {}, 1)
    _, actions = policy.decide(policy.initial(), FakeStore().sense(policy.needs.senses))
    assert list(actions) == [command]
    assert settle(policy, FakeStore(), 3) == [1, 1, 1]


@pytest.mark.parametrize("name", ["upmap", "upmap-read"])
def test_the_balancer_is_switched_on_once(name):
    store = FakeStore()
    assert settle(create(find(name), {}, 1), store, 3) == [1, 0, 0]
    assert store.balancer == name


def test_the_read_balancer_evens_out_the_primaries_once():
    store = FakeStore()
    before = store.read_balance()["bench"]
    assert settle(create(find("read-balancer"), {}, 1), store, 3) == [1, 0, 0]
    assert 1 <= store.read_balance()["bench"] < before


@pytest.mark.parametrize(
    ("name", "given", "options"),
    [
        ("balance-reads", {}, {"rados_replica_read_policy": "balance"}),
        ("localize-reads", {}, {"rados_replica_read_policy": "localize"}),
        (
            "localize-reads",
            {"location": "host=osd1 root=default"},
            {
                "rados_replica_read_policy": "localize",
                "crush_location": "host=osd1 root=default",
            },
        ),
        ("mclock", {}, {"osd_mclock_profile": "high_client_ops"}),
        ("mclock", {"profile": "balanced"}, {"osd_mclock_profile": "balanced"}),
    ],
)
def test_an_option_is_set_once(name, given, options):
    store = FakeStore()
    policy = create(find(name), given, 1)
    assert settle(policy, store, 3) == [len(options), 0, 0]
    assert store.options == options
    assert set(options) <= policy.needs.acts


@pytest.mark.parametrize(
    ("name", "given"),
    [("localize-reads", {"location": "osd1"}), ("mclock", {"profile": "fast"})],
)
def test_a_bad_option_is_refused(name, given):
    with pytest.raises(UserError, match=next(iter(given))):
        create(find(name), given, 1)


def test_the_oracle_follows_the_truth():
    store = FakeStore(hot=lambda n: frozenset({1, 2} if n < 2 else {5}))
    policy = create(find("oracle"), {}, 1)
    assert settle(policy, store, 4) == [2, 0, 3, 0]
    low = {osd.id for osd in store.osds.values() if osd.primary_affinity == 0.1}
    assert low == {5}


@given(observations(), PERCENT)
def test_no_action_on_uniform_pressure(observation, level):
    uniform = observation.__class__(
        0, 20, pressure=dict.fromkeys(observation.pressure, level), osds=observation.osds
    )
    for name in ("dlr", "dlr-auto"):
        policy = create(CONTROLLERS[name], {}, 1)
        state, actions = policy.decide(policy.initial(), uniform)
        assert not actions, name
        _, actions = policy.decide(state, uniform)
        assert not actions, name


@given(st.lists(observations(max_pgs=0), min_size=1, max_size=6))
def test_auto_keeps_affinities_between_floor_and_one(series):
    policy = create(CONTROLLERS["dlr-auto"], {}, 1)
    state = policy.initial()
    for observation in series:
        state, actions = policy.decide(state, observation)
        assert all(isinstance(a, SetPrimaryAffinity) and 0.1 <= a.value <= 1 for a in actions)


def test_auto_works_on_a_signal_that_never_reaches_the_papers_thresholds():
    def faint(number: int) -> dict[int, float]:
        return {osd: (38.0 if osd < 4 else 6.0) + (osd + number) % 3 for osd in range(8)}

    by_paper, by_signal = FakeStore(pressures=faint), FakeStore(pressures=faint)
    assert sum(settle(create(find("dlr"), {}, 1), by_paper, 5)) == 0
    settle(create(find("dlr-auto"), {}, 1), by_signal, 5)
    assert [by_signal.osds[i].primary_affinity for i in range(8)] == pytest.approx(
        [0.1] * 4 + [1.0] * 4, abs=1e-3
    )


@given(st.lists(st.lists(PERCENT, min_size=1, max_size=30), min_size=1, max_size=8))
def test_a_split_lies_within_what_was_seen(series):
    memory = [0.0] * BINS
    for pressures in series:
        memory = remember(memory, pressures, 0.7)
    found = split(memory)
    seen = [value for pressures in series for value in pressures]
    if found is None:
        assert len({min(BINS - 1, int(value / 2)) for value in seen}) == 1
        return
    assert min(seen) - 2 <= found.low < found.high <= max(seen) + 2
    assert 0 <= found.separation <= 1 + 1e-9


@given(st.lists(observations(max_pgs=20), min_size=1, max_size=4))
def test_decisions_are_the_same_in_every_replay(series):
    """Policies are new, arguments pass through JSON, and inputs are not mutated. A replay may run
    on another Python than the node that decided."""
    report = [observation_to_json(observation) for observation in series]
    untouched = json.dumps(report)
    for name in NAMES:
        one, other = (create(CONTROLLERS[name], {}, 7) for _ in range(2))
        decider = InProcessDecider(one)
        state = decider.initial()
        for seen in report:
            first = decider.decide(state, seen)
            with python_3_12():
                assert decide(other, state, seen) == first, name
            state = first.state
        assert json.dumps(report) == untouched, name


# DLR compared with an independent transcription of the paper's Algorithm 1.


AFFINITY = st.floats(0.1, 1)
DLR = find("dlr")


def observe(iow: list[float], alpha: list[float]) -> Observation:
    osds = tuple(Osd(i, f"n{i}", primary_affinity=a) for i, a in enumerate(alpha))
    return Observation(0, 20, pressure=dict(enumerate(iow)), osds=osds)


def algorithm_1(iow, alpha, theta_h=50, theta_i=0.2, theta_l=20):
    """Compute lines 3 to 17 as printed, written without a look at the policy."""
    n = len(iow)
    avg_iow = sum(iow[i] / n for i in range(n))
    following = list(alpha)
    for i in range(n):
        if iow[i] > theta_h:
            delta_1 = (iow[i] - theta_h) / 100
            phi = (iow[i] - avg_iow) / iow[i]
            if phi > theta_i:
                delta_2 = phi - theta_i
                following[i] = max(0.1, alpha[i] - (delta_1 + delta_2))
        elif iow[i] < theta_l and alpha[i] < 1:
            following[i] = 1
    return following


def after(policy, observation) -> list[float]:
    _, actions = policy.decide(policy.initial(), observation)
    values = {osd.id: osd.primary_affinity for osd in observation.osds}
    for action in actions:
        assert isinstance(action, SetPrimaryAffinity)
        values[action.osd] = action.value
    return [values[i] for i in sorted(values)]


@given(
    st.lists(st.tuples(PERCENT, AFFINITY), min_size=1, max_size=20),
    PERCENT,
    st.floats(0, 1),
    PERCENT,
)
def test_equals_algorithm_1(osds, theta_h, theta_i, theta_l):
    iow, alpha = [list(column) for column in zip(*osds, strict=True)]
    average = sum(iow) / len(iow)
    # At an exact threshold, the order of summation decides.
    if any(value > 0 and abs((value - average) / value - theta_i) < 1e-9 for value in iow):
        return
    thresholds = {"theta_h": theta_h, "theta_i": theta_i, "theta_l": theta_l}
    policy = create(DLR, thresholds, 1)
    expected = algorithm_1(iow, alpha, theta_h, theta_i, theta_l)
    found = after(policy, observe(iow, alpha))
    assert found == pytest.approx(expected, abs=1.1e-3)
    assert all(0.1 <= value <= 1 for value in found)


def test_osds_that_are_down_out_or_not_sensed_count_for_nothing():
    policy = create(DLR, {}, 1)
    osds = (
        Osd(0, "a"),
        Osd(1, "b"),
        Osd(2, "c", up=False, primary_affinity=0.5),
        Osd(3, "d", in_=False),
        Osd(4, "e", primary_affinity=0.5),
    )
    pressure = {0: 90.0, 1: 10.0, 2: 0.0, 3: 0.0}
    _, actions = policy.decide({}, Observation(0, 20, pressure=pressure, osds=osds))
    # Only 90 and 10 enter the mean.
    assert actions == [SetPrimaryAffinity(0, pytest.approx(1 - 0.4 - (40 / 90 - 0.2)))]
