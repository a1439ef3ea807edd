"""Fixed allocations as a controller: assigned once, within the pool, and then unchanged."""

from __future__ import annotations

import pytest
from mos_stores import TOTAL, two

from controllers.legality import illegal
from controllers.registry import create, find
from schemas.errors import UserError
from testbed.stores.contract import Observation
from testbed.stores.microstores import NOTHING, Resources
from tests.errors import raises


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


def test_kept_is_kept():
    made = policy()
    assert not made.needs.acts
    assert not any(run(made).acted)
    assert made.decide(made.initial(), Observation(0, 10)) == (made.initial(), [])


def test_who_is_for_large_objects_can_be_said():
    store = run(policy(allocation="favors-large", serves={"small": "large", "large": "small"}))
    assert store.stores["large"].proxy_cores == pytest.approx(0.6, abs=0.11)
    assert Resources(0.1, 0.1, 2.5e6, 0, 0).within(store.stores["small"])
    with raises(UserError, "allowed: small, large"):
        policy(serves={"small": "huge"})
