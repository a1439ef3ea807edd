"""Numbers of a run, from drivers' archives, recorder samples and a controller's journal.

``summary.json`` has for each workload w: ``w_qps`` (all operations a second), ``w_mb_s``,
``w_mean_s``, ``w_p50_s`` to ``w_p99_s``, ``w_ops`` and ``w_failed``. Latencies are of reads if most
operations are reads, else of writes; quantiles need ten slower requests. It also has ``qps`` and
``mb_s`` of all, ``proxy_busy`` (share of held cores), ``proxy_ms_per_op``, ``storage_ms_per_op``,
``disk_busy_mean`` and ``cores.node``. In rates, an operation counts by the part of its time inside
the measured time. Otherwise long ones would count by chance, because workers that began together
end together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import floor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from campaigns.engine.write_cell import write_latency, write_samples
from campaigns.papers.mos.drives import DriverLoad, ProxyDriver
from schemas.errors import HotbedError
from workloads.cosbench.archive import Archive, OperationSecond, quantile_s, read_archive

MEGA = 1e6
QUANTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
BEYOND = 10
"""Least number of requests beyond a reported quantile."""
MISSED = 0.02
"""Share of reads without an object, above which the objects count as gone; an overloaded store may
miss a few."""
SLA_WINDOW_MINUTES = 2.0

Floats = npt.NDArray[np.float64]
Buckets = dict[tuple[int, int], int]


class ObjectsGone(HotbedError):
    """Objects that were written for reading are gone."""


@dataclass
class Sent:
    """Operations of one workload, from all its drivers.

    Arrays have one value per second since the load began. `ops` and `bytes` are spread evenly over
    the time that each operation took. `ended`, `failed`, `reads` and `writes` count ended
    operations; `read_s` and `write_s` are sums of latencies. `buckets`: measured latencies by
    operation, (from, to) in nanoseconds. `missing`: reads that found no object; `late_s`: largest
    delay of a driver.
    """

    seconds: int
    missing: int = 0
    late_s: float = 0.0
    ended: Floats = field(init=False)
    ops: Floats = field(init=False)
    bytes: Floats = field(init=False)
    failed: Floats = field(init=False)
    reads: Floats = field(init=False)
    read_s: Floats = field(init=False)
    writes: Floats = field(init=False)
    write_s: Floats = field(init=False)
    buckets: dict[str, Buckets] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("ended", "ops", "bytes", "failed", *("reads", "read_s", "writes", "write_s")):
            setattr(self, name, np.zeros(self.seconds))

    def add(self, archive: Archive, start: float) -> None:
        """Add the operations of one driver; `start` is the Unix time at which the load began."""
        driver = archive.driver
        if driver is None:
            raise HotbedError(f"{archive.folder} is not of cosdrive: it has no series.")
        offset = driver.started_at - start
        for second in archive.seconds:
            self._spread(offset + second.t_s, second)
            at = int(offset + second.t_s)
            if not 0 <= at < self.seconds:
                continue
            self.ended[at] += second.operations
            self.failed[at] += second.failed
            total = (second.mean_s or 0.0) * second.operations
            if second.op == "read":
                self.reads[at] += second.operations
                self.read_s[at] += total
            elif second.op == "write":
                self.writes[at] += second.operations
                self.write_s[at] += total
        for one in archive.measured:
            buckets = self.buckets.setdefault(one.op, {})
            for low, high, count in one.buckets:
                buckets[low, high] = buckets.get((low, high), 0) + count
            if one.type == "read":
                self.missing += one.failed.get("not-found", 0)

    def _spread(self, t_s: float, second: OperationSecond) -> None:
        """Spread the operations that ended in a second (on average mid-second) over their time."""
        ends = t_s + 0.5
        begins = ends - (second.mean_s or 0.0)
        first, last = floor(begins), floor(ends)
        for at in range(max(0, first), min(last + 1, self.seconds)):
            part = 1.0
            if first < last:
                part = (min(ends, at + 1) - max(begins, at)) / (ends - begins)
            self.ops[at] += part * second.operations
            self.bytes[at] += part * second.bytes

    @property
    def main(self) -> str:
        """Most frequent operation."""
        return "read" if self.reads.sum() >= self.writes.sum() else "write"

    def mean_s(self, begins: int, ends: int) -> float | None:
        """Return the mean latency of the main operation between two seconds; None if none ended."""
        count, total = (
            (self.reads, self.read_s) if self.main == "read" else (self.writes, self.write_s)
        )
        done = count[begins:ends].sum()
        return float(total[begins:ends].sum() / done) if done else None

    def quantile_s(self, share: float) -> float | None:
        """Return a quantile of the main operation's latency, as the upper end of its bucket; None
        if fewer than ten operations are slower."""
        counted = sorted(self.buckets.get(self.main, {}).items())
        buckets = tuple((low, high, count) for (low, high), count in counted)
        if sum(count for _, _, count in buckets) * (1 - share) < BEYOND:
            return None
        return quantile_s(buckets, share)

    def as_json(self) -> dict[str, list[float]]:
        """Return the series for the figures."""
        names = ("ops", "bytes", "failed", "reads", "read_s")
        return {name: [round(float(v), 6) for v in getattr(self, name)] for name in names}

    def latencies(self) -> dict[str, list[list[float]]]:
        """Return (from, to, count) by operation, in seconds."""
        return {
            op: [[low / 1e9, high / 1e9, count] for (low, high), count in sorted(found.items())]
            for op, found in self.buckets.items()
        }


def gather(
    drives: Sequence[ProxyDriver], folder: Path, start: float, seconds: float
) -> dict[str, Sent]:
    """Return the operations of each workload, from the archives that `drives.drive` copied.
    UserError, HotbedError: an archive is damaged."""
    found: dict[str, Sent] = {}
    for one in drives:
        sent = found.setdefault(one.load.letter, Sent(int(np.ceil(seconds))))
        archive = read_archive(folder / f"{one.name}.archive")
        sent.add(archive, start)
        for measured in archive.measured:
            sent.late_s = max(sent.late_s, measured.started_at - start - one.load.begins_s)
    return found


def refuse_lost(sent: Mapping[str, Sent]) -> None:
    """Raise if too many reads found no object. ObjectsGone: the workload, and its number of reads
    without an object. HotbedError: no operation of a workload ended."""
    for letter, one in sent.items():
        if one.missing > MISSED * (one.missing + one.reads.sum()):
            raise ObjectsGone(
                f"{one.missing} reads of workload {letter} found no object: what was written is "
                "gone, and is written again before the next cell."
            )
        if not one.ended.sum():
            raise HotbedError(f"not one operation of workload {letter} ended.")


def numbers_of(sent: Mapping[str, Sent], begins_s: float, ends_s: float) -> dict[str, float]:
    """Return a run's numbers for the time between two seconds."""
    begins, ends = round(begins_s), round(ends_s)
    took = ends - begins
    found: dict[str, float] = {"qps": 0.0, "mb_s": 0.0, "failed": 0.0}
    for letter, one in sent.items():
        ops, moved = one.ops[begins:ends].sum(), one.bytes[begins:ends].sum()
        found[f"{letter}_qps"] = float(ops / took)
        found[f"{letter}_mb_s"] = float(moved / took / MEGA)
        found[f"{letter}_ops"] = float(one.ended[begins:ends].sum())
        found[f"{letter}_failed"] = float(one.failed.sum())
        found["qps"] += found[f"{letter}_qps"]
        found["mb_s"] += found[f"{letter}_mb_s"]
        found["failed"] += found[f"{letter}_failed"]
        latencies = {"mean": one.mean_s(begins, ends)}
        latencies |= {name: one.quantile_s(share) for name, share in QUANTILES.items()}
        found |= {
            f"{letter}_{key}_s": value for key, value in latencies.items() if value is not None
        }
    return found


