"""Ursa on a running store: measured loads in, swaps and moves out, a few at a time.

A placement group is a partition, an OSD a node, and the place in the CRUSH tree the distance. The
policy measures at rest, decides once, acts step by step, waits for recovery, and checks the
prediction (docs/ursa.md). Memory of the policy, journalled with every step:

- ``window``: loads since the store was last at rest and unchanged (`Window`);
- ``queue``: decided and not yet acted on, ``["swap", pg, osd]`` and ``["move", pg, source,
  target]`` in the order of application;
- ``pinned``: PGs that this controller has swapped or moved;
- ``expected``: load of each OSD that the last decision predicts, until it has been checked;
- ``decision``: the last of `decisions` decisions, in a dry run without its execution;
- ``check``: measured and ``expected`` loads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controllers.common.base import ParameterPolicy
from controllers.common.parameters import choice, flag, integer, number
from controllers.contract import State
from controllers.ursa.instance import Float32, Float64, Instance, Int32, Racks, Timer
from controllers.ursa.plan import plan
from controllers.ursa.state import initial_state
from testbed.stores.contract import (
    ACTIVITY,
    OSDS,
    PG_UPMAP,
    PGS,
    Action,
    MoveReplica,
    Needs,
    Observation,
    OpRates,
    Osd,
    Pg,
    SwapPrimary,
)

LEADER, REPLICA = "leader", "replica"


@dataclass(frozen=True)
class UrsaParameters:
    """Thresholds of hot OSDs, costs of moves, and limits of concurrent actions.

    Loads are operations per second, reads and writes weighted (section 5.2: w1 reads/s + w2
    writes/s); a write loads every replica, a read the primary.
    """

    capacity: float = number(
        0.0, 0, 1e9, "operations a second that an OSD carries (T); 0: not known, see relative"
    )
    threshold: float = number(0.7, 0.01, 1, "part of the capacity above which an OSD is hot")
    relative: float = number(
        1.2, 1, 100, "without a capacity: an OSD is hot above this many times the mean load"
    )
    tolerance: float = number(
        0.05, 0, 1, "excess over the threshold that is taken for noise of the measurement"
    )
    read_weight: float = number(1.0, 0, 1e6, "load of one read at the primary")
    write_weight: float = number(1.0, 0, 1e6, "load of one write at each replica")
    observe_s: float = number(10.0, 0, 86_400, "seconds at rest over which loads are averaged")
    background: bool = flag(True, "count load that no placement group explains as immovable")
    host_cost: float = number(0.5, 0, 1e6, "cost of a move within a host")
    rack_cost: float = number(1.0, 0, 1e6, "cost of a move within a rack")
    far_cost: float = number(5.0, 0, 1e6, "cost of a move to another rack")
    copied_by: str = choice(
        REPLICA, (REPLICA, LEADER), "from where the cost of a move counts: Ceph's leaders send"
    )
    fault_domain: str = choice("host", ("host", "rack"), "where no two replicas may meet")
    max_swaps: int = integer(256, 0, 100_000, "swaps in one step; 0: none ever")
    max_moves: int = integer(16, 0, 100_000, "moves in one step; 0: none ever")
    max_recovery_mb: float = number(
        4096.0, 1, 1e12, "data on the way at a time, 10^6 bytes; one move is always allowed"
    )
    max_decisions: int = integer(
        0, 0, 1_000_000, "decide so often at most, as the paper does once; 0: whenever needed"
    )
    dry_run: bool = flag(False, "decide and journal, but change nothing")
    restore_on_stop: bool = flag(True, "put the store back when the controller is stopped")


_SUM_DIGITS = 6
Window = Mapping[str, Any]
"""{seconds, pgs: {id: [reads, writes]}, osds: {id: [reads, writes]}}: sums of rate x seconds."""


def empty_window() -> dict[str, Any]:
    """Return a window without measurements."""
    return {"seconds": 0.0, "pgs": {}, "osds": {}}


def add_interval(window: Window, observation: Observation) -> dict[str, Any]:
    """Return `window` with one more interval. Anything absent from an interval counts as idle; an
    interval without known rates does not count."""
    activity = observation.activity
    seconds = observation.interval_s
    if activity is None or not activity.pgs or seconds <= 0:
        return dict(window)
    osds = {str(osd): rates for osd, rates in activity.osds.items()}
    return {
        "seconds": round(window["seconds"] + seconds, _SUM_DIGITS),
        "pgs": _summed(window["pgs"], activity.pgs, seconds),
        "osds": _summed(window["osds"], osds, seconds),
    }


def _summed(
    sums: Mapping[str, Any], rates: Mapping[str, OpRates], seconds: float
) -> dict[str, list[float]]:
    after = {key: list(pair) for key, pair in sums.items()}
    for key, rate in rates.items():
        if rate.reads or rate.writes:
            reads, writes = after.get(key, (0.0, 0.0))
            after[key] = [
                round(reads + rate.reads * seconds, _SUM_DIGITS),
                round(writes + rate.writes * seconds, _SUM_DIGITS),
            ]
    return dict(sorted(after.items()))


def pg_loads(window: Window, parameters: UrsaParameters) -> dict[str, tuple[float, float]]:
    """Return (load at the primary, at each other replica) by PG, weighted operations per second."""
    seconds = window["seconds"]
    found = {}
    for pg, (reads, writes) in window["pgs"].items():
        written = parameters.write_weight * writes / seconds
        found[pg] = (parameters.read_weight * reads / seconds + written, written)
    return found


def osd_loads(window: Window, parameters: UrsaParameters) -> dict[int, float]:
    """Return measured weighted operations per second of each OSD, including its replicas'."""
    seconds = window["seconds"]
    return {
        int(osd): (parameters.read_weight * reads + parameters.write_weight * writes) / seconds
        for osd, (reads, writes) in window["osds"].items()
    }


