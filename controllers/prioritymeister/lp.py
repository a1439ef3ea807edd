"""The paper's linear program (section 4.4): the oracle that closed-form bounds are tested against.

One program per flow: with ``y <= arrival curve(a)`` as a constraint, the largest
``t_out - t_in - a`` is the largest horizontal distance over all y.

Work is counted in seconds of the fastest queue: of bytes and seconds in one program a solver finds
the optimum to no better than a thousandth, as a byte's worth in seconds is less than its tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from controllers.prioritymeister.system import System

Mask = npt.NDArray[np.bool_]
Row = dict[str, float]


class _Program:
    """Named variables and sparse rows, turned into what a solver takes."""

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
        """The largest value of `goal`; infinite when there is none."""
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
    """Worst-case latency of a flow by the paper's program; see `System.bound`.

    Raises:
        ValueError: a path has more than two queues, or one's first queue is another's second.
    """
    path = system.flows[flow].path
    firsts = {f.path[0] for f in system.flows}
    if any(len(f.path) > 2 or f.path[-1] in firsts - {f.path[0]} for f in system.flows):
        raise ValueError("the program is written for paths of one or two queues in two layers")
    higher = [k for k in np.flatnonzero(others).tolist() if k != flow]
    program = _Program()
    unit = max(system.bandwidth)
    feeders = {system.flows[k].path[0] for k in higher if path[-1] in system.flows[k].path}
    queues = sorted({*path, *feeders})
    for queue in queues:
        there = [k for k in higher if queue in system.flows[k].path]
        there += [flow] if queue in path else []
        # Time constraints.
        program.at_most({f"in{queue}": 1, f"out{queue}": -1}, 0)
        if queue != path[-1] and path[-1] in {q for k in there for q in system.flows[k].path}:
            program.equals({f"out{queue}": 1, f"in{path[-1]}": -1}, 0)
        # Work conservation; of a queue with a lag but for what it may be behind.
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


def _flow_rows(
    program: _Program, system: System, k: int, queue: int, *, unit: float, limited: bool
) -> None:
    """A flow's constraints at a queue: what left the queue before arrives, and its rate limits."""
    flow = system.flows[k]
    entry = flow.path[0]
    if queue != entry:
        program.equals({f"A{queue},{k}": 1, f"S{entry},{k}": -1}, 0)
    if not limited:
        return
    for rate, burst in zip(flow.rates, flow.bursts, strict=True):
        row = {f"S{queue},{k}": 1.0, f"A{entry},{k}": -1.0}
        row |= {f"out{queue}": -float(rate) / unit, f"in{entry}": float(rate) / unit}
        program.at_most(row, float(burst) / unit)
