"""From an instance of several dimensions, nested domains or groups to a plan; as `plan.plan`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from controllers.ursa import finish
from controllers.ursa.general.budget import Rounded, checked
from controllers.ursa.general.budget import rounds as in_rounds
from controllers.ursa.general.finish import move_list, nodes_of, placed_moves
from controllers.ursa.general.select import most_relief_first
from controllers.ursa.general.swap import swap_phase
from controllers.ursa.general.units import Units, VectorState, expanded, initial_state, units_of
from controllers.ursa.instance import Float64, Instance
from controllers.ursa.methods import Request
from controllers.ursa.repair import Phases, Result, gap, select_and_place
from controllers.ursa.results import Budget, Placement, Plan, Selection, Timer
from schemas.errors import UserError

Placer = Callable[[Units, VectorState, Selection, Request], Placement]

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
    moves = move_list(units, state, none, none, none)
    rounds: Rounded | None = None
    if budget is not None:
        from controllers.ursa.general import placers

        rounds = in_rounds(units, state, getattr(placers, method), request, checked(budget, units))
        moves, bound = rounds.moves, None if swapped.any() else 0.0
    elif swapped.any():
        moves, bound, notes = _moves(units, state, method, request)
    with timer.phase("finish"):
        nodes = nodes_of(units, state)
        if rounds is None:
            moves = finish.without_vain(nodes, moves)
            moves = finish.in_order(nodes, moves)
        left = finish.hot_after(nodes, moves)
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
            "gap": gap(cost, bound, len(still_hot)),
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
        hot = finish.hot_after(nodes_of(units, state), found.moves).any()
        bound = float(found.moves.cost.sum()) if found.proven and not hot else None
        return found.moves, bound, {"optimal": found.proven}
    from controllers.ursa.general import placers

    return _place(units, state, getattr(placers, method), request)


def _place(units: Units, state: VectorState, place: Placer, request: Request) -> Result:
    """Select and place, and repair what fits nowhere (`repair.select_and_place`)."""

    def at(load: Float64) -> VectorState:
        return VectorState(state.primary, load)

    phases = Phases(
        select=lambda load, stay: most_relief_first(units, at(load), stay),
        place=lambda load, selection: place(units, at(load), selection, request),
        listed=lambda selection, placed: placed_moves(units, selection, placed),
        replicas=units.replicas,
    )
    return select_and_place(nodes_of(units, state), phases, request.timer)