NOISE = 0.1
"""Part of a threshold by which counters of OSDs and of PGs may differ and mean the same."""

ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class LiveProblem:
    """Instance, and the meaning of its numbers.

    [P] ids of PGs and [N] of OSDs, ascending; [N] `fixed` load that cannot be moved, which the
    instance's capacities leave out; the `threshold` above which an OSD is hot, and those that are.
    """

    instance: Instance
    pgs: tuple[str, ...]
    osds: tuple[int, ...]
    fixed: Float64
    threshold: float
    hot: NDArray[np.bool_]


def build(
    observation: Observation,
    loads: Mapping[str, tuple[float, float]],
    measured: Mapping[int, float],
    ours: Collection[str],
    parameters: UrsaParameters,
) -> LiveProblem | None:
    """Return the problem that `observation` poses; None where nothing can be moved or compared.

    `loads` are (primary, secondary) by PG, `measured` is by OSD, `ours` are PGs with an upmap of
    this controller.
    """
    nodes = sorted((osd for osd in observation.osds if osd.up and osd.in_), key=lambda o: o.id)
    index = {osd.id: number for number, osd in enumerate(nodes)}
    free = sorted((pg for pg in observation.pgs if _movable(pg, index, ours)), key=lambda p: p.id)
    size = _common_size(free)
    free = [pg for pg in free if len(pg.up) == size]
    if len(nodes) < 2 or not free or size < 1:
        return None
    replicas = np.array([_primary_first(pg, index) for pg in free], dtype=np.int32)
    pair = np.array([loads.get(pg.id, (0.0, 0.0)) for pg in free], dtype=np.float32)
    attributed, fixed = _fixed(observation, loads, index, {pg.id for pg in free})
    threshold = _threshold(attributed, parameters)
    if parameters.background and measured:
        known = np.array([measured.get(osd.id, 0.0) for osd in nodes])
        fixed = fixed + np.maximum(0.0, known - attributed - NOISE * threshold)
    leads = np.zeros(len(free), np.int8)
    carried = _load_of(replicas, leads, pair[:, 0], pair[:, 1], len(nodes))
    capacity = np.full(len(nodes), threshold) - fixed
    # Within the tolerance an OSD counts as cold, and as full.
    noise = carried + fixed <= threshold * (1 + parameters.tolerance)
    # (A sum in another order may differ in its last digits, which must not make a node hot.)
    capacity = np.where(noise, np.maximum(capacity, carried * (1 + ROUNDING)), capacity)
    limit = float32_from_above(np.maximum(capacity, 0.0))
    instance = Instance(
        replica_node=replicas,
        primary_load=np.ascontiguousarray(pair[:, 0]),
        secondary_load=np.ascontiguousarray(pair[:, 1]),
        capacity=limit,
        fault_domain=domain_ids(nodes, parameters.fault_domain),
        distance=_distance(nodes, parameters),
        origin=_senders(replicas, carried > limit) if parameters.copied_by == LEADER else None,
    )
    ids = tuple(pg.id for pg in free)
    numbers = tuple(osd.id for osd in nodes)
    return LiveProblem(instance, ids, numbers, fixed, threshold, carried > limit)