def recorded(
    samples: Sequence[Mapping[str, Any]],
    nodes: Sequence[str],
    name: str,
    begins: float,
    ends: float,
) -> float | None:
    """Return a metric summed over nodes, as the mean over the samples between two Unix times; None
    without samples."""
    values = [
        sum(float(line["values"].get(node, {}).get(name, 0.0)) for node in nodes)
        for line in samples
        if begins <= float(line["wall"]) <= ends
    ]
    return float(np.mean(values)) if values else None


def usage_of(
    samples: Sequence[Mapping[str, Any]],
    window: tuple[float, float],
    *,
    proxies: Sequence[str],
    storage: Sequence[str],
    held: float,
    ops_s: float,
) -> dict[str, float]:
    """Return the use of processors, links and disks in the measured time.

    Args:
        samples: the recorder's samples.
        window: Unix times.
        proxies: nodes with the proxies that serve the workloads.
        storage: storage nodes.
        held: cores that the proxies hold together.
        ops_s: operations a second.
    """
    found: dict[str, float] = {}
    for name, nodes in (("proxy", proxies), ("storage", storage)):
        cores = recorded(samples, nodes, "cpu_cores", *window)
        if cores is None:
            continue
        found[f"{name}_cores_used"] = cores
        if ops_s > 0:
            found[f"{name}_ms_per_op"] = 1e3 * cores / ops_s
        if name == "proxy" and held > 0:
            found["proxy_busy"] = cores / held
    sends = recorded(samples, proxies, "net_tx_mb_s", *window)
    if sends is not None:
        found["proxy_net_tx_mb_s"] = sends
    busy = recorded(samples, storage, "disk_util", *window)
    if busy is not None and storage:
        found["disk_busy_mean"] = busy / 100 / len(storage)
    return found


