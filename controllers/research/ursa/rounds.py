"""Plans that follow each other while loads change, with what is known from one round to the next.

Between two rounds few loads change, and few nodes become hot. `Rounds` keeps the nodes' loads and
the objects on each node up to date, so that a decision looks at hot nodes alone. It is the decision
of `plan.plan` for the placement and the loads of that moment; but for the order in which loads were
summed, the same plan.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from controllers.jit import njit
from controllers.ursa.check import check
from controllers.ursa.instance import Float32, Float64, Instance, Int32, MigrationPlan, Timer
from controllers.ursa.io import (
    changes_from,
    load_changes,
    load_instance,
    save_instance,
    save_plan,
)
from controllers.ursa.plan import plan
from controllers.ursa.run import check_limit, peak_rss_mib, plan_instance, warm_instances, warm_up
from controllers.ursa.state import (
    CHUNKS,
    Found,
    Int8,
    Ints,
    PlanState,
    found_in_chunks,
    initial_state,
)
from controllers.ursa.swap import swap_phase
from schemas.errors import UserError, not_allowed

Ids = NDArray[np.signedinteger]

SPARE = 8  # objects per spare place
SPARE_LEAST = 64


class NodeIndex:
    """Objects by node, as ``partition * l + column``: those of a node are `count` [N] of `ids`,
    ascending, from `begin` [N] on.
    """

    def __init__(self, instance: Instance, coming: Int32 | None = None) -> None:
        """Count in one pass and write in another; `instance.replica_node` is read, not kept.

        `coming`: nodes that objects will move to, each once for every object.
        """
        flat = instance.replica_node.ravel()
        self.count: Ints = np.bincount(flat, minlength=instance.nodes).astype(np.int64)
        self._room: Ints = self.count + self.count // SPARE + SPARE_LEAST
        if coming is not None:
            self._room += np.bincount(coming, minlength=instance.nodes)
        self.begin: Ints = np.cumsum(self._room) - self._room
        kind = np.int32 if instance.replica_node.size < 2**31 else np.int64
        self.ids: Ids = np.empty(int(self._room.sum()), kind)
        _list_objects(flat, self.begin.copy(), self.ids)

    def fits(self, move_to: Int32) -> bool:
        """Return True if these nodes have places for as many objects."""
        coming = np.bincount(move_to, minlength=len(self.count))
        return bool((self.count + coming <= self._room).all())

    def objects_on(self, instance: Instance, nodes: Int32, leading: bool = False) -> Found:
        """Find objects as `state.objects_on`, node by node instead of partition by partition."""

        def gather(first: int, end: int) -> Found:
            most = int(self.count[nodes[first:end]].sum())
            found = np.empty(most, np.int32), np.empty(most, np.int8), np.empty(most, np.int32)
            lists = self.begin, self.count, self.ids
            count = _read(nodes, first, end, *lists, instance.replicas, leading, *found)
            return found[0][:count], found[1][:count], found[2][:count]

        return found_in_chunks(gather, len(nodes), CHUNKS if len(nodes) >= CHUNKS else 1)


@njit
def _list_objects(flat: Int32, at: Ints, ids: Ids) -> None:
    for i in range(len(flat)):
        node = flat[i]
        ids[at[node]] = i
        at[node] += 1


@njit
def _read(
    nodes: Int32,
    first: int,
    end: int,
    begin: Ints,
    count: Ints,
    ids: Ids,
    replicas: int,
    leading: bool,
    partition: Int32,
    column: Int8,
    slot: Int32,
) -> int:
    """Write the objects of ``nodes[first:end]``, or those of column 0 alone."""
    found = 0
    for h in range(first, end):
        node = nodes[h]
        for at in range(begin[node], begin[node] + count[node]):
            p = ids[at] // replicas
            k = ids[at] - p * replicas
            if leading and k != 0:
                continue
            partition[found] = p
            column[found] = k
            slot[found] = h
            found += 1
    return found


@njit
def find(begin: Ints, count: Ints, ids: Ids, replicas: int, node: int, partition: int) -> int:
    """Return the first place in `ids` of an object of `node` from `partition` on."""
    low, high = begin[node], begin[node] + count[node]
    wanted = partition * replicas
    while low < high:
        middle = (low + high) // 2
        if ids[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return int(low)


@njit
def remove(begin: Ints, count: Ints, ids: Ids, replicas: int, node: int, partition: int) -> None:
    """Take the object of `partition` off `node`."""
    at = find(begin, count, ids, replicas, node, partition)
    count[node] -= 1
    for i in range(at, begin[node] + count[node]):
        ids[i] = ids[i + 1]


@njit
def insert(
    begin: Ints, count: Ints, ids: Ids, replicas: int, node: int, partition: int, column: int
) -> None:
    """Put an object on `node`, where there is a place to spare."""
    at = find(begin, count, ids, replicas, node, partition)
    for i in range(begin[node] + count[node], at, -1):
        ids[i] = ids[i - 1]
    ids[at] = partition * replicas + column
    count[node] += 1


FRONT = 48
"""Candidates of a node that are sorted at first: between rounds a hot node gives away a handful."""
SUMMED_ANEW = 4
"""Loads of nodes are summed anew after as many changes as a quarter of the partitions: until then
rounding adds up to less than a checker tolerates."""


class Rounds:
    """The placement and the loads now, and decisions on them; the given instance stays unchanged.

    `instance` is the problem of this moment: column 0 is the primary at every time, so a swap that
    is applied exchanges two columns of its row.
    """

    def __init__(self, instance: Instance) -> None:
        """Take over a placement; UserError where loads have several dimensions or the like."""
        if not instance.plain:
            raise UserError(
                "rounds are for loads of one dimension, one level of fault domains and no groups",
                do="plan for this instance anew each time",
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
        """Take over changed loads [C]; of several for one partition the last one counts.

        Raises:
            UserError: a partition is unknown, or a load not finite and at least 0.
        """
        given = {
            "partition": partition,
            "primary_load": primary_load,
            "secondary_load": secondary_load,
        }
        changes = changes_from(given, "changes", self.instance.partitions)
        _update(
            *changes,
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
        method: str = "alp-fast",
        *,
        seed: int = 0,
        max_move_cost: float | None = None,
        success: float = 1.0,
    ) -> MigrationPlan:
        """Return the plan for this moment; parameters as of `plan.plan`. Nothing is applied."""
        gather = self._index.objects_on
        try:
            made = plan(
                self.instance,
                method,
                timer=timer,
                seed=seed,
                max_move_cost=max_move_cost,
                success=success,
                state=PlanState(self._primary, self._load.copy()),
                gather=gather,
                swap=partial(swap_phase, gather=gather, front=FRONT),
            )
        except BaseException:
            self._primary.fill(0)
            raise
        self._primary[made.swap_partition] = 0
        return made

    def apply(self, done: MigrationPlan) -> None:
        """Take over executed swaps and moves, such as a whole plan of `decide`."""
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
    """Apply a plan; columns are those before the plan until its swaps exchange them at the end."""
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


Changes = tuple[Int32, Float32, Float32]
"""Partitions, and their new primary and secondary loads."""


@dataclass(frozen=True)
class RoundsOptions:
    """Options of `hotbed ursa rounds`.

    `changes` are files, one for each round after the first, or `random` is the part of the
    partitions that change their loads in each of `rounds` rounds. `out` is a folder for plans, and
    with `instances` for the instance before each round. `check` verifies every plan, `scratch`
    makes a plan from scratch as well, to compare.
    """

    changes: Sequence[Path] = ()
    random: float | None = None
    rounds: int = 10
    method: str = "alp-fast"
    seed: int = 0
    max_move_cost: float | None = None
    time_limit_s: float | None = None
    out: Path | None = None
    instances: bool = False
    check: bool = False
    scratch: bool = False


def rounds_file(path: Path, wanted: RoundsOptions) -> Iterator[dict[str, object]]:
    """Yield the facts about each round; round 0 is before any change."""
    if wanted.random is not None and wanted.changes:
        raise UserError("give files of changes or --random, not both")
    if wanted.random is not None and not 0 < wanted.random <= 1:
        raise not_allowed("random", wanted.random, "above 0 to 1, a part of the partitions")
    if wanted.rounds < 0:
        raise not_allowed("rounds", wanted.rounds, "at least 0")
    check_limit(wanted.time_limit_s)
    for file in wanted.changes:
        load_changes(file)
    yield from in_rounds(load_instance(path), wanted)


def in_rounds(instance: Instance, wanted: RoundsOptions) -> Iterator[dict[str, object]]:
    """Yield the facts of `rounds_file` for an instance in memory."""
    _warm_up_rounds(wanted)
    start = time.perf_counter()
    rounds = Rounds(instance)
    facts: dict[str, object] = {"setup_seconds": time.perf_counter() - start}
    for number, changes in enumerate(_changes(rounds, wanted)):
        if changes is not None:
            start = time.perf_counter()
            rounds.update(*changes)
            facts = {"update_seconds": time.perf_counter() - start}
        made = rounds.decide(
            Timer(time.perf_counter, wanted.time_limit_s),
            wanted.method,
            seed=wanted.seed,
            max_move_cost=wanted.max_move_cost,
        )
        row = {
            "round": number,
            "changed": 0 if changes is None else len(changes[0]),
            **made.summary,
            **facts,
        }
        row |= _comparisons(rounds, made, wanted)
        if wanted.out is not None:
            _write(wanted.out, number, rounds.instance, made, wanted.instances)
        start = time.perf_counter()
        rounds.apply(made)
        row["apply_seconds"] = time.perf_counter() - start
        row["peak_rss_mib"] = peak_rss_mib()
        yield row


def drawn(now: Instance, part: float, rng: np.random.Generator) -> Changes:
    """Draw new loads for a part of the partitions: each gets a random partition's loads."""
    count = max(1, round(part * now.partitions))
    if now.partitions == 0:
        return np.empty(0, np.int32), np.empty(0, np.float32), np.empty(0, np.float32)
    partition = rng.choice(now.partitions, count, replace=False, shuffle=False).astype(np.int32)
    other = rng.integers(now.partitions, size=count)
    return partition, now.primary_load[other], now.secondary_load[other]


