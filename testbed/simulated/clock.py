"""The virtual clock of a simulation, as the control loop meets it."""

from __future__ import annotations

from typing import Protocol

EPOCH_S = 1_700_000_000.0
"""The wall time at which every simulation starts: journals of equal runs are equal."""


class Simulation(Protocol):
    """What has virtual time and can be advanced."""

    @property
    def now_s(self) -> float:
        """Virtual seconds since the simulation was made."""

    def advance_to(self, t_s: float) -> bool:
        """Run until `t_s`; True, and earlier, when a benchmark has just ended."""


class SimulatedClock:
    """Implements `controllers.loop.Clock`: `wait` runs the simulation.

    The loop is asked to stop when the benchmark ends (unless `until_benchmark_ends` is False), at
    `stop_at_s`, or after `stop`. There is no clock of its own in it: the time is the simulation's.
    """

    def __init__(
        self,
        simulation: Simulation,
        *,
        until_benchmark_ends: bool = True,
        stop_at_s: float = float("inf"),
    ) -> None:
        self._simulation = simulation
        self._until_end = until_benchmark_ends
        self._stop_at_s = stop_at_s
        self._stopped = False

    def monotonic(self) -> float:
        """Virtual seconds."""
        return self._simulation.now_s

    def wall(self) -> float:
        """Virtual seconds after `EPOCH_S`."""
        return EPOCH_S + self._simulation.now_s

    def wait(self, seconds: float) -> bool:
        """Run the simulation for `seconds`; True as soon as the loop is to stop.

        Once it is, a later wait runs its whole time, so that what waits for something after the
        end (a store that is put back) does see time pass.
        """
        target = self._simulation.now_s + max(0.0, seconds)
        if self._stopped:
            self._run_to(target)
            return True
        while not self._stopped and self._simulation.now_s < target:
            ended = self._simulation.advance_to(min(target, self._stop_at_s))
            if (ended and self._until_end) or self._simulation.now_s >= self._stop_at_s:
                self._stopped = True
        return self._stopped

    def stop(self) -> None:
        """Have the loop stop."""
        self._stopped = True

    def _run_to(self, target: float) -> None:
        while self._simulation.now_s < target:
            self._simulation.advance_to(target)
