"""Verb: live view of the testbed, a sample per second, for `hotbed top`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from schemas.errors import StoreError
from testbed.agent.contract import AgentConfig, osd_nodes
from testbed.agent.sampler import CLIENT, NodeSample, open_sampler
from testbed.stores.microstores import MICROSTORES, microstores_to_json
from testbed.stores.swift.cluster import state_to_json
from testbed.stores.swift.store import SwiftStore, store_of

_LONGEST_S = 86_400.0
_ANSWER_S = 2.0  # short: a person is watching


def top(config: AgentConfig, payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Stream {interval_s?: 1, count?} -> {wall, testbed, nodes, osds, client, lost, steered}.

    `nodes` maps a name to its metrics plus roles, osds and signal; `osds` and `client` are as in
    `testbed.agent.sampler`; with Swift also `swift`, {microstores, state, down, lost}. If the store
    does not answer, `steered` maps each controller's name to its changes. Ends after `count`
    samples, or when the caller hangs up.
    """
    interval_s = min(60.0, max(0.2, float(payload.get("interval_s", 1.0))))
    count = payload.get("count")
    sampler = open_sampler(config, _ANSWER_S)
    swift = store_of(config) if config.store == "swift" else None
    try:
        if swift is not None:
            swift.sense(frozenset({MICROSTORES}))
        taken, due, end = 0, sampler.began, time.monotonic() + _LONGEST_S
        while (count is None or taken < int(count)) and due < end:
            due = max(due + interval_s, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
            yield view(config, sampler.sample()) | _microstores(swift)
            taken += 1
    finally:
        if swift is not None:
            swift.close()
        sampler.close()


def _microstores(swift: SwiftStore | None) -> dict[str, Any]:
    """Return microstores and tenants since the previous sample, and the state in force."""
    if swift is None:
        return {}
    try:
        seen = swift.sense(frozenset({MICROSTORES})).microstores
        assert seen is not None
        found: dict[str, Any] = {
            "microstores": microstores_to_json(seen),
            "state": state_to_json(swift.state()),
            "down": {},
            "lost": {},
        }
    except StoreError as error:
        found = {"error": str(error)}
    return {"swift": found}


def _steered(config: AgentConfig) -> dict[str, list[str]]:
    """Return changes that must still be restored, by controller."""
    from testbed.agent.__main__ import find  # by name: controllers import this package

    rows = find("control-status")(config, {})["controllers"]
    return {row["name"]: row["steered"] for row in rows if row["steered"]}


def view(config: AgentConfig, sample: NodeSample) -> dict[str, Any]:
    """Return a sample, split into nodes, OSDs and clients."""
    carriers = {node.name for node in osd_nodes(config)}
    nodes: dict[str, Any] = {}
    for node in config.nodes:
        known = {"roles": list(node.roles), "osds": list(node.osds), "signal": node.signal}
        values = dict(sample.values.get(node.name, {}))
        if node.name not in carriers:
            values.pop("hot", None)
        nodes[node.name] = known | values
    return {
        "wall": sample.wall,
        "testbed": config.testbed,
        "nodes": nodes,
        "osds": {
            name: dict(values) for name, values in sample.values.items() if name.startswith("osd.")
        },
        "client": dict(sample.values.get(CLIENT, {})),
        "lost": dict(sample.lost),
        "steered": _steered(config) if "store" in sample.lost else {},
    }
