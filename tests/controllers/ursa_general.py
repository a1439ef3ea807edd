"""Small instances with loads of several dimensions, nested fault domains, groups and bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from controllers.ursa.instance import Euclidean, Instance


def _nested(rng: np.random.Generator, nodes: int, levels: int) -> np.ndarray:
    """Return [nodes, levels], with inner domains nested in outer ones."""
    columns = [rng.integers(0, 2, nodes)]
    for _ in range(levels - 1):
        _, columns_in = np.unique(columns[-1] * 3 + rng.integers(0, 3, nodes), return_inverse=True)
        columns.append(columns_in)
    return np.column_stack(columns).astype(np.int32)


@st.composite
def general_instances(
    draw: st.DrawFn,
    max_nodes: int = 7,
    max_partitions: int = 14,
    *,
    dimensions: int | None = None,
    groups: bool | None = None,
) -> Instance:
    """Draw an instance that is more general than `ursa_instances.instances` in at least one way."""
    nodes = draw(st.integers(2, max_nodes))
    replicas = draw(st.integers(1, min(3, nodes)))
    partitions = draw(st.integers(0, max_partitions))
    d = draw(st.integers(1, 3)) if dimensions is None else dimensions
    levels = draw(st.integers(1, 3))
    grouped = draw(st.booleans()) if groups is None else groups
    rng = np.random.Generator(np.random.PCG64(draw(st.integers(0, 2**31))))
    group = np.sort(rng.integers(0, max(1, partitions // 2), partitions)).astype(np.int32)
    if not grouped:
        group = np.arange(partitions, dtype=np.int32)
    homes = np.array([rng.permutation(nodes)[:replicas] for _ in range(partitions + 1)], np.int32)
    replica_node = homes[group].reshape(partitions, replicas)
    if draw(st.booleans()):
        primary = rng.integers(0, 8, (partitions, d)).astype(np.float32)
    else:
        primary = ((1 - rng.random((partitions, d))) ** (-1 / 1.3)).astype(np.float32)
    secondary = (primary / np.array([2, 1, 3], np.float32)[:d]).astype(np.float32)
    load = loads(replica_node, primary, secondary, np.zeros(partitions, int), nodes)
    ratio = rng.uniform(0.4, draw(st.sampled_from([1.1, 1.5, 3.0])), (nodes, d))
    capacity = np.where(load > 0, load / ratio, load.mean(axis=0)).astype(np.float32)
    flat = d == 1
    domain = _nested(rng, nodes, levels) if levels > 1 else np.arange(nodes, dtype=np.int32)
    return Instance(
        replica_node=replica_node,
        primary_load=primary[:, 0].copy() if flat else primary,
        secondary_load=secondary[:, 0].copy() if flat else secondary,
        capacity=capacity[:, 0].copy() if flat else capacity,
        fault_domain=domain,
        distance=Euclidean(rng.random((nodes, 2), dtype=np.float32)),
        group=group if grouped else None,
        size=rng.integers(0, 5, partitions).astype(np.float32) if draw(st.booleans()) else None,
    )


def loads(
    replica_node: np.ndarray,
    primary: np.ndarray,
    secondary: np.ndarray,
    leads: np.ndarray,
    nodes: int,
) -> np.ndarray:
    """Return [nodes, D], computed directly."""
    total = np.zeros((nodes, primary.shape[1]))
    for p, row in enumerate(replica_node):
        for k, node in enumerate(row):
            total[node] += (primary if leads[p] == k else secondary)[p]
    return total
