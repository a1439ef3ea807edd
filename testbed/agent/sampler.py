"""Samples of a whole testbed: nodes, OSDs, clients. The recorder and `top` use them.

A sample maps a node's name (``osd0``), an OSD's (``osd.3``) or ``client`` to metrics and values;
the names are those of ``samples.parquet``:

node    pressure (its signal, percent), disk_read_mb_s, disk_write_mb_s, disk_util (percent),
        disk_queue, net_rx_mb_s, net_tx_mb_s, cpu_cores, hot (0 or 1: a disturbance runs on it)
osd.N   primary_affinity, reweight, primaries, op_r_latency_s, osd_pressure (percent)
client  read_mb_s, write_mb_s, read_iops, write_iops, read_latency_s, write_latency_s (means):
        client operations as the OSDs count them

MB are 10^6 bytes. Unavailable values are absent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from schemas.errors import StoreError, UserError
from testbed.agent.contract import AgentConfig, AgentNode, osd_names
from testbed.agent.disturb import read_state
from testbed.agent.monitor import Monitor, Rates, over_ssh
from testbed.agent.sense import node_pressure
from testbed.agent.steady import SteadyClock
from testbed.stores.ceph.connection import TIMEOUT_S, Connection, connect
from testbed.stores.ceph.perf import CounterPoller, OsdCounters, PolledCounters
from testbed.stores.ceph.pgs import PgReader

CLIENT = "client"
_RATES = (
    *("disk_read_mb_s", "disk_write_mb_s", "disk_util", "disk_queue"),
    *("net_rx_mb_s", "net_tx_mb_s", "cpu_cores"),
)
AGAIN_S = 3.0
"""Wait before a store that did not answer is asked again: a failed attempt takes seconds."""
PATIENCE_S = 0.4
"""Longest wait of a sample for the slowest OSD: less than the second between two samples."""
Values = dict[str, dict[str, float]]


@dataclass(frozen=True)
class NodeSample:
    """Values by node and metric at the time `wall` (epoch), and the missing parts with reasons."""

    wall: float
    values: Mapping[str, Mapping[str, float]]
    lost: Mapping[str, str] = field(default_factory=dict)


def node_metrics(node: AgentNode, rates: Rates, hot: bool) -> dict[str, float]:
    """Return a node's metrics from its rates."""
    values = {name: float(getattr(rates, name)) for name in _RATES} | {"hot": float(hot)}
    try:
        pressure = node_pressure(node, rates)
    except UserError:
        pressure = None  # %iowait of a machine with many CPUs is meaningless: recorded as absent
    if pressure is not None:
        values["pressure"] = pressure
    return values


def client_metrics(deltas: Mapping[int, tuple[float, OsdCounters]]) -> dict[str, float]:
    """Return all OSDs' client service, from each OSD's seconds and counts."""
    total = [(seconds, c) for seconds, c in deltas.values() if seconds > 0]
    counts = [c for _, c in total]
    reads, writes = sum(c.read_latency_n for c in counts), sum(c.writes for c in counts)
    means = {}
    if reads > 0:
        means["read_latency_s"] = sum(c.read_latency_s for c in counts) / reads
    if writes > 0:
        means["write_latency_s"] = sum(c.write_latency_s for c in counts) / writes
    return means | {
        "read_mb_s": sum(c.read_bytes / seconds for seconds, c in total) / 1e6,
        "write_mb_s": sum(c.write_bytes / seconds for seconds, c in total) / 1e6,
        "read_iops": sum(c.reads / seconds for seconds, c in total),
        "write_iops": sum(c.writes / seconds for seconds, c in total),
    }


