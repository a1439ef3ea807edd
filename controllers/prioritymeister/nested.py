"""What a path of several queues leaves to a flow when others share stretches of it.

Let ``t_j`` be when a queue j of the path is left, and ``t_(j-1)`` when its backlog period began:
each queue serves ``B_j`` all that time, and what others were served along a stretch, from queue a
to b, is at most what they bring to a in ``t_b - t_(a-1)``. So the flow is served at least

    sum of B_j (t_j - t_(j-1)), less for each stretch arrivals(t_b - t_(a-1)) ,

and a burst is met once, not at each queue of its stretch (the paper's linear program, section 4.4,
knows the same). Within any stretch the sum over its queues, less the stretches in it, is never
negative: what left the stretch had come to it. Where stretches lie within each other or apart, the
least value over all ``t_j`` is found from the inside out: in series, less the stretch's arrivals,
cut off at 0. Two that cross are made so by cutting one: what its flows bring to the second part is
the output of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controllers.prioritymeister import curves


@dataclass(frozen=True)
class Stretch:
    """Flows of `paths` that share the queues `first` to `last` of a path (places in it), and what
    they bring to the first of these."""

    first: int
    last: int
    paths: tuple[tuple[int, ...], ...]
    arrival: curves.Arrival


def uncrossed(
    stretches: Sequence[Stretch],
    output: Callable[[Stretch, int], curves.Arrival],
    *,
    later: bool = False,
) -> list[Stretch]:
    """The same, cut so that any two lie within each other or apart.

    Args:
        stretches: of one path.
        output: what a stretch's flows bring on after a place in it.
        later: cut of two that cross the one that begins later, where the other ends; without it
            the one that begins earlier, where the other begins.
    """
    todo, found = list(stretches), list[Stretch]()
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
        todo.append(Stretch(one.first, cut - 1, one.paths, one.arrival))
        todo.append(Stretch(cut, one.last, one.paths, output(one, cut - 1)))
        todo += found  # the new ones may cross them
        found.clear()
    return found


def service(lines: Sequence[curves.Service], stretches: Sequence[Stretch]) -> curves.Service:
    """What is left of a path's queues.

    Args:
        lines: what each queue serves.
        stretches: uncrossed.
    """
    return _left(lines, stretches, 0, len(lines) - 1)


def _left(
    lines: Sequence[curves.Service], stretches: Sequence[Stretch], first: int, last: int
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


def _below(line: curves.Service, above: Sequence[Stretch]) -> curves.Service:
    """What is left of a service below all that arrives on some stretches."""
    burst, x, slope = curves.added([one.arrival for one in above])
    return curves.left_over(*line, burst, x, slope)
