"""The paper's linear program (section 4.4), to the letter: the reference of `System.bound`.

One program per flow: with ``y <= arrival curve(a)`` as a constraint, the largest ``t_out - t_in -
a`` is the largest horizontal distance over all y. A variable is named by its letter, queue and
flow, such as ``("A", 3, 0)`` for the arrivals of flow 0 at queue 3.

Work is in seconds of the fastest queue. With bytes and seconds in one program, a solver finds the
optimum only to a thousandth, as a byte's worth in seconds is less than its tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from controllers.prioritymeister.network_calculus import Mask, System

Row = dict[tuple[str | int, ...], float]


def bound(system: System, flow: int, others: Mask) -> float:
    """Return the worst-case latency of a flow by the paper's program; see `System.bound`.

    Raises:
        ValueError: a queue feeds another both directly and through a third: the program's times
            would contradict each other.
    """
    path = system.flows[flow].path
    higher = [k for k in np.flatnonzero(others).tolist() if k != flow]
    unit = max(system.bandwidth)
    upper: list[tuple[Row, float]] = []
    equal: list[tuple[Row, float]] = []
    feeders = _feeders(system, [*higher, flow], path)
    for queue in sorted(feeders):
        # Time constraints.
        upper.append(({("in", queue): 1, ("out", queue): -1}, 0))
        equal += [({("out", before): 1, ("in", queue): -1}, 0) for before in feeders[queue]]
        # Work conservation; a queue with a lag may be behind by the lag.
        bandwidth = system.bandwidth[queue] / unit
        served: Row = {("out", queue): -bandwidth, ("in", queue): bandwidth}
        for k in (k for k in (*higher, flow) if queue in system.flows[k].path):
            one = system.flows[k]
            entry, place = one.path[0], one.path.index(queue)
            served |= {("S", queue, k): 1, ("A", queue, k): -1}
            upper.append(({("A", queue, k): 1, ("S", queue, k): -1}, 0))
            if place:
                equal.append(({("A", queue, k): 1, ("S", one.path[place - 1], k): -1}, 0))
            if k == flow:
                continue
            for rate, burst in zip(one.rates / unit, one.bursts / unit, strict=True):
                limit: Row = {("S", queue, k): 1.0, ("A", entry, k): -1.0}
                upper.append((limit | {("out", queue): -rate, ("in", entry): rate}, burst))
        if system.lags and system.lags[queue] > 0:
            served["late", queue] = 1
            upper.append(({("late", queue): 1}, bandwidth * system.lags[queue]))
        equal.append((served, 0))
    first, last = path[0], path[-1]
    own = system.flows[flow]
    for rate, burst in zip(own.rates / unit, own.bursts / unit, strict=True):
        upper.append(({("S", last, flow): 1.0, ("A", first, flow): -1.0, ("a",): -rate}, burst))
    return _maximum({("out", last): 1, ("in", first): -1, ("a",): -1}, upper, equal)


def _maximum(
    goal: Row, upper: Sequence[tuple[Row, float]], equal: Sequence[tuple[Row, float]]
) -> float:
    """Return the largest value of `goal` over variables of 0 or more; infinite if unbounded."""
    from scipy.optimize import linprog
    from scipy.sparse import lil_matrix

    names = {name: None for row in (goal, *(r for r, _ in (*upper, *equal))) for name in row}
    place = {name: index for index, name in enumerate(names)}

    def matrix(rows: Sequence[Row]) -> lil_matrix:
        found = lil_matrix((len(rows), len(place)))
        for line, row in enumerate(rows):
            for name, value in row.items():
                found[line, place[name]] = value
        return found

    done = linprog(
        -matrix([goal]).toarray()[0],
        matrix([row for row, _ in upper]).tocsr(),
        [limit for _, limit in upper],
        matrix([row for row, _ in equal]).tocsr(),
        [value for _, value in equal],
        method="highs",
    )
    if done.status == 3:  # unbounded
        return float("inf")
    if done.status != 0:
        raise ArithmeticError(f"the linear program was not solved: {done.message}")
    return float(-done.fun)


def _feeders(system: System, flows: Sequence[int], path: Sequence[int]) -> dict[int, set[int]]:
    """Return the queues that feed each of a path's queues, and each queue before them."""
    feeds: dict[int, set[int]] = {}
    for k in flows:
        for before, queue in pairwise(system.flows[k].path):
            feeds.setdefault(queue, set()).add(before)
    found: dict[int, set[int]] = {}
    todo = list(path)
    while todo:
        queue = todo.pop()
        if queue not in found:
            found[queue] = feeds.get(queue, set())
            todo += found[queue]

    def before_all(queues: set[int]) -> set[int]:
        return set().union(*({b} | before_all(found[b]) for b in queues))

    for queue, direct in found.items():
        if any(direct & before_all(found[before]) for before in direct):
            raise ValueError(f"queue {queue} is fed by one both directly and by another")
    return found