def _movable(pg: Pg, index: Mapping[int, int], ours: Collection[str]) -> bool:
    placed = bool(pg.up) and set(pg.up) == set(pg.acting)
    return placed and (not pg.upmap or pg.id in ours) and all(osd in index for osd in pg.up)


def _common_size(pgs: list[Pg]) -> int:
    """Return the number of replicas that most groups have: a plan is for groups of one size."""
    counts = Counter(len(pg.up) for pg in pgs)
    return min(counts, key=lambda size: (-counts[size], size)) if counts else 0


def _primary_first(pg: Pg, index: Mapping[int, int]) -> list[int]:
    order = [pg.primary, *(osd for osd in pg.up if osd != pg.primary)]
    return [index[osd] for osd in order]


def _senders(replicas: Int32, hot: NDArray[np.bool_]) -> Int32:
    """Return [P, l], the sender when a replica moves: the first of its group on a cold node, which
    therefore stays; `planning` gives it the role. If all are hot, the leader or the next."""
    rows = np.arange(len(replicas))
    origin = np.repeat(replicas[:, :1], replicas.shape[1], axis=1)
    origin[:, 0] = replicas[:, min(1, replicas.shape[1] - 1)]
    calm = ~hot[replicas]
    some = calm.any(axis=1)
    sender = replicas[rows, calm.argmax(axis=1)]
    origin[some] = sender[some, None]
    return np.ascontiguousarray(origin)


def _fixed(
    observation: Observation,
    loads: Mapping[str, tuple[float, float]],
    index: Mapping[int, int],
    free: set[str],
) -> tuple[Float64, Float64]:
    """Return ([N] load of all PGs, [N] load of those that may not be moved)."""
    attributed, fixed = np.zeros(len(index)), np.zeros(len(index))
    for pg in sorted(observation.pgs, key=lambda pg: pg.id):
        primary, secondary = loads.get(pg.id, (0.0, 0.0))
        for osd in pg.acting:
            if osd in index:
                load = primary if osd == pg.primary else secondary
                attributed[index[osd]] += load
                if pg.id not in free:
                    fixed[index[osd]] += load
    return attributed, fixed


def _threshold(attributed: Float64, parameters: UrsaParameters) -> float:
    if parameters.capacity > 0:
        return parameters.capacity * parameters.threshold
    return parameters.relative * float(attributed.mean())


def _load_of(
    place: Int32,
    primary: NDArray[np.integer],
    primary_load: Float32,
    secondary_load: Float32,
    nodes: int,
) -> Float64:
    """Return [N], load of movable PGs at these places, in the roles that `primary` [P] gives."""
    load = np.zeros(nodes)
    for column in range(place.shape[1]):
        weights = np.where(primary == column, primary_load, secondary_load).astype(np.float64)
        load += np.bincount(place[:, column], weights, nodes)
    return load


