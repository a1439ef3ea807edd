"""Pressure of every OSD's node for controllers, and the store that controllers change."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict
from typing import Any

from schemas.errors import UserError
from testbed.agent.contract import IOWAIT_CPUS, AgentConfig, AgentNode, osd_names, osd_nodes
from testbed.agent.disturb import read_state
from testbed.agent.monitor import Counters, Monitor, Rates, over_ssh
from testbed.stores.ceph.store import CephStore, Sensor
from testbed.stores.contract import ACTIVITY, OSDS, PGS, observation_to_json

SIGNALS = ("node", "osd", "op_r_latency")
_NODE_SIGNALS = ("iowait", "io_pressure")


def check_iowait(node: str, cpus: int) -> None:
    """Raise UserError for %iowait on a node with more than 4 CPUs online."""
    if cpus > IOWAIT_CPUS:
        raise UserError(
            f"has {cpus} CPUs online, and the signal iowait is refused on more than "
            f"{IOWAIT_CPUS}: four blocked fio jobs on 48 threads are 8 %, and the threshold "
            "of 50 would silently never fire",
            where=f"node {node}",
            do=(
                "sense io_pressure (pressure_file /proc/pressure/io), or use the signal osd or "
                "op_r_latency"
            ),
        )


def node_pressure(node: AgentNode, rates: Rates) -> float | None:
    """Return a node's own signal in percent; None if unavailable. Raises UserError."""
    if node.signal == "iowait":
        check_iowait(node.name, rates.cpus)
        return rates.iowait
    return rates.io_pressure


class NodeSensor:
    """Sensor of the signal ``node``: every OSD gets its node's %iowait or io.pressure, percent."""

    def __init__(self, config: AgentConfig, monitor: Monitor) -> None:
        self._nodes = {node.name: node for node in osd_nodes(config)}
        self._monitor = monitor
        self.lost: dict[str, str] = dict(monitor.start())
        answered = {n: c for n, c in monitor.counters().items() if n in self._nodes}
        self.signal = self._checked(answered)

    def _checked(self, answered: Mapping[str, Counters]) -> str:
        """Return the signal's name. UserError: a node cannot give the signal."""
        for node in self._nodes.values():
            if node.signal not in _NODE_SIGNALS:
                known = " or ".join(_NODE_SIGNALS)
                raise UserError(
                    f"has the signal {node.signal!r}", where=f"node {node.name}", allowed=known
                )
            if node.signal == "iowait" and node.name in answered:
                check_iowait(node.name, answered[node.name].cpus)
        return "+".join(sorted({node.signal for node in self._nodes.values()}))

    def pressure(self) -> dict[int, float]:
        """Return percent by OSD over the interval since the last call; see `Sensor.pressure`."""
        reading = self._monitor.read()
        self.lost = dict(reading.lost)
        found: dict[int, float] = {}
        for name, rates in reading.nodes.items():
            if name in self._nodes:
                found |= self._of_osds(self._nodes[name], rates)
        return found

    def _of_osds(self, node: AgentNode, rates: Rates) -> Mapping[int, float]:
        value = node_pressure(node, rates)
        if value is None:
            self.lost[node.name] = "has no pressure file"
            return {}
        return dict.fromkeys(node.osds, value)

    def close(self) -> None:
        """See `Sensor.close`."""
        self._monitor.close()


class OsdSensor(NodeSensor):
    """Sensor of the signal ``osd``: io.pressure of each OSD's own control group, without fio's."""

    def _checked(self, answered: Mapping[str, Counters]) -> str:
        without = [n for n, c in answered.items() if self._nodes[n].osds and not c.osd_us]
        if answered and len(without) == len(answered):
            raise UserError(
                f"the signal osd cannot be had on {', '.join(without)}: an OSD has no control "
                "group of its own with an io.pressure (systemd on cgroup v2 is needed)",
                do="use the signal node or op_r_latency",
            )
        return "osd_pressure"

    def _of_osds(self, node: AgentNode, rates: Rates) -> Mapping[int, float]:
        for osd in node.osds:
            if osd not in rates.osd_pressure:
                self.lost[f"osd.{osd}"] = "has no pressure of its own (not running?)"
        return rates.osd_pressure


def hot_osds(config: AgentConfig) -> frozenset[int]:
    """Return OSDs on nodes under the running disturbance: the oracle's ground truth."""
    hot = set((read_state() or {}).get("hot_nodes", ()))
    return frozenset(osd for osd, node in osd_names(config).items() if node in hot)


def open_store(config: AgentConfig, signal: str | None = "node") -> CephStore:
    """Return the testbed's store with a sensor for `signal`: node, osd or op_r_latency; None for a
    store that is only changed.

    Close the store when done. Raises UserError for an unknown or unavailable signal, StoreError if
    the cluster does not answer.
    """
    from testbed.stores.ceph.connection import connect
    from testbed.stores.ceph.perf import LatencySensor

    if config.store != "ceph":
        raise UserError(f"testbed {config.testbed} runs the store {config.store!r}, not ceph")
    if signal is not None and signal not in SIGNALS:
        raise UserError(f"there is no signal {signal!r}", allowed=", ".join(SIGNALS))
    names = osd_names(config)
    with ExitStack() as on_failure:
        connection = connect()
        on_failure.callback(connection.close)
        sensor: Sensor | None = None
        if signal == "op_r_latency":
            sensor = LatencySensor(connection, tuple(names))
        elif signal is not None:
            monitor = Monitor(osd_nodes(config), over_ssh(config))
            on_failure.callback(monitor.close)
            sensor = (NodeSensor if signal == "node" else OsdSensor)(config, monitor)
        on_failure.pop_all()
    return CephStore(
        connection,
        sensor,
        pools=config.pools,
        nodes=names,
        hot=lambda: hot_osds(config),
    )


def sense(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return rates of every node over a time: {seconds?: 1} -> {nodes, lost, seconds}."""
    seconds = min(30.0, max(0.2, float(payload.get("seconds", 1.0))))
    with closing(Monitor(config.nodes, over_ssh(config))) as monitor:
        monitor.start()
        time.sleep(seconds)
        return asdict(monitor.read())


def observe(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return OSDs, PGs and their operations over a time: {seconds?: 10} -> an observation."""
    senses = frozenset({OSDS, PGS, ACTIVITY})
    with closing(open_store(config, None)) as store:
        store.sense(senses)
        time.sleep(min(3600.0, max(1.0, float(payload.get("seconds", 10.0)))))
        return observation_to_json(store.sense(senses))
