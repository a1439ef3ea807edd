"""The two-phase ILP, equations (7) to (13), solved to its optimum over all target nodes.

The paper stops at the first radius with a feasible solution; a target outside of it might still
be better for the sum. Here the radius of each object is the one that is proven to suffice: beyond
it, reduced costs are larger than what ALP's placement loses against the relaxation.
`algorithm1` has the paper's own search.
"""

from __future__ import annotations

from controllers.ursa.instance import Instance
from controllers.ursa.methods import Request
from controllers.ursa.place.alp import relaxation, rounded
from controllers.ursa.place.partial import fewest_hot
from controllers.ursa.place.problem import assignment_problem
from controllers.ursa.place.rounding import standing
from controllers.ursa.place.windows import EXACT, polish
from controllers.ursa.results import UNPLACED, Placement, Selection
from controllers.ursa.state import State


def place(instance: Instance, state: State, selection: Selection, request: Request) -> Placement:
    """Where each selected object goes, at least cost; a placer, see `controllers.ursa.methods`.

    `notes["optimal"]` tells whether the optimum is proven: it is unless time runs out, the pairs
    do not fit into memory, or the whole selection cannot be placed. In that case the fewest nodes
    stay hot, when the instance is small enough to prove it.
    """
    problem = assignment_problem(instance, state, selection, request.max_move_cost)
    relaxed, lists = relaxation(problem, request.timer)
    now = rounded(problem, lists, relaxed)
    if (now.move_to == UNPLACED).any():
        partial = fewest_hot(problem, lists, now.move_to, request.timer)
        now = standing(problem, partial.move_to)
        if (now.move_to == UNPLACED).any():
            return Placement(now.move_to, notes={"optimal": partial.proven})
    proof = polish(problem, lists, relaxed, now, EXACT, request.timer)
    return Placement(
        now.move_to,
        lower_bound=proof.bound if relaxed.fits else None,
        notes={"optimal": proof.optimal, "lp_bound": relaxed.bound},
    )
