"""Parts of simulated stores: sizes, the clock, sequences of changes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.simulated import (
    Benchmark,
    ModelParameters,
    SimulatedCeph,
    SimulatedClock,
    placement_groups,
    scaled,
)
from testbed.simulated.clock import EPOCH_S
from testbed.simulated.parameters import client_node, configuration, osd_nodes
from testbed.simulated.process import PROGRAM
from testbed.simulated.tables import Changing

built = pytest.mark.skipif(not PROGRAM.is_file(), reason="the simulator is not built")


@pytest.mark.parametrize(
    ("osds", "pgs"), [(2, 128), (7, 256), (8, 512), (100, 4096), (1000, 65_536), (10_000, 65_536)]
)
def test_a_store_keeps_its_proportions(spec, osds, pgs):
    made = scaled(spec, osds)
    assert len(osd_nodes(made)) == osds
    assert client_node(made).startswith("client")
    config = configuration(made, ModelParameters(), 1)
    before = configuration(spec, ModelParameters(), 1)
    assert config["clients"] == math.ceil(osds / 8)
    assert config["pgs"] == placement_groups(osds, 2) == pgs
    changed = {name for name in config if config[name] != before[name]}
    names = {"host_names", "rack_names", "client_names"}
    assert changed - names <= {"osds", "clients", "pgs"}
    assert spec.digest() != made.digest()
    admin = next(group for group in made.groups if "admin" in group.roles)
    assert "client" not in admin.roles


@built
def test_every_client_has_its_operations_in_flight(spec):
    with SimulatedCeph(scaled(spec, 24), seed=3) as ceph:
        ceph.prefill(500, 2**22)
        ceph.start_benchmark(Benchmark("rand", concurrency=4, duration_s=5))
        result = ceph.run_benchmark()
    assert result.series[2].in_flight == 3 * 4
    assert result.operations > 50


# -- clock -----------------------------------------------------------------------------------------


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


def test_a_run_ends_with_the_benchmark_or_at_a_time():
    simulation = Simulation()
    clock = SimulatedClock(simulation)
    assert not clock.wait(3.5)
    assert not clock.wait(-1)
    assert clock.monotonic() == simulation.now_s == 3.5
    assert clock.wall() == EPOCH_S + 3.5
    clock = SimulatedClock(Simulation(ends_s=5))
    assert not clock.wait(4)
    assert clock.wait(4)
    assert clock.monotonic() == 5
    assert clock.wait(2)  # restored, and the restoration takes its time
    assert clock.monotonic() == 7
    clock = SimulatedClock(Simulation(), stop_at_s=2)
    assert clock.wait(10)
    assert clock.monotonic() == 2


# -- a long sequence at the cost of its changes ----------------------------------------------------


lengths = st.integers(0, 70)


@given(st.data(), lengths)
def test_what_was_handed_out_stays_and_the_next_has_the_changes(data, length):
    model = list(range(length))
    changing = Changing(model)
    handed = [(changing.frozen(), tuple(model))]
    for step in range(data.draw(st.integers(0, 4))):
        places = data.draw(st.lists(st.integers(0, length - 1), max_size=5)) if length else []
        changing.put(places, [1000 * step + place for place in places])
        for place in places:
            model[place] = 1000 * step + place
        handed.append((changing.frozen(), tuple(model)))
    for frozen, expected in handed:
        assert frozen == expected and expected == frozen
        assert (len(frozen), tuple(frozen), hash(frozen)) == (length, expected, hash(expected))
        assert [frozen[place] for place in range(-length, length)] == [*expected, *expected]
        assert frozen[1:-1] == expected[1:-1]
