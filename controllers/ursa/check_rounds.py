"""Whether the rounds of a plan keep to the budget that it states; shares nothing with the planner.

After every round the placement must do: no node is hot that was not before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.instance import Instance
from controllers.ursa.results import Plan

ROUNDING = 1e-9  # part of a limit that sums may be above it by

Floats = NDArray[np.floating[Any]]


def violations(
    instance: Instance, plan: Plan, load: Floats, columns: NDArray[Any]
) -> Iterator[str]:
    """One sentence for each thing that is wrong.

    Args:
        instance, plan: the plan has rounds.
        load: [D, N], after the swaps.
        columns: [P], the primary of each partition by then.
    """
    assert plan.move_round is not None
    if (np.diff(plan.move_round) < 0).any() or (plan.move_round < 0).any():
        yield "move_round must ascend from 0"
        return
    load = load.astype(np.float64).copy()
    capacity = np.atleast_2d(instance.capacity.T).astype(np.float64) * (1 + 1e-12)
    primary = np.atleast_2d(instance.primary_load.T)
    secondary = np.atleast_2d(instance.secondary_load.T)
    for number in np.unique(plan.move_round):
        now = plan.move_round == number
        partition, replica = plan.move_partition[now], plan.move_replica[now]
        source, to = instance.replica_node[partition, replica], plan.move_to[now]
        yield from _spent(instance, plan, int(number), partition, source, to)
        hot = load > capacity
        leads = columns[partition] == replica
        for d in range(len(load)):
            weight = np.where(leads, primary[d, partition], secondary[d, partition])
            load[d] -= np.bincount(source, weight, instance.nodes)
            load[d] += np.bincount(to, weight, instance.nodes)
        for node in np.flatnonzero(((load > capacity) & ~hot).any(axis=0)):
            yield f"C1: round {number} makes node {node} hot"


def _spent(
    instance: Instance,
    plan: Plan,
    number: int,
    partition: NDArray[np.int32],
    source: NDArray[np.int32],
    to: NDArray[np.int32],
) -> Iterator[str]:
    budget = plan.budget
    if budget is None:
        return
    if budget.max_moves is not None and len(partition) > budget.max_moves:
        yield f"round {number} has {len(partition)} moves; {budget.max_moves:g} are allowed"
    if budget.size is None and budget.node_size is None:
        return
    if instance.size is None:
        yield "the plan states a budget in bytes, and the instance has no bytes"
        return
    size = instance.size[partition].astype(np.float64)
    if budget.size is not None and size.sum() > budget.size * (1 + ROUNDING):
        yield f"round {number} moves {size.sum():.6g} bytes; {budget.size:.6g} are allowed"
    if budget.node_size is not None:
        for where, nodes in (("leave", source), ("come to", to)):
            each = np.bincount(nodes, size, instance.nodes)
            for node in np.flatnonzero(each > budget.node_size * (1 + ROUNDING)):
                yield (
                    f"in round {number} {each[node]:.6g} bytes {where} node {node}; "
                    f"{budget.node_size:.6g} are allowed"
                )
