"""An archive's latencies and summaries as a run keeps them, and comparison of two archives."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import isclose, isfinite
from typing import TYPE_CHECKING

from schemas.run import OpSummary
from workloads.cosbench.archive import PERCENTS, Archive, OperationResult, quantile_s

if TYPE_CHECKING:
    import pandas as pd

LATENCY = ("t_s", "op", "tenant", "node", "low_ns", "high_ns", "count")
BUCKET_S = 0.01
"""Width of the buckets behind COSBench's percentiles, which it prints as upper edges."""

METRICS = (
    *("operations", "bytes", "mean_s", "processing_s"),
    *(f"p{percent}_s" for percent in PERCENTS),
    *("operations_s", "bytes_s", "success"),
)


def latencies(archive: Archive, origin: float) -> pd.DataFrame:
    """Return columns t_s (float64), op, tenant, node (strings), low_ns, high_ns, count (int64).

    A histogram covers a whole measuring stage of cosdrive: `t_s` is the start of its measured time.
    An operation took low_ns or longer and less than high_ns.

    Args:
        archive: cosdrive's; its name is the tenant.
        origin: epoch of t_s = 0.
    """
    import pandas as pd

    main = {stage.id for stage in archive.main}
    rows = [
        (one.started_at + one.begin_s - origin, one.op, archive.name, "client", low, high, count)
        for one in archive.measured
        if one.stage in main
        for low, high, count in one.buckets
        if count
    ]
    frame = pd.DataFrame(rows, columns=list(LATENCY))
    kinds = dict.fromkeys(("low_ns", "high_ns", "count"), "int64")
    kinds |= dict.fromkeys(("op", "tenant", "node"), "str")
    return frame.astype({"t_s": "float64", **kinds})


def summaries(archive: Archive) -> list[OpSummary]:
    """Summarize each operation of the measuring stages.

    Throughput and operations per second are COSBench's: the sum over workers of the operations of
    each by the time from its first operation's beginning to its last one's end. `errors` is None if
    COSBench's percentage allows more than one count.
    """
    return [_summary(archive, result) for stage in archive.main for result in stage.results]


def _summary(archive: Archive, result: OperationResult) -> OpSummary:
    own = [m for m in archive.measured if m.stage == result.stage and m.op == result.op]
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
    seen = Counter[tuple[str, str]]()
    for stage in archive.main if main_only else archive.stages:
        for result in stage.results:
            seen[stage.name, result.op] += 1
            number = seen[stage.name, result.op]
            found[stage.name, result.op if number == 1 else f"{result.op} ({number})"] = result
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
