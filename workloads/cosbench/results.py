"""What an archive of COSBench holds, typed. Times in seconds, rates per second."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from schemas.errors import UserError

SPECIAL = frozenset({"init", "prepare", "cleanup", "dispose", "delay"})
"""Operations that get a store ready or clean it up: no measurement of it."""

FOREVER_NS = 2**63 - 1
"""End of a last bucket that has none."""

Buckets = tuple[tuple[int, int, int], ...]
"""(low_ns, high_ns, count): how many took low or longer and less than high, nanoseconds."""


def quantile_s(buckets: Buckets, share: float) -> float | None:
    """Return the upper end of the bucket that holds the quantile, seconds.

    It is infinity for a last bucket without an end, None without buckets.

    Args:
        buckets: in rising order.
        share: 0 to 1.
    """
    total = sum(count for _, _, count in buckets)
    seen = 0
    for _, high, count in buckets:
        seen += count
        if count and seen >= share * total:
            return math.inf if high == FOREVER_NS else high / 1e9
    return None


@dataclass(frozen=True)
class Failures:
    """Number of failed operations that a percentage of two decimals allows."""

    likely: int
    least: int
    most: int

    @property
    def exact(self) -> int | None:
        """The number, if only one is possible."""
        return self.likely if self.least == self.most else None

    def __str__(self) -> str:
        if self.exact is not None:
            return str(self.exact)
        return f"{self.likely} ({self.least} to {self.most})"


def failures_of(operations: int, success: float | None) -> Failures | None:
    """Return the failures that follow from the successful operations and their share of all.

    Args:
        operations: those that succeeded.
        success: their share, rounded to 1e-4; None if it was not printed.

    Returns:
        None if nothing succeeded.
    """
    hundredths = round((success or 0.0) * 1e4)
    if not operations or not hundredths:
        return None
    # All operations times 2e4 / operations lies within the rounding: half of 1e-4 to both sides.
    least = -(-20_000 * operations // min(2 * hundredths + 1, 20_000)) - operations
    most = max(least, 20_000 * operations // (2 * hundredths - 1) - operations)
    likely = round(operations * 1e4 / hundredths) - operations
    return Failures(min(max(likely, least), most), least, most)


@dataclass(frozen=True)
class Moment:
    """When a stage or workload came into a state; the controller's local time."""

    state: str
    at: datetime


@dataclass(frozen=True)
class Point:
    """One line of a stage's series: what was done since the line before.

    `t_s` counts from the stage's beginning to the line's time, whole seconds.
    """

    t_s: float
    operations: int
    bytes: int
    mean_s: float | None
    processing_s: float | None
    operations_s: float
    bytes_s: float
    success: float | None


@dataclass(frozen=True)
class Result:
    """One operation of a stage.

    `operations` were successful; `success` is their share of all. `mean_s` is the time to the last
    byte, `processing_s` that to the first one. `percentiles_s` maps 60, 80, 90, 95, 99 and 100 to
    the upper edge of COSBench's buckets of 10 ms: infinity beyond the last one. `operations_s` is
    the sum over workers of what each did by the time that it took. `buckets` are COSBench's, of
    normal operations alone.
    """

    stage: str
    op: str
    type: str
    operations: int
    bytes: int
    mean_s: float | None
    processing_s: float | None
    percentiles_s: Mapping[int, float | None]
    operations_s: float
    bytes_s: float
    success: float | None
    workers: int | None = None
    series: tuple[Point, ...] = ()
    buckets: Buckets = ()

    @property
    def failures(self) -> Failures | None:
        """Failed operations, as far as the share tells; None if nothing succeeded."""
        return failures_of(self.operations, self.success)

    @property
    def failed(self) -> int | None:
        """Likely number of failed operations; None if nothing succeeded."""
        return None if self.failures is None else self.failures.likely


@dataclass(frozen=True)
class Stage:
    """A stage: `id` is COSBench's (``s3-main``), `status` its last state, or the one in which it
    failed before COSBench called it completed."""

    id: str
    name: str
    status: str
    history: tuple[Moment, ...]
    results: tuple[Result, ...]

    @property
    def special(self) -> bool:
        """Whether it only gets the store ready or cleans it up."""
        return all(result.type in SPECIAL for result in self.results)

    def at(self, state: str) -> datetime | None:
        """When it first came into a state; None: never."""
        return next((moment.at for moment in self.history if moment.state == state), None)

    def result(self, op: str) -> Result:
        """The operation of this name.

        Raises:
            UserError: there is none, or more than one.
        """
        found = [result for result in self.results if result.op == op]
        if len(found) != 1:
            names = ", ".join(result.op for result in self.results) or "none"
            raise UserError(f"stage {self.id} has {len(found)} operations {op!r}: it has {names}.")
        return found[0]

    @property
    def operations_s(self) -> float:
        """Of all operations together."""
        return sum(result.operations_s for result in self.results)

    @property
    def bytes_s(self) -> float:
        """Of all operations together."""
        return sum(result.bytes_s for result in self.results)

    @property
    def mean_s(self) -> float | None:
        """Of all operations together, weighted by their counts."""
        known = [r for r in self.results if r.mean_s is not None and r.operations]
        count = sum(result.operations for result in known)
        total = sum((result.mean_s or 0.0) * result.operations for result in known)
        return total / count if count else None


