"""Moves of units as `finish` takes them: a load [M, D] each, and the cost of whole units."""

from __future__ import annotations

import numpy as np

from controllers.ursa.distance import between
from controllers.ursa.finish import MoveList, Nodes
from controllers.ursa.general.units import Units, VectorState, object_load
from controllers.ursa.instance import Int32
from controllers.ursa.results import UNPLACED, Placement, Selection


def nodes_of(units: Units, state: VectorState) -> Nodes:
    """The nodes, as `finish` takes them."""
    return Nodes(state.load, units.capacity, units.domain)


def placed_moves(units: Units, selection: Selection, placement: Placement) -> MoveList:
    """The objects of a selection that found a node."""
    placed = placement.move_to != UNPLACED
    to = placement.move_to[placed].astype(np.int32)
    source, unit = selection.node[placed], selection.partition[placed]
    return MoveList(
        partition=unit,
        replica=selection.replica[placed],
        source=source,
        to=to,
        load=selection.load[placed],
        cost=between(units.placed.distance, source, to) * units.members[unit],
    )


def move_list(units: Units, state: VectorState, unit: Int32, replica: Int32, to: Int32) -> MoveList:
    """Moves with what is looked up for each."""
    source = units.placed.replica_node[unit, replica]
    return MoveList(
        partition=unit.astype(np.int32),
        replica=replica.astype(np.int8),
        source=source,
        to=to.astype(np.int32),
        load=object_load(units, state, unit, replica),
        cost=between(units.placed.distance, source, to) * units.members[unit],
    )
