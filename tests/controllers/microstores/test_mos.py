"""Algorithm 1, literally: its actions epoch by epoch, within its machines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mos_stores import TOTAL, FakeMicrostores
from virtual import run_loop

from controllers.journal import read_journal
from controllers.registry import create, find
from controllers.replay import replay
from schemas.errors import UserError
from testbed.stores.contract import Observation
from testbed.stores.microstores import (
    NOTHING,
    AssignableMachine,
    AssignMachine,
    MapTenant,
    Microstore,
    Microstores,
    Resources,
    Tenant,
)
from tests.errors import raises

HOLDS = Resources(1, 1, 1e8, 1, 1)


def policy(**parameters):
    return create(find("mos"), parameters, 1)


class Pool:
    """Machines with a utilization chosen by the test."""

    def __init__(self, free=20, **held):
        self.names = list(held)
        self.machines = {f"m{i:02d}": "" for i in range(free)}
        for name, count in held.items():
            self.machines |= {f"{name}{i}": name for i in range(count)}

    def observe(self, **busy):
        stores = tuple(
            Microstore(name, NOTHING, {"proxy_cpu": busy[name]} if name in busy else {})
            for name in self.names
        )
        machines = tuple(
            AssignableMachine(name, HOLDS, store) for name, store in self.machines.items()
        )
        return Observation(0, 10, microstores=Microstores(stores, (), NOTHING, NOTHING, machines))

    def act(self, actions):
        for action in actions:
            assert isinstance(action, AssignMachine)
            assert self.machines[action.machine] != action.microstore
            self.machines[action.machine] = action.microstore

    def count(self, name):
        return sum(store == name for store in self.machines.values())


def run(pool, epochs, made=None, state=None):
    """Return each microstore's number of machines after every epoch."""
    made = made or policy()
    state = made.initial() if state is None else state
    counts = []
    for busy in epochs:
        state, actions = made.decide(state, pool.observe(**busy))
        pool.act(actions)
        counts.append([pool.count(name) for name in pool.names])
    return counts


def test_the_first_epoch_only_arms_and_then_it_doubles():
    counts = run(Pool(a=1), [{"a": 0.9}] * 5)
    assert counts == [[1], [3], [7], [15], [21]]  # 0, 2, 4, 8, and the remaining 6


def test_at_once_is_the_other_reading():
    counts = run(Pool(a=1), [{"a": 0.9}] * 4, policy(first="at-once"))
    assert counts == [[2], [4], [8], [16]]


def test_it_gives_back_one_at_a_time_and_keeps_the_last():
    assert run(Pool(a=4), [{"a": 0.1}] * 6) == [[4], [3], [2], [1], [1], [1]]


def test_within_the_band_it_rests_and_begins_anew():
    epochs = [{"a": 0.9}] * 3 + [{"a": 0.85}, {"a": 0.65}] + [{"a": 0.9}] * 3
    assert run(Pool(a=1), epochs) == [[1], [3], [7], [7], [7], [7], [9], [13]]


def test_releases_double_what_is_added_next():
    """The listing's toChange doubles in epochs that release."""
    epochs = [{"a": 0.1}] * 4 + [{"a": 0.9}]
    assert run(Pool(a=6), epochs) == [[6], [5], [4], [3], [19]]  # 1, 2, 4, 8, then 16


def test_what_is_not_sensed_is_left_alone():
    assert run(Pool(a=2), [{"a": 0.9}, {}, {"a": 0.9}]) == [[2], [2], [4]]


def test_what_one_gives_back_another_takes_in_the_same_epoch():
    pool = Pool(free=0, a=1, b=3)
    assert run(pool, [{"a": 0.9, "b": 0.1}] * 3) == [[1, 3], [2, 2], [3, 1]]


def test_nobody_is_always_first_at_the_pool():
    pool = Pool(free=6, a=1, b=1)
    counts = run(pool, [{"a": 0.9, "b": 0.9}] * 2)
    assert counts[1] == [3, 3]
    first = run(Pool(free=2, a=1, b=1), [{"a": 0.9, "b": 0.9}] * 2)
    made = policy()
    turned = run(
        Pool(free=2, a=1, b=1), [{"a": 0.9, "b": 0.9}] * 2, made, made.initial() | {"turn": 1}
    )
    assert sorted([first[1], turned[1]]) == [[1, 3], [3, 1]]


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 6),
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12),
)
def test_no_machine_is_given_twice_and_nobody_is_left_with_none(free, epochs):
    pool = Pool(free=free, a=2, b=2)
    counts = run(pool, [{"a": a, "b": b} for a, b in epochs])
    for a, b in counts:
        assert a >= 1
        assert b >= 1
        assert a + b <= free + 4
    assert sum(counts[-1]) + pool.count("") == free + 4


