"""Where nodes stay hot: every choice of moves, equations (1) to (6), on a few nodes at once.

Highest-load-first can select objects that fit nowhere together although others would, and room may
first have to be made on a node that is not hot by moving something off it. Both happen where nodes
hold few heavy objects. An instance that is small is then solved anew as a whole; of a larger one
the surroundings of each node that stays hot, all that is decided elsewhere staying as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controllers.ursa.distance import Nearest
from controllers.ursa.gather import objects_on
from controllers.ursa.instance import Float64, Instance, Int32
from controllers.ursa.methods import Request
from controllers.ursa.place.joint_bound import joined
from controllers.ursa.place.moves_model import ROUNDING, Ground, Pairs, choose_partly
from controllers.ursa.place.possible import every_pair, held_already, possible
from controllers.ursa.place.problem import Ints
from controllers.ursa.place.relaxation import ranks
from controllers.ursa.state import State, object_load

PAIRS = 4000
"""Moves to choose from in one programme."""
SEARCH_NODES = 200
"""Of branch and bound, in one programme."""
NEAR = 16
"""Nodes around a hot one, itself among them."""
TRIES = 32
"""Hot nodes whose surroundings are looked at."""


def rescued(instance: Instance, state: State, request: Request, found: Pairs) -> Pairs | None:
    """Moves that leave fewer nodes hot than `found` does; None when none are found.

    Args:
        instance: the problem.
        state: after the swaps.
        request: for the time left and the reach of moves.
        found: moves that leave nodes hot.
    """
    if instance.replica_node.size * max(instance.nodes - 1, 0) <= PAIRS:
        return _anew(instance, state, request, found)
    now = _load_after(state.load, found)
    left = np.flatnonzero(now > instance.capacity).astype(np.int32)
    excess = (now - instance.capacity)[left]
    left = left[np.argsort(excess, kind="stable")][:TRIES]
    regions = _regions(instance, now, left)
    objects = _Objects.on(instance, state, np.unique(np.concatenate(regions)))
    best = found
    for node, region in zip(left, regions, strict=True):
        if request.timer.left() <= 0:
            break
        best = _around(instance, state, request, best, int(node), region, objects)
    return None if best is found else best


def _anew(instance: Instance, state: State, request: Request, found: Pairs) -> Pairs | None:
    best = _chosen(instance, state, request, every_pair(instance, state, request))
    return best if _better(instance, state.load, found, best) else None


def _chosen(instance: Instance, now: State, request: Request, pairs: Pairs) -> Pairs:
    """The best choice of `pairs` that was found.

    First of those that bring nothing to hot nodes: moves into them may have to wait for each other
    in a circle, and are looked at only when nodes stay hot without.
    """
    pairs = pairs.where(~held_already(instance, pairs))
    # What has moved already is none of the pairs' partitions: the others are where they were.
    ground = Ground(instance, instance.replica_node, now.load)
    into_hot = now.hot(instance)[pairs.target]
    best = joined([])
    for choice in (pairs.where(~into_hot), pairs):
        chosen = choose_partly(ground, choice, request.timer, nodes=SEARCH_NODES)
        if chosen.taken is None:
            continue
        made = choice.where(chosen.taken)
        if _better(instance, now.load, best, made):
            best = made
        if not len(chosen.given_up):
            break
    return best


def _regions(instance: Instance, load: Float64, hot: Int32) -> list[Int32]:
    """Each of the hot nodes with the nearest that are not hot, ascending."""
    others = np.flatnonzero(load <= instance.capacity).astype(np.int32)
    near, _ = Nearest(instance.distance, others).query(hot, NEAR - 1)
    return [np.unique(np.append(row, node)) for node, row in zip(hot, near, strict=True)]


@dataclass(frozen=True, eq=False)
class _Objects:
    """Objects that have a load: `partition * l + replica`, partition, node and load, all [K]."""

    number: Ints
    partition: Int32
    node: Int32
    load: Float64

    @classmethod
    def on(cls, instance: Instance, state: State, nodes: Int32) -> _Objects:
        """Those on `nodes`, before anything moves."""
        partition, replica, slot = objects_on(instance, nodes)
        load = object_load(instance, state, partition, replica)
        number = partition.astype(np.int64) * instance.replicas + replica
        able = load > 0
        return cls(number[able], partition[able], nodes[slot[able]], load[able])

    def some(self, nodes: Int32, moved: Ints, count: int) -> Ints:
        """Numbers of about `count` objects of each of `nodes`: half of them the heaviest, the
        others of all sizes; none of partitions of which something has `moved`."""
        at = np.flatnonzero(np.isin(self.node, nodes) & ~np.isin(self.partition, moved))
        at = at[np.lexsort((-self.load[at], self.node[at]))]
        rank = ranks(self.node[at])
        half = max(count // 2, 1)
        step = 1 + np.bincount(self.node[at]) // half
        at = at[(rank < half) | ((rank - half) % step[self.node[at]] == 0)]
        return np.asarray(self.number[at])


def _around(
    instance: Instance,
    state: State,
    request: Request,
    found: Pairs,
    node: int,
    region: Int32,
    objects: _Objects,
) -> Pairs:
    """`found` with moves within `region` added that relieve `node`, or `found`."""
    load = _load_after(state.load, found)
    room = (instance.capacity - load)[region]
    if room[region == node] >= 0 or room.sum() < 0:
        return found
    now = State(state.primary, load)
    moved = np.unique(found.object // instance.replicas)
    some = objects.some(region, moved, PAIRS // len(region) ** 2)
    pairs = possible(instance, now, some, region, request.reach)
    more = joined([found, _chosen(instance, now, request, pairs)])
    return more if _better(instance, state.load, found, more) else found


def _better(instance: Instance, load: Float64, found: Pairs, other: Pairs) -> bool:
    """Whether `other` leaves fewer nodes hot than `found`, and makes none hot or hotter."""
    after, before = _load_after(load, other), _load_after(load, found)
    hot = after > instance.capacity
    fewer = hot.sum() < (before > instance.capacity).sum()
    return bool(fewer and not (hot & (after > load * (1 + ROUNDING))).any())


def _load_after(load: Float64, moves: Pairs) -> Float64:
    after = load.copy()
    np.subtract.at(after, moves.source, moves.load)
    np.add.at(after, moves.target, moves.load)
    return after