def float32_from_above(values: Float64) -> Float32:
    """Round up, so that a completely full node does not become hot by rounding."""
    rounded = values.astype(np.float32)
    low = rounded.astype(np.float64) < values
    rounded[low] = np.nextafter(rounded[low], np.float32(np.inf))
    return rounded


def domain_ids(nodes: list[Osd], kind: str) -> Int32:
    names = [_domain(osd, kind) for osd in nodes]
    number = {name: place for place, name in enumerate(sorted(set(names)))}
    return np.array([number[name] for name in names], dtype=np.int32)


def _distance(nodes: list[Osd], parameters: UrsaParameters) -> Racks:
    """Return costs by host: within it, within its rack, beyond. OSDs without rack share one."""
    hosts = sorted({(osd.rack, osd.node) for osd in nodes})
    number = {host: place for place, host in enumerate(hosts)}
    racks = np.array([rack for rack, _ in hosts])
    cost = np.where(racks[:, None] == racks[None, :], parameters.rack_cost, parameters.far_cost)
    np.fill_diagonal(cost, parameters.host_cost)
    place = np.array([number[osd.rack, osd.node] for osd in nodes], dtype=np.int32)
    return Racks(place, cost.astype(np.float32))


_DIGITS = 3


@dataclass(frozen=True)
class MoveDecision:
    """Swaps and moves to make, in the order of application.

    Attributes:
        swaps: (PG, the OSD that becomes its primary).
        moves: (PG, from OSD, to OSD).
        leads: (PG, OSD that must lead it before a replica leaves): Ceph copies from leaders. Only
            for PGs with replicas of similar load.
        expected: load of each OSD after all actions.
        words: JSON-able facts for the journal.
    """

    swaps: tuple[tuple[str, int], ...]
    moves: tuple[tuple[str, int, int], ...]
    leads: tuple[tuple[str, int], ...]
    expected: Mapping[int, float]
    words: Mapping[str, Any]


def plan_for(problem: LiveProblem, method: str, seed: int) -> MoveDecision:
    """Return swaps and moves that relieve the hot OSDs of `problem`, by `method` of the planner."""
    # A clock that stands still: the decision must not depend on how fast this machine is.
    found = plan(problem.instance, method, timer=Timer(lambda: 0.0), seed=seed)
    instance, osds = problem.instance, problem.osds
    before = initial_state(instance)
    primary = before.primary.copy()
    swaps = []
    for partition, column in zip(found.swap_partition, found.swap_replica, strict=True):
        primary[partition] = column
        osd = osds[int(instance.replica_node[partition, column])]
        swaps.append((problem.pgs[int(partition)], osd))
    place = instance.replica_node.copy()
    moves, leads = [], []
    for partition, column, to in zip(
        found.move_partition, found.move_replica, found.move_to, strict=True
    ):
        source = osds[int(place[partition, column])]
        if instance.origin is not None:
            sender = int(instance.origin[partition, column])
            lead = (problem.pgs[int(partition)], osds[sender])
            alike = instance.primary_load[partition] == instance.secondary_load[partition]
            leads_already = int(place[partition, primary[partition]]) == sender
            if alike and not leads_already and sender in place[partition] and lead not in leads:
                leads.append(lead)
        moves.append((problem.pgs[int(partition)], source, osds[int(to)]))
        place[partition, column] = to
    loads = instance.primary_load, instance.secondary_load
    bound = found.summary["lower_bound"]
    after = problem.fixed + _load_of(place, primary, *loads, instance.nodes)
    now = problem.fixed + before.load
    hot = np.flatnonzero(problem.hot)
    words = {
        "threshold": round(problem.threshold, _DIGITS),
        "hot": {str(osds[i]): round(float(now[i]), _DIGITS) for i in hot},
        "still_hot": [osds[int(i)] for i in found.still_hot],
        "swaps": [list(swap) for swap in swaps],
        "moves": [list(move) for move in moves],
        "cost": round(float(str(found.summary["cost"])), _DIGITS),
        "lower_bound": None if bound is None else round(float(str(bound)), _DIGITS),
    }
    expected = {osd: round(float(load), _DIGITS) for osd, load in zip(osds, after, strict=True)}
    return MoveDecision(tuple(swaps), tuple(moves), tuple(leads), expected, words)


