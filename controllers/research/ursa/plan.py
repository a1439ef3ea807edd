"""Plans for several dimensions, nested domains or groups, and plans within a budget.

**Budget.** A hot node's need is the price of the objects that have to leave it: 1 each where moves
are counted, their bytes and a little where bytes are. Objects are selected by relief per price, and
the nodes of least need come first: so the most nodes are relieved. What is left of the budget goes
to the next nodes in part. Nothing moves to a node that is hot at the time, so no move depends on
another one, no node becomes hot, and no object moves twice: rounds come to an end.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controllers.research.ursa.optimum import optimum
from controllers.research.ursa.units import (
    Units,
    expanded,
    most_relief_first,
    swap_phase,
    units_of,
)
from controllers.ursa.instance import (
    UNPLACED,
    Float64,
    Instance,
    Int32,
    MigrationPlan,
    Moves,
    RoundBudget,
    Selection,
    SelectionTargets,
)
from controllers.ursa.methods import Method, MethodRequest
from controllers.ursa.place.problem import Bools, assignment_problem
from controllers.ursa.plan import Placer, PlanModel, objects_of
from controllers.ursa.select import (
    Result,
    hot_after,
    in_order,
    load_after,
    object_id,
    placed_moves,
    without_heating,
    without_vain,
)
from controllers.ursa.state import PlanState, initial_state
from schemas.errors import UserError, not_allowed

BUDGET_REPAIRS = 16
OVERHEAD = 0.05
"""Cost of a move in addition to its bytes, as a part of an average object's.

Where bytes are what a node has too many of, all objects relieve as much for their bytes: this asks
for few large ones.
"""


@dataclass(frozen=True, eq=False)
class Rounded:
    """Moves of all rounds, their rounds [M], and facts about each round."""

    moves: Moves
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


def check_budget(budget: RoundBudget, units: Units) -> None:
    """Raise UserError if the budget makes no sense for these units."""
    limits = {
        "max-moves": budget.max_moves,
        "budget": budget.size,
        "node-budget": budget.node_size,
    }
    for name, value in limits.items():
        if value is not None and not 0 <= value < np.inf:
            raise not_allowed(name, value, "at least 0")
    if budget.rounds < 1:
        raise not_allowed("rounds", budget.rounds, "at least 1")
    if (budget.size is not None or budget.node_size is not None) and units.size is None:
        raise UserError(
            "a budget in bytes needs an array bytes in the instance; it has none",
            do="add it, or limit the number of moves with --max-moves",
        )


def plan_rounds(
    units: Units, state: PlanState, place: Placer, request: MethodRequest, budget: RoundBudget
) -> Rounded:
    """Plan round after round until nothing is hot, nothing can be moved, or rounds are used up.

    `state`, after the swaps, stays as it is; `place` is a placer, and `budget` is each round's.
    """
    now, nothing = PlanState(state.primary, state.load.copy()), Moves.none(state.load)
    parts: list[Moves] = []
    facts: list[dict[str, object]] = []
    stay = np.empty(0, dtype=np.int64)
    for number in range(budget.rounds):
        if not now.hot(units).any() or request.timer.left() <= 0:
            break
        moves = _round(units, now, place, request, budget, stay)
        moves = in_order(units, now.load, without_vain(units, now.load, moves))
        if not len(moves):
            break
        now.load = load_after(now.load, moves)
        stay = np.concatenate([stay, _mates(units, moves)])
        parts.append(moves)
        unit = moves.object // units.replicas
        facts.append(
            {
                "round": number,
                "moves": int(units.members[unit].sum()),
                "bytes": None if units.size is None else float(units.size[unit].sum()),
                "cost": float(moves.cost.sum()),
                "hot_after": int(hot_after(units, now.load, nothing).any(axis=1).sum()),
            }
        )
    count = [len(part) for part in parts]
    return Rounded(
        sum(parts, nothing), np.repeat(np.arange(len(parts), dtype=np.int32), count), facts
    )


def _round(
    units: Units,
    state: PlanState,
    place: Placer,
    request: MethodRequest,
    budget: RoundBudget,
    stay: NDArray[np.int64],
) -> Moves:
    """Return the moves of one round; what finds no place is paid back and others go instead."""
    purse = _Purse.of(budget, units.nodes)
    price = _prices(units, budget)
    nothing = np.zeros(len(units.members))
    sizes = nothing if units.size is None else units.size.astype(np.float64)
    moves = Moves.none(state.load)
    hot = np.asarray(state.hot(units).any(axis=1))
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
        np.subtract.at(purse.into, done.to, sizes[done.object // units.replicas])
        moves = moves + done
        rest = PlanState(state.primary, load_after(state.load, moves))
        misfits = object_id(units, unit, selection.replica[left])
        stay = np.concatenate([stay, misfits, _mates(units, done)])
        if not left.any():
            break
    return without_heating(units, state.load, moves)


def _prices(units: Units, budget: RoundBudget) -> Float64:
    """Return [U], the scarce resource of a move: bytes, or moves if only moves are limited."""
    if units.size is None or (budget.size is None and budget.node_size is None):
        return units.members
    mean = float(units.size.mean()) if len(units.size) else 0.0
    return np.asarray(units.size + (OVERHEAD * mean or 1.0))


def _affordable(
    units: Units,
    state: PlanState,
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
    state: PlanState,
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
    wider, now = replace(units, capacity=capacity), PlanState(state.primary, load)
    selection = replace(selection, load=weight)
    problem = assignment_problem(wider, now, selection, request.max_move_cost)
    return place(problem, request.timer)


def _mates(units: Units, moves: Moves) -> NDArray[np.int64]:
    """Return every object of the moved units: placers must see where replicas were."""
    return objects_of(units, moves.object // units.replicas).ravel()


METHODS = ("alp-fast", "ilp", "opt", "nearest")


def refuse(method: str, budget: RoundBudget | None) -> None:
    """Raise UserError for a method that is for the paper's model alone."""
    methods = METHODS if budget is None else tuple(name for name in METHODS if name != "opt")
    if method not in methods:
        raise UserError(
            f"method {method} is for loads of one dimension, one level of fault domains, no "
            f"groups and no budget; here take {', '.join(methods)}"
        )


