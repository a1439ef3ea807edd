"""Verbs of `hotbed top`: a sample of the testbed per second, and the detail of one node."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

from schemas.errors import RemoteError, StoreError
from testbed.agent.contract import AgentConfig, node_of, osd_nodes
from testbed.agent.monitor import Counters, Monitor, over_ssh, rates
from testbed.agent.sampler import CLIENT, NodeSample, open_sampler
from testbed.agent.verbs import needed
from testbed.stores.microstores import MICROSTORES, microstores_to_json
from testbed.stores.swift.cluster import state_to_json
from testbed.stores.swift.store import SwiftStore, store_of

_LONGEST_S = 86_400.0
_ANSWER_S = 2.0  # short: a person is watching
_PROCESSES = 100  # the busiest ones
_OF_A_DISK = ("disk", "read_mb_s", "write_mb_s", "util", "queue")


def top(config: AgentConfig, payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Stream {interval_s?: 1, count?} -> {wall, testbed, nodes, osds, client, lost, steered,
    controllers}.

    `nodes` maps a name to its metrics plus roles, osds and signal; `osds` and `client` are as in
    `testbed.agent.sampler`; with Swift also `swift`, {microstores, state, down, lost}. If the store
    does not answer, `steered` maps each controller's name to its changes. `controllers` holds the
    running ones (see `controllers.steps`). Ends after `count` samples, or when the caller hangs up.
    """
    steps = steps_of(config)
    with ExitStack() as opened:
        sampler = opened.enter_context(closing(open_sampler(config, _ANSWER_S)))
        swift = None
        if config.store == "swift":
            swift = opened.enter_context(closing(store_of(config)))
            swift.sense(frozenset({MICROSTORES}))
        due = sampler.began
        for interval_s in _turns(payload):
            due = max(due + interval_s, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
            seen = view(config, sampler.sample()) | {"controllers": next(steps)}
            yield seen | _microstores(swift)


def node_top(config: AgentConfig, payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Stream {node, interval_s?: 1, count?} -> {wall, processes: [{pid, command, cpu_cores,
    read_mb_s, write_mb_s}], disks: [{disk, read_mb_s, write_mb_s, util, queue}], net: {interface,
    rx_mb_s, tx_mb_s}}, with the busiest processes. RemoteError: the node does not answer."""
    node = node_of(config, *needed(payload, "node-top", "node"))
    with closing(Monitor([node], over_ssh(config, processes=True))) as monitor:
        lost = monitor.start()
        for interval_s in _turns(payload):
            if lost:
                raise RemoteError(f"node {node.name}: {lost[node.name]}.", retry=True)
            before = monitor.counters()[node.name]
            time.sleep(interval_s)
            lost = monitor.read().lost
            if not lost:
                yield detail(before, monitor.counters()[node.name])


def detail(before: Counters, after: Counters) -> dict[str, Any]:
    """Return the answer of `node_top` between two counts of a node."""
    seconds = after.t - before.t
    rows = []
    for key, (command, *counts) in after.detail["processes"].items():
        earlier = before.detail["processes"].get(key, [command, 0, 0, 0])[1:]
        cpu, read, write = ((b - a) / seconds / 1e6 for a, b in zip(earlier, counts, strict=True))
        row = {"cpu_cores": cpu, "read_mb_s": read, "write_mb_s": write}
        rows.append({"pid": int(key.partition(".")[0]), "command": command} | row)
    # By processor time, then by I/O.
    rows.sort(key=lambda row: (-row["cpu_cores"], -row["read_mb_s"] - row["write_mb_s"]))
    disks = []
    for name, a, b in zip(after.detail["disks"], before.disks, after.disks, strict=False):
        one = rates(replace(before, disks=(a,)), replace(after, disks=(b,)))
        if one is not None:
            values = (one.disk_read_mb_s, one.disk_write_mb_s, one.disk_util, one.disk_queue)
            disks.append(dict(zip(_OF_A_DISK, (name, *values), strict=True)))
    return {
        "wall": after.wall,
        "processes": rows[:_PROCESSES],
        "disks": disks,
        "net": {
            "interface": after.detail["net"],
            "rx_mb_s": (after.net_rx - before.net_rx) / seconds / 1e6,
            "tx_mb_s": (after.net_tx - before.net_tx) / seconds / 1e6,
        },
    }


def _turns(payload: Mapping[str, Any]) -> Iterator[float]:
    """Yield the seconds between two samples, as often as samples are wanted."""
    interval_s, count = float(payload.get("interval_s", 1.0)), payload.get("count")
    end = time.monotonic() + _LONGEST_S
    for taken in itertools.count():
        if time.monotonic() > end or (count is not None and taken >= int(count)):
            return
        yield min(60.0, max(0.2, interval_s))


def steps_of(config: AgentConfig) -> Iterator[dict[str, Any]]:
    """Return the running controllers' steps, read again at each `next`."""
    from testbed.agent.__main__ import find  # by name: controllers import this package

    found: Iterator[dict[str, Any]] = find("control-steps")(config, {"interval_s": 0})
    return found


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
