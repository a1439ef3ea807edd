"""Archives as a run folder's tidy tables (schemas/run.py), and comparison of two archives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from math import isclose, isfinite
from typing import TYPE_CHECKING

from schemas.run import OpSummary
from workloads.cosbench.archive import (
    PERCENTS,
    Archive,
    Buckets,
    OperationResult,
    failures_of,
    quantile_s,
)

if TYPE_CHECKING:
    import pandas as pd

SAMPLES = ("t_s", "node", "metric", "value")
LATENCY = ("t_s", "op", "tenant", "node", "low_ns", "high_ns", "count")
ALL = "all"
BUCKET_S = 0.01
"""Width of the buckets behind COSBench's percentiles, which it prints as upper edges."""

METRICS = (
    *("operations", "bytes", "mean_s", "processing_s"),
    *(f"p{percent}_s" for percent in PERCENTS),
    *("operations_s", "bytes_s", "success"),
)


def origin_of(archives: Mapping[str, Archive], stages: tuple[str, ...] | None = None) -> float:
    """Return when the first of the chosen stages began, seconds since the epoch: `t_s` = 0.

    A real COSBench writes local times without a zone: its archives share an origin among
    themselves, not with anything else.
    """
    begun = [
        at
        for archive in archives.values()
        for stage in _chosen(archive, stages)
        if (at := _begun(archive, stage)) is not None
    ]
    return min(begun, default=0.0)


def samples(
    archives: Mapping[str, Archive],
    *,
    stages: tuple[str, ...] | None = None,
    origin: float | None = None,
    ramps: bool = False,
) -> pd.DataFrame:
    """Return columns t_s (float64), node (the tenant), metric (strings), value (float64).

    Metrics of each operation are ``read.iops``, ``read.throughput_mb_s`` (10^6 bytes per second),
    ``read.latency_s``, ``read.p95_s`` (cosdrive only) and ``read.errors``. cosdrive also has those
    of ``all``, without the percentile. An idle second has no latency. A real COSBench also has
    ``read.errors_least`` and ``read.errors_most``, if the percentage of successful operations
    allows more than one count. Its rows are for an `interval`, and their time is the interval's
    end; cosdrive's time is the beginning of a second.

    Args:
        archives: archives by tenant.
        stages: names of the stages to take; by default all that measure.
        origin: epoch of t_s = 0; by default `origin_of`.
        ramps: also the uncounted seconds of ramp-up and ramp-down.
    """
    import pandas as pd

    zero = origin_of(archives, stages) if origin is None else origin
    rows = [
        (at - zero, tenant, metric, value)
        for tenant, archive in archives.items()
        for at, metric, value in _samples(archive, _chosen(archive, stages), ramps)
    ]
    rows.sort(key=lambda row: row[:3])
    frame = pd.DataFrame(rows, columns=list(SAMPLES))
    return frame.astype({"t_s": "float64", "node": "str", "metric": "str", "value": "float64"})


def latencies(
    archives: Mapping[str, Archive],
    *,
    stages: tuple[str, ...] | None = None,
    origin: float | None = None,
) -> pd.DataFrame:
    """Return columns t_s (float64), op, tenant, node (strings), low_ns, high_ns, count (int64).

    cosdrive's histograms have full resolution, a real COSBench's have buckets of 10 ms. A histogram
    covers a whole stage: `t_s` is the start of its measured time. An operation took low_ns or
    longer and less than high_ns; a last bucket may end at 2^63 - 1.
    """
    import pandas as pd

    zero = origin_of(archives, stages) if origin is None else origin
    rows = []
    for tenant, archive in archives.items():
        for at, op, buckets in _latencies(archive, _chosen(archive, stages)):
            t_s = at - zero
            rows += [(t_s, op, tenant, "client", low, high, n) for low, high, n in buckets if n]
    frame = pd.DataFrame(rows, columns=list(LATENCY))
    kinds = dict.fromkeys(("low_ns", "high_ns", "count"), "int64")
    kinds |= dict.fromkeys(("op", "tenant", "node"), "str")
    return frame.astype({"t_s": "float64", **kinds})


