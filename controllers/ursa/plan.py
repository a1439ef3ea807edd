"""From an instance to a plan: loads, swaps, selection, placement, and its summary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.instance import (
    UNPLACED,
    Float64,
    Instance,
    MigrationPlan,
    Moves,
    RoundBudget,
    Selection,
    SelectionTargets,
    Timer,
)
from controllers.ursa.methods import BEYOND, METHODS, Method, MethodRequest
from controllers.ursa.place.problem import PlacementProblem, assignment_problem
from controllers.ursa.select import (
    Bools,
    Ids,
    Result,
    highest_load_first,
    hot_after,
    in_order,
    load_after,
    placed_moves,
    without_heating,
    without_vain,
)
from controllers.ursa.state import Gather, PlanState, initial_state, objects_on
from controllers.ursa.swap import Swaps, swap_phase
from schemas.errors import not_allowed

Selector = Callable[[Instance, PlanState], Selection]
Placer = Callable[[PlacementProblem, Timer], SelectionTargets]
"""See `methods`."""

MAX_REPAIRS = 16


def checked(
    method: str | Method, *, seed: int, max_move_cost: float | None, success: float
) -> Method:
    """Return the method; raise UserError for an unknown method or a parameter out of range."""
    if max_move_cost is not None and not 0 <= max_move_cost < np.inf:
        raise not_allowed("max-move-cost", max_move_cost, "a number of at least 0")
    if not 0 <= success <= 1:
        raise not_allowed("swap success", success, "a probability, 0 to 1")
    if seed < 0:
        raise not_allowed("seed", seed, "at least 0")
    return method if isinstance(method, Method) else _method(method)


@dataclass(eq=False)
class PlanModel:
    """The steps of a plan in the paper's model; `methods.BEYOND` has those beyond it.

    `selector` chooses the objects that leave, for methods that do not; None: `highest_load_first`,
    with `trim`. `gather` finds the objects of hot nodes and `swaps` is the swap phase: `Rounds` has
    quicker ones of its own.
    """

    instance: Instance
    state: PlanState
    selector: Selector | None = None
    gather: Gather = objects_on
    swaps: Callable[..., Swaps] = swap_phase
    trim: bool = True

    def over(self) -> Bools:
        """Return [N, D], where nodes are above their thresholds now."""
        return self.state.hot(self.instance).reshape(self.instance.nodes, -1)

    def swap(self, success: float, seed: int) -> Swaps:
        """Swap roles until no swap is applicable."""
        return self.swaps(self.instance, self.state, success=success, seed=seed)

    def select(self, load: Float64, stay: Ids | None) -> Selection:
        """Return the objects that leave hot nodes at these loads, without those that stay."""
        if stay is None and self.selector is not None:
            return self.selector(self.instance, self.state)
        now = PlanState(self.state.primary, load)
        return highest_load_first(self.instance, now, stay, self.gather, trim=self.trim)

    def select_and_place(self, place: Placer, request: MethodRequest) -> Result:
        """Place a selection; while some object of it fits nowhere, try another selection."""
        instance, load, timer = self.instance, self.state.load, request.timer
        rest, moves = load, Moves.none(load)
        stay: Ids | None = None
        misfits: list[Ids] = []
        repairs = -1
        while repairs < MAX_REPAIRS:
            with timer.phase("select"):
                selection = self.select(rest, stay)
            if misfits and not len(selection):
                break
            repairs += 1
            with timer.phase("place"):
                now = PlanState(self.state.primary, rest)
                reach = request.max_move_cost
                placement = place(assignment_problem(instance, now, selection, reach), timer)
            moves = moves + placed_moves(instance, selection, placement)
            left = placement.move_to == UNPLACED
            if not misfits and not left.any():
                return moves, placement.lower_bound, dict(placement.notes)
            objects = objects_of(instance, selection.partition)
            misfits.append(objects[left, selection.replica[left]])
            moves = without_heating(instance, load, moves)
            rest = load_after(load, moves)
            # Every object of partitions with a moved one: placers must see where replicas were.
            moved = objects_of(instance, moves.object // instance.replicas).ravel()
            stay = np.sort(np.concatenate([*misfits, moved]))
        count = int(sum(len(ids) for ids in misfits))
        return moves, None, {**placement.notes, "fits_nowhere": count, "repairs": repairs}

    def decide(self, method: Method, function: Any, request: MethodRequest) -> Result:
        """Return the moves of a method, where swaps left nodes hot."""
        instance, state, timer = self.instance, self.state, request.timer
        if method.kind == "placer":
            moves, bound, notes = self.select_and_place(function, request)
        else:
            with timer.phase("place"):
                moves, bound, notes = function(instance, state, request)
        proven = method.kind == "mover" and notes.get("optimal") is True
        if method.rescue and not proven and hot_after(instance, state.load, moves).any():
            from controllers.ursa.place.exact import rescued

            with timer.phase("place"):
                better = rescued(instance, state, request, moves)
            bound = None
            if better is not None:
                moves, notes["rescued"] = better, True
        return moves, bound, notes

    def finished(self, moves: Moves, prune: bool) -> Moves:
        """Return the moves in an order of application, with `prune` only the needed ones."""
        instance, load = self.instance, self.state.load
        return in_order(instance, load, without_vain(instance, load, moves) if prune else moves)

    def bound_of_any_plan(self, method: Method, request: MethodRequest) -> float | None:
        """Return a bound for methods that prove none: no part of the decision."""
        # The bound counts from the replicas themselves.
        if method.kind != "mover" or self.instance.origin is not None:
            return None
        from controllers.ursa.place.bounds import any_plan_bound

        return any_plan_bound(self.instance, self.state, request)

    def expanded(self, made: MigrationPlan) -> MigrationPlan:
        """Return the plan for single partitions."""
        return made

    def facts(self, made: MigrationPlan, over: tuple[Bools, Bools, Bools]) -> dict[str, object]:
        """Return further facts of the summary; `over` is before, after swaps and after moves."""
        del made, over
        return {}


def plan(
    instance: Instance,
    method: str | Method,
    *,
    timer: Timer,
    seed: int = 0,
    max_move_cost: float | None = None,
    success: float = 1.0,
    select: Selector | None = None,
    state: PlanState | None = None,
    gather: Gather = objects_on,
    swap: Callable[..., Swaps] = swap_phase,
    budget: RoundBudget | None = None,
) -> MigrationPlan:
    """Decide which roles change and which objects move so that no node stays hot.

    Args:
        instance: checked (see `io`).
        method: a name of `methods.METHODS`, or one that is not listed there.
        timer: takes the times of the phases, and holds the time limit.
        seed: the same seed gives the same plan unless the time limit ends the work.
        max_move_cost: no single move costs more.
        success: part of the secondaries that can become primary (0.9 in the paper's evaluation).
        select: the objects that leave, for methods that do not choose them (figure 8 compares two
            ways); by default highest-load-first, which also replaces what fits nowhere.
        state: loads and primaries where these are known already; it is changed.
        gather, swap: see `PlanModel`.
        budget: limits of moves; with one, as many rounds as it allows are planned for.

    Raises:
        UserError: an unknown method, one that is for the paper's model alone, or a parameter out of
            range.
    """
    chosen = checked(method, seed=seed, max_move_cost=max_move_cost, success=success)
    request = MethodRequest(timer=timer, seed=seed, max_move_cost=max_move_cost)
    name = method if isinstance(method, str) else method.summary
    beyond = None if budget is None and instance.plain else import_module(BEYOND)
    if beyond is not None:
        beyond.refuse(method if isinstance(method, str) else method.function, budget)
    function = chosen.load()
    model: PlanModel
    with timer.phase("aggregate"):
        if beyond is not None:
            model = beyond.UnitsModel.of(instance, budget)
        else:
            known = initial_state(instance) if state is None else state
            model = PlanModel(instance, known, select, gather, swap, chosen.trim)
        before = model.over()
    with timer.phase("swap"):
        swaps = model.swap(success, seed)
        swapped = model.over()
    found: Result = Moves.none(model.state.load), 0.0, {}
    if swapped.any():
        found = model.decide(chosen, function, request)
    moves, bound, notes = found
    with timer.phase("finish"):
        moves = model.finished(moves, chosen.prune)
        left = hot_after(model.instance, model.state.load, moves).reshape(before.shape)
        still_hot = np.flatnonzero(left.any(axis=1)).astype(np.int32)
        partition, replica = np.divmod(moves.object, instance.replicas)
        made = model.expanded(
            MigrationPlan(
                swap_partition=swaps.partition,
                swap_replica=swaps.replica.astype(np.int32),
                move_partition=partition.astype(np.int32),
                move_replica=replica.astype(np.int32),
                move_to=moves.to,
                still_hot=still_hot,
            )
        )
    cost = float(moves.cost.sum())
    seconds = timer.seconds | {"total": timer.total()}
    if bound is None and not len(still_hot):
        bound = model.bound_of_any_plan(chosen, request)
    made.summary.update(
        {
            "method": name,
            "seed": seed,
            "hot_before": int(before.any(axis=1).sum()),
            "hot_after_swaps": int(swapped.any(axis=1).sum()),
            "hot_after": len(still_hot),
            "swaps": len(made.swap_partition),
            "moves": len(made.move_partition),
            "cost": cost,
            "lower_bound": bound,
            "gap": _gap(cost, bound, len(still_hot)),
            "still_hot": still_hot.tolist(),
            "decision_seconds": seconds,
            "notes": notes,
            **model.facts(made, (before, swapped, left)),
        }
    )
    return made


def objects_of(instance: Instance, partition: NDArray[np.integer]) -> Ids:
    """Return [M, l], the numbers of all objects of these partitions."""
    columns = np.arange(instance.replicas)
    return np.asarray(partition.astype(np.int64)[:, None] * instance.replicas + columns)


def _gap(cost: float, bound: float | None, still_hot: int) -> float | None:
    """Return the part of the bound by which the cost is above it; None if it has no meaning."""
    if bound is None or still_hot:
        return None
    if bound <= 0:
        return 0.0 if cost == 0 else None
    return cost / bound - 1


def _method(name: str) -> Method:
    try:
        return METHODS[name]
    except KeyError:
        raise not_allowed("method", name, ", ".join(METHODS)) from None