Item = Sequence[Any]
_MB = 1e6


@dataclass
class QueueStep:
    """Actions of one step, the rest of the queue, and items that are impossible by now."""

    actions: list[Action] = field(default_factory=list)
    left: list[list[Any]] = field(default_factory=list)
    dropped: list[list[Any]] = field(default_factory=list)


def queue_of(decision: MoveDecision, parameters: UrsaParameters) -> tuple[list[list[Any]], bool]:
    """Return a decision as a queue, and True if all of it that shifts load may be given out.

    Items that must never be given out would wait forever and block the rest: they are left out.
    """
    moves = decision.moves if parameters.max_moves else ()
    # Who leads matters where data moves.
    leads = decision.leads if moves else ()
    swaps = (*decision.swaps, *leads) if parameters.max_swaps else ()
    whole = (not decision.swaps or bool(swaps)) and len(moves) == len(decision.moves)
    return [["swap", *swap] for swap in swaps] + [["move", *move] for move in moves], whole


def give_out(
    queue: Sequence[Item],
    observation: Observation,
    under_way: Collection[str],
    parameters: UrsaParameters,
) -> QueueStep:
    """Return the next actions of `queue`; what the store no longer allows is dropped.

    All swaps that fit `max_swaps` go out together, as one map epoch; moves only when no swap is
    left, at most `max_moves` a step, and one of a PG. The bytes of all PGs that are on their way
    (`under_way` are not clean), counted for each replica that moves, stay below `max_recovery_mb`,
    except that one move may always be.
    """
    known = {pg.id: pg for pg in observation.pgs}
    osds = {osd.id: osd for osd in observation.osds if osd.up and osd.in_}
    step = QueueStep()
    possible: list[list[Any]] = []
    for item in queue:
        allowed = item[1] in known and _allowed(item, known[item[1]], osds, parameters)
        (possible if allowed else step.dropped).append(list(item))
    swapping = any(item[0] == "swap" for item in possible)
    on_the_way = sum(known[pg].bytes for pg in under_way if pg in known)
    taken: set[str] = set()
    for item in possible:
        kind, pg = item[0], item[1]
        bytes_then = on_the_way + known[pg].bytes
        if swapping:
            goes = kind == "swap" and len(taken) < parameters.max_swaps
        else:
            room = not (taken or under_way) or bytes_then <= parameters.max_recovery_mb * _MB
            goes = room and len(taken) < parameters.max_moves
        if pg in taken or not goes:
            step.left.append(item)
            continue
        taken.add(pg)
        if swapping:
            step.actions.append(SwapPrimary(pg, item[2]))
        else:
            step.actions.append(MoveReplica(pg, item[2], item[3]))
            on_the_way = bytes_then
    return step


def _allowed(item: Item, pg: Pg, osds: Mapping[int, Osd], parameters: UrsaParameters) -> bool:
    """Return True if the store, as it is now, still allows an item: C2 included."""
    if item[0] == "swap":
        return item[2] in pg.up and item[2] in osds and item[2] != pg.primary
    source, target = item[2], item[3]
    if source not in pg.up or target in pg.up or target not in osds:
        return False
    others = [osds[osd] for osd in pg.up if osd != source and osd in osds]
    domain = _domain(osds[target], parameters.fault_domain)
    return all(_domain(osd, parameters.fault_domain) != domain for osd in others)


