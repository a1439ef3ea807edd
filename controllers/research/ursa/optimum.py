"""OPT for loads of several dimensions, nested fault domains and groups: equations (1) to (6).

(5) has a row for each two replicas of a unit and each domain, of the outermost level that keeps the
two apart, that either could come into.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from controllers.research.ursa.units import Units
from controllers.ursa.instance import Moves, between, nested_domains
from controllers.ursa.methods import MethodRequest
from controllers.ursa.place.exact import MeetingRows, MoveStart, choose_partly
from controllers.ursa.select import Result
from controllers.ursa.state import PlanState, object_load
from schemas.errors import UserError

MOST_PAIRS = 60_000


def optimum(units: Units, state: PlanState, request: MethodRequest) -> Result:
    """Return the fewest nodes left hot, and then the cheapest moves.

    Raises:
        UserError: there are more than MOST_PAIRS possible moves.
    """
    if units.replica_node.size * max(units.nodes - 1, 0) > MOST_PAIRS:
        raise UserError(
            f"method opt is for at most {MOST_PAIRS} possible moves when loads have several "
            "dimensions, fault domains are nested or replicas move in groups",
            do="take ilp or alp-fast",
        )
    pairs = _every_pair(units, state, request)
    start = MoveStart(units.capacity.astype(np.float64), state.load, partial(_meeting, units))
    chosen = choose_partly(start, pairs, request.timer)
    notes: dict[str, object] = {"optimal": chosen.proven}
    if chosen.taken is None:
        return Moves.none(state.load), None, notes
    moves = pairs.where(chosen.taken)
    bound = float(moves.cost.sum()) if chosen.proven and not len(chosen.given_up) else None
    return moves, bound, notes


def _every_pair(units: Units, state: PlanState, request: MethodRequest) -> Moves:
    size, n = units.replica_node.size, units.nodes
    number = np.repeat(np.arange(size, dtype=np.int64), n)
    target = np.tile(np.arange(n, dtype=np.int32), size)
    unit, replica = np.divmod(number, units.replicas)
    source = units.replica_node[unit, replica]
    load = object_load(units, state, unit.astype(np.int32), replica)
    distance = between(units.distance, source, target)
    keep = (source != target) & (load > 0).any(axis=1)
    keep &= distance <= request.reach
    cost = distance * units.members[unit]
    return Moves(number, source, target, load, cost).where(keep)


def _meeting(units: Units, pairs: Moves) -> MeetingRows:
    """Return (row, column, sign, limit): a replica enters a domain only after the other left."""
    replicas, levels = units.replicas, nested_domains(units)
    unit, replica = np.divmod(pairs.object, replicas)
    rows: list[int] = []
    columns: list[int] = []
    signs: list[float] = []
    limits: list[float] = []
    for u in np.unique(unit):
        mine = np.flatnonzero(unit == u)
        home = levels[units.replica_node[u]]
        for b in range(replicas):
            for a in range(b):
                level = int((home[a] != home[b]).argmax())
                of = {k: mine[replica[mine] == k] for k in (a, b)}
                into = {k: levels[pairs.to[of[k]], level] for k in (a, b)}
                for domain in np.unique(np.concatenate([into[a], into[b]])):
                    limit = 1.0
                    for k in (a, b):
                        if home[k, level] == domain:
                            limit -= 1.0  # it is there, unless it leaves
                            leaving = of[k][into[k] != domain]
                            entries, sign = leaving, -1.0
                        else:
                            entries, sign = of[k][into[k] == domain], 1.0
                        rows += [len(limits)] * len(entries)
                        columns += entries.tolist()
                        signs += [sign] * len(entries)
                    limits.append(limit)
    return (
        np.array(rows, dtype=np.int64),
        np.array(columns, dtype=np.int64),
        np.array(signs, dtype=np.float64),
        np.array(limits, dtype=np.float64),
    )
