"""fio on the nodes of a modelled store, following a disturbance plan."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.errors import StoreError, UserError
from testbed.simulated.process import SimulatorProcess, rows_of

Stretches = Iterable[tuple[float, Mapping[str, float | None]]]
"""(t_s, loads): loads by node from `t_s` on (see `workloads.disturbance.DisturbancePlan`), each a
share of the disk's capacity, or None for an unlimited hotspot."""


class Loads:
    """Loads of one store: the running ones, and a plan's later ones. `nodes` are the OSD nodes in
    the order of the simulator's numbers; `spec` is for messages."""

    def __init__(self, process: SimulatorProcess, spec: str, nodes: Sequence[str]) -> None:
        self._process = process
        self._spec, self._numbers = spec, {name: n for n, name in enumerate(nodes)}
        self._plan: list[tuple[float, dict[str, float | None]]] = []
        self._loads: dict[str, float | None] = {}

    def number(self, node: str) -> int:
        """Return a node's number; UserError for an unknown node."""
        if node not in self._numbers:
            names = list(self._numbers)
            raise UserError(
                f"has no OSD node {node!r}: its nodes are {names[0]} to {names[-1]}",
                where=f"spec {self._spec}",
            )
        return self._numbers[node]

    def start(self, stretches: Stretches, begins_s: float | None) -> None:
        """Start the plan's first stretch now, in place of the running loads. The others count from
        `begins_s`, a benchmark's start, if it is known. UserError: a node is unknown, or a share or
        a time is invalid."""
        plan = sorted(((t_s, dict(loads)) for t_s, loads in stretches), key=lambda item: item[0])
        for t_s, loads in plan:
            self._check(t_s, loads)
        self.stop()
        self._plan = plan
        if plan:
            self._change(plan[0][1], None)
            if begins_s is not None:
                self.begin(begins_s)

    def stop(self) -> None:
        """Stop every load and forget the plan."""
        self._process.ask("forget-loads")
        self._plan = []
        # A later stretch of the plan may have begun since, so every node must stop.
        self._loads = dict.fromkeys(self._numbers) if self._loads else {}
        self._change({}, None)

    def begin(self, begins_s: float) -> None:
        """Start the plan's stretches after 0, counted from `begins_s`."""
        for t_s, loads in self._plan:
            if t_s > 0:
                self._change(loads, begins_s + t_s)

    def _check(self, t_s: float, loads: Mapping[str, float | None]) -> None:
        if not (math.isfinite(t_s) and t_s >= 0):
            raise UserError(f"a stretch of a disturbance begins at {t_s} s", do="give 0 or more")
        for node, share in loads.items():
            _ = self.number(node)
            if share is not None and not 0 < share <= 1:
                raise UserError(
                    f"the load of node {node} is {share}",
                    do="give a share of its disk above 0 to 1, or None for a hotspot",
                )

    def _change(self, loads: Mapping[str, float | None], at_s: float | None) -> None:
        """Replace the previous loads by `loads`; a node with an unchanged load is left alone."""
        when = {} if at_s is None else {"at_s": at_s}
        same = {n for n in loads if n in self._loads and self._loads[n] == loads[n]}
        gone = [self._numbers[n] for n in self._loads if n not in loads]
        if gone:
            self._process.ask("load", nodes=gone, on=False, **when)
        by_share: dict[float, list[int]] = {}
        for node, share in loads.items():
            if node not in same:
                by_share.setdefault(share or 0.0, []).append(self._numbers[node])
        for share, nodes in by_share.items():
            self._process.ask("load", nodes=nodes, on=True, share=share, **when)
        self._loads = dict(loads)


# ----------------------------------------------------------------------------------------------
# Open-loop writes on a modelled store: Poisson arrivals with a rate for each PG.


@dataclass(frozen=True)
class OpenWrites:
    """Writes of `object_size` to existing objects for `duration_s` virtual seconds, at `rates`
    writes a second by PG id. Writes that are unfinished `drain_s` later are outstanding."""

    rates: Mapping[str, float]
    object_size: int
    duration_s: float
    drain_s: float = 5.0


@dataclass(frozen=True)
class OpenWritesResult:
    """Result of open-loop writes. `started_s` is on the store's clock. `series` has the rows of
    `workloads.open_loop.OpenLoopResult`; `requests` has (intended start, latency or None, PG id) in
    the order of starts."""

    started_s: float
    series: tuple[dict[str, Any], ...]
    requests: tuple[tuple[float, float | None, str], ...]


def start_writes(process: SimulatorProcess, names: Sequence[str], writes: OpenWrites) -> None:
    """Start the writes now. UserError: a PG is unknown."""
    unknown = sorted(set(writes.rates) - set(names))
    if unknown:
        raise UserError(f"there is no placement group {unknown[0]!r}", where="open-loop: rates")
    process.ask(
        "start",
        bench={
            "op": "open",
            "object_size": writes.object_size,
            "concurrency": 1,
            "duration_s": writes.duration_s,
            "start_in_s": 0.0,
            "rates": [float(writes.rates.get(name, 0.0)) for name in names],
            "drain_s": writes.drain_s,
        },
    )


def result_of_writes(process: SimulatorProcess, names: Sequence[str]) -> OpenWritesResult:
    """Return the result of the writes. StoreError: none were started, or they have not ended."""
    answer = process.ask("open-loop")
    if not answer.result["done"]:
        raise StoreError("the open-loop writes have not ended.")
    series = []
    for second, row in enumerate(rows_of(answer.blocks["series"], 6), 1):
        intended, done, latency, longest, outstanding, oldest = row
        series.append(
            {
                "t_s": float(second),
                "intended": int(intended),
                "sent": int(intended),
                "done": int(done),
                "failed": 0,
                "latency_mean_s": latency / done if done else None,
                "latency_max_s": longest if done else None,
                "outstanding": int(outstanding),
                "oldest_s": oldest if outstanding else None,
            }
        )
    requests = [
        (due, took if took >= 0 else None, names[int(pg)])
        for due, took, pg in rows_of(answer.blocks["requests"], 3)
    ]
    return OpenWritesResult(float(answer.result["start_s"]), tuple(series), tuple(sorted(requests)))
