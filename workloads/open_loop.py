"""Writes at given rates to given placement groups of a live Ceph, at any response time.

Load of the paper Ursa, section 5.2: only writes, of one size, at a fixed rate to each storage node,
"T writes/s" to hot-spots and "0.4T" to the others. Arrivals never wait for answers, and a latency
counts from the *intended* start of a write: a store that stalls cannot slow its own load down. The
program that writes runs on a client node (testbed/agent/openloop).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field, field_validator

from schemas.model import Model
from testbed.agent.contract import Agent, UnitResult
from testbed.agent.openloop.plan import BALLAST_BYTES, MOST_BALLAST, WritePlan
from testbed.agent.openloop.writer import Histogram, merged
from workloads.errors import WorkloadError

UNIT = "load-open-loop"
GRACE_S = 60.0  # to connect, to write the objects a first time and to print
_STOP_S = 60.0


class OpenLoop(Model):
    """Load in which `rates` maps PG ids (``"2.1f"``) to writes per second.

    A write overwrites one of `objects_per_pg` objects of its PG, so that disks do not fill. A PG
    holds `objects_per_pg` times `object_bytes`, and `ballast_per_pg` objects of 4 MiB that are
    never written again; together they are the cost of moving it. `prefill` writes all of them
    before the load starts. The client holds back requests beyond `max_in_flight` (of `object_bytes`
    each, 1 GiB in total at most); their latency keeps counting. After `duration_s` the requests in
    flight get `drain_s` seconds; unfinished ones are then *outstanding*. `keep_requests` lists
    every request, for figures of single response times.
    """

    pool: str = Field(default="bench", pattern=r"^[A-Za-z0-9._][A-Za-z0-9._-]*$")
    object_bytes: int = Field(default=2**20, ge=1, le=2**27)
    duration_s: float = Field(gt=0, le=86400)
    seed: int = 1
    rates: dict[str, float]
    arrivals: Literal["poisson", "constant"] = "poisson"
    max_in_flight: int = Field(default=512, ge=1)
    objects_per_pg: int = Field(default=8, ge=1, le=10_000)
    drain_s: float = Field(default=5.0, ge=0, le=3600)
    prefill: bool = True
    keep_requests: bool = False
    ballast_per_pg: int = Field(default=0, ge=0, le=MOST_BALLAST)

    @field_validator("rates")
    @classmethod
    def _some(cls, rates: dict[str, float]) -> dict[str, float]:
        if not rates:
            raise ValueError("give writes per second for one PG or more")
        return rates

    def plan(self) -> WritePlan:
        """Return the client program's plan; raise UserError if the node would refuse it."""
        return WritePlan(**self.model_dump())


@dataclass(frozen=True)
class PgLatency:
    """Result of the writes to one PG; latencies in seconds, of the finished writes."""

    intended: int
    done: int
    failed: int
    outstanding: int
    histogram: Histogram


@dataclass(frozen=True)
class OpenLoopResult:
    """Finished load. Times in seconds; `started_wall` is the start, seconds since the epoch.

    `series` has a row per second of the load and of its drain: t_s (end of the second), intended,
    sent, done, failed, latency_mean_s and latency_max_s of the writes finished in it (None without
    any), and at its end outstanding and oldest_s (the age of the oldest unfinished write).

    `histogram` counts latencies of the finished writes; `ages` those of the `outstanding` ones,
    which are lower bounds. Mean, quantiles and maximum are over both: lower bounds while anything
    is outstanding. `failed` writes are in neither. `late` sends left the client more than 10 ms
    after their intended start (or never), `late_max_s` is the worst; `held` sends waited because
    `max_in_flight` was reached. `requests` (if kept) are (intended start, latency or None, PG id),
    in the order of starts.
    """

    config: OpenLoop | None
    started_wall: float
    prefill_s: float
    series: list[dict[str, Any]]
    histogram: Histogram
    ages: Histogram
    intended: int
    done: int
    failed: int
    outstanding: int
    late: int
    late_max_s: float
    held: int
    pgs: dict[str, PgLatency]
    errors: tuple[str, ...] = ()
    requests: tuple[tuple[float, float | None, str], ...] = ()
    cpu_s: float | None = None
    raw: str = field(default="", repr=False)

    def _all(self) -> Histogram:
        return merged((self.histogram, self.ages))

    @property
    def latency_mean_s(self) -> float | None:
        """Mean; None if nothing was intended."""
        return self._all().mean_s

    @property
    def p50_s(self) -> float | None:
        """Median."""
        return self._all().quantile_s(0.50)

    @property
    def p99_s(self) -> float | None:
        """99th percentile."""
        return self._all().quantile_s(0.99)

    @property
    def max_s(self) -> float | None:
        """Longest latency."""
        whole = self._all()
        return whole.max_s if whole.total else None

    def settled_s(self, below_s: float = 1.0, after_s: float = 0.0) -> float | None:
        """Return the time when the store became stable for good ("until the system responds to a
        request within 1 second", section 5.2). From this second (at or after `after_s`) to the end
        no finished or outstanding write reached `below_s`. None: never."""
        settled: float | None = None
        for row in self.series:
            if row["t_s"] <= after_s:
                continue
            worst = max(row["latency_max_s"] or 0.0, row["oldest_s"] or 0.0)
            if worst >= below_s:
                settled = None
            elif settled is None:
                settled = row["t_s"] - 1.0
        return settled


