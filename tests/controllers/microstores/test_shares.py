"""Limits of the pool: no request over-commits it; and fixed allocations within it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.legality import illegal
from controllers.microstores.shares import (
    changes,
    ledger,
)
from controllers.registry import create, find
from controllers.static_microstores.policy import ALLOCATIONS, allocate
from schemas.errors import UserError
from testbed.stores.contract import Observation
from testbed.stores.microstores import NOTHING, Microstore, Microstores, Resources
from tests.controllers.clusters import python_3_12
from tests.controllers.mos_stores import STEP, TOTAL, two
from tests.errors import raises

counts = st.tuples(*[st.integers(-3, 9)] * 5)
orders = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.booleans(), counts), max_size=8)
held = st.builds(
    Resources,
    st.floats(0, 0.4),
    st.floats(0, 0.4),
    st.floats(0, 2.5e7),
    ssds=st.integers(0, 1),
    hdds=st.integers(0, 2),
)


def pool(a, b):
    return Microstores((Microstore("a", a), Microstore("b", b)), (), TOTAL, STEP)


@settings(max_examples=20, deadline=None)
@given(held, held, orders)
def test_whatever_is_asked_the_pool_is_kept(a, b, asked):
    seen = pool(a, b)
    book = ledger(seen)
    for name, gives_back, steps in asked:
        before = book
        book = book.take(name, steps) if gives_back else book.give(name, steps)
        assert all(count >= 0 for count in book.held[name])
        other = "b" if name == "a" else "a"
        assert book.held[other] == before.held[other]
    after = {store.name: store.resources for store in seen.stores}
    after |= {order.microstore: order.resources for order in changes(seen, book)}
    together = after["a"] + after["b"]
    assert together.within(TOTAL)


def test_what_is_no_multiple_of_a_step_counts_as_more_and_stays_what_it_is():
    seen = pool(Resources(0.25, 0.3, 2e7, 1, 1), Resources(0.3, 0.3, 2e7, 1, 1))
    book = ledger(seen)
    assert book.held["a"] == (3, 3, 8, 1, 1)
    assert book.free[0] == 2
    (order,) = changes(seen, book.give("a", (0, 1, 0, 0, 0)))
    assert order.resources == replace(seen.stores[0].resources, storage_cores=0.4)
    assert changes(seen, book) == []


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(ALLOCATIONS), st.integers(1, 2), st.integers(1, 2), st.integers(8, 30))
def test_allocations_give_out_the_whole_pool_and_no_more(allocation, small, large, steps):
    total = Resources(steps * 0.1, steps * 0.1, steps * 2.5e6, steps, steps)
    names = [f"s{i}" for i in range(small)], [f"l{i}" for i in range(large)]
    made = allocate(allocation, total, STEP, *names)
    assert set(made) == {*names[0], *names[1]}
    together = NOTHING
    for share in made.values():
        together = together + share
    assert together.within(total)
    assert total.within(together)


def test_static_is_the_papers():
    total = Resources(8, 8, 1e9, 10, 10)
    made = allocate("static", total, Resources(1, 1, 1e7, 1, 1), ["small"], ["large"])
    assert made["small"] == Resources(6, 6, 3e8, 10, 3)
    assert made["large"] == Resources(2, 2, 7e8, 0, 7)


def test_an_allocation_is_the_same_on_another_python():
    total = Resources(30, 30, 3e8, 30, 30)
    given = ("static", total, Resources(1, 1, 1e7, 1, 1), ["small"], [f"l{i}" for i in range(5)])
    made = allocate(*given)
    with python_3_12():
        assert allocate(*given) == made


@pytest.mark.parametrize(
    ("allocation", "small", "total", "words"),
    [
        ("fair", ["a"], TOTAL, "allowed: default"),
        ("even", [], TOTAL, "at least one microstore"),
        ("even", ["a", "b", "c"], replace(TOTAL, proxy_cores=0.2), "too small for 3"),
    ],
)
def test_allocations_that_cannot_be(allocation, small, total, words):
    with raises(UserError, words):
        allocate(allocation, total, STEP, small, [])


# Fixed allocations as a controller: assigned once, and then unchanged.


def policy(**parameters):
    return create(find("static-microstores"), parameters, 1)


def run(made, epochs=3):
    store = two(lambda n: {"web": 4, "video": 4})
    state = made.initial()
    for _ in range(epochs):
        observation = store.sense(made.needs.senses)
        state, actions = made.decide(state, observation)
        assert illegal(list(actions), observation, made.needs) is None
        store.act(actions)
    return store


@pytest.mark.parametrize("allocation", ["static", "favors-small", "favors-large", "even"])
def test_an_allocation_is_given_out_once(allocation):
    store = run(policy(allocation=allocation))
    assert (store.stores["small"] + store.stores["large"]).within(TOTAL)
    assert [bool(orders) for orders in store.acted[1:]] == [False, False]
    parts = {"static": 0.6, "favors-small": 0.2, "favors-large": 0.6, "even": 0.4}
    assert store.stores["small"].proxy_cores == pytest.approx(parts[allocation], abs=0.11)


def test_default_is_one_store_for_everybody():
    store = run(policy(allocation="default"))
    assert store.tenants == {"web": "small", "video": "small"}
    assert store.stores == {"small": TOTAL, "large": NOTHING}


def test_who_is_for_large_objects_can_be_said():
    store = run(policy(allocation="favors-large", serves={"small": "large", "large": "small"}))
    assert store.stores["large"].proxy_cores == pytest.approx(0.6, abs=0.11)
    assert Resources(0.1, 0.1, 2.5e6, 0, 0).within(store.stores["small"])
    with raises(UserError, "allowed: small, large"):
        policy(serves={"small": "huge"})


def test_kept_is_kept():
    made = policy()
    assert not made.needs.acts
    assert not any(run(made).acted)
    assert made.decide(made.initial(), Observation(0, 10)) == (made.initial(), [])