def held_of(steps: Sequence[Mapping[str, Any]], start: float) -> list[dict[str, Any]]:
    """Return the resources and the utilization of microstores at each of a controller's steps:
    sensed values, with the step's actions applied. `t_s` counts from the load's beginning."""
    found: list[dict[str, Any]] = []
    for step in steps:
        seen = (step.get("observation") or {}).get("microstores")
        if not seen:
            continue
        stores = {store["name"]: dict(store["resources"]) for store in seen["stores"]}
        machines = {machine["name"]: machine for machine in seen.get("machines", ())}
        for action in step.get("actions") or ():
            if action.get("action") == "SetResources":
                stores[action["microstore"]] = dict(action["resources"])
            elif action.get("action") == "AssignMachine":
                machine = machines[action["machine"]]
                for name, sign in ((machine["microstore"], -1), (action["microstore"], 1)):
                    for key, amount in machine["holds"].items() if name else ():
                        stores[name][key] += sign * amount
        found.append(
            {
                "t_s": float(step["wall"]) - start,
                "stores": stores,
                "utilization": {one["name"]: one["utilization"] for one in seen["stores"]},
            }
        )
    return found


# A changing load: numbers by stage, at the spike, and shares of time within SLAs.


def stage_numbers(sent: Mapping[str, Sent], course: Mapping[str, Any]) -> dict[str, float]:
    """Return A's QPS and mean latency and C's bandwidth by stage of a course (`cell.course_of`).
    A's QPS of the spike is of its second half, after the controller could react."""
    small, large = sent["A"], sent["C"]
    found: dict[str, float] = {}
    edges = [*course["stages"], course["ends"]]
    for number, (begins, ends) in enumerate(pairwise(edges), start=1):
        first, last = round(begins), round(ends)
        found[f"A_qps_stage{number}"] = float(small.ops[first:last].mean())
        found[f"C_mb_s_stage{number}"] = float(large.bytes[first:last].mean() / MEGA)
        mean = small.mean_s(first, last)
        if mean is not None:
            found[f"A_mean_s_stage{number}"] = mean
    begins, ends = course["stages"][1], course["spike_ends"]
    found["A_qps_spike"] = float(small.ops[round((begins + ends) / 2) : round(ends)].mean())
    return found


def promised(loads: Sequence[DriverLoad], seconds: float, mb_s: float) -> Floats:
    """Return the bytes promised to workload C in each second: `mb_s` for each of its workers."""
    at = np.arange(int(np.ceil(seconds))) + 0.5
    workers = np.zeros(len(at))
    for load in loads:
        if load.letter == "C":
            workers += load.workers * ((load.begins_s <= at) & (at < load.ends_s))
    return workers * mb_s * MEGA


def shares_within(
    sent: Mapping[str, Sent], sla: Mapping[str, Any], minute_s: float
) -> dict[str, float]:
    """Return the shares of windows of `SLA_WINDOW_MINUTES` within the SLAs: with reads and a mean
    read latency of at most A's, with the bandwidth promised to C."""
    width = max(1, round(SLA_WINDOW_MINUTES * minute_s))

    def summed(values: npt.ArrayLike) -> Floats:
        each = np.asarray(values)
        found: Floats = each[: len(each) // width * width].reshape(-1, width).sum(axis=1)
        return found

    total, count = summed(sent["A"].read_s), summed(sent["A"].reads)
    within = (count > 0) & (total <= sla["latency_s"] * count)
    enough = summed(sent["C"].bytes) >= summed(sla["bytes_s"])
    return {"A_sla_met": float(within.mean()), "C_sla_met": float(enough.mean())}


def write_tables(
    folder: Path, samples: Sequence[Mapping[str, Any]], sent: Mapping[str, Sent], start: float
) -> None:
    """Write `samples.parquet` and `latency.parquet`; `t_s` counts from the start of the load.

    Samples are the recorder's metrics by node, and ``requests_s``, ``mb_s``, ``failed_s`` and
    ``read_mean_s`` of each workload (node ``workload A``). The tenant of a latency is the
    workload's letter.
    """
    rows = [
        (float(line["wall"]) - start, node, metric, float(value))
        for line in samples
        for node, metrics in line["values"].items()
        for metric, value in metrics.items()
    ]
    for letter, one in sent.items():
        node = f"workload {letter}"
        mean = np.divide(
            one.read_s, one.reads, out=np.full(one.seconds, np.nan), where=one.reads > 0
        )
        for metric, values in (
            ("requests_s", one.ops),
            ("mb_s", one.bytes / MEGA),
            ("failed_s", one.failed),
            ("read_mean_s", mean),
        ):
            rows += [
                (float(at), node, metric, float(value))
                for at, value in enumerate(values)
                if not np.isnan(value)
            ]
    write_samples(folder, rows)
    write_latency(
        folder,
        (
            (0.0, op, letter, "", low, high, count)
            for letter, one in sent.items()
            for op, buckets in one.buckets.items()
            for (low, high), count in sorted(buckets.items())
        ),
    )