def _changes(rounds: Rounds, wanted: RoundsOptions) -> Iterator[Changes | None]:
    """Yield None for the first round, then the changes before each other round."""
    yield None
    for file in wanted.changes:
        yield load_changes(file)
    if wanted.random is not None:
        rng = np.random.Generator(np.random.PCG64(wanted.seed))
        for _ in range(wanted.rounds):
            yield drawn(rounds.instance, wanted.random, rng)


def _comparisons(rounds: Rounds, made: MigrationPlan, wanted: RoundsOptions) -> dict[str, object]:
    row: dict[str, object] = {}
    if wanted.check:
        report = check(rounds.instance, made, float(str(made.summary["cost"])))
        row |= {"valid": report.valid, "violations": report.violations}
    if wanted.scratch:
        scratch = plan_instance(
            rounds.instance,
            wanted.method,
            time_limit_s=wanted.time_limit_s,
            seed=wanted.seed,
            max_move_cost=wanted.max_move_cost,
        ).summary
        names = ("cost", "moves", "swaps", "hot_after", "decision_seconds")
        row["scratch"] = {name: scratch[name] for name in names}
    return row


def _write(
    folder: Path, number: int, before: Instance, made: MigrationPlan, instances: bool
) -> None:
    """Write the plan with its nodes: columns are those of the placement at that time."""
    source = before.replica_node[made.move_partition, made.move_replica]
    leader = before.replica_node[made.swap_partition, made.swap_replica]
    if instances:  # which replaces nothing, so that nothing is replaced when it fails
        save_instance(before, folder / f"before-{number:03}.npz")
    save_plan(made, folder / f"plan-{number:03}.npz", {"move_from": source, "swap_to": leader})


def _warm_up_rounds(wanted: RoundsOptions) -> None:
    warm_up(wanted.method, wanted.max_move_cost)
    for small in warm_instances():
        rounds = Rounds(small)
        for _ in range(2):
            rounds.apply(rounds.decide(Timer(time.perf_counter), "nearest"))
            rounds.update(*drawn(small, 0.5, np.random.Generator(np.random.PCG64(1))))
