"""Clock of tests."""

from __future__ import annotations

from testbed.sites.clock import Clock


class ManualClock(Clock):
    """See `testbed.sites.clock.Clock`; sleeping moves it, and `slept` records the sleeps.

    Each reading of the time takes `tick` seconds, as on a real machine.
    """

    def __init__(self, now: float = 1_700_000_000.0, tick: float = 0.0) -> None:
        self.time = now
        self._tick = tick
        self._stepped = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        self.time += self._tick
        return self.time

    def monotonic(self) -> float:
        return self.time - self._stepped

    def step(self, seconds: float) -> None:
        """Shift the wall clock by `seconds` while no time passes."""
        self.time += seconds
        self._stepped += seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += max(seconds, 0.0)
