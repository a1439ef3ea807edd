"""The paper's linear program (section 4.4): the oracle for tests of closed-form bounds.

One program per flow: with ``y <= arrival curve(a)`` as a constraint, the largest ``t_out - t_in -
a`` is the largest horizontal distance over all y.

Work is in seconds of the fastest queue. With bytes and seconds in one program, a solver finds the
optimum only to a thousandth, as a byte's worth in seconds is less than its tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from controllers.prioritymeister.system import System

Mask = npt.NDArray[np.bool_]
Row = dict[str, float]


class _LinearProgram:
    """Named variables and sparse rows, turned into a solver's input."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self._upper: list[tuple[Row, float]] = []
        self._equal: list[tuple[Row, float]] = []

    def at_most(self, row: Row, limit: float) -> None:
        self._upper.append((row, limit))

    def equals(self, row: Row, value: float) -> None:
        self._equal.append((row, value))

    def _matrix(self, rows: Sequence[tuple[Row, float]]) -> tuple[object, list[float]]:
        from scipy.sparse import coo_matrix

        cells = [(i, self._place(n), v) for i, (row, _) in enumerate(rows) for n, v in row.items()]
        lines, columns, values = zip(*cells, strict=True)
        shape = (len(rows), len(self._index))
        return coo_matrix((values, (lines, columns)), shape=shape).tocsr(), [b for _, b in rows]

    def _place(self, name: str) -> int:
        return self._index.setdefault(name, len(self._index))

    def maximum(self, goal: Row) -> float:
        """Return the largest value of `goal`; infinite if unbounded."""
        from scipy.optimize import linprog

        for row in [goal, *(r for r, _ in self._upper), *(r for r, _ in self._equal)]:
            for name in row:
                self._place(name)
        cost = np.zeros(len(self._index))
        for name, value in goal.items():
            cost[self._place(name)] = -value
        upper, limits = self._matrix(self._upper)
        equal, values = self._matrix(self._equal)
        done = linprog(cost, upper, limits, equal, values, bounds=(0, None), method="highs")
        if done.status == 3:  # unbounded
            return float("inf")
        if done.status != 0:
            raise ArithmeticError(f"the linear program was not solved: {done.message}")
        return float(-done.fun)


def bound(system: System, flow: int, others: Mask) -> float:
    """Return the worst-case latency of a flow by the paper's program; see `System.bound`.

    Raises:
        ValueError: a queue feeds another both directly and through a third: the program's times
            would contradict each other.
    """
    path = system.flows[flow].path
    higher = [k for k in np.flatnonzero(others).tolist() if k != flow]
    program = _LinearProgram()
    unit = max(system.bandwidth)
    feeders = _feeders(system, [*higher, flow], path)
    for queue in sorted(feeders):
        there = [k for k in higher if queue in system.flows[k].path]
        there += [flow] if queue in path else []
        # Time constraints.
        program.at_most({f"in{queue}": 1, f"out{queue}": -1}, 0)
        for before in sorted(feeders[queue]):
            program.equals({f"out{before}": 1, f"in{queue}": -1}, 0)
        # Work conservation; a queue with a lag may be behind by the lag.
        bandwidth = system.bandwidth[queue] / unit
        served: Row = {f"out{queue}": -bandwidth, f"in{queue}": bandwidth}
        for k in there:
            served[f"S{queue},{k}"] = 1
            served[f"A{queue},{k}"] = -1
            program.at_most({f"A{queue},{k}": 1, f"S{queue},{k}": -1}, 0)
            _flow_rows(program, system, k, queue, unit=unit, limited=k != flow)
        if system.lags and system.lags[queue] > 0:
            served[f"late{queue}"] = 1
            program.at_most({f"late{queue}": 1}, bandwidth * system.lags[queue])
        program.equals(served, 0)
    first, last = path[0], path[-1]
    for rate, burst in zip(system.flows[flow].rates, system.flows[flow].bursts, strict=True):
        row = {f"S{last},{flow}": 1.0, f"A{first},{flow}": -1.0, "a": -float(rate) / unit}
        program.at_most(row, float(burst) / unit)
    return program.maximum({f"out{last}": 1, f"in{first}": -1, "a": -1})


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
        return set().union(*({b} | before_all(found[b]) for b in queues)) if queues else set()

    for queue, direct in found.items():
        if any(direct & before_all(found[before]) for before in direct):
            raise ValueError(f"queue {queue} is fed by one both directly and by another")
    return found


def _flow_rows(
    program: _LinearProgram, system: System, k: int, queue: int, *, unit: float, limited: bool
) -> None:
    """Add a flow's constraints at a queue: arrivals from the queue before, and rate limits."""
    flow = system.flows[k]
    entry = flow.path[0]
    if queue != entry:
        before = flow.path[flow.path.index(queue) - 1]
        program.equals({f"A{queue},{k}": 1, f"S{before},{k}": -1}, 0)
    if not limited:
        return
    for rate, burst in zip(flow.rates, flow.bursts, strict=True):
        row = {f"S{queue},{k}": 1.0, f"A{entry},{k}": -1.0}
        row |= {f"out{queue}": -float(rate) / unit, f"in{entry}": float(rate) / unit}
        program.at_most(row, float(burst) / unit)
