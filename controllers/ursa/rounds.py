"""Plan again and again while loads change: what is known from one round serves in the next.

A controller observes loads, decides, moves, and observes again. Between two rounds few loads
change, and few nodes become hot. `Rounds` keeps the nodes' loads and the objects on each node up to
date, so that a decision looks at hot nodes alone. It is the decision of `plan.plan` for the
placement and the loads of that moment, with the same phases; but for the order in which loads were
summed, the same plan.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.gather import Int8
from controllers.ursa.instance import Float32, Float64, Instance, Int32
from controllers.ursa.jit import njit
from controllers.ursa.node_index import Ids, Ints, NodeIndex, find, insert, remove
from controllers.ursa.plan import plan
from controllers.ursa.results import Plan, Timer
from controllers.ursa.rounds_swap import swap_phase
from controllers.ursa.select import highest_load_first
from controllers.ursa.state import State, initial_state
from schemas.errors import UserError

SUMMED_ANEW = 4
"""Loads of nodes are summed anew after as many changes as a quarter of the partitions: until then
rounding adds up to less than a checker tolerates."""


class Rounds:
    """The placement and the loads now, and decisions on them.

    The instance handed in stays as it is. `instance` is the problem of this moment: column 0 is the
    primary at every time, so a swap that is applied exchanges two columns of its row.
    """

    def __init__(self, instance: Instance) -> None:
        """Take over a placement; UserError where loads have several dimensions or the like."""
        if not instance.plain:
            raise UserError(
                "rounds are for loads of one dimension, one level of fault domains and no groups: "
                "plan for this instance anew each time."
            )
        self.instance = replace(
            instance,
            replica_node=instance.replica_node.copy(),
            primary_load=instance.primary_load.copy(),
            secondary_load=instance.secondary_load.copy(),
        )
        self._index = NodeIndex(self.instance)
        self._load: Float64 = initial_state(self.instance).load
        # Column 0 everywhere between rounds; what a round changes is set back after it.
        self._primary: Int8 = np.zeros(instance.partitions, np.int8)
        self._changes = 0

    @property
    def load(self) -> Float64:
        """[N], load of each node now."""
        return self._load.copy()

    def update(self, partition: Int32, primary_load: Float32, secondary_load: Float32) -> None:
        """Loads that have changed.

        Args:
            partition: [C]; of several for one partition the last one counts.
            primary_load, secondary_load: [C], finite, at least 0.

        Raises:
            UserError: what is given is not so.
        """
        _check(self.instance, partition, primary_load, secondary_load)
        _update(
            partition,
            primary_load,
            secondary_load,
            self.instance.replica_node,
            self.instance.primary_load,
            self.instance.secondary_load,
            self._load,
        )
        self._changes += len(partition)
        if self._changes * SUMMED_ANEW > self.instance.partitions:
            self._load = initial_state(self.instance).load
            self._changes = 0

    def decide(
        self,
        timer: Timer,
        method: str = "alp",
        *,
        seed: int = 0,
        max_move_cost: float | None = None,
        success: float = 1.0,
    ) -> Plan:
        """What to do now; parameters as of `plan.plan`. Nothing is applied."""
        gather = self._index.objects_on
        try:
            made = plan(
                self.instance,
                method,
                timer=timer,
                seed=seed,
                max_move_cost=max_move_cost,
                success=success,
                select=partial(highest_load_first, gather=gather),
                state=State(self._primary, self._load.copy()),
                gather=gather,
                swap=partial(swap_phase, self._index),
            )
        except BaseException:
            self._primary.fill(0)
            raise
        self._primary[made.swap_partition] = 0
        return made

    def apply(self, done: Plan) -> None:
        """Swaps and moves that have been carried out, such as a whole plan of `decide`."""
        if not self._index.fits(done.move_to):
            self._index = NodeIndex(self.instance, done.move_to)
        _apply(
            done.swap_partition,
            done.swap_replica,
            done.move_partition,
            done.move_replica,
            done.move_to,
            self.instance.replica_node,
            self.instance.primary_load,
            self.instance.secondary_load,
            self._primary,
            self._load,
            self._index.begin,
            self._index.count,
            self._index.ids,
        )
        self._changes += 2 * len(done.swap_partition) + 2 * len(done.move_partition)


def _check(
    instance: Instance,
    partition: NDArray[np.integer],
    primary_load: Float32,
    secondary_load: Float32,
) -> None:
    for name, array in (("primary_load", primary_load), ("secondary_load", secondary_load)):
        if array.shape != partition.shape or partition.ndim != 1:
            raise UserError(
                f"changes: {name} has shape {array.shape} and partition {partition.shape}; there "
                "must be one load for each partition that is named."
            )
        wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
        if len(wrong):
            raise UserError(
                f"changes: {name}[{wrong[0]}] is {array[wrong[0]]}; it must be finite and at "
                "least 0."
            )
    wrong = np.flatnonzero((partition < 0) | (partition >= instance.partitions))
    if len(wrong):
        raise UserError(
            f"changes: partition[{wrong[0]}] is {partition[wrong[0]]}; it must be 0 to "
            f"{instance.partitions - 1}."
        )


@njit
def _update(
    partition: Int32,
    new_primary: Float32,
    new_secondary: Float32,
    replica_node: Int32,
    primary_load: Float32,
    secondary_load: Float32,
    load: Float64,
) -> None:
    for i in range(len(partition)):
        p = partition[i]
        load[replica_node[p, 0]] += np.float64(new_primary[i]) - np.float64(primary_load[p])
        change = np.float64(new_secondary[i]) - np.float64(secondary_load[p])
        for k in range(1, replica_node.shape[1]):
            load[replica_node[p, k]] += change
        primary_load[p] = new_primary[i]
        secondary_load[p] = new_secondary[i]


@njit
def _apply(
    swap_partition: Int32,
    swap_replica: Int32,
    move_partition: Int32,
    move_replica: Int32,
    move_to: Int32,
    replica_node: Int32,
    primary_load: Float32,
    secondary_load: Float32,
    primary: Int8,
    load: Float64,
    begin: Ints,
    count: Ints,
    ids: Ids,
) -> None:
    """Columns are those before the plan until its swaps exchange them, last of all."""
    replicas = replica_node.shape[1]
    for s in range(len(swap_partition)):
        p, k = swap_partition[s], swap_replica[s]
        shed = np.float64(primary_load[p]) - np.float64(secondary_load[p])
        load[replica_node[p, primary[p]]] -= shed
        load[replica_node[p, k]] += shed
        primary[p] = k
    for m in range(len(move_partition)):
        p, k, to = move_partition[m], move_replica[m], move_to[m]
        weight = np.float64(primary_load[p] if primary[p] == k else secondary_load[p])
        source = replica_node[p, k]
        load[source] -= weight
        load[to] += weight
        remove(begin, count, ids, replicas, source, p)
        insert(begin, count, ids, replicas, to, p, k)
        replica_node[p, k] = to
    for s in range(len(swap_partition)):
        p = swap_partition[s]
        k = primary[p]
        if k != 0:
            first, second = replica_node[p, 0], replica_node[p, k]
            ids[find(begin, count, ids, replicas, first, p)] = p * replicas + k
            ids[find(begin, count, ids, replicas, second, p)] = p * replicas
            replica_node[p, 0], replica_node[p, k] = second, first
            primary[p] = 0
