"""What moves as one: a partition, or a group of partitions that lie together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.gather import Int8
from controllers.ursa.instance import Float64, Instance, Int32
from controllers.ursa.jit import in_threads, njit
from controllers.ursa.results import Plan
from controllers.ursa.state import chunks_of

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Units:
    """An instance as its units, U of them.

    Attributes:
        placed: where units are and what moves cost: `replica_node` is [U, l]. Its loads and fault
            domains are not looked at.
        primary, secondary: [U, D], load of a replica by role; sums where there are groups.
        capacity: [N, D].
        domain: [N, levels + 1], fault domains from the outermost on; the node itself comes last, as
            the domain that no two replicas share.
        members: [U], partitions of the unit: so many times the distance is what its move costs.
        size: [U], bytes of a replica; None where the instance has none.
        member_first, member: partitions of unit u are ``member[member_first[u]:member_first[u +
            1]]``; None where units are the partitions.
    """

    placed: Instance
    primary: Floats
    secondary: Floats
    capacity: Float64
    domain: Int32
    members: Float64
    size: Float64 | None = None
    member_first: Ints | None = None
    member: Ints | None = None

    @property
    def nodes(self) -> int:
        """N."""
        return len(self.capacity)

    @property
    def dimensions(self) -> int:
        """D."""
        return int(self.capacity.shape[1])

    @property
    def replicas(self) -> int:
        """l."""
        return self.placed.replicas

    def unit_load(self) -> Float64:
        """[D], a load that is neither much nor little: capacity of a node on average."""
        mean = self.capacity.mean(axis=0)
        return np.where(mean > 0, mean, 1.0)


@dataclass(eq=False)
class VectorState:
    """As `state.State`: primary [U] int8, load [N, D]."""

    primary: Int8
    load: Float64

    def over(self, units: Units) -> NDArray[np.bool_]:
        """[N, D], where a node is above its threshold."""
        return self.load > units.capacity

    def hot(self, units: Units) -> NDArray[np.bool_]:
        """[N], nodes above their threshold in any dimension."""
        return np.asarray(self.over(units).any(axis=1))


def units_of(instance: Instance) -> Units:
    """The units of an instance: groups, or every partition on its own."""
    nodes = np.arange(instance.nodes, dtype=np.int32)
    own = Units(
        placed=instance,
        primary=_columns(instance.primary_load),
        secondary=_columns(instance.secondary_load),
        capacity=_columns(instance.capacity).astype(np.float64),
        domain=np.column_stack([_columns(instance.fault_domain), nodes]).astype(np.int32),
        members=np.ones(instance.partitions),
        size=None if instance.size is None else instance.size.astype(np.float64),
    )
    return own if instance.group is None else _merged(own, instance.group)


def expanded(units: Units, plan: Plan) -> Plan:
    """The plan for partitions that one for units is; replicas of a unit come one after another."""
    if units.member is None or units.member_first is None:
        return plan

    def each(unit: Int32, *others: Int32) -> list[Int32]:
        assert units.member is not None
        assert units.member_first is not None
        first, end = units.member_first[unit], units.member_first[unit + 1]
        owner = np.repeat(np.arange(len(unit)), end - first)
        start = np.cumsum(end - first) - (end - first)
        at = first[owner] + np.arange(len(owner)) - start[owner]
        return [units.member[at].astype(np.int32), *(array[owner] for array in others)]

    swap_partition, swap_replica = each(plan.swap_partition, plan.swap_replica)
    move_partition, move_replica, move_to = each(
        plan.move_partition, plan.move_replica, plan.move_to
    )
    move_round = plan.move_round
    if move_round is not None:
        move_round = each(plan.move_partition, move_round)[1]
    return replace(
        plan,
        swap_partition=swap_partition,
        swap_replica=swap_replica,
        move_partition=move_partition,
        move_replica=move_replica,
        move_to=move_to,
        move_round=move_round,
    )


def initial_state(units: Units) -> VectorState:
    """Column 0 is primary everywhere; loads in one pass over the replicas, in parallel."""
    count = units.placed.partitions
    chunks = chunks_of(count)
    partial = np.zeros((chunks, units.nodes, units.dimensions))
    bounds = np.linspace(0, count, chunks + 1).astype(np.int64)

    def work(chunk: int) -> None:
        _add_loads(
            units.placed.replica_node,
            units.primary,
            units.secondary,
            bounds[chunk],
            bounds[chunk + 1],
            partial[chunk],
        )

    in_threads(work, chunks)
    return VectorState(np.zeros(count, dtype=np.int8), partial.sum(axis=0))


def object_load(
    units: Units, state: VectorState, unit: Int32, replica: NDArray[np.integer]
) -> Float64:
    """[M, D], the load of objects in their present role."""
    is_primary = (state.primary[unit] == replica)[:, None]
    return np.where(is_primary, units.primary[unit], units.secondary[unit]).astype(np.float64)


def _columns(array: NDArray[Any]) -> NDArray[Any]:
    return array[:, None] if array.ndim == 1 else array


def _merged(own: Units, group: Int32) -> Units:
    ids, first, index = np.unique(group, return_index=True, return_inverse=True)
    member = np.argsort(index, kind="stable")
    member_first = np.zeros(len(ids) + 1, np.int64)
    np.cumsum(np.bincount(index, minlength=len(ids)), out=member_first[1:])

    def sums(load: Floats) -> Float64:
        # In float64, as a checker sums them: a sum in float32 would be another load.
        each = [np.bincount(index, load[:, d], len(ids)) for d in range(load.shape[1])]
        return np.column_stack(each).astype(np.float64)

    return replace(
        own,
        placed=replace(
            own.placed, replica_node=np.ascontiguousarray(own.placed.replica_node[first])
        ),
        primary=sums(own.primary),
        secondary=sums(own.secondary),
        members=np.diff(member_first).astype(np.float64),
        size=None if own.size is None else sums(own.size[:, None])[:, 0],
        member_first=member_first,
        member=member,
    )


@njit
def _add_loads(
    replica_node: Int32, primary: Floats, secondary: Floats, first: int, end: int, load: Float64
) -> None:
    for u in range(first, end):
        for k in range(replica_node.shape[1]):
            node = replica_node[u, k]
            for d in range(primary.shape[1]):
                load[node, d] += primary[u, d] if k == 0 else secondary[u, d]