class StoreSampler:
    """Sampler of the store's part."""

    def __init__(self, connection: Connection, config: AgentConfig) -> None:
        self._connection = connection
        self._reader = PgReader(connection, config.pools, osd_names(config))
        self._poller = CounterPoller(connection)
        self._last: dict[int, PolledCounters] = {}

    def sample(self) -> tuple[Values, dict[str, str]]:
        """Return OSD and client values since the previous call, and the missing OSDs."""
        osd_map = self._reader.osd_map()
        up = [osd.id for osd in osd_map.osds.values() if osd.up]
        answers = self._poller.read(up, PATIENCE_S)
        primaries = dict.fromkeys(osd_map.osds, 0)
        for pg in self._reader.pgs(osd_map):
            if pg.primary in primaries:
                primaries[pg.primary] += 1
        deltas = {
            osd: (answer.at - before.at, answer.counters.since(before.counters))
            for osd, answer in answers.items()
            if (before := self._last.get(osd)) is not None
        }
        values: Values = {}
        for osd in osd_map.osds.values():
            metrics = {
                "primary_affinity": osd.primary_affinity,
                "reweight": osd.reweight,
                "primaries": float(primaries[osd.id]),
            }
            latency = deltas[osd.id][1].read_latency_mean_s if osd.id in deltas else None
            if latency is not None:
                metrics["op_r_latency_s"] = latency
            values[f"osd.{osd.id}"] = metrics
        if deltas:
            values[CLIENT] = client_metrics(deltas)
        self._last |= answers
        lost = {
            f"osd.{osd}": "does not answer in time" if osd in up else "is down"
            for osd in osd_map.osds
            if osd not in answers
        }
        return values, lost


class Sampler:
    """Sampler of a whole testbed; a part that fails is named and left out.

    `began` is the start of the first sample's interval.
    """

    def __init__(
        self,
        config: AgentConfig,
        monitor: Monitor,
        open_store: Callable[[], StoreSampler] | None,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._nodes = {node.name: node for node in config.nodes}
        self._monitor, self._open_store, self._ticks = monitor, open_store, ticks
        self._store: StoreSampler | None = None
        self._away, self._ask_at = "", -math.inf
        self._clock = SteadyClock()
        self.start()

    def start(self) -> None:
        """Open the probes if needed, and begin an interval."""
        with ThreadPoolExecutor(1) as pool:  # the two waits run in parallel
            first = pool.submit(self._stored)
            self._monitor.start()
            self.began = self._ticks()
            first.result()

    def sample(self) -> NodeSample:
        """Return everything since the previous call."""
        wall = self._clock()
        reading = self._monitor.read()
        hot = set((read_state() or {}).get("hot_nodes", ()))
        values: Values = {
            name: node_metrics(self._nodes[name], rates, name in hot)
            for name, rates in reading.nodes.items()
        }
        lost = dict(reading.lost)
        stored, missing = self._stored()
        values |= stored
        lost |= missing
        for rates in reading.nodes.values():
            for osd, pressure in rates.osd_pressure.items():
                values.setdefault(f"osd.{osd}", {})["osd_pressure"] = pressure
        return NodeSample(wall, values, lost)

    def _stored(self) -> tuple[Values, dict[str, str]]:
        """Return the store's part of a sample, or the reason why it is missing."""
        if self._open_store is None:
            return {}, {}
        if self._ticks() >= self._ask_at:
            try:
                self._store = self._store or self._open_store()
                return self._store.sample()
            except StoreError as error:
                self._away, self._ask_at = str(error), self._ticks() + AGAIN_S
        return {}, {"store": self._away}

    def close(self) -> None:
        """End the probes; `start` opens them again."""
        self._monitor.close()


def open_sampler(config: AgentConfig, timeout_s: float = TIMEOUT_S) -> Sampler:
    """Return a sampler of this admin node's testbed; without a store that answers, of its nodes.
    `config`: the testbed. `timeout_s`: a store that has not answered by then is missing from the
    sample."""
    monitor = Monitor(config.nodes, over_ssh(config))
    if config.store != "ceph":
        return Sampler(config, monitor, None)
    return Sampler(config, monitor, lambda: StoreSampler(connect(timeout_s=timeout_s), config))