def parse_open_loop(text: str, config: OpenLoop | None = None) -> OpenLoopResult:
    """Read the program's output: a line at its start, one per second, one at the end.

    Raises:
        WorkloadError: it did not reach its end, or the text is not its output.
    """
    start: Mapping[str, Any] | None = None
    end: Mapping[str, Any] | None = None
    series: list[dict[str, Any]] = []
    try:
        for line in text.splitlines():
            row = json.loads(line)
            event = row.pop("event")
            if event == "start":
                start = row
            elif event == "second":
                series.append(row)
            elif event == "end":
                end = row
        if start is None or end is None:
            last = "its start" if start is None else f"second {len(series)}"
            raise WorkloadError(f"the open-loop writer did not get to its end, only to {last}.")
        return _result(start, series, end, text, config)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WorkloadError(f"the open-loop writer printed what cannot be read: {error}") from error


def _result(
    start: Mapping[str, Any],
    series: list[dict[str, Any]],
    end: Mapping[str, Any],
    text: str,
    config: OpenLoop | None,
) -> OpenLoopResult:
    pgs = {
        pgid: PgLatency(
            intended=one["intended"],
            done=one["done"],
            failed=one["failed"],
            outstanding=one["outstanding"],
            histogram=Histogram.from_json(one["histogram"]),
        )
        for pgid, one in end["pgs"].items()
    }
    names = list(end["pgs"])
    return OpenLoopResult(
        config=config,
        started_wall=start["wall"],
        prefill_s=start["prefill_s"],
        series=series,
        histogram=merged(pg.histogram for pg in pgs.values()),
        ages=Histogram.from_json(end["ages"]),
        intended=end["intended"],
        done=end["done"],
        failed=end["failed"],
        outstanding=end["outstanding"],
        late=end["late"],
        late_max_s=end["late_max_s"],
        held=end["held"],
        pgs=pgs,
        errors=tuple(end["errors"]),
        requests=tuple((at, latency, names[pg]) for at, latency, pg in end.get("requests", ())),
        cpu_s=end.get("cpu_s"),
        raw=text,
    )


def start_open_loop(agent: Agent, client_node: str, config: OpenLoop) -> float:
    """Start the load on `client_node`; return the epoch of its start once it writes.

    Raises:
        UserError: the pool or a PG does not exist, or the load is impossible.
        StoreError: the store does not accept the first objects.
        RemoteError: it did not start in time, or the node cannot be reached.
    """
    plan = config.plan()
    max_s = config.duration_s + config.drain_s + GRACE_S + _prefill_patience_s(config)
    payload = {"node": client_node, "name": UNIT, "plan": plan.to_json(), "max_s": max_s}
    patience = GRACE_S + _prefill_patience_s(config)
    answer = agent.call("open-loop-start", payload | {"wait_s": patience}, timeout_s=patience + 30)
    return float(answer["started_wall"])


def wait_open_loop(agent: Agent, client_node: str, config: OpenLoop) -> OpenLoopResult:
    """Wait for the load to end.

    Raises:
        WorkloadError: it failed, or was stopped.
    """
    timeout_s = config.duration_s + config.drain_s + GRACE_S + _prefill_patience_s(config) + _STOP_S
    unit = agent.unit_wait(client_node, UNIT, timeout_s=timeout_s)
    return _judged(unit, config)


def run_open_loop(agent: Agent, client_node: str, config: OpenLoop) -> OpenLoopResult:
    """Run the load and wait for it; an interrupt stops it.

    Raises:
        UserError: the pool or a PG does not exist, or the load is impossible.
        WorkloadError: it failed.
    """
    try:
        start_open_loop(agent, client_node, config)
        return wait_open_loop(agent, client_node, config)
    except BaseException:
        stop_open_loop(agent, client_node)
        raise


def stop_open_loop(agent: Agent, client_node: str) -> None:
    """Stop the load, if there is one."""
    agent.unit_stop(client_node, UNIT)


def _judged(unit: UnitResult, config: OpenLoop) -> OpenLoopResult:
    said = (unit.stderr.strip().splitlines() or ["no message"])[-1][:300]
    if unit.exit_code is None:
        raise WorkloadError(f"the open-loop writer on node {unit.node} was stopped: {said}")
    if unit.exit_code != 0:
        raise WorkloadError(f"the open-loop writer on node {unit.node} failed: {said}")
    return parse_open_loop(unit.stdout, config)


def _prefill_patience_s(config: OpenLoop) -> float:
    """Return the seconds for the prefill at 5 MB/s, which even a loaded testbed gives."""
    if not config.prefill:
        return 0.0
    each = config.objects_per_pg * config.object_bytes + config.ballast_per_pg * BALLAST_BYTES
    return len(config.rates) * each / 5e6