def _domain(osd: Osd, kind: str) -> str:
    return osd.rack or osd.node if kind == "rack" else osd.node


class Steering(ParameterPolicy[UrsaParameters]):
    """A loop policy (`controllers.contract.LoopPolicy`) around one method of the planner."""

    needs = Needs(frozenset({OSDS, PGS, ACTIVITY}), frozenset({PG_UPMAP}))

    def __init__(self, name: str, method: str, parameters: UrsaParameters, seed: int) -> None:
        self.name = name
        self._method = method
        super().__init__(parameters)
        self._seed = seed

    def initial(self) -> State:
        """Return the state before any measurement or decision."""
        return {
            "window": empty_window(),
            "queue": [],
            "pinned": [],
            "expected": None,
            "decision": None,
            "check": None,
            "decisions": 0,
        }

    def decide(self, state: State, observation: Observation) -> tuple[State, Sequence[Action]]:
        """Continue the queue, or wait, or measure, or decide anew."""
        after: dict[str, Any] = dict(state) | {"check": None}
        upmapped = {pg.id for pg in observation.pgs if pg.upmap}
        after["pinned"] = [pg for pg in state["pinned"] if pg in upmapped]
        activity = observation.activity
        unclean = set() if activity is None else set(activity.unclean)
        if state["queue"]:
            return self._go_on(after, observation, unclean)
        if unclean or activity is None:
            after["window"] = empty_window()
            return after, []
        after["window"] = window = add_interval(state["window"], observation)
        if window["seconds"] < max(self._p.observe_s, 1e-3):
            return after, []
        return self._anew(after, observation)

    def _go_on(
        self, after: dict[str, Any], observation: Observation, unclean: set[str]
    ) -> tuple[State, Sequence[Action]]:
        step = give_out(after["queue"], observation, unclean, self._p)
        touched = {str(getattr(action, "pg", "")) for action in step.actions}
        after["queue"] = step.left
        after["pinned"] = sorted({*after["pinned"], *touched})
        after["window"] = empty_window()
        if step.dropped:
            # The prediction cannot come true any more.
            after["expected"] = None
        return after, step.actions

    def _anew(
        self, after: dict[str, Any], observation: Observation
    ) -> tuple[State, Sequence[Action]]:
        """Check the last decision against the measurements since, then decide."""
        window = after["window"]
        measured = osd_loads(window, self._p)
        by_pg = pg_loads(window, self._p)
        after["window"] = empty_window()
        problem = build(observation, by_pg, measured, after["pinned"], self._p)
        if problem is None:
            after["expected"] = None
            return after, []
        after["check"] = _check(after["expected"], measured, problem.threshold)
        after["expected"] = None
        most = self._p.max_decisions
        if not problem.hot.any() or 0 < most <= after["decisions"]:
            return after, []
        decision = plan_for(problem, self._method, self._seed)
        after["decision"] = dict(decision.words) | {"t_s": round(observation.t_s, _DIGITS)}
        after["decisions"] += 1
        queue, whole = queue_of(decision, self._p)
        if self._p.dry_run or not queue:
            return after, []
        after["queue"] = queue
        if whole:
            after["expected"] = {str(osd): load for osd, load in decision.expected.items()}
        return self._go_on(after, observation, set())


def _check(
    expected: Mapping[str, float] | None, measured: Mapping[int, float], threshold: float
) -> dict[str, Any] | None:
    """Return predicted and measured load of each OSD, and the largest difference in thresholds."""
    if expected is None or not measured:
        return None
    pairs = {
        osd: [load, round(measured[int(osd)], _DIGITS)]
        for osd, load in expected.items()
        if int(osd) in measured
    }
    worst = max((abs(now - then) for then, now in pairs.values()), default=0.0)
    return {"loads": pairs, "worst": round(worst / threshold, _DIGITS) if threshold > 0 else None}
