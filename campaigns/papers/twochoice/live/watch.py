"""Load of disks and processors while applications write, from counters read repeatedly."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from campaigns.papers.twochoice.live.processors import busy_between, ticks
from campaigns.papers.twochoice.live.servers import Stats
from schemas.errors import HotbedError
from testbed.agent.steady import SteadyClock

EVERY_S = 2.0


@dataclass(frozen=True)
class Sample:
    """Counters at a time, in seconds since the epoch: of the disks by server, of the processors,
    and the seconds spent on keeping processors awake."""

    at: float
    disks: Mapping[int, Stats]
    processors: tuple[int, ...]
    awake_s: float = 0.0


class Watch:
    """Reader of counters in the block of `watching`: every `every_s`, and once at its end.

    Args:
        read: returns the disks' counters by server. It returns nothing if the site cannot report
            them; then the nodes' processors are not this machine's either.
        awake_s: returns the seconds spent so far on keeping the processors awake.
        every_s: seconds between readings.
    """

    def __init__(
        self,
        read: Callable[[], Mapping[int, Stats]],
        awake_s: Callable[[], float] = lambda: 0.0,
        *,
        every_s: float = EVERY_S,
    ) -> None:
        self._read, self._awake_s, self._every_s = read, awake_s, every_s
        self._over, self._clock = threading.Event(), SteadyClock()
        self.samples: list[Sample] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Read counters during the block."""
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _watch(self) -> None:
        while True:
            over = self._over.wait(self._every_s if self.samples else 0.0)
            try:
                found = self._read()
            except HotbedError:  # the cell reports the lost node
                return
            if not found:
                return
            self.samples.append(Sample(self._clock(), found, ticks(), self._awake_s()))
            if over:
                return

    def numbers(self, began: float, seconds: float) -> dict[str, float]:
        """Return busy shares of the time: mean, least and most of the disks over servers, and the
        machine's processors. They are between the readings nearest to beginning and end. Also
        return the disks' mean overshoot at the end, in seconds. Empty without two readings.

        Args:
            began: seconds since the epoch.
            seconds: length of the time.
        """
        if len(self.samples) < 2:
            return {}
        first, last = self._nearest(began), self._nearest(began + seconds)
        took = last.at - first.at
        if took <= 0:
            return {}
        busy = [
            (_number(last.disks[n], "busy_s") - _number(first.disks[n], "busy_s")) / took
            for n in first.disks
        ]
        return {
            "disk_busy_mean": statistics.fmean(busy),
            "disk_busy_least": min(busy),
            "disk_busy_most": max(busy),
            "disk_late_mean_s": statistics.fmean(
                _number(stats, "overshoot_mean_s") for stats in last.disks.values()
            ),
            "processors_busy": busy_between(
                first.processors, last.processors, last.awake_s - first.awake_s
            ),
        }

    def _nearest(self, at: float) -> Sample:
        return min(self.samples, key=lambda sample: abs(sample.at - at))


def _number(stats: Stats, name: str) -> float:
    return float(str(stats.get(name, 0.0)))
