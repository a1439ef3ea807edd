"""Instances as in section 5.1, and the distances between nodes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.ursa.generate import KINDS, generate, shape
from controllers.ursa.instance import Euclidean, Instance, Nearest, between
from controllers.ursa.io import REQUIRED, arrays_of, instance_from
from controllers.ursa.state import initial_state
from tests.controllers.ursa_instances import instances


@pytest.mark.parametrize(("kind", "least", "most"), [("s1", 4, 8), ("s2", 14, 20), ("s3", 7, 12)])
def test_share_of_hot_nodes(kind: str, least: float, most: float) -> None:
    made = generate(shape(kind, 4000, 100_000), seed=1)
    hot = 100 * initial_state(made).hot(made).mean()
    assert least < hot < most


def test_loads_follow_the_power_law() -> None:
    made = generate(shape("s1", 100, 1_200_000, tail=1.5), seed=1)  # more than one block
    assert made.primary_load.min() >= 1
    for level in (2.0, 10.0, 100.0):
        part = float((made.primary_load > level).mean())
        assert part == pytest.approx(level**-1.5, rel=0.1)
    assert np.array_equal(made.secondary_load, made.primary_load / 2)
    cut = generate(shape("s1", 100, 50_000, load_max=3.0), seed=1)
    assert 2.9 < cut.primary_load.max() <= 3.0001


@given(
    st.integers(3, 40),
    st.integers(0, 300),
    st.integers(1, 3),
    st.booleans(),
    st.tuples(st.sampled_from(list(KINDS)), st.integers(0, 1000)),
)
@settings(deadline=None, max_examples=50)
def test_what_is_generated_is_a_valid_instance(
    nodes: int, partitions: int, replicas: int, in_racks: bool, kind_seed: tuple[str, int]
) -> None:
    kind, seed = kind_seed
    racks = max(replicas, nodes // 3) if in_racks else 0
    domain = "rack" if in_racks else "node"
    wanted = shape(kind, nodes, partitions, replicas=replicas, racks=racks, domain=domain)
    made = generate(wanted, seed)
    instance_from(arrays_of(made), "made")
    domains = np.sort(made.fault_domain[made.replica_node], axis=1)
    assert not (domains[:, 1:] == domains[:, :-1]).any()
    again = generate(wanted, seed)
    assert all(np.array_equal(getattr(made, name), getattr(again, name)) for name in REQUIRED)
    if partitions > 20:
        other = generate(wanted, seed + 1)
        assert not np.array_equal(made.primary_load, other.primary_load)


@pytest.mark.parametrize("domain", ["node", "nested"])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("group_size", [1, 4])
def test_options_beyond_the_paper(domain: str, dimensions: int, group_size: int) -> None:
    more = {"domain": domain, "dimensions": dimensions, "group_size": group_size, "sizes": True}
    made = generate(shape("s1", 200, 10_001, racks=16, **more), seed=1)
    read = instance_from(arrays_of(made), "made")
    assert (read.dimensions, read.levels) == (dimensions, 2 if domain == "nested" else 1)
    assert read.dimension == (("cpu", "bandwidth", "bytes")[:dimensions] if dimensions > 1 else ())
    inner = read.fault_domain if read.levels == 1 else read.fault_domain[:, 1]
    domains = np.sort(inner[read.replica_node], axis=1)
    assert not (domains[:, 1:] == domains[:, :-1]).any()
    assert (read.group is None) == (group_size == 1)
    # The first dimension equals the instance without the others.
    alone = generate(shape("s1", 200, 10_001, racks=16, domain=domain, group_size=group_size), 1)
    first = [made.primary_load, made.capacity]
    first = [array[:, 0] if dimensions > 1 else array for array in first]
    assert np.array_equal(first[0], alone.primary_load)
    assert np.array_equal(first[1], alone.capacity)
    hot = initial_state(read).hot(read).mean(axis=0)
    assert ((hot > 0.01) & (hot < 0.15)).all()
    if dimensions == 3:
        assert np.array_equal(read.primary_load[:, 2], read.secondary_load[:, 2])
        assert read.size is not None
        assert np.array_equal(read.primary_load[:, 2], read.size)


@given(instances(), st.integers(1, 10), st.integers(0, 2**16))
@settings(deadline=None, max_examples=60)
def test_nearest_nodes_are_the_nearest(case: Instance, k: int, seed: int) -> None:
    rng = np.random.Generator(np.random.PCG64(seed))
    candidates = np.flatnonzero(rng.random(case.nodes) < 0.7).astype(np.int32)
    sources = rng.integers(case.nodes, size=3).astype(np.int32)
    search = Nearest(case.distance, candidates)
    nodes, costs = search.query(sources, k)
    assert nodes.shape == costs.shape == (3, min(k, len(candidates)))
    for row, source in enumerate(sources):
        every = np.sort([_cost(case, int(source), int(c)) for c in candidates])
        assert np.allclose(costs[row], every[: costs.shape[1]], rtol=1e-6)
        assert len(set(nodes[row].tolist())) == len(nodes[row])
        assert np.allclose(costs[row], [_cost(case, int(source), int(n)) for n in nodes[row]])
        radius = float(rng.uniform(0, 1.5)) if len(every) == 0 else float(rng.choice(every))
        found = search.within(sources[row : row + 1], radius)[0]
        expected = [c for c in candidates if between(case.distance, source, c) <= radius]
        assert found.tolist() == expected


def _cost(case: Instance, source: int, to: int) -> float:
    if isinstance(case.distance, Euclidean):
        (a, b), (c, d) = case.distance.node_xy[[source, to]].astype(float)
        return float(((a - c) ** 2 + (b - d) ** 2) ** 0.5)
    rack = case.distance.rack
    return float(case.distance.rack_distance[rack[source], rack[to]])
