"""Actions on microstores: pool limits hold, and an illegal action refuses the whole step."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.legality import illegal, senses_for
from testbed.stores.contract import Needs, Observation
from testbed.stores.microstores import (
    MACHINES,
    MICROSTORES,
    NOTHING,
    RESOURCES,
    TENANTS,
    AssignableMachine,
    AssignMachine,
    MapTenant,
    Microstore,
    Microstores,
    Resources,
    SetResources,
    Tenant,
)

HALF = Resources(0.4, 0.4, 1e6, 1, 1)
SEEN = Observation(
    t_s=0.0,
    interval_s=10.0,
    microstores=Microstores(
        stores=(Microstore("small", HALF), Microstore("large", HALF)),
        tenants=(Tenant("web", "small"),),
        total=Resources(0.8, 0.8, 2e6, 2, 2),
        machines=(AssignableMachine("m1", HALF, "small"),),
    ),
)
NEEDS = Needs(frozenset({MICROSTORES}), frozenset({RESOURCES, MACHINES, TENANTS}))


@pytest.mark.parametrize("act", [RESOURCES, MACHINES, TENANTS])
def test_who_changes_microstores_senses_them(act):
    assert senses_for(Needs(frozenset(), frozenset({act}))) == {MICROSTORES}


def test_a_policy_without_such_acts_is_refused():
    needs = Needs(frozenset({MICROSTORES}), frozenset())
    assert "do not declare" in (illegal([MapTenant("web", "large")], SEEN, needs) or "")


@pytest.mark.parametrize(
    "actions",
    [
        [],
        [MapTenant("web", "large"), AssignMachine("m1", "large")],
        [AssignMachine("m1", "")],
        [SetResources("small", NOTHING)],
        # One releases the share that the other takes, in either order.
        [
            SetResources("small", replace(HALF, proxy_cores=0.6)),
            SetResources("large", replace(HALF, proxy_cores=0.2)),
        ],
    ],
)
def test_legal(actions):
    assert illegal(actions, SEEN, NEEDS) is None


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ([MapTenant("game", "large")], "no tenant 'game'"),
        ([MapTenant("web", "")], "no microstore ''"),
        ([AssignMachine("m9", "large")], "no machine 'm9'"),
        ([AssignMachine("m1", "huge")], "no microstore 'huge'"),
        ([SetResources("huge", HALF)], "no microstore 'huge'"),
        ([SetResources("small", replace(HALF, network=-1.0))], "network must be 0 or more"),
        ([SetResources("small", replace(HALF, network=math.nan))], "network must be 0 or more"),
        ([SetResources("small", replace(HALF, ssds=0.5))], "ssds must be a whole number"),
        ([SetResources("small", replace(HALF, ssds=True))], "ssds is not a number"),
        ([SetResources("small", replace(HALF, hdds=2))], "the pool is"),
        ([AssignMachine("m1", ""), AssignMachine("m1", "large")], "second order"),
        ([MapTenant("web", "small"), MapTenant("web", "large")], "second order"),
        ([SetResources("small", HALF), SetResources("small", NOTHING)], "second order"),
    ],
)
def test_illegal(actions, words):
    assert words in (illegal(actions, SEEN, NEEDS) or "")


def test_nothing_was_sensed():
    assert "no microstores were sensed" in (
        illegal([SetResources("small", HALF)], Observation(t_s=0.0, interval_s=10.0), NEEDS) or ""
    )


@settings(max_examples=25)
@given(st.integers(0, 20), st.integers(0, 20))
def test_the_pool_is_never_exceeded(small, large):
    wanted = [
        SetResources(name, replace(HALF, proxy_cores=steps / 10))
        for name, steps in (("small", small), ("large", large))
    ]
    assert (illegal(wanted, SEEN, NEEDS) is None) == (small + large <= 8)
