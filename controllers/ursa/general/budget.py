"""Moves within a budget: the most hot spots removed for what may be moved in a round.

A hot node's need is the price of the objects that have to leave it, 1 each where moves are counted,
their bytes and a little where bytes are; they are selected by relief per price. The nodes of least
need come first: so the most nodes are relieved that these selections allow. What is left of the
budget goes to the next nodes in part, the objects of most relief per price first. Nothing moves to
a node that is hot at the time, so no move depends on another one, no node becomes hot, and no
object moves twice: every round that can move anything leaves less to do, and rounds come to an end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from controllers.ursa import finish
from controllers.ursa.finish import MoveList
from controllers.ursa.general.finish import move_list, nodes_of, placed_moves
from controllers.ursa.general.select import most_relief_first
from controllers.ursa.general.units import Units, VectorState
from controllers.ursa.instance import Float64, Int32
from controllers.ursa.methods import Request
from controllers.ursa.place.problem import Bools
from controllers.ursa.results import UNPLACED, Budget, Placement, Selection
from controllers.ursa.select import object_id
from schemas.errors import UserError

Placer = Callable[[Units, VectorState, Selection, Request], Placement]

MAX_REPAIRS = 16
OVERHEAD = 0.05
"""What a move costs besides its bytes, as a part of an average object's.

Where bytes are what a node has too many of, all objects relieve as much for their bytes: this asks
for few large ones.
"""


@dataclass(frozen=True, eq=False)
class Rounded:
    """Moves of all rounds, their rounds [M], and what is told of each round."""

    moves: MoveList
    round: Int32
    told: list[dict[str, object]]


@dataclass(eq=False)
class _Purse:
    """What is left in a round; infinite where nothing limits it."""

    moves: float
    size: float
    out: Float64
    into: Float64

    @classmethod
    def of(cls, budget: Budget, nodes: int) -> _Purse:
        def limit(value: float | None) -> float:
            return np.inf if value is None else float(value)

        each = limit(budget.node_size)
        return cls(
            limit(budget.max_moves),
            limit(budget.size),
            np.full(nodes, each),
            np.full(nodes, each),
        )

    def pays(self, node: int, moves: float, size: float) -> bool:
        """Whether objects that leave `node` can be paid for; if so they are."""
        if moves > self.moves or size > self.size or size > self.out[node]:
            return False
        self.moves -= moves
        self.size -= size
        self.out[node] -= size
        return True

    def give_back(self, nodes: Int32, moves: Float64, sizes: Float64) -> None:
        """For objects that found no place."""
        self.moves += float(moves.sum())
        self.size += float(sizes.sum())
        np.add.at(self.out, nodes, sizes)


def checked(budget: Budget, units: Units) -> Budget:
    """`budget`, when it makes sense for these units; UserError otherwise."""
    for name, value in (("max-moves", budget.max_moves), ("budget", budget.size)):
        if value is not None and not 0 <= value < np.inf:
            raise UserError(f"{name} {value}: it must be at least 0.")
    if budget.node_size is not None and not 0 <= budget.node_size < np.inf:
        raise UserError(f"node-budget {budget.node_size}: it must be at least 0.")
    if budget.rounds < 1:
        raise UserError(f"rounds {budget.rounds}: at least 1 is needed.")
    if (budget.size is not None or budget.node_size is not None) and units.size is None:
        raise UserError(
            "a budget in bytes needs an array bytes in the instance; it has none. Add it, or limit "
            "the number of moves with --max-moves."
        )
    return budget


def rounds(
    units: Units, state: VectorState, place: Placer, request: Request, budget: Budget
) -> Rounded:
    """Plan round after round until nothing is hot, nothing can be moved, or rounds are used up.

    Args:
        units, state: after the swaps; left as they are.
        place: a placer of `placers`.
        request: as of every placer.
        budget: of each round.
    """
    now = VectorState(state.primary, state.load.copy())
    parts: list[MoveList] = []
    told: list[dict[str, object]] = []
    none = np.empty(0, np.int32)
    nothing = move_list(units, state, none, none, none)
    stay = np.empty(0, dtype=np.int64)
    for number in range(budget.rounds):
        if not now.hot(units).any() or request.timer.left() <= 0:
            break
        moves = _round(units, now, place, request, budget, stay)
        nodes = nodes_of(units, now)
        moves = finish.in_order(nodes, finish.without_vain(nodes, moves))
        if not len(moves):
            break
        now.load = finish.load_after(now.load, moves)
        stay = np.concatenate([stay, _mates(units, moves)])
        parts.append(moves)
        told.append(
            {
                "round": number,
                "moves": int(units.members[moves.partition].sum()),
                "bytes": None if units.size is None else float(units.size[moves.partition].sum()),
                "cost": float(moves.cost.sum()),
                "hot_after": int(finish.hot_after(nodes_of(units, now), nothing).any(axis=1).sum()),
            }
        )
    count = [len(part) for part in parts]
    whole = nothing
    for part in parts:
        whole = whole + part
    return Rounded(whole, np.repeat(np.arange(len(parts), dtype=np.int32), count), told)


def _round(
    units: Units,
    state: VectorState,
    place: Placer,
    request: Request,
    budget: Budget,
    stay: NDArray[np.int64],
) -> MoveList:
    """The moves of one round; what finds no place is paid back and others go instead."""
    purse = _Purse.of(budget, units.nodes)
    price = _prices(units, budget)
    sizes = np.zeros(len(units.members)) if units.size is None else units.size
    none = np.empty(0, np.int32)
    moves = move_list(units, state, none, none, none)
    hot = state.hot(units)
    rest = state
    for _ in range(MAX_REPAIRS):
        with request.timer.phase("select"):
            selection = most_relief_first(units, rest, stay, price)
            selection = _affordable(units, rest, selection, purse, price, sizes)
        if not len(selection):
            break
        with request.timer.phase("place"):
            placement = _place(units, rest, selection, hot, purse.into, sizes, place, request)
        left = placement.move_to == UNPLACED
        unit = selection.partition[left]
        purse.give_back(selection.node[left], units.members[unit], sizes[unit])
        done = placed_moves(units, selection, placement)
        np.subtract.at(purse.into, done.to, sizes[done.partition])
        moves = moves + done
        rest = VectorState(state.primary, finish.load_after(state.load, moves))
        misfits = object_id(units.placed, unit, selection.replica[left])
        stay = np.concatenate([stay, misfits, _mates(units, done)])
        if not left.any():
            break
    return finish.without_heating(nodes_of(units, state), moves)


def _prices(units: Units, budget: Budget) -> Float64:
    """[U], what an object's move takes of what is scarce: bytes, or moves where only these are."""
    if units.size is None or (budget.size is None and budget.node_size is None):
        return units.members
    mean = float(units.size.mean()) if len(units.size) else 0.0
    return np.asarray(units.size + (OVERHEAD * mean or 1.0))


