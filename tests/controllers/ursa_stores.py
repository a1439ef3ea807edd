"""Stores with loads, for the tests of `ursa` and `htoc`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from controllers.registry import create, find
from controllers.ursa.live import Steering
from testbed.stores.contract import Action, Observation, OpRates
from tests.testbed.fake_store import FakeStore

INTERVAL_S = 20.0


def steering(name: str = "ursa", **parameters: object) -> Steering:
    """Return the controller `name`."""
    policy = create(find(name), parameters, 1)
    assert isinstance(policy, Steering)
    return policy


def written(store: FakeStore, hot: Sequence[int], rate: float = 1.0, cold: float = 0.2) -> None:
    """Write at `rate` to every PG with a replica on an OSD of `hot`, at `cold` to the others."""
    for pg, osds in store.crush.items():
        touched = bool(set(osds) & set(hot))
        store.rates[pg] = OpRates(writes=rate if touched else cold)


def loads(store: FakeStore, parameters: Mapping[str, Any]) -> dict[int, float]:
    """Return the current weighted load of each OSD."""
    activity = store.activity()
    return {
        osd: parameters["read_weight"] * rates.reads + parameters["write_weight"] * rates.writes
        for osd, rates in activity.osds.items()
    }


def steer(
    policy: Steering, store: FakeStore, steps: int
) -> list[tuple[Observation, Mapping[str, Any], Sequence[Action]]]:
    """Let `policy` steer `store` and return (observation, state after, actions) per step."""
    state: Mapping[str, Any] = policy.initial()
    report = []
    for _ in range(steps):
        seen = store.sense(policy.needs.senses)
        state, actions = policy.decide(state, seen)
        store.act(actions)
        report.append((seen, state, actions))
    return report
