"""Jobs after Table II: shares of the cluster, and amounts of writes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.burst_applications import (
    TABLE2,
    BurstCluster,
    WriteIntensive,
    applications,
    bursts_of,
)

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
    for one in found:
        assert 1 <= one["nodes"] <= nodes
        assert 0 <= one["first_node"] < nodes
        assert 1 <= one["width"] <= servers
        assert one["bursts"] >= 1
        assert one["writes"] >= 1
    assert len({one["name"] for one in found}) == 21


def test_a_seed_draws_the_same_jobs_and_another_one_others() -> None:
    assert jobs(3) == jobs(3)
    assert {one["name"] for one in jobs(3)}.isdisjoint(one["name"] for one in jobs(4))


@pytest.mark.parametrize("row", TABLE2, ids=lambda row: row.name)
def test_less_volume_is_never_more_writes(row: WriteIntensive) -> None:
    amounts = [bursts * writes for bursts, writes in (bursts_of(row, 8, 2.0**-n) for n in range(9))]
    assert amounts == sorted(amounts, reverse=True)
    assert amounts[-1] == 1
