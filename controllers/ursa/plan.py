"""From an instance to a plan: loads, swaps, selection, placement, and its summary."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.instance import (
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
from controllers.ursa.select import (
    MethodPhases,
    MoveList,
    NodeLoads,
    Result,
    gap,
    highest_load_first,
    hot_after,
    in_order,
    move_list,
    placed_moves,
    select_and_place,
    without_vain,
)
from controllers.ursa.state import Gather, PlanState, initial_state, objects_on
from controllers.ursa.swap import Swaps, swap_phase
from schemas.errors import not_allowed

Placer = Callable[[Instance, PlanState, Selection, MethodRequest], SelectionTargets]
Selector = Callable[[Instance, PlanState], Selection]


def checked(
    method: str | Method, *, seed: int, max_move_cost: float | None, success: float
) -> Method:
    """Return the method, once it and the parameters of `plan` are known to be good.

    Raises:
        UserError: an unknown method or a parameter out of range.
    """
    if max_move_cost is not None and not 0 <= max_move_cost < np.inf:
        raise not_allowed("max-move-cost", max_move_cost, "a number of at least 0")
    if not 0 <= success <= 1:
        raise not_allowed("swap success", success, "a probability, 0 to 1")
    if seed < 0:
        raise not_allowed("seed", seed, "at least 0")
    return method if isinstance(method, Method) else _method(method)


def plan(
    instance: Instance,
    method: str | Method,
    *,
    timer: Timer,
    seed: int = 0,
    max_move_cost: float | None = None,
    success: float = 1.0,
    select: Selector = highest_load_first,
    state: PlanState | None = None,
    gather: Gather = objects_on,
    swap: Callable[..., Swaps] = swap_phase,
    budget: RoundBudget | None = None,
) -> MigrationPlan:
    """Decide which roles change and which objects move so that no node stays hot.

    `methods.BEYOND` plans for what the paper's model does not cover (`Instance.plain`, a budget).

    Args:
        instance: checked (see `io`).
        method: a name of `methods.METHODS`, or one that is not listed there.
        timer: takes the times of the phases, and holds the time limit.
        seed: of everything that is drawn by chance; the same seed gives the same plan unless the
            time limit ends the work.
        max_move_cost: no single move costs more.
        success: part of the secondaries that can become primary (0.9 in the paper's evaluation).
        select: the objects that leave, for methods that do not choose them (figure 8 compares two
            ways). What fits nowhere is replaced highest-load-first whatever it is.
        state: loads and primaries where these are known already; it is changed.
        gather: finds the objects of hot nodes, to replace objects that fit nowhere.
        swap: the swap phase, called as `swap.swap_phase` is.
        budget: limits of moves; see `methods.BEYOND`.

    Returns:
        The plan with its summary; `run.plan_file` adds `peak_rss_mib`.

    Raises:
        UserError: an unknown method or a parameter out of range.
    """
    chosen = checked(method, seed=seed, max_move_cost=max_move_cost, success=success)
    if budget is not None or not instance.plain:
        made: MigrationPlan = import_module(BEYOND).plan(
            instance,
            method if isinstance(method, str) else method.function,
            timer=timer,
            seed=seed,
            max_move_cost=max_move_cost,
            success=success,
            budget=budget,
        )
        return made
    decide = chosen.load()
    request = MethodRequest(timer=timer, seed=seed, max_move_cost=max_move_cost)
    with timer.phase("aggregate"):
        state = initial_state(instance) if state is None else state
        hot_before = int(state.hot(instance).sum())
    with timer.phase("swap"):
        swaps = swap(instance, state, success=success, seed=seed)
        hot_after_swaps = int(state.hot(instance).sum())
    bound: float | None = 0.0
    notes: dict[str, object] = {}
    if hot_after_swaps == 0:
        moves = _no_moves()
    elif chosen.kind == "placer":
        moves, bound, notes = _place(instance, state, select, decide, request, gather)
    else:
        with timer.phase("place"):
            found: Moves = decide(instance, state, request)
        moves = move_list(instance, state, found)
        bound, notes = found.lower_bound, found.notes
    proven = chosen.kind == "mover" and notes.get("optimal") is True
    if chosen.rescue and not proven and hot_after(NodeLoads.of(instance, state), moves).any():
        with timer.phase("place"):
            moves, bound = _rescue(instance, state, request, moves, notes), None
    with timer.phase("finish"):
        nodes = NodeLoads.of(instance, state)
        if chosen.prune:
            moves = without_vain(nodes, moves)
        moves = in_order(nodes, moves)
        still_hot = np.flatnonzero(hot_after(nodes, moves)).astype(np.int32)
    cost = float(moves.cost.sum())
    seconds = timer.seconds | {"total": timer.total()}
    # (The bound of any plan counts from the replicas themselves.)
    any_bound = chosen.kind == "mover" and instance.origin is None
    if bound is None and any_bound and not len(still_hot):
        # No part of the decision: the reference for baselines that prove nothing.
        from controllers.ursa.place.bounds import any_plan_bound

        bound = any_plan_bound(instance, state, request)
    summary: dict[str, object] = {
        "method": method if isinstance(method, str) else method.summary,
        "seed": seed,
        "hot_before": hot_before,
        "hot_after_swaps": hot_after_swaps,
        "hot_after": len(still_hot),
        "swaps": len(swaps),
        "moves": len(moves),
        "cost": cost,
        "lower_bound": bound,
        "gap": gap(cost, bound, len(still_hot)),
        "still_hot": still_hot.tolist(),
        "decision_seconds": seconds,
        "notes": notes,
    }
    return MigrationPlan(
        swap_partition=swaps.partition,
        swap_replica=swaps.replica.astype(np.int32),
        move_partition=moves.partition,
        move_replica=moves.replica.astype(np.int32),
        move_to=moves.to,
        still_hot=still_hot,
        summary=summary,
    )


def _method(name: str) -> Method:
    try:
        return METHODS[name]
    except KeyError:
        raise not_allowed("method", name, ", ".join(METHODS)) from None


def _place(
    instance: Instance,
    state: PlanState,
    select: Selector,
    place: Placer,
    request: MethodRequest,
    gather: Gather,
) -> Result:
    """Select and place, and repair what fits nowhere (`repair.select_and_place`)."""

    def selected(load: Float64, stay: NDArray[np.int64] | None) -> Selection:
        if stay is None:
            return select(instance, state)
        return highest_load_first(instance, PlanState(state.primary, load), stay, gather)

    phases = MethodPhases(
        select=selected,
        place=lambda load, chosen: place(instance, PlanState(state.primary, load), chosen, request),
        listed=lambda chosen, placed: placed_moves(instance, chosen, placed),
        replicas=instance.replicas,
    )
    return select_and_place(NodeLoads.of(instance, state), phases, request.timer)


def _rescue(
    instance: Instance,
    state: PlanState,
    request: MethodRequest,
    moves: MoveList,
    notes: dict[str, object],
) -> MoveList:
    """Return moves that leave fewer nodes hot than `moves` where there are any."""
    from controllers.ursa.place.exact import Pairs, rescued

    number = moves.partition.astype(np.int64) * instance.replicas + moves.replica
    begin = Pairs(number, moves.source, moves.to, moves.load, moves.cost)
    better = rescued(instance, state, request, begin)
    if better is None:
        return moves
    notes["rescued"] = True
    partition, replica = np.divmod(better.object, instance.replicas)
    return MoveList(
        partition=partition.astype(np.int32),
        replica=replica.astype(np.int8),
        source=better.source,
        to=better.target,
        load=better.load,
        cost=better.cost,
    )


def _no_moves() -> MoveList:
    return MoveList(
        partition=np.empty(0, np.int32),
        replica=np.empty(0, np.int8),
        source=np.empty(0, np.int32),
        to=np.empty(0, np.int32),
        load=np.empty(0),
        cost=np.empty(0),
    )