@dataclass(frozen=True)
class Measured:
    """One operation of a stage as cosdrive keeps it beside COSBench's files: full resolution.

    The stage ran from `started_at` on (seconds since the epoch); what counts is within `begin_s` to
    `end_s` of it (None: to its end). `failed` counts by kind. In an open loop the latency is from
    the intended beginning of each operation.
    """

    stage: str
    work: str
    op: str
    type: str
    started_at: float
    begin_s: float
    end_s: float | None
    operations: int
    bytes: int
    failed: Mapping[str, int]
    operations_s: float
    bytes_s: float
    mean_s: float | None
    max_s: float | None
    buckets: Buckets

    def quantile_s(self, share: float) -> float | None:
        """A quantile of the latency, seconds; None where nothing was measured."""
        found = quantile_s(self.buckets, share)
        # A bucket ends beyond the largest latency in it.
        return found if found is None or self.max_s is None else min(found, self.max_s)


@dataclass(frozen=True)
class Second:
    """What ended of one operation in one second of a run of cosdrive; `t_s` is the second's
    beginning, from the run's. `measured`: all of it counts."""

    t_s: float
    stage: str
    work: str
    op: str
    tenant: str
    operations: int
    bytes: int
    failed: int
    mean_s: float | None
    p95_s: float | None
    measured: bool


@dataclass(frozen=True)
class Driver:
    """How cosdrive ran: epochs, its seed, and the open loop's rate and arrivals (None: closed)."""

    state: str
    started_at: float
    stopped_at: float
    seed: int
    rate: float | None
    arrivals: str | None


@dataclass(frozen=True)
class Archive:
    """A finished workload.

    `driver`, `measured` and `seconds` are of cosdrive's own files: a real COSBench has none.
    `config` is the workload's XML with its secrets masked. `unread` names files that nothing here
    reads. `warnings` are sentences about files without content.
    """

    folder: Path
    id: str
    name: str
    stages: tuple[Stage, ...]
    config: str | None = field(default=None, repr=False)
    driver: Driver | None = None
    measured: tuple[Measured, ...] = ()
    seconds: tuple[Second, ...] = ()
    unread: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def stage(self, name: str) -> Stage:
        """A stage by name or id.

        Raises:
            UserError: there is none, or more than one of this name.
        """
        found = [stage for stage in self.stages if name in (stage.id, stage.name)]
        if len(found) != 1:
            ids = ", ".join(stage.id for stage in self.stages)
            raise UserError(f"{self.folder} has {len(found)} stages {name!r}; it has {ids}.")
        return found[0]

    @property
    def main(self) -> tuple[Stage, ...]:
        """Stages that measure: all that are not special."""
        return tuple(stage for stage in self.stages if stage.results and not stage.special)

    @property
    def finished(self) -> bool:
        """Whether every stage ended as it should."""
        return all(stage.status == "completed" for stage in self.stages)

    def _repr_html_(self) -> str:
        rows = []
        for stage in self.main:
            for result in stage.results:
                mean = "" if result.mean_s is None else f"{1e3 * result.mean_s:.1f}"
                rates = (f"{result.operations_s:.1f}", f"{result.bytes_s / 1e6:.2f}")
                cells = (stage.name, result.op, *rates, mean)
                rows.append("".join(f"<td>{html.escape(cell)}</td>" for cell in cells))
        head = "".join(f"<th>{one}</th>" for one in ("stage", "op", "op/s", "MB/s", "mean [ms]"))
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><caption>{html.escape(self.name)}</caption><tr>{head}</tr>{body}</table>"


@dataclass(frozen=True)
class Run:
    """A line of ``run-history.csv``."""

    id: str
    name: str
    submitted: datetime | None
    started: datetime | None
    stopped: datetime | None
    operations: tuple[str, ...]
    state: str
    history: tuple[Moment, ...]


def with_parts(
    result: Result,
    *,
    workers: int | None = None,
    series: tuple[Point, ...] = (),
    buckets: Buckets = (),
) -> Result:
    """The result with what other files of the archive tell of it."""
    return replace(result, workers=workers, series=series, buckets=buckets)
