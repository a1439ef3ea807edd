"""Plans for several dimensions, nested domains or groups, and plans within a budget.

**Budget.** Moves within a budget remove the most hot spots for what may be moved in a round. A hot
node's need is the price of the objects that have to leave it, 1 each where moves are counted, their
bytes and a little where bytes are; they are selected by relief per price. The nodes of least need
come first: so the most nodes are relieved that these selections allow. What is left of the budget
goes to the next nodes in part, the objects of most relief per price first. Nothing moves to a node
that is hot at the time, so no move depends on another one, no node becomes hot, and no object moves
twice: every round that can move anything leaves less to do, and rounds come to an end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from controllers.research.ursa.place import alp, greedy, ilp, optimum
from controllers.research.ursa.problem import (
    Units,
    VectorState,
    expanded,
    initial_state,
    move_list,
    nodes_of,
    placed_moves,
    units_of,
)
from controllers.research.ursa.select import most_relief_first, swap_phase
from controllers.ursa.instance import (
    UNPLACED,
    Float64,
    Instance,
    Int32,
    MigrationPlan,
    RoundBudget,
    Selection,
    SelectionTargets,
    Timer,
)
from controllers.ursa.methods import MethodRequest
from controllers.ursa.place.problem import Bools
from controllers.ursa.select import (
    MethodPhases,
    MoveList,
    Result,
    gap,
    hot_after,
    in_order,
    load_after,
    object_id,
    select_and_place,
    without_heating,
    without_vain,
)
from schemas.errors import UserError, not_allowed

Placer = Callable[[Units, VectorState, Selection, MethodRequest], SelectionTargets]

BUDGET_REPAIRS = 16
OVERHEAD = 0.05
"""Cost of a move in addition to its bytes, as a part of an average object's.

Where bytes are what a node has too many of, all objects relieve as much for their bytes: this asks
for few large ones.
"""


@dataclass(frozen=True, eq=False)
class Rounded:
    """Moves of all rounds, their rounds [M], and facts about each round."""

    moves: MoveList
    round: Int32
    facts: list[dict[str, object]]


@dataclass(eq=False)
class _Purse:
    """Rest of a round's budget; infinite where nothing limits it."""

    moves: float
    size: float
    out: Float64
    into: Float64

    @classmethod
    def of(cls, budget: RoundBudget, nodes: int) -> _Purse:
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
        """Pay for objects that leave `node`; False if the budget does not suffice."""
        if moves > self.moves or size > self.size or size > self.out[node]:
            return False
        self.moves -= moves
        self.size -= size
        self.out[node] -= size
        return True

    def give_back(self, nodes: Int32, moves: Float64, sizes: Float64) -> None:
        """Give back the budget of objects that found no place."""
        self.moves += float(moves.sum())
        self.size += float(sizes.sum())
        np.add.at(self.out, nodes, sizes)


def checked_budget(budget: RoundBudget, units: Units) -> RoundBudget:
    """Return `budget`; raise UserError if it makes no sense for these units."""
    for name, value in (("max-moves", budget.max_moves), ("budget", budget.size)):
        if value is not None and not 0 <= value < np.inf:
            raise not_allowed(name, value, "at least 0")
    if budget.node_size is not None and not 0 <= budget.node_size < np.inf:
        raise not_allowed("node-budget", budget.node_size, "at least 0")
    if budget.rounds < 1:
        raise not_allowed("rounds", budget.rounds, "at least 1")
    if (budget.size is not None or budget.node_size is not None) and units.size is None:
        raise UserError(
            "a budget in bytes needs an array bytes in the instance; it has none",
            do="add it, or limit the number of moves with --max-moves",
        )
    return budget


