"""Stores of a size that differs from the spec's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import UserError
from testbed.simulated import (
    Benchmark,
    ModelParameters,
    SimulatedCeph,
    placement_groups,
    scaled,
)
from testbed.simulated.parameters import (
    MOST_PGS,
    PGS_PER_OSD,
    client_node,
    configuration,
    osd_nodes,
)
from testbed.simulated.process import PROGRAM
from testbed.spec import TestbedSpec
from tests.errors import raises

built = pytest.mark.skipif(not PROGRAM.is_file(), reason="the simulator is not built")


@settings(deadline=None)
@given(osds=st.integers(1, 10_000), size=st.integers(1, 10))
def test_placement_groups_are_the_nearest_power_of_two(osds: int, size: int) -> None:
    made = placement_groups(osds, size)
    assert made & (made - 1) == 0
    wanted = osds * PGS_PER_OSD / size
    if wanted >= 1.5 * MOST_PGS:
        assert made == MOST_PGS
    else:
        others = [2**exponent for exponent in range(17)]
        assert abs(made - wanted) == min(abs(other - wanted) for other in others)


@pytest.mark.parametrize(
    ("osds", "expected"), [(8, 512), (100, 4096), (1000, 65536), (10_000, 65536)]
)
def test_what_ceph_s_rule_gives(osds: int, expected: int) -> None:
    assert placement_groups(osds, 2) == expected


@pytest.mark.parametrize("osds", [2, 7, 8, 9, 100, 1000, 10_000])
def test_a_store_keeps_its_proportions(spec: TestbedSpec, osds: int) -> None:
    made = scaled(spec, osds)
    assert len(osd_nodes(made)) == osds
    assert client_node(made).startswith("client")
    config = configuration(made, ModelParameters(), 1)
    before = configuration(spec, ModelParameters(), 1)
    assert config["clients"] == math.ceil(osds / 8)
    assert config["pgs"] == placement_groups(osds, 2)
    changed = {name for name in config if config[name] != before[name]}
    assert changed <= {"osds", "clients", "pgs"}
    assert spec.digest() != made.digest()
    admin = next(group for group in made.groups if "admin" in group.roles)
    assert "client" not in admin.roles


def test_as_many_clients_more_as_the_model_says(spec: TestbedSpec) -> None:
    config = configuration(scaled(spec, 24), ModelParameters(clients=2), 1)
    assert config["clients"] == 6


def test_fewer_osds_than_replicas_are_refused(spec: TestbedSpec) -> None:
    with raises(UserError, "keeps 2 replicas", allowed="2 OSDs"):
        scaled(spec, 1)


@built
def test_every_client_has_its_operations_in_flight(spec: TestbedSpec) -> None:
    with SimulatedCeph(scaled(spec, 24), seed=3) as ceph:
        ceph.prefill(500, 2**22)
        ceph.start_benchmark(Benchmark("rand", concurrency=4, duration_s=5))
        result = ceph.run_benchmark()
    assert result.series[2].in_flight == 3 * 4
    assert result.operations > 50