def unlike():
    network, cores = Resources(1, 1, 9e8, 1, 1), Resources(9, 9, 1e8, 1, 1)
    return (
        AssignableMachine("cores", cores),
        AssignableMachine("network", network),
        AssignableMachine("mine", HOLDS, "a"),
    )


@pytest.mark.parametrize(("measure", "machine"), [("network", "network"), ("proxy_cpu", "cores")])
def test_the_machine_that_has_what_is_scarce_comes_first(measure, machine):
    seen = Microstores((Microstore("a", NOTHING, {measure: 0.9}),), (), machines=unlike())
    made = policy(first="at-once")
    _, actions = made.decide(made.initial(), Observation(0, 10, microstores=seen))
    assert list(actions) == [AssignMachine(machine, "a")]


def test_a_microstore_without_disks_is_none():
    disks = AssignableMachine("disks", Resources(1, 1, 1e8, 1, 0), "a")
    bare = AssignableMachine("bare", Resources(2, 2, 1e8, 0, 0), "a")
    seen = Microstores((Microstore("a", NOTHING, {"proxy_cpu": 0.1}),), (), machines=(disks, bare))
    made = policy(first="at-once")
    _, actions = made.decide(made.initial(), Observation(0, 10, microstores=seen))
    assert list(actions) == [AssignMachine("bare", "")]


@pytest.mark.parametrize("holds", [Resources(0.2, 0.2, 12.5e6), Resources(0.2, 0, 12.5e6)])
def test_what_no_machine_carries_keeps_none_of_them(holds):
    """Swift's machines are proxies. Disks, and storage cores fixed by the spec, stay with a
    microstore whoever holds the machines."""
    machines = tuple(AssignableMachine(f"proxy{i}", holds, "a") for i in range(3))
    seen = Microstores((Microstore("a", NOTHING, {"proxy_cpu": 0.1}),), (), machines=machines)
    made = policy(first="at-once")
    state, actions = made.decide(made.initial(), Observation(0, 10, microstores=seen))
    assert list(actions) == [AssignMachine("proxy0", "")]
    last = Microstores(seen.stores, (), machines=machines[:1])
    assert made.decide(state, Observation(10, 10, microstores=last))[1] == []


def test_even_begins_with_as_many_for_each():
    pool = Pool(free=8, a=0, b=0)
    made = policy(initial="even")
    assert run(pool, [{"a": 0.9, "b": 0.9}] * 3, made) == [[2, 2], [2, 2], [4, 4]]


def small_large(number):
    return {"web": 40 if number < 12 else 1, "video": 6}


def test_it_runs_in_the_loop_and_its_journal_replays(tmp_path):
    machine = Resources(0.1, 0.1, 6e6, 1, 1)
    machines = {f"m{i}": (machine, ["small", "large", ""][i % 3]) for i in range(12)}
    store = FakeMicrostores(small_large, {"small": NOTHING, "large": NOTHING}, machines=machines)
    outcome, journal = run_loop(tmp_path, store, policy(), steps=20)
    assert outcome.code == 0
    assert any(step["actions"] for step in journal.steps)
    found = replay(read_journal(tmp_path / "journal.jsonl"))
    assert found.equal
    assert found.decisions == 20


def test_a_tenant_that_drifts_is_mapped():
    bands = {"small": [0, 1e6], "large": [1e6, None]}
    made = policy(detect={"bands": bands, "patience": 1})
    assert "tenants" in made.needs.acts
    stores = (Microstore("small", NOTHING), Microstore("large", NOTHING))
    seen = Microstores(stores, (Tenant("web", "small", 9, 9e6, sizes={23: 90}),), TOTAL)
    _, actions = made.decide(made.initial(), Observation(0, 10, microstores=seen))
    assert list(actions) == [MapTenant("web", "large")]
    assert policy().needs.acts == {"machines"}


def test_without_microstores_nothing_happens():
    made = policy()
    assert made.decide(made.initial(), Observation(0, 10)) == (made.initial(), [])
    first = Pool(a=1).observe(a=0.9)
    first = Observation(0, 0.0, microstores=first.microstores)
    assert made.decide(made.initial(), first) == (made.initial(), [])


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"util_low": 0.9}, "util_low"),
        ({"util_high": 85}, "allowed: 0 to 1"),
        ({"first": "never"}, "allowed: wait, at-once"),
        ({"detect": "no JSON"}, "'detect': is no JSON"),
        ({"detect": [1]}, "a mapping"),
    ],
)
def test_bad_parameters_are_told(parameters, words):
    with raises(UserError, words):
        policy(**parameters)
