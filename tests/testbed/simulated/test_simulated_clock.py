from __future__ import annotations

from testbed.simulated import SimulatedClock
from testbed.simulated.clock import EPOCH_S


class Simulation:
    """Simulation in which time passes; a benchmark ends at `ends_s`."""

    def __init__(self, ends_s: float = float("inf")) -> None:
        self.now_s = 0.0
        self.ends_s = ends_s

    def advance_to(self, t_s: float) -> bool:
        if self.now_s < self.ends_s <= t_s:
            self.now_s = self.ends_s
            return True
        self.now_s = max(self.now_s, t_s)
        return False


def test_waiting_runs_the_simulation() -> None:
    simulation = Simulation()
    clock = SimulatedClock(simulation)
    assert not clock.wait(3.5)
    assert not clock.wait(-1)
    assert clock.monotonic() == simulation.now_s == 3.5
    assert clock.wall() == EPOCH_S + 3.5


def test_the_loop_stops_when_the_benchmark_ends() -> None:
    clock = SimulatedClock(Simulation(ends_s=5))
    assert not clock.wait(4)
    assert clock.wait(4)
    assert clock.monotonic() == 5
    assert clock.wait(2)  # restored, and the restoration takes its time
    assert clock.monotonic() == 7


def test_or_goes_on() -> None:
    clock = SimulatedClock(Simulation(ends_s=5), until_benchmark_ends=False)
    assert not clock.wait(8)
    assert clock.monotonic() == 8


def test_or_at_a_time_or_when_told() -> None:
    clock = SimulatedClock(Simulation(), stop_at_s=2)
    assert clock.wait(10)
    assert clock.monotonic() == 2
    clock = SimulatedClock(Simulation())
    clock.stop()
    assert clock.wait(1)