@dataclass(eq=False)
class UnitsModel(PlanModel):
    """The steps of a plan for units, with a budget round by round; see `PlanModel`."""

    units: Units = field(kw_only=True)
    budget: RoundBudget | None = None
    rounds: Rounded | None = None
    counts: dict[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, instance: Instance, budget: RoundBudget | None) -> UnitsModel:
        """Return the model before the swaps; raise UserError for a senseless budget."""
        units = units_of(instance)
        if budget is not None:
            check_budget(budget, units)
        state = initial_state(units)
        return cls(units, state, swaps=swap_phase, units=units, budget=budget)

    def select(self, load: Float64, stay: NDArray[np.int64] | None) -> Selection:
        """Return the objects that leave hot nodes at these loads, without those that stay."""
        return most_relief_first(self.units, PlanState(self.state.primary, load), stay)

    def decide(self, method: Method, function: Any, request: MethodRequest) -> Result:
        """Return the moves of a method, where swaps left nodes hot."""
        if method.function == "ilp":  # what fits nowhere is replaced, whatever node it is of
            function = partial(function, give_up=False)
        if self.budget is not None:
            made = plan_rounds(self.units, self.state, function, request, self.budget)
            self.rounds = made
            return made.moves, None, {}
        if method.kind == "placer":
            return self.select_and_place(function, request)
        with request.timer.phase("place"):
            return optimum(self.units, self.state, request)

    def finished(self, moves: Moves, prune: bool) -> Moves:
        """Return the moves in an order of application; those of rounds are in order."""
        return moves if self.budget is not None else super().finished(moves, prune)

    def bound_of_any_plan(self, method: Method, request: MethodRequest) -> float | None:
        """Return None: such a bound is for the paper's model alone."""
        del method, request
        return None

    def expanded(self, made: MigrationPlan) -> MigrationPlan:
        """Return the plan for single partitions."""
        if self.budget is not None:
            round_ = np.empty(0, np.int32) if self.rounds is None else self.rounds.round
            made = replace(made, move_round=round_, budget=self.budget)
        if self.units.member is not None:
            self.counts = {"unit_swaps": len(made.swap_partition), "unit_moves": len(made.move_to)}
        return expanded(self.units, made)

    def facts(self, made: MigrationPlan, over: tuple[Bools, Bools, Bools]) -> dict[str, object]:
        """Return further facts of the summary."""
        found: dict[str, object] = {}
        if self.budget is not None:
            found["rounds"] = [] if self.rounds is None else self.rounds.facts
        dimensions = self.units.dimensions
        if dimensions > 1:
            names = self.units.dimension or [f"dimension {d}" for d in range(dimensions)]
            found["hot_by_dimension"] = {
                name: {
                    when: int(hot[:, d].sum())
                    for when, hot in zip(("before", "after_swaps", "after"), over, strict=True)
                }
                for d, name in enumerate(names)
            }
        return found | self.counts
