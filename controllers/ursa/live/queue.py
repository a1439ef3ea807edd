"""Gives out what was decided: swaps in bulk, then moves, never more under way than allowed.

A queue holds ``["swap", pg, osd]`` and ``["move", pg, source, target]`` in the order of
application.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controllers.ursa.live.parameters import Parameters
from controllers.ursa.live.planning import Decision
from testbed.stores.contract import Action, MoveReplica, Observation, Osd, Pg, SwapPrimary

Item = Sequence[Any]
_MB = 1e6


@dataclass
class Step:
    """What one step gives out, what is left, and what was found to be impossible by now."""

    actions: list[Action] = field(default_factory=list)
    left: list[list[Any]] = field(default_factory=list)
    dropped: list[list[Any]] = field(default_factory=list)


def queue_of(decision: Decision, parameters: Parameters) -> list[list[Any]]:
    """A decision as a queue, without what must never be given out: that would wait for good, and
    keep the rest waiting."""
    swaps: list[tuple[str, int]] = []
    moves = decision.moves if parameters.max_moves else ()
    if parameters.max_swaps:
        # Who leads matters where data moves.
        swaps = [*decision.swaps, *(decision.leads if moves else ())]
    return [["swap", *swap] for swap in swaps] + [["move", *move] for move in moves]


def is_whole(decision: Decision, parameters: Parameters) -> bool:
    """Whether all of a decision that shifts load may be given out."""
    swapped = not decision.swaps or parameters.max_swaps > 0
    return swapped and (not decision.moves or parameters.max_moves > 0)


def give_out(
    queue: Sequence[Item],
    observation: Observation,
    under_way: Collection[str],
    parameters: Parameters,
) -> Step:
    """The next actions of `queue`.

    All swaps that fit `max_swaps` go out together, as one map epoch; moves only when no swap is
    left, at most `max_moves` a step, and one of a PG. The bytes of all PGs that are on their way,
    each time anew that one of their replicas moves, stay below `max_recovery_mb`, except that one
    move may always be.

    Args:
        queue: in the order of application.
        observation: the store now; what it no longer allows is dropped.
        under_way: PGs that are not clean.
        parameters: the budget.
    """
    known = {pg.id: pg for pg in observation.pgs}
    osds = {osd.id: osd for osd in observation.osds if osd.up and osd.in_}
    step = Step()
    possible: list[list[Any]] = []
    for item in queue:
        allowed = item[1] in known and _allowed(item, known[item[1]], osds, parameters)
        (possible if allowed else step.dropped).append(list(item))
    swaps = [item for item in possible if item[0] == "swap"]
    if swaps:
        _swaps(step, possible, parameters.max_swaps)
    else:
        _moves(step, possible, known, under_way, parameters)
    return step


def _swaps(step: Step, queue: list[list[Any]], most: int) -> None:
    taken: set[str] = set()
    for item in queue:
        kind, pg = item[0], item[1]
        if kind == "swap" and len(taken) < most and pg not in taken:
            step.actions.append(SwapPrimary(pg, item[2]))
            taken.add(pg)
        else:
            step.left.append(item)


def _moves(
    step: Step,
    queue: list[list[Any]],
    known: Mapping[str, Pg],
    under_way: Collection[str],
    parameters: Parameters,
) -> None:
    on_the_way = sum(known[pg].bytes for pg in under_way if pg in known)
    given: set[str] = set()
    for item in queue:
        _, pg, source, target = item
        bytes_then = on_the_way + known[pg].bytes
        room = not (given or under_way) or bytes_then <= parameters.max_recovery_mb * _MB
        if len(step.actions) < parameters.max_moves and pg not in given and room:
            step.actions.append(MoveReplica(pg, source, target))
            given.add(pg)
            on_the_way = bytes_then
        else:
            step.left.append(item)


def _allowed(item: Item, pg: Pg, osds: Mapping[int, Osd], parameters: Parameters) -> bool:
    """Whether the store, as it is now, still allows an item: C2 included."""
    if item[0] == "swap":
        return item[2] in pg.up and item[2] in osds and item[2] != pg.primary
    source, target = item[2], item[3]
    if source not in pg.up or target in pg.up or target not in osds:
        return False
    others = [osds[osd] for osd in pg.up if osd != source and osd in osds]
    domain = _domain(osds[target], parameters.fault_domain)
    return all(_domain(osd, parameters.fault_domain) != domain for osd in others)


def _domain(osd: Osd, kind: str) -> str:
    return osd.rack or osd.node if kind == "rack" else osd.node
