"""Jobs after Table II, and write rates of PGs that give each OSD its load."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.burst_applications import (
    TABLE2,
    BurstCluster,
    applications,
    bursts_of,
)
from workloads.skew import hot_osds, skewed_rates, worst_miss

CLUSTER = BurstCluster(64, 8, 64)


def jobs(
    seed: int = 1, volume: float = 1 / 32, cluster: BurstCluster = CLUSTER
) -> list[dict[str, int]]:
    return list(
        applications(
            cluster,
            seed,
            size=1000,
            volume=volume,
            think_s=1.0,
            scheduler="fixed",
            background=False,
        )
    )


def test_the_mimicry_is_the_papers() -> None:
    found = jobs()
    assert Counter(str(one["name"]).partition("-")[0] for one in found) == {
        "PlasmaPhysics": 1,
        "AstroPhysics": 10,
        "Turbulence2": 10,
    }
    assert {one["name"] for one in found}.isdisjoint(one["name"] for one in jobs(4))
    parts = {str(one["name"]).partition("-")[0]: (one["nodes"], one["width"]) for one in found}
    assert parts == {"PlasmaPhysics": (64, 64), "AstroPhysics": (32, 32), "Turbulence2": (16, 16)}


def test_all_of_table_2_is_written_at_full_volume() -> None:
    """Each node writes 1 GB once, 50 MB nine times and 59 MB 22 times: 4 MB writes, 8 processes."""
    found = {row.name: bursts_of(row, 8, 1.0) for row in TABLE2}
    assert found == {"PlasmaPhysics": (1, 31), "AstroPhysics": (9, 2), "Turbulence2": (22, 2)}


@settings(max_examples=30)
@given(
    st.integers(1, 200), st.integers(1, 16), st.integers(1, 200), st.floats(1e-3, 1), st.integers(0)
)
def test_every_job_fits_on_its_cluster(
    nodes: int, processes: int, servers: int, volume: float, seed: int
) -> None:
    found = jobs(seed, volume, BurstCluster(nodes, processes, servers))
    assert found == jobs(seed, volume, BurstCluster(nodes, processes, servers))
    for one in found:
        assert 1 <= one["nodes"] <= nodes
        assert 0 <= one["first_node"] < nodes
        assert 1 <= one["width"] <= servers
        assert one["bursts"] >= 1
        assert one["writes"] >= 1
    assert len({one["name"] for one in found}) == 21


def placed(osds: int, pgs: int, size: int, seed: int) -> dict[str, list[int]]:
    draw = random.Random(seed)
    return {f"1.{n:x}": draw.sample(range(osds), size) for n in range(pgs)}


def targets(osds: int, hot: tuple[int, ...], rate: float) -> dict[int, float]:
    return {osd: rate if osd in hot else 0.4 * rate for osd in range(osds)}


@pytest.mark.parametrize(("osds", "pgs"), [(10, 100), (30, 900)])
def test_the_papers_load_is_met(osds, pgs):
    placement = placed(osds, pgs, 3, 1)
    hot = hot_osds(range(osds), osds // 5, 1)
    wanted = targets(osds, hot, 24.0)
    rates = skewed_rates(placement, wanted)
    assert hot == hot_osds(range(osds), osds // 5, 1) != hot_osds(range(osds), osds // 5, 2)
    assert worst_miss(placement, rates, wanted) < 0.001
    assert all(rate >= 0 for rate in rates.values())
    assert sum(rates.values()) * 3 == pytest.approx(sum(wanted.values()), rel=1e-3)
