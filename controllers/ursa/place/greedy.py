"""The plainest placement: each object, the heaviest first, to its nearest node with room."""

from __future__ import annotations

import numpy as np

from controllers.ursa.instance import Instance
from controllers.ursa.methods import Request
from controllers.ursa.place.firstfit import first_fit
from controllers.ursa.place.nearest import Lists
from controllers.ursa.place.problem import assignment_problem
from controllers.ursa.results import UNPLACED, Placement, Selection
from controllers.ursa.state import State


def place(instance: Instance, state: State, selection: Selection, request: Request) -> Placement:
    """A placer (see `controllers.ursa.methods`) without a bound."""
    problem = assignment_problem(instance, state, selection, request.max_move_cost)
    move_to = np.full(len(selection), UNPLACED, np.int32)
    first_fit(problem, Lists(problem), move_to, np.zeros(instance.nodes))
    return Placement(move_to)