def plan_rounds(
    units: Units, state: VectorState, place: Placer, request: MethodRequest, budget: RoundBudget
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
    facts: list[dict[str, object]] = []
    none = np.empty(0, np.int32)
    nothing = move_list(units, state, none, none, none)
    stay = np.empty(0, dtype=np.int64)
    for number in range(budget.rounds):
        if not now.hot(units).any() or request.timer.left() <= 0:
            break
        moves = _round(units, now, place, request, budget, stay)
        nodes = nodes_of(units, now)
        moves = in_order(nodes, without_vain(nodes, moves))
        if not len(moves):
            break
        now.load = load_after(now.load, moves)
        stay = np.concatenate([stay, _mates(units, moves)])
        parts.append(moves)
        facts.append(
            {
                "round": number,
                "moves": int(units.members[moves.partition].sum()),
                "bytes": None if units.size is None else float(units.size[moves.partition].sum()),
                "cost": float(moves.cost.sum()),
                "hot_after": int(hot_after(nodes_of(units, now), nothing).any(axis=1).sum()),
            }
        )
    count = [len(part) for part in parts]
    whole = nothing
    for part in parts:
        whole = whole + part
    return Rounded(whole, np.repeat(np.arange(len(parts), dtype=np.int32), count), facts)


def _round(
    units: Units,
    state: VectorState,
    place: Placer,
    request: MethodRequest,
    budget: RoundBudget,
    stay: NDArray[np.int64],
) -> MoveList:
    """Return the moves of one round; what finds no place is paid back and others go instead."""
    purse = _Purse.of(budget, units.nodes)
    price = _prices(units, budget)
    sizes = np.zeros(len(units.members)) if units.size is None else units.size
    none = np.empty(0, np.int32)
    moves = move_list(units, state, none, none, none)
    hot = state.hot(units)
    rest = state
    for _ in range(BUDGET_REPAIRS):
        with request.timer.phase("select"):
            selection = most_relief_first(units, rest, stay, price)
            selection = _affordable(units, rest, selection, purse, price, sizes)
        if not len(selection):
            break
        with request.timer.phase("place"):
            placement = _place_in_budget(
                units, rest, selection, hot, purse.into, sizes, place, request
            )
        left = placement.move_to == UNPLACED
        unit = selection.partition[left]
        purse.give_back(selection.node[left], units.members[unit], sizes[unit])
        done = placed_moves(units, selection, placement)
        np.subtract.at(purse.into, done.to, sizes[done.partition])
        moves = moves + done
        rest = VectorState(state.primary, load_after(state.load, moves))
        misfits = object_id(units.placed, unit, selection.replica[left])
        stay = np.concatenate([stay, misfits, _mates(units, done)])
        if not left.any():
            break
    return without_heating(nodes_of(units, state), moves)


def _prices(units: Units, budget: RoundBudget) -> Float64:
    """Return [U], the scarce resource of a move: bytes, or moves if only moves are limited."""
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
    """Select whole nodes, the least need first, then parts of nodes; pay for what is taken."""
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


def _place_in_budget(
    units: Units,
    state: VectorState,
    selection: Selection,
    hot: Bools,
    into: Float64,
    sizes: Float64,
    place: Placer,
    request: MethodRequest,
) -> SelectionTargets:
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
    """Return every object of the moved units: placers must see where replicas were."""
    columns = np.arange(units.replicas)
    return object_id(units.placed, moves.partition[:, None], columns[None, :]).ravel()


PLACERS: dict[str, Placer] = {"alp": alp, "ilp": ilp, "greedy": greedy}
METHODS = ("alp", "ilp", "opt", "greedy")


def plan(
    instance: Instance,
    method: str,
    *,
    timer: Timer,
    seed: int = 0,
    max_move_cost: float | None = None,
    success: float = 1.0,
    budget: RoundBudget | None = None,
) -> MigrationPlan:
    """Decide which roles change and which objects move so that no node stays hot.

    Parameters and result as of `controllers.ursa.plan.plan`, which checks them; with a budget, what
    is planned for is as many rounds of it.

    Raises:
        UserError: a method that is for the paper's model alone; a budget that makes no sense.
    """
    methods = METHODS if budget is None else tuple(name for name in METHODS if name != "opt")
    if method not in methods:
        raise UserError(
            f"method {method} is for loads of one dimension, one level of fault domains, no "
            f"groups and no budget; here take {', '.join(methods)}"
        )
    request = MethodRequest(timer=timer, seed=seed, max_move_cost=max_move_cost)
    with timer.phase("aggregate"):
        units = units_of(instance)
        state = initial_state(units)
        before = state.over(units)
    with timer.phase("swap"):
        swaps = swap_phase(units, state, success=success, seed=seed)
        swapped = state.over(units)
    bound: float | None = 0.0
    notes: dict[str, object] = {}
    none = np.empty(0, np.int32)
    moves = move_list(units, state, none, none, none)
    rounds: Rounded | None = None
    if budget is not None:
        rounds = plan_rounds(units, state, PLACERS[method], request, checked_budget(budget, units))
        moves, bound = rounds.moves, None if swapped.any() else 0.0
    elif swapped.any():
        moves, bound, notes = _moves(units, state, method, request)
    with timer.phase("finish"):
        nodes = nodes_of(units, state)
        if rounds is None:
            moves = without_vain(nodes, moves)
            moves = in_order(nodes, moves)
        left = hot_after(nodes, moves)
        still_hot = np.flatnonzero(left.any(axis=1)).astype(np.int32)
        made = expanded(
            units,
            MigrationPlan(
                swap_partition=swaps.partition,
                swap_replica=swaps.replica.astype(np.int32),
                move_partition=moves.partition,
                move_replica=moves.replica.astype(np.int32),
                move_to=moves.to,
                still_hot=still_hot,
                move_round=None if rounds is None else rounds.round,
                budget=budget,
            ),
        )
    cost = float(moves.cost.sum())
    names = instance.dimension or tuple(f"dimension {d}" for d in range(units.dimensions))
    made.summary.update(
        {
            "method": method,
            "seed": seed,
            "hot_before": int(before.any(axis=1).sum()),
            "hot_after_swaps": int(swapped.any(axis=1).sum()),
            "hot_after": len(still_hot),
            "swaps": len(made.swap_partition),
            "moves": len(made.move_partition),
            "cost": cost,
            "lower_bound": bound,
            "gap": gap(cost, bound, len(still_hot)),
            "still_hot": still_hot.tolist(),
            "decision_seconds": timer.seconds | {"total": timer.total()},
            "notes": notes,
        }
    )
    if rounds is not None:
        made.summary["rounds"] = rounds.facts
    if units.dimensions > 1:
        made.summary["hot_by_dimension"] = {
            name: {
                "before": int(before[:, d].sum()),
                "after_swaps": int(swapped[:, d].sum()),
                "after": int(left[:, d].sum()),
            }
            for d, name in enumerate(names)
        }
    if instance.group is not None:
        made.summary["unit_swaps"], made.summary["unit_moves"] = len(swaps), len(moves)
    return made


def _moves(units: Units, state: VectorState, method: str, request: MethodRequest) -> Result:
    if method == "opt":
        with request.timer.phase("place"):
            found = optimum(units, state, request)
        hot = hot_after(nodes_of(units, state), found.moves).any()
        bound = float(found.moves.cost.sum()) if found.proven and not hot else None
        return found.moves, bound, {"optimal": found.proven}
    return _place(units, state, PLACERS[method], request)


def _place(units: Units, state: VectorState, place: Placer, request: MethodRequest) -> Result:
    """Select and place, and repair what fits nowhere (`repair.select_and_place`)."""

    def at(load: Float64) -> VectorState:
        return VectorState(state.primary, load)

    phases = MethodPhases(
        select=lambda load, stay: most_relief_first(units, at(load), stay),
        place=lambda load, selection: place(units, at(load), selection, request),
        listed=lambda selection, placed: placed_moves(units, selection, placed),
        replicas=units.replicas,
    )
    return select_and_place(nodes_of(units, state), phases, request.timer)
