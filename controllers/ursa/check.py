"""Verification of a plan, which shares nothing with the planner.

Swaps are applied in their order, then the moves. Loads, distances and hot nodes are computed from
the instance by other means than the planner's. Loads are [D, N] here, one row for each dimension.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.instance import Euclidean, Instance, MigrationPlan

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ROWS = 1 << 20
ROUNDING = 1e-12  # part of a node's capacity that differently ordered sums may differ by
COST_ROUNDING = 1e-6  # part of the cost that a plan states
SHOWN = 10  # violations of one kind that are spelt out


@dataclass
class PlanCheck:
    """Result of a verification; `valid` plans may leave nodes hot that they name in `still_hot`.

    At most SHOWN `violations` of a kind are spelt out, of `violations_total`. Numbers of hot nodes
    are None where the plan cannot be applied so far; `cost` is the sum of the distances moved.
    """

    valid: bool = True
    violations: list[str] = field(default_factory=list)
    violations_total: int = 0
    hot_before: int | None = None
    hot_after_swaps: int | None = None
    hot_after: int | None = None
    still_hot: list[int] = field(default_factory=list)
    swaps: int = 0
    moves: int = 0
    cost: float | None = None

    def violated(self, *sentences: str) -> None:
        """Add violations."""
        self.violations += sentences
        self.violations_total += len(sentences)
        self.valid = False

    def each(
        self, bad: Ints, words: str, *columns: Sequence[Any] | NDArray[Any], where: str = ""
    ) -> None:
        """Add the violations of one kind: `words` with what the columns hold at each index."""
        for i in bad[:SHOWN]:
            self.violations.append(words.format(*(column[i] for column in columns)) + where)
        self.violations_total += len(bad)
        self.valid = self.violations_total == 0


def check(instance: Instance, plan: MigrationPlan, stated_cost: float | None = None) -> PlanCheck:
    """Apply `plan` to `instance` and report its violations.

    C1: no node is hot afterwards, except those that the plan names in `still_hot`, which must have
    been hot before, and in the same dimensions; no swap makes a node hot that it loads. C2: no two
    replicas of a partition end up on one node or in one fault domain of any level (unless they
    were in one before). Replicas of a group change roles and move together. Ids are within range,
    no object moves twice or to where it is, a swap names a secondary, a stated cost is the cost,
    and rounds keep to the budget that the plan states.
    """
    report = PlanCheck(swaps=len(plan.swap_partition), moves=len(plan.move_partition))
    columns = np.zeros(instance.partitions, np.int64)
    before = loads(instance, instance.replica_node, columns)
    hot_before = _hot(before, instance)
    report.hot_before = int(hot_before.any(axis=0).sum())
    if not _ids(instance, plan, report):
        return report
    _swaps(instance, plan, before, columns, report)
    after_swaps = loads(instance, instance.replica_node, columns)
    swapped = _hot(after_swaps, instance)
    report.hot_after_swaps = int(swapped.any(axis=0).sum())
    final = _moves(instance, plan, report)
    hot = _hot(loads(instance, final, columns), instance)
    report.hot_after = int(hot.any(axis=0).sum())
    report.still_hot = np.flatnonzero(hot.any(axis=0)).tolist()
    _c1(instance, plan, hot_before, hot, report)
    _together(instance, final, columns, report)
    if plan.move_round is not None:
        broken = list(over_budget(instance, plan, after_swaps, columns))
        report.each(np.arange(len(broken)), "{}", broken)
    source = instance.replica_node[plan.move_partition, plan.move_replica]
    report.cost = float(_distance(instance, source, plan.move_to).sum())
    if stated_cost is not None and not np.isclose(stated_cost, report.cost, rtol=COST_ROUNDING):
        report.violated(f"the plan states a cost of {stated_cost}; it is {report.cost}")
    return report


def _ids(instance: Instance, plan: MigrationPlan, report: PlanCheck) -> bool:
    limits = {
        "swap_partition": instance.partitions,
        "swap_replica": instance.replicas,
        "move_partition": instance.partitions,
        "move_replica": instance.replicas,
        "move_to": instance.nodes,
        "still_hot": instance.nodes,
    }
    for name, limit in limits.items():
        array = getattr(plan, name)
        bad = np.flatnonzero((array < 0) | (array >= limit))
        words = f"{name}[{{}}] is {{}}; it must be 0 to {limit - 1}"
        report.each(bad, words, range(len(array)), array)
    return report.valid


def _swaps(
    instance: Instance, plan: MigrationPlan, load: Floats, columns: Ints, report: PlanCheck
) -> None:
    """Apply the swaps to `columns`, the primary of each partition, and check each of them."""
    partition = plan.swap_partition.astype(np.int64)
    new = plan.swap_replica.astype(np.int64)
    # The primary before each swap: column 0, or what the partition's previous swap named.
    order = np.argsort(partition, kind="stable")
    old = np.zeros(len(new), np.int64)
    again = partition[order][1:] == partition[order][:-1]
    old[order[1:][again]] = new[order[:-1][again]]
    idle = np.flatnonzero(old == new)
    words = "swap {}: replica {} of partition {} is primary already"
    report.each(idle, words, range(len(new)), new, partition)
    giver = instance.replica_node[partition, old].astype(np.int64)
    taker = instance.replica_node[partition, new].astype(np.int64)
    # Every node's load over time: its changes one after the other, summed.
    node = np.concatenate([giver, taker])
    when = np.tile(np.arange(len(partition)), 2)
    order = np.lexsort((when, node))
    node, when = node[order], when[order]
    first = np.concatenate([[True], node[1:] != node[:-1]]) if len(node) else np.empty(0, bool)
    for d, capacity in enumerate(_rows(instance.capacity)):
        shed = _rows(instance.primary_load)[d][partition].astype(np.float64)
        shed -= _rows(instance.secondary_load)[d][partition]
        change = np.concatenate([-shed, shed])[order]
        total = np.cumsum(change)
        base = (total - change)[first][np.cumsum(first) - 1] if len(node) else total
        after = load[d, node] + (total - base)
        # One long sum over all nodes rounds more than a node's own.
        slack = 1e-9 * np.maximum(capacity[node], load[d, node])
        heats = np.flatnonzero((change > 0) & (after > capacity[node] + slack))
        words, where = "swap {} makes node {} hot or hotter", _of(instance, d)
        report.each(heats, words, when, node, where=where)
    columns[partition] = new  # of several for one partition the last one stays


def _moves(instance: Instance, plan: MigrationPlan, report: PlanCheck) -> NDArray[np.int32]:
    """Return [P, l], the final nodes of replicas; checks objects and C2."""
    partition = plan.move_partition.astype(np.int64)
    replica = plan.move_replica.astype(np.int64)
    objects = partition * instance.replicas + replica
    _, first, times = np.unique(objects, return_index=True, return_counts=True)
    twice = first[times > 1]
    report.each(twice, "replica {} of partition {} moves twice", replica, partition)
    idle = np.flatnonzero(instance.replica_node[partition, replica] == plan.move_to)
    words = "replica {} of partition {} is on node {} already"
    report.each(idle, words, replica, partition, plan.move_to)
    final = instance.replica_node.copy()
    final[partition, replica] = plan.move_to
    touched = np.unique(partition)
    was, now = instance.replica_node[touched], final[touched]
    for a in range(instance.replicas):
        for b in range(a):
            wrong = now[:, a] == now[:, b]
            for domain in _rows(instance.fault_domain):
                together = domain[now[:, a]] == domain[now[:, b]]
                before = domain[was[:, a]] == domain[was[:, b]]
                wrong |= together & ~before
            bad = np.flatnonzero(wrong)
            words = f"C2: replicas {b} and {a} of partition {{}} end on nodes {{}} and {{}}, in one"
            report.each(bad, words + " fault domain", touched, now[:, b], now[:, a])
    return final


def _c1(
    instance: Instance, plan: MigrationPlan, hot_before: Bools, hot: Bools, report: PlanCheck
) -> None:
    named = np.zeros(instance.nodes, dtype=np.bool_)
    named[plan.still_hot] = True
    for d in range(instance.dimensions):
        made_hot = np.flatnonzero(hot[d] & ~hot_before[d])
        words, where = "C1: node {} was not hot and is now", _of(instance, d)
        report.each(made_hot, words, range(instance.nodes), where=where)
    left = np.flatnonzero((hot & hot_before).any(axis=0) & ~named)
    words = "C1: node {} is still hot, and the plan does not say so"
    report.each(left, words, range(instance.nodes))


def _together(
    instance: Instance, final: NDArray[np.int32], columns: Ints, report: PlanCheck
) -> None:
    """Check that partitions of a group end on the same nodes, with the same roles."""
    if instance.group is None:
        return
    order = np.argsort(instance.group, kind="stable")
    same = instance.group[order][1:] == instance.group[order][:-1]
    a, b = order[:-1][same], order[1:][same]
    bad = np.flatnonzero((final[a] != final[b]).any(axis=1) | (columns[a] != columns[b]))
    words = "partitions {} and {} of group {} do not stay together"
    report.each(bad, words, a, b, instance.group[a])


def loads(instance: Instance, where: NDArray[np.int32], columns: Ints) -> Floats:
    """Return [D, N] float64: each partition's primary load at its primary, else the secondary."""
    load = np.zeros((instance.dimensions, instance.nodes))
    for first in range(0, instance.partitions, ROWS):
        rows = slice(first, first + ROWS)
        for column in range(instance.replicas):
            primary = columns[rows] == column
            for d in range(instance.dimensions):
                weight = np.where(
                    primary,
                    _rows(instance.primary_load)[d][rows],
                    _rows(instance.secondary_load)[d][rows],
                )
                load[d] += np.bincount(where[rows, column], weight, instance.nodes)
    return load


