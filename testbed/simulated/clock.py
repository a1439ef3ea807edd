"""Virtual clock of a simulation, for the control loop."""

from __future__ import annotations

from typing import Protocol

EPOCH_S = 1_700_000_000.0
"""Wall time at the start of every simulation, so that journals of equal runs are equal."""


class Simulation(Protocol):
    """A model with virtual time that can be advanced."""

    @property
    def now_s(self) -> float:
        """Virtual seconds since the simulation was made."""

    def advance_to(self, t_s: float) -> bool:
        """Run until `t_s`, or until a benchmark ends; return True in the second case."""


class SimulatedClock:
    """Implements `controllers.loop.LoopClock`: `wait` runs the simulation.

    The loop is asked to stop when the benchmark ends or at `stop_at_s`. The clock has no time of
    its own: it shows the simulation's.
    """

    def __init__(self, simulation: Simulation, *, stop_at_s: float = float("inf")) -> None:
        self._simulation = simulation
        self._stop_at_s = stop_at_s
        self._stopped = False

    def monotonic(self) -> float:
        """Return the virtual time in seconds."""
        return self._simulation.now_s

    def wall(self) -> float:
        """Return `EPOCH_S` plus the virtual time in seconds."""
        return EPOCH_S + self._simulation.now_s

    def wait(self, seconds: float) -> bool:
        """Run the simulation for `seconds`; return True as soon as the loop must stop.

        After the stop, a later wait runs its whole time, so that a wait after the end (a store's
        restore) sees time pass.
        """
        target = self._simulation.now_s + max(0.0, seconds)
        if self._stopped:
            while self._simulation.now_s < target:
                self._simulation.advance_to(target)
            return True
        while not self._stopped and self._simulation.now_s < target:
            ended = self._simulation.advance_to(min(target, self._stop_at_s))
            self._stopped = ended or self._simulation.now_s >= self._stop_at_s
        return self._stopped