def summaries(archive: Archive, stage: str | None = None) -> list[OpSummary]:
    """Summarize each operation of the measuring stages, or of one of them.

    Throughput and operations per second are COSBench's: the sum over workers of the operations of
    each by the time from its first operation's beginning to its last one's end. `errors` is None if
    COSBench's percentage allows more than one count.

    Args:
        archive: the archive of one tenant.
        stage: name or id of a stage; by default all that measure.
    """
    names = (stage,) if stage is not None else None
    return [
        _summary(archive, identity, result)
        for identity in _chosen(archive, names)
        for result in archive.stage(identity).results
    ]


def _chosen(archive: Archive, stages: tuple[str, ...] | None) -> tuple[str, ...]:
    if stages is not None:
        return tuple(archive.stage(name).id for name in stages)
    return tuple(stage.id for stage in archive.main)


def _begun(archive: Archive, identity: str) -> float | None:
    for measured in archive.measured:
        if measured.stage == identity:
            return measured.started_at
    at = archive.stage(identity).at("running")
    return None if at is None else at.replace(tzinfo=UTC).timestamp()


def _samples(
    archive: Archive, stages: tuple[str, ...], ramps: bool
) -> Iterator[tuple[float, str, float]]:
    """Yield (epoch, metric, value)."""
    if archive.driver is not None:
        yield from _by_second(archive, stages, archive.driver.started_at, ramps)
        return
    for identity in stages:
        begun = _begun(archive, identity) or 0.0
        for result in archive.stage(identity).results:
            for point in result.series:
                at = begun + point.t_s
                yield at, f"{result.op}.iops", point.operations_s
                yield at, f"{result.op}.throughput_mb_s", point.bytes_s / 1e6
                if point.mean_s is not None:
                    yield at, f"{result.op}.latency_s", point.mean_s
                if (failed := failures_of(point.operations, point.success)) is not None:
                    yield at, f"{result.op}.errors", float(failed.likely)
                    if failed.exact is None:
                        yield at, f"{result.op}.errors_least", float(failed.least)
                        yield at, f"{result.op}.errors_most", float(failed.most)


def _by_second(
    archive: Archive, stages: tuple[str, ...], started_at: float, ramps: bool
) -> Iterator[tuple[float, str, float]]:
    totals: dict[float, list[float]] = {}
    for second in archive.seconds:
        if second.stage not in stages or not (second.measured or ramps):
            continue
        at = started_at + second.t_s
        total = totals.setdefault(at, [0.0, 0.0, 0.0, 0.0])
        total[0] += second.operations
        total[1] += second.bytes
        total[2] += second.failed
        total[3] += (second.mean_s or 0.0) * second.operations
        yield at, f"{second.op}.iops", float(second.operations)
        yield at, f"{second.op}.throughput_mb_s", second.bytes / 1e6
        yield at, f"{second.op}.errors", float(second.failed)
        if second.mean_s is not None:
            yield at, f"{second.op}.latency_s", second.mean_s
        if second.p95_s is not None:
            yield at, f"{second.op}.p95_s", second.p95_s
    for at, (operations, size, failed, waited) in totals.items():
        yield at, f"{ALL}.iops", operations
        yield at, f"{ALL}.throughput_mb_s", size / 1e6
        yield at, f"{ALL}.errors", failed
        if operations:
            yield at, f"{ALL}.latency_s", waited / operations


def _latencies(archive: Archive, stages: tuple[str, ...]) -> Iterator[tuple[float, str, Buckets]]:
    """Yield (epoch, operation, buckets)."""
    for identity in stages:
        own = [measured for measured in archive.measured if measured.stage == identity]
        for measured in own:
            yield measured.started_at + measured.begin_s, measured.op, measured.buckets
        if not own:
            begun = _begun(archive, identity) or 0.0
            for result in archive.stage(identity).results:
                yield begun, result.op, result.buckets