def _rows(array: NDArray[Any]) -> NDArray[Any]:
    """Return [columns, length] of an array that has columns or none."""
    return array[None] if array.ndim == 1 else array.T


def _of(instance: Instance, d: int) -> str:
    """Return words that name a dimension, where there are several."""
    if instance.dimensions == 1:
        return ""
    return f" in {instance.dimension[d]}" if instance.dimension else f" in dimension {d}"


def _hot(load: Floats, instance: Instance) -> Bools:
    return np.asarray(load > _rows(instance.capacity).astype(np.float64) * (1.0 + ROUNDING))


def _distance(instance: Instance, source: NDArray[np.int32], to: NDArray[np.int32]) -> Floats:
    if isinstance(instance.distance, Euclidean):
        step = instance.distance.node_xy[source].astype(np.float64)
        step -= instance.distance.node_xy[to]
        return np.asarray(np.linalg.norm(step, axis=1))
    rack = instance.distance.rack
    return instance.distance.rack_distance[rack[source], rack[to]].astype(np.float64)


BUDGET_ROUNDING = 1e-9  # part of a limit that sums may be above it by

Weights = NDArray[np.floating[Any]]


def over_budget(
    instance: Instance, plan: MigrationPlan, load: Weights, columns: NDArray[Any]
) -> Iterator[str]:
    """Yield a sentence for each violation; `load` [D, N], primaries [P]: after the swaps."""
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
    plan: MigrationPlan,
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
    if budget.size is not None and size.sum() > budget.size * (1 + BUDGET_ROUNDING):
        yield f"round {number} moves {size.sum():.6g} bytes; {budget.size:.6g} are allowed"
    if budget.node_size is not None:
        for where, nodes in (("leave", source), ("come to", to)):
            each = np.bincount(nodes, size, instance.nodes)
            for node in np.flatnonzero(each > budget.node_size * (1 + BUDGET_ROUNDING)):
                yield (
                    f"in round {number} {each[node]:.6g} bytes {where} node {node}; "
                    f"{budget.node_size:.6g} are allowed"
                )
