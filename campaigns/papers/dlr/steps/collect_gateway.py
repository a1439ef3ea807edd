"""Collection of a COSBench workload on the object gateway into a run folder's files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import pandas as pd

from campaigns.papers.dlr.services import CellSetting
from campaigns.papers.dlr.steps.collect import STEADY_AFTER_INTERVALS, controller_summary, is_inert
from controllers.journal import read_journal
from schemas.errors import HotbedError
from schemas.run import OpSummary, Summary
from workloads import collect as tidied
from workloads.cosbench import tables
from workloads.cosbench.archive import Archive, Measured, Second

OP = "s3"
TIMED = ("read", "write")
"""Operations with a latency that counts: a deletion moves no data."""
Row = tuple[float, str, str, float]


def collect(
    setting: CellSetting,
    archive: Archive,
    recording: Sequence[Mapping[str, Any]],
    disturbance: Mapping[str, Any],
    *,
    nodes: Sequence[str],
) -> Summary:
    """Write samples and latencies into the run's folder, and return the run's summary.

    Args:
        setting: the cell; its journal must already be in its folder.
        archive: cosdrive's, with one measuring stage.
        recording: the recorder's samples.
        disturbance: answer of the verb disturb-log.
        nodes: nodes with OSDs.

    Raises:
        HotbedError: no operation ended in the measured time.
    """
    done = [one for one in archive.measured if one.operations]
    if not done or not any(one.op in TIMED for one in done):
        raise HotbedError("not one object was read or written: the gateway did not take the load.")
    began = done[0].started_at + done[0].begin_s
    seconds = setting.duration_s
    folder = setting.folder
    rows = [*_client_rows(archive, began), *_recorded_rows(recording, began)]
    samples = pd.DataFrame(sorted(rows), columns=list(tidied.COLUMNS))
    samples = samples.astype({"t_s": "float64", "value": "float64"})
    samples.to_parquet(folder / "samples.parquet", index=False)
    name = archive.name
    latencies = tables.latencies({name: archive}, origin=began)
    latencies.to_parquet(folder / "latency.parquet", index=False)
    journal = read_journal(folder / "journal.jsonl")
    within = samples[samples["t_s"].between(0, seconds) & (samples["metric"] == tidied.PRESSURE)]
    means = within.groupby("node")["value"].mean()
    extra = {f"hot_iops.{n}": iops for n, iops in tidied.load_iops(disturbance["outputs"]).items()}
    from_s = min(STEADY_AFTER_INTERVALS * setting.interval_s, seconds / 2)
    return Summary(
        whole=[whole(done, archive.measured, seconds), *tables.summaries(archive)],
        steady=[steady(archive, began, from_s)],
        pressure_mean={node: float(means[node]) for node in nodes if node in means.index},
        controller=controller_summary(journal),
        inert=is_inert(journal),
        extra=extra,
    )


def whole(done: Sequence[Measured], every: Sequence[Measured], seconds: float) -> OpSummary:
    """Return the summary of all operations: bytes of reads and writes per measured time, and the
    mean latency of reads and writes.

    Args:
        done: kinds of operations with at least one success.
        every: all kinds, including those that only failed.
        seconds: measured time.
    """
    timed = [one for one in done if one.op in TIMED]
    count = sum(one.operations for one in timed)
    moved = sum(one.bytes for one in timed)
    total = sum(one.operations for one in done)
    return OpSummary(
        op=OP,
        seconds=seconds,
        operations=total,
        bytes=moved,
        throughput_mb_s=moved / seconds / 1e6,
        iops=total / seconds,
        latency_mean_s=sum((one.mean_s or 0.0) * one.operations for one in timed) / count,
        latency_max_s=max((one.max_s or 0.0) for one in timed),
        errors=sum(sum(one.failed.values()) for one in every),
    )


def steady(archive: Archive, began: float, from_s: float) -> OpSummary:
    """Return the same from `from_s` seconds after `began` (epoch) on, from the driver's seconds.

    Raises:
        HotbedError: nothing was measured after that time.
    """
    rows = [(t_s, one) for t_s, one in _measured(archive, began) if t_s >= from_s - 1e-6]
    span = float(len({t_s for t_s, _ in rows}))
    timed = [one for _, one in rows if one.op in TIMED and one.mean_s is not None]
    count = sum(one.operations for one in timed)
    if not span or not count:
        raise HotbedError(
            f"no object was read or written after the first {from_s:.1f} s: make the workload "
            "longer or the control interval shorter."
        )
    moved = sum(one.bytes for _, one in rows if one.op in TIMED)
    total = sum(one.operations for _, one in rows)
    return OpSummary(
        op=OP,
        seconds=span,
        operations=total,
        bytes=moved,
        throughput_mb_s=moved / span / 1e6,
        iops=total / span,
        latency_mean_s=sum((one.mean_s or 0.0) * one.operations for one in timed) / count,
        errors=sum(one.failed for _, one in rows),
    )


def _measured(archive: Archive, began: float) -> Iterator[tuple[float, Second]]:
    """Yield the driver's measured seconds with their begins, counted from `began`."""
    driver = archive.driver
    zero = driver.started_at if driver is not None else began
    for one in archive.seconds:
        if one.measured:
            yield round(zero + one.t_s - began, 3), one


def _client_rows(archive: Archive, began: float) -> Iterator[Row]:
    """Yield rows for the second that ends at each row's time, like rados bench's."""
    by_second: dict[float, list[Second]] = {}
    for t_s, one in _measured(archive, began):
        by_second.setdefault(t_s, []).append(one)
    for t_s, found in by_second.items():
        timed = [one for one in found if one.op in TIMED]
        known = [one for one in timed if one.mean_s is not None and one.operations]
        yield t_s + 1, tidied.CLIENT, "throughput_mb_s", sum(one.bytes for one in timed) / 1e6
        yield t_s + 1, tidied.CLIENT, "iops", float(sum(one.operations for one in found))
        if known:
            weighted = [one.mean_s or 0.0 for one in known for _ in range(one.operations)]
            yield t_s + 1, tidied.CLIENT, "latency_s", fmean(weighted)


def _recorded_rows(recording: Sequence[Mapping[str, Any]], began: float) -> Iterator[Row]:
    for line in recording:
        t_s = float(line["wall"]) - began
        for node, metrics in line["values"].items():
            for metric, value in metrics.items():
                if value is not None and math.isfinite(value):
                    yield t_s, str(node), str(metric), float(value)
