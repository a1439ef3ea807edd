"""Two archives side by side, such as a real COSBench's and cosdrive's of the same workload."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isclose, isfinite

from workloads.cosbench.results import Archive, Result, Stage

BUCKET_S = 0.01
"""COSBench tells percentiles by the upper edge of such a bucket."""

Metric = Callable[[Result], float | None]

PERCENTS = (60, 80, 90, 95, 99, 100)


def _percentile(percent: int) -> Metric:
    return lambda result: result.percentiles_s.get(percent)


METRICS: dict[str, Metric] = {
    "operations": lambda result: float(result.operations),
    "bytes": lambda result: float(result.bytes),
    "mean_s": lambda result: result.mean_s,
    "processing_s": lambda result: result.processing_s,
    **{f"p{percent}_s": _percentile(percent) for percent in PERCENTS},
    "operations_s": lambda result: result.operations_s,
    "bytes_s": lambda result: result.bytes_s,
    "success": lambda result: result.success,
}


@dataclass(frozen=True)
class Difference:
    """A number of both archives. `change` is (second - first) / first; None where one is missing
    or beyond the last bucket, or the first is 0. `same`: equal, or percentiles at most one bucket
    apart."""

    stage: str
    op: str
    metric: str
    first: float | None
    second: float | None
    change: float | None
    same: bool


@dataclass(frozen=True)
class Comparison:
    """Two archives. `only_first` and `only_second` name operations (stage/op) that the other lacks;
    `same_shape`: neither lacks any, and their types and workers agree."""

    first: str
    second: str
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    unlike: tuple[str, ...]
    differences: tuple[Difference, ...]

    @property
    def same_shape(self) -> bool:
        """Whether the same operations were asked of both."""
        return not (self.only_first or self.only_second or self.unlike)


def compare(first: Archive, second: Archive, *, main_only: bool = False) -> Comparison:
    """Compare what two archives hold, stage by stage and operation by operation, by their names.

    Args:
        first: the one that changes are relative to.
        second: the other.
        main_only: leave out what gets the store ready and cleans it up.
    """
    ours = dict(_results(first, main_only))
    theirs = dict(_results(second, main_only))
    differences, unlike = [], []
    for key, a in ours.items():
        if key not in theirs:
            continue
        b = theirs[key]
        name = _shown(key)
        if a.type != b.type:
            unlike.append(f"{name}: type {a.type}, {b.type}")
        if a.workers is not None and b.workers is not None and a.workers != b.workers:
            unlike.append(f"{name}: {a.workers} workers, {b.workers} workers")
        differences += [_difference(key, metric, a, b) for metric in METRICS]
    return Comparison(
        first=str(first.folder),
        second=str(second.folder),
        only_first=tuple(_shown(key) for key in ours if key not in theirs),
        only_second=tuple(_shown(key) for key in theirs if key not in ours),
        unlike=tuple(unlike),
        differences=tuple(differences),
    )


Key = tuple[str, str, int]


def _results(archive: Archive, main_only: bool) -> Iterator[tuple[Key, Result]]:
    stages: tuple[Stage, ...] = archive.main if main_only else archive.stages
    seen: dict[tuple[str, str], int] = {}
    for stage in stages:
        for result in stage.results:
            name = (stage.name, result.op)
            seen[name] = seen.get(name, 0) + 1
            yield (*name, seen[name]), result


def _shown(key: Key) -> str:
    stage, op, number = key
    return f"{stage}/{op}" + (f" ({number})" if number > 1 else "")


def _difference(key: Key, metric: str, first: Result, second: Result) -> Difference:
    a, b = METRICS[metric](first), METRICS[metric](second)
    # Beyond the last bucket a percentile is infinite.
    change = (b - a) / a if a and b is not None and isfinite(a - b) else None
    stage, op = key[0], _shown(key).partition("/")[2]
    return Difference(stage, op, metric, a, b, change, _same(metric, a, b))


def _same(metric: str, first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first is second
    if metric.startswith("p") and metric.endswith("_s") and metric != "processing_s":
        return first == second or abs(first - second) <= BUCKET_S + 1e-9
    return isclose(first, second, rel_tol=1e-9)
