"""From an instance of several dimensions, nested domains or groups to a plan; as `plan.plan`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.finish import MoveList
from controllers.ursa.general import finish
from controllers.ursa.general.budget import Rounded, checked
from controllers.ursa.general.budget import rounds as in_rounds
from controllers.ursa.general.select import most_relief_first
from controllers.ursa.general.swap import swap_phase
from controllers.ursa.general.units import Units, VectorState, expanded, initial_state, units_of
from controllers.ursa.instance import Instance
from controllers.ursa.methods import Request
from controllers.ursa.results import UNPLACED, Budget, Placement, Plan, Selection, Timer
from controllers.ursa.select import object_id
from schemas.errors import UserError

Placer = Callable[[Units, VectorState, Selection, Request], Placement]
Result = tuple[MoveList, float | None, dict[str, object]]

MAX_REPAIRS = 16
METHODS = ("alp", "ilp", "opt", "greedy")


def plan(
    instance: Instance,
    method: str,
    *,
    timer: Timer,
    seed: int = 0,
    max_move_cost: float | None = None,
    success: float = 1.0,
    budget: Budget | None = None,
) -> Plan:
    """Decide which roles change and which objects move so that no node stays hot.

    Parameters and result as of `controllers.ursa.plan.plan`, which checks them; with a budget, what
    is planned for is as many rounds of it.

    Raises:
        UserError: a method that is for the paper's model alone; a budget that makes no sense.
    """
    methods = METHODS if budget is None else tuple(name for name in METHODS if name != "opt")
    if method not in methods:
        raise UserError(
            f"method {method} is for loads of one dimension, one level of fault domains, no groups "
            f"and no budget; here take {', '.join(methods)}."
        )
    request = Request(timer=timer, seed=seed, max_move_cost=max_move_cost)
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
    moves = finish.move_list(units, state, none, none, none)
    rounds: Rounded | None = None
    if budget is not None:
        from controllers.ursa.general import placers

        rounds = in_rounds(units, state, getattr(placers, method), request, checked(budget, units))
        moves, bound = rounds.moves, None if swapped.any() else 0.0
    elif swapped.any():
        moves, bound, notes = _moves(units, state, method, request)
    with timer.phase("finish"):
        if rounds is None:
            moves = finish.without_vain(units, state, moves)
            moves = finish.in_order(units, state, moves)
        left = finish.hot_after(units, state, moves)
        still_hot = np.flatnonzero(left.any(axis=1)).astype(np.int32)
        made = expanded(
            units,
            Plan(
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
            "gap": None if bound is None or len(still_hot) else _gap(cost, bound),
            "still_hot": still_hot.tolist(),
            "decision_seconds": timer.seconds | {"total": timer.total()},
            "notes": notes,
        }
    )
    if rounds is not None:
        made.summary["rounds"] = rounds.told
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


def _moves(units: Units, state: VectorState, method: str, request: Request) -> Result:
    if method == "opt":
        from controllers.ursa.general.exact import optimum

        with request.timer.phase("place"):
            found = optimum(units, state, request)
        hot = finish.hot_after(units, state, found.moves).any()
        bound = float(found.moves.cost.sum()) if found.proven and not hot else None
        return found.moves, bound, {"optimal": found.proven}
    from controllers.ursa.general import placers

    return _place(units, state, getattr(placers, method), request)


def _place(units: Units, state: VectorState, place: Placer, request: Request) -> Result:
    """Select and place; what fits nowhere stays, and other objects of its node go instead."""
    timer = request.timer
    with timer.phase("select"):
        selection = most_relief_first(units, state)
    with timer.phase("place"):
        placement = place(units, state, selection, request)
    moves = finish.placed_moves(units, selection, placement)
    if not (placement.move_to == UNPLACED).any():
        return moves, placement.lower_bound, dict(placement.notes)
    unplaced = [_unplaced(units, selection, placement)]
    repairs = 0
    while repairs < MAX_REPAIRS:
        moves = finish.without_heating(units, state, moves)
        rest = VectorState(state.primary, finish.load_after(units, state, moves))
        with timer.phase("select"):
            columns = np.arange(units.replicas)
            moved = object_id(units.placed, moves.partition[:, None], columns[None, :]).ravel()
            selection = most_relief_first(units, rest, np.concatenate([*unplaced, moved]))
        if len(selection) == 0:
            break
        with timer.phase("place"):
            placement = place(units, rest, selection, request)
        repairs += 1
        moves = moves + finish.placed_moves(units, selection, placement)
        unplaced.append(_unplaced(units, selection, placement))
    moves = finish.without_heating(units, state, moves)
    objects = int(sum(len(ids) for ids in unplaced))
    return moves, None, {**placement.notes, "fits_nowhere": objects, "repairs": repairs}


def _unplaced(units: Units, selection: Selection, placement: Placement) -> NDArray[np.int64]:
    left = placement.move_to == UNPLACED
    return object_id(units.placed, selection.partition[left], selection.replica[left])


def _gap(cost: float, bound: float) -> float | None:
    if bound <= 0:
        return 0.0 if cost == 0 else None
    return cost / bound - 1
