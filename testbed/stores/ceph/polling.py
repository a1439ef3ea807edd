"""Counters of many OSDs, without waiting for the slowest.

An OSD with a saturated disk can take seconds for a `perf dump`: its dispatcher waits for the lock
of a placement group that waits for the disk. On hot nodes, 1.5 to 3.4 s and a time-out of 5 s were
seen. All other OSDs are sampled on time; a late answer is used when it arrives.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from testbed.stores.ceph.connection import CONCURRENCY, Connection, start_workers
from testbed.stores.ceph.perf import OsdCounters, latency_pressure, parse_counters, perf_dump

PATIENCE_S = 1.0
"""Longest wait of a controller's sense for the slowest OSD."""


@dataclass(frozen=True)
class Answer:
    """Counters, and the time of their arrival (`clock`, seconds)."""

    at: float
    counters: OsdCounters


class CounterPoller:
    """Poller that asks each OSD at most once at a time."""

    def __init__(
        self, connection: Connection, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._changed = threading.Condition()
        self._asked: set[int] = set()
        self._came: dict[int, Answer] = {}

    def read(self, osds: Sequence[int], patience_s: float) -> dict[int, Answer]:
        """Return the newest answer of each OSD that has answered since the previous call.

        Args:
            osds: OSDs to ask; an OSD that still owes an answer is not asked again.
            patience_s: longest wait for answers.
        """
        with self._changed:
            to_ask = [osd for osd in osds if osd not in self._asked]
            self._asked.update(to_ask)
        if to_ask:
            next_osd = iter(to_ask)
            start_workers(lambda: self._ask(next_osd), min(CONCURRENCY, len(to_ask)))
        deadline = time.monotonic() + patience_s
        with self._changed:
            while self._asked.intersection(osds):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            came, self._came = self._came, {}
        return {osd: came[osd] for osd in osds if osd in came}

    def _ask(self, next_osd: Iterator[int]) -> None:
        while True:
            with self._changed:
                osd = next(next_osd, None)
            if osd is None:
                return
            dump = None
            try:
                dump = perf_dump(self._connection, osd)
            finally:
                with self._changed:
                    if dump is not None:
                        self._came[osd] = Answer(self._clock(), parse_counters(dump))
                    self._asked.discard(osd)
                    self._changed.notify_all()


class LatencySensor:
    """The signal ``op_r_latency``: each OSD's mean read latency since its last answer, relative to
    its peers. An OSD that served no read in between is absent. An OSD that did not answer is absent
    and listed in ``lost``."""

    signal = "op_r_latency"

    def __init__(self, connection: Connection, osds: Sequence[int]) -> None:
        self._poller = CounterPoller(connection)
        self._osds = tuple(osds)
        self.lost: dict[str, str] = {}
        self._before = self._poller.read(self._osds, PATIENCE_S)

    def pressure(self) -> dict[int, float]:
        """Return percent by OSD. Raises StoreError if the cluster cannot be asked."""
        now = self._poller.read(self._osds, PATIENCE_S)
        self.lost = {f"osd.{osd}": "does not answer" for osd in self._osds if osd not in now}
        latencies: dict[int, float] = {}
        for osd, answer in now.items():
            if osd in self._before:
                since = answer.counters.since(self._before[osd].counters)
                mean = since.read_latency_mean_s
                if mean is not None:
                    latencies[osd] = mean
        self._before |= now
        return latency_pressure(latencies)

    def close(self) -> None:
        """Do nothing: the store owns the connection."""