def _affordable(
    units: Units,
    state: VectorState,
    selection: Selection,
    purse: _Purse,
    price: Float64,
    sizes: Float64,
) -> Selection:
    """Whole nodes, the least need first, then parts of nodes; what is taken is paid for."""
    nodes, index = np.unique(selection.node, return_inverse=True)
    need = np.bincount(index, price[selection.partition], len(nodes))
    order = np.argsort(index, kind="stable")
    first = np.searchsorted(index[order], np.arange(len(nodes) + 1))
    keep = np.zeros(len(selection), dtype=np.bool_)
    waiting = []
    for at in np.lexsort((nodes, need)):
        mine = order[first[at] : first[at + 1]]
        unit = selection.partition[mine]
        if purse.pays(int(nodes[at]), float(units.members[unit].sum()), float(sizes[unit].sum())):
            keep[mine] = True
        else:
            waiting.append(mine)
    excess = np.maximum(state.load - units.capacity, 0.0)
    for mine in waiting:
        node = int(selection.node[mine[0]])
        over = excess[node] > 0
        part = np.minimum(selection.load[mine][:, over], excess[node][over]) / excess[node][over]
        relief = part.sum(axis=1) / price[selection.partition[mine]]
        for i in mine[np.argsort(-relief, kind="stable")]:
            unit = selection.partition[i]
            keep[i] = purse.pays(node, float(units.members[unit]), float(sizes[unit]))
    return Selection(
        selection.partition[keep],
        selection.replica[keep],
        selection.node[keep],
        selection.load[keep],
    )


def _place(
    units: Units,
    state: VectorState,
    selection: Selection,
    hot: Bools,
    into: Float64,
    sizes: Float64,
    place: Placer,
    request: Request,
) -> Placement:
    """Place with no hot node as a target; what may come to a node is one dimension more."""
    capacity = np.where(hot[:, None], -1.0, units.capacity)
    load, weight = state.load, selection.load
    if np.isfinite(into).all():
        capacity = np.column_stack([capacity, np.where(hot, -1.0, into)])
        load = np.column_stack([load, np.zeros(units.nodes)])
        weight = np.column_stack([weight, sizes[selection.partition]])
    return place(
        replace(units, capacity=capacity),
        VectorState(state.primary, load),
        Selection(selection.partition, selection.replica, selection.node, weight),
        request,
    )


def _mates(units: Units, moves: MoveList) -> NDArray[np.int64]:
    """Every object of units of which one has moved: placers see where replicas were."""
    columns = np.arange(units.replicas)
    return object_id(units.placed, moves.partition[:, None], columns[None, :]).ravel()
