"""Service that a path of several queues leaves to a flow if other flows share stretches of it.

Let ``t_j`` be the time at which a queue j of the path is left, and ``t_(j-1)`` the start of its
backlog period. Each queue serves ``B_j`` all that time. The service of others along a stretch, from
queue a to b, is at most their arrivals at a in ``t_b - t_(a-1)``. So the flow is served at least

    sum of B_j (t_j - t_(j-1)), less for each stretch arrivals(t_b - t_(a-1)) ,

and a burst is met once, not at each queue of its stretch (as in the paper's linear program, section
4.4). Within any stretch the sum over its queues, less the stretches in it, is never negative: all
that left the stretch had arrived at it. If stretches are nested or disjoint, the least value over
all ``t_j`` is found from the inside out: in series, less the stretch's arrivals, cut off at 0. If
two stretches cross, one of them is cut: its flows' arrivals at the second part are the output of
the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controllers.prioritymeister import curves


@dataclass(frozen=True)
class SharedStretch:
    """Flows of `paths` that share the queues `first` to `last` of a path (places in it), and their
    arrivals at the first of these queues."""

    first: int
    last: int
    paths: tuple[tuple[int, ...], ...]
    arrival: curves.Arrival


def uncrossed(
    stretches: Sequence[SharedStretch],
    output: Callable[[SharedStretch, int], curves.Arrival],
    *,
    later: bool = False,
) -> list[SharedStretch]:
    """Return the stretches, cut so that any two are nested or disjoint.

    Args:
        stretches: stretches of one path.
        output: arrivals that a stretch's flows send on after a place in it.
        later: if two cross, cut the one that begins later, where the other ends; without `later`
            cut the one that begins earlier, where the other begins.
    """
    todo, found = list(stretches), list[SharedStretch]()
    while todo:
        one = todo.pop()
        others = (*todo, *found)
        if later:
            cuts = {s.last + 1 for s in others if s.first < one.first <= s.last < one.last}
        else:
            cuts = {s.first for s in others if one.first < s.first <= one.last < s.last}
        if not cuts:
            found.append(one)
            continue
        cut = max(cuts) if later else min(cuts)
        todo.append(SharedStretch(one.first, cut - 1, one.paths, one.arrival))
        todo.append(SharedStretch(cut, one.last, one.paths, output(one, cut - 1)))
        todo += found  # the new ones may cross them
        found.clear()
    return found


def service(lines: Sequence[curves.Service], stretches: Sequence[SharedStretch]) -> curves.Service:
    """Return the remaining service of a path's queues.

    Args:
        lines: the service of each queue.
        stretches: uncrossed.
    """
    return _left(lines, stretches, 0, len(lines) - 1)


def _left(
    lines: Sequence[curves.Service], stretches: Sequence[SharedStretch], first: int, last: int
) -> curves.Service:
    whole = [s for s in stretches if (s.first, s.last) == (first, last)]
    if first == last:
        return _below(lines[first], whole)
    inside = [s for s in stretches if (s.first, s.last) != (first, last)]
    place, found = first, None
    while place <= last:
        end = max((s.last for s in inside if s.first == place), default=place)
        within = [s for s in inside if place <= s.first and s.last <= end]
        part = _left(lines, within, place, end)
        found = part if found is None else curves.in_series(*found, *part)
        place = end + 1
    assert found is not None
    return _below(found, whole) if whole else found


def _below(line: curves.Service, above: Sequence[SharedStretch]) -> curves.Service:
    """Return the remaining service below all arrivals on some stretches."""
    burst, x, slope = curves.added([one.arrival for one in above])
    return curves.left_over(*line, burst, x, slope)