def _summary(archive: Archive, identity: str, result: OperationResult) -> OpSummary:
    own = [m for m in archive.measured if m.stage == identity and m.op == result.op]
    exact = own[0] if len(own) == 1 else None
    buckets = exact.buckets if exact else result.buckets
    failed = result.failures
    return OpSummary(
        op=result.op,
        seconds=result.operations / result.operations_s if result.operations_s else 0.0,
        operations=result.operations,
        bytes=result.bytes,
        throughput_mb_s=result.bytes_s / 1e6,
        iops=result.operations_s,
        # In an open loop the exact mean is from the intended beginning, COSBench's is not.
        latency_mean_s=exact.mean_s if exact else result.mean_s,
        latency_max_s=exact.max_s if exact else _known(quantile_s(buckets, 1.0)),
        latency_p50_s=_known(quantile_s(buckets, 0.50)),
        latency_p99_s=_known(quantile_s(buckets, 0.99)),
        errors=sum(exact.failed.values()) if exact else failed.exact if failed else None,
    )


def _known(seconds: float | None) -> float | None:
    # Nothing is known beyond a last bucket without an end.
    return seconds if seconds is not None and isfinite(seconds) else None


@dataclass(frozen=True)
class ArchiveDifference:
    """Number in both archives.

    `change` is (second - first) / first; None if one is missing or beyond the last bucket, or the
    first is 0. `same`: equal, or percentiles at most one bucket apart.
    """

    stage: str
    op: str
    metric: str
    first: float | None
    second: float | None
    change: float | None
    same: bool


@dataclass(frozen=True)
class ArchiveComparison:
    """Comparison of two archives.

    `only_first` and `only_second` name operations (stage/op) that the other lacks; `unlike` are
    sentences about types and workers that differ.
    """

    first: str
    second: str
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    unlike: tuple[str, ...]
    differences: tuple[ArchiveDifference, ...]

    @property
    def same_shape(self) -> bool:
        """True if both ran the same operations with as many workers."""
        return not (self.only_first or self.only_second or self.unlike)


def compare(first: Archive, second: Archive, *, main_only: bool = False) -> ArchiveComparison:
    """Compare two archives, stage by stage and operation by operation, by their names.

    Args:
        first: changes are relative to it.
        second: the other.
        main_only: leave out stages that prepare or clean up the store.
    """
    ours, theirs = _by_name(first, main_only), _by_name(second, main_only)
    differences, unlike = [], []
    for (stage, op), a in ours.items():
        b = theirs.get((stage, op))
        if b is None:
            continue
        if a.type != b.type:
            unlike.append(f"{stage}/{op}: type {a.type}, {b.type}")
        if a.workers is not None and b.workers is not None and a.workers != b.workers:
            unlike.append(f"{stage}/{op}: {a.workers} workers, {b.workers} workers")
        differences += [_difference(stage, op, metric, a, b) for metric in METRICS]
    return ArchiveComparison(
        first=str(first.folder),
        second=str(second.folder),
        only_first=tuple("/".join(key) for key in ours if key not in theirs),
        only_second=tuple("/".join(key) for key in theirs if key not in ours),
        unlike=tuple(unlike),
        differences=tuple(differences),
    )


def _by_name(archive: Archive, main_only: bool) -> dict[tuple[str, str], OperationResult]:
    """Return results by stage and operation; the second of a repeated name is ``read (2)``."""
    found: dict[tuple[str, str], OperationResult] = {}
    for stage in archive.main if main_only else archive.stages:
        for result in stage.results:
            name, number = result.op, 1
            while (stage.name, name) in found:
                number += 1
                name = f"{result.op} ({number})"
            found[stage.name, name] = result
    return found


def _difference(
    stage: str, op: str, metric: str, first: OperationResult, second: OperationResult
) -> ArchiveDifference:
    a, b = _metric(first, metric), _metric(second, metric)
    # Beyond the last bucket a percentile is infinite.
    change = (b - a) / a if a and b is not None and isfinite(a - b) else None
    if a is None or b is None:
        same = a is b
    elif metric in _PERCENTILES:
        same = a == b or abs(a - b) <= BUCKET_S + 1e-9
    else:
        same = isclose(a, b, rel_tol=1e-9)
    return ArchiveDifference(stage, op, metric, a, b, change, same)


_PERCENTILES = {f"p{percent}_s": percent for percent in PERCENTS}


def _metric(result: OperationResult, metric: str) -> float | None:
    if metric in _PERCENTILES:
        return result.percentiles_s.get(_PERCENTILES[metric])
    value: float | None = getattr(result, metric)
    return None if value is None else float(value)
