"""Small instances of Ursa: drawn by hypothesis, and the adversarial ones by name."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from controllers.ursa.instance import Distance, Euclidean, Instance, MigrationPlan, Racks, Timer

# The first example in a process waits for compiled loops.
relaxed = settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])

Loads = Sequence[float] | Sequence[Sequence[float]]


def timer(limit_s: float | None = None) -> Timer:
    """Return a clock with a millisecond per reading, so that no time limit ends by chance."""
    ticks = itertools.count()
    return Timer(lambda: next(ticks) * 1e-3, limit_s)


def instance(
    replica_node: Sequence[Sequence[int]],
    primary: Loads,
    capacity: Loads,
    *,
    secondary: Loads | None = None,
    domain: Sequence[int] | Sequence[Sequence[int]] | None = None,
    xy: Sequence[tuple[float, float]] | None = None,
    distance: Distance | None = None,
) -> Instance:
    """Return an instance from lists: secondaries carry half, nodes are on a line, 1 apart."""
    nodes = len(capacity)
    primary_load = np.array(primary, np.float32)
    half = primary_load / 2 if secondary is None else np.array(secondary, np.float32)
    replicas = len(replica_node[0]) if len(replica_node) else 3
    points = [(float(n), 0.0) for n in range(nodes)] if xy is None else xy
    return Instance(
        replica_node=np.array(replica_node, np.int32).reshape(len(primary), replicas),
        primary_load=primary_load,
        secondary_load=half.astype(np.float32),
        capacity=np.array(capacity, np.float32),
        fault_domain=np.array(range(nodes) if domain is None else domain, np.int32),
        distance=distance or Euclidean(np.array(points, np.float32)),
    )


@st.composite
def instances(draw: st.DrawFn, max_nodes: int = 8, max_partitions: int = 20) -> Instance:
    """Draw 2 to 8 nodes and up to 20 partitions: hot nodes, equal loads, zero loads."""
    nodes = draw(st.integers(2, max_nodes))
    replicas = draw(st.integers(1, min(3, nodes)))
    partitions = draw(st.integers(0, max_partitions))
    seed = draw(st.integers(0, 2**31))
    rng = np.random.Generator(np.random.PCG64(seed))
    where = [rng.permutation(nodes)[:replicas] for _ in range(partitions)]
    replica_node = np.array(where, np.int32).reshape(partitions, replicas)
    loads = draw(st.sampled_from(["whole", "equal", "pareto", "some zero", "zero"]))
    primary = {
        "whole": rng.integers(1, 10, partitions).astype(np.float32),
        "equal": np.full(partitions, 0.1, np.float32),
        "pareto": ((1 - rng.random(partitions)) ** (-1 / 1.2)).astype(np.float32),
        "some zero": rng.integers(0, 3, partitions).astype(np.float32),
        "zero": np.zeros(partitions, np.float32),
    }[loads]
    factor = draw(st.sampled_from([1.0, 2.0, 3.0]))
    secondary = (primary / np.float32(factor)).astype(np.float32)
    load = np.zeros(nodes)
    np.add.at(load, replica_node[:, :1].ravel(), primary)
    np.add.at(load, replica_node[:, 1:].ravel(), np.repeat(secondary, replicas - 1))
    ratio = rng.uniform(0.4, draw(st.sampled_from([1.1, 1.5, 3.0])), nodes)
    capacity = np.where(load > 0, load / ratio, load.mean()).astype(np.float32)
    if draw(st.booleans()):
        capacity = np.ceil(capacity)
    domains = draw(st.sampled_from(["nodes", "pairs", "one"]))
    domain = {
        "nodes": np.arange(nodes),
        "pairs": np.arange(nodes) // 2,
        "one": np.zeros(nodes),
    }[domains].astype(np.int32)
    if draw(st.booleans()):
        distance: Distance = Euclidean(rng.random((nodes, 2), dtype=np.float32))
    else:
        racks = draw(st.integers(1, nodes))
        table = rng.integers(0, 20, (racks, racks)).astype(np.float32)
        distance = Racks(rng.integers(racks, size=nodes).astype(np.int32), table)
    return Instance(replica_node, primary, secondary, capacity, domain, distance)


def _giant() -> Instance:
    """Return one object too heavy for any node, and small objects that are sufficient."""
    return instance(
        [[0], [0], [0], [0], [1], [2]], [100, 3, 2, 2, 1, 1], [104, 6, 6], secondary=[0] * 6
    )


def _exact() -> Instance:
    """Return an instance with exactly the needed room on the only cold node."""
    return instance([[0], [0], [1]], [3, 2, 1], [3, 3], secondary=[0, 0, 0])


ADVERSARIAL: dict[str, tuple[Callable[[], Instance], int]] = {
    "all nodes hot": (lambda: instance([[0, 1], [1, 0]], [10, 10], [1, 1]), 2),
    "one giant object": (lambda: instance([[0], [1]], [50, 1], [5, 5]), 1),
    "a giant and small ones": (_giant, 0),
    "exactly the room needed": (_exact, 0),
    "equal loads": (lambda: instance([[0]] * 10 + [[1]], [0.1] * 11, [0.5, 1.0]), 0),
    "zero loads": (lambda: instance([[0, 1]] * 3, [0] * 3, [0, 0, 0]), 0),
    "no partitions": (lambda: instance([], [], [1, 1, 1]), 0),
    "one node": (lambda: instance([[0], [0]], [1, 1], [1]), 1),
    "no room for anything": (lambda: instance([[0], [0]], [1, 1], [1, 0]), 1),
    "fault domains forbid every move": (
        lambda: instance(
            [[0, 1]] * 4, [4, 4, 4, 4], [10, 100, 100], secondary=[4] * 4, domain=[0, 1, 1]
        ),
        1,
    ),
    "a capacity of zero": (lambda: instance([[0], [0], [1]], [1, 2, 1], [0, 9, 9]), 0),
}
"""Instances by their difficulty, and the least number of hot nodes that a plan can reach."""


def same(first: MigrationPlan, second: MigrationPlan) -> bool:
    """Return True if two plans are the same except for their times."""
    arrays = (key for key in vars(first) if key != "summary")
    return all(np.array_equal(getattr(first, k), getattr(second, k)) for k in arrays)


def plans(case: Instance, method: str = "alp-fast", **more: object) -> MigrationPlan:
    """Return a plan on its own clock."""
    from controllers.ursa.plan import plan  # it takes long to import, and few tests plan

    return plan(case, method, timer=timer(), **more)  # type: ignore[arg-type]
