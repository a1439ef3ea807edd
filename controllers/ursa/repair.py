"""Select and place; what fits nowhere stays, and other objects of its node go instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.finish import MoveList, Nodes, load_after, without_heating
from controllers.ursa.instance import Float64
from controllers.ursa.results import UNPLACED, Placement, Selection, Timer

Ids = NDArray[np.int64]
Result = tuple[MoveList, float | None, dict[str, object]]
"""Moves, the lower bound (None when it is not of the objects that move), notes."""

MAX_REPAIRS = 16


@dataclass(frozen=True)
class Phases:
    """How objects are selected and placed at loads [N] or [N, D] of the nodes.

    Attributes:
        select: (loads, objects that stay): the selection; no objects at first.
        place: (loads, selection): where it goes.
        listed: the moves of what found a node.
        replicas: of a partition; an object is number `partition * replicas + replica`.
    """

    select: Callable[[Float64, Ids | None], Selection]
    place: Callable[[Float64, Selection], Placement]
    listed: Callable[[Selection, Placement], MoveList]
    replicas: int


def select_and_place(nodes: Nodes, phases: Phases, timer: Timer) -> Result:
    """Place a selection, and as often as something of it fits nowhere, another in its stead."""
    with timer.phase("select"):
        selection = phases.select(nodes.load, None)
    with timer.phase("place"):
        placement = phases.place(nodes.load, selection)
    moves = phases.listed(selection, placement)
    if not (placement.move_to == UNPLACED).any():
        return moves, placement.lower_bound, dict(placement.notes)
    unplaced = [_unplaced(selection, placement, phases.replicas)]
    repairs = 0
    while repairs < MAX_REPAIRS:
        moves = without_heating(nodes, moves)
        rest = load_after(nodes.load, moves)
        with timer.phase("select"):
            # Every object of partitions of which one has moved: placers see where replicas were.
            moved = moves.partition.astype(np.int64)[:, None] * phases.replicas
            moved = (moved + np.arange(phases.replicas)).ravel()
            selection = phases.select(rest, np.sort(np.concatenate([*unplaced, moved])))
        if len(selection) == 0:
            break
        with timer.phase("place"):
            placement = phases.place(rest, selection)
        repairs += 1
        moves = moves + phases.listed(selection, placement)
        unplaced.append(_unplaced(selection, placement, phases.replicas))
    moves = without_heating(nodes, moves)
    objects = int(sum(len(ids) for ids in unplaced))
    return moves, None, {**placement.notes, "fits_nowhere": objects, "repairs": repairs}


def _unplaced(selection: Selection, placement: Placement, replicas: int) -> Ids:
    left = placement.move_to == UNPLACED
    ids: Ids = selection.partition[left].astype(np.int64) * replicas + selection.replica[left]
    return ids


def gap(cost: float, bound: float | None, still_hot: int) -> float | None:
    """How far the cost is above the bound, as a part of it; None when that says nothing."""
    if bound is None or still_hot:
        return None
    if bound <= 0:
        return 0.0 if cost == 0 else None
    return cost / bound - 1
