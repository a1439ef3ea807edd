"""Shares, and the JSON form of microstores and their actions."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from testbed.stores.contract import (
    Observation,
    action_from_json,
    action_to_json,
    observation_from_json,
    observation_to_json,
)
from testbed.stores.microstores import (
    NOTHING,
    AssignableMachine,
    AssignMachine,
    MapTenant,
    Microstore,
    Microstores,
    Resources,
    SetResources,
    Tenant,
)
from tests.errors import raises

SEEN = Microstores(
    stores=(
        Microstore("small", Resources(0.4, 0.4, 5e6, 1, 0), {"proxy_cpu": 0.7}, (0.5, 0.75)),
        Microstore("large", Resources(0.2, 0.2, 2e7, 0, 2)),
    ),
    tenants=(
        Tenant("web", "small", 80.0, 5.2e6, 0.5, 0.02, 0.06, {14: 3, 17: 900}, 0.1, 8.0),
        Tenant("video", "large"),
    ),
    total=Resources(0.8, 0.8, 5e7, 2, 2),
    step=Resources(0.1, 0.1, 2.5e6, 1, 1),
    machines=(
        AssignableMachine("m1", Resources(0.2, 0.2, 1e7, 1, 0), "small"),
        AssignableMachine("m2", NOTHING),
    ),
)


def test_an_observation_carries_them_and_does_without():
    seen = Observation(t_s=10.0, interval_s=10.0, microstores=SEEN)
    data = json.loads(json.dumps(observation_to_json(seen)))
    assert observation_from_json(data) == seen
    bare = observation_to_json(replace(seen, microstores=None))
    assert "microstores" not in bare
    assert observation_from_json(bare).microstores is None


@pytest.mark.parametrize(
    "action",
    [
        SetResources("small", Resources(0.4, 0.2, 1e6, 1, 0)),
        AssignMachine("m1", ""),
        MapTenant("web", "large"),
    ],
)
def test_actions_come_back_from_json(action):
    assert action_from_json(json.loads(json.dumps(action_to_json(action)))) == action


@pytest.mark.parametrize("resources", [{"cores": 1}, "all", 3, None, [1, 2]])
def test_malformed_shares_are_no_action(resources):
    data = {"action": "SetResources", "microstore": "small", "resources": resources}
    with raises(ValueError, "not an action"):
        action_from_json(data)
