"""fio: the hotspots and offered loads that disturb a node, and its reports."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from schemas.model import Model
from testbed.agent.contract import Agent
from testbed.deploy.inventory import FIO_JOBS, SCRATCH_PATH
from workloads.errors import WorkloadError

DIRECTORY = f"{SCRATCH_PATH}/fio"
NAME = "hot"
JOBS = FIO_JOBS  # section V-B: 4 parallel randread jobs of 2 GB each, 4 KB, libaio, iodepth 16
IODEPTH = 16
BLOCK = 4096
UNIT_FILES = "load-files"
FILES_S = 300.0
_GROUP_BITS = 6  # fio's latency buckets: 64 a power of two (stat.h, FIO_IO_U_PLAT_BITS)


class FioLoad(Model):
    """Random 4 KiB reads of a node's disk, on the files that the role fio laid out.

    Without `offered_iops` it is the paper's hotspot: a closed loop of `jobs` x `iodepth` reads,
    which takes all it gets. With it, reads arrive as a Poisson process of that rate, limited by
    `jobs` x `iodepth` in flight: an offered load. `file_bytes` is the part of each file to read:
    the laid-out size (`fio_file_bytes` of `testbed.deploy.inventory`) or less. Offsets and
    arrivals are drawn from `seed`: give each node its own seed, or all nodes would see the same
    arrivals. `ioengine` psync reads one block at a time and waits for it, as a thread of an OSD
    does; then only `jobs` reads are in flight. I/O is `direct`, which the paper does not say:
    through the page cache fio would read memory.
    """

    file_bytes: int = Field(ge=BLOCK)
    offered_iops: float | None = Field(default=None, ge=1)
    jobs: int = Field(default=JOBS, ge=1, le=64)
    iodepth: int = Field(default=IODEPTH, ge=1, le=1024)
    directory: str = Field(default=DIRECTORY, pattern=r"^/[^\s:]+$")
    direct: bool = True
    seed: int = Field(default=1, ge=1, lt=2**32)
    output: Literal["json", "json+"] = "json"
    ioengine: Literal["libaio", "psync"] = "libaio"

    def argv(self, runtime_s: float) -> list[str]:
        """Return the command; it should be stopped before `runtime_s` is over."""
        argv = ["fio", f"--name={NAME}", f"--directory={self.directory}", f"--bs={BLOCK}"]
        argv += ["--rw=randread", f"--ioengine={self.ioengine}", "--time_based"]
        argv += [f"--direct={int(self.direct)}", f"--runtime={math.ceil(runtime_s)}"]
        argv.append("--group_reporting")
        # Missing files are an error: laying them out would be a write workload.
        argv += ["--allow_file_create=0", f"--randseed={self.seed}"]
        argv.append(f"--output-format={self.output}")
        each_job = [f"--numjobs={self.jobs}", f"--size={self.file_bytes}"]
        if self.offered_iops is None:
            return [*argv, *each_job, f"--iodepth={self.iodepth}"]
        if self.ioengine == "psync":
            rate = max(1, round(self.offered_iops / self.jobs))
            return [*argv, *each_job, f"--rate_iops={rate}", "--rate_process=poisson"]
        # One job over all files: fio's rate is a whole number per job, and with four jobs 10 % of a
        # slow disk would be rounded by up to a fifth.
        files = ":".join(f"{NAME}.{job}.0" for job in range(self.jobs))
        return [
            *argv,
            f"--filename={files}",
            "--file_service_type=random",
            f"--size={self.file_bytes * self.jobs}",
            f"--iodepth={self.iodepth * self.jobs}",
            f"--rate_iops={max(1, round(self.offered_iops))}",
            "--rate_process=poisson",
        ]


@dataclass(frozen=True)
class FioResult:
    """fio's report of one operation, all jobs together. Latencies in seconds (completion).

    `percentiles` maps a percentage to a latency; it is empty if jobs were not reported as one
    group. `histogram` holds (low_ns, high_ns, count), only from json+. `terminated` is True if a
    signal stopped fio: its figures are of the time until then. `warnings` are sentences about the
    output.
    """

    version: str
    op: str
    seconds: float
    operations: int
    bytes: int
    iops: float
    latency_mean_s: float | None
    latency_sd_s: float | None
    latency_max_s: float | None
    percentiles: Mapping[float, float]
    histogram: tuple[tuple[int, int, int], ...]
    errors: int
    terminated: bool
    warnings: tuple[str, ...] = ()

    @property
    def throughput_mb_s(self) -> float:
        """10^6 bytes per second."""
        return self.bytes / self.seconds / 1e6 if self.seconds else 0.0

    def _repr_html_(self) -> str:
        mean = "" if self.latency_mean_s is None else f", {1e3 * self.latency_mean_s:.1f} ms mean"
        text = f"fio {self.op}: {self.iops:.0f} IOPS over {self.seconds:.1f} s{mean}"
        return "".join(f"<p>{html.escape(line)}</p>" for line in (text, *self.warnings))


def parse_fio(text: str, op: str = "read") -> FioResult:
    """Parse fio 3.x's JSON (or json+) output; messages may come before and after it.

    Args:
        text: standard output.
        op: ``read``, ``write`` or ``trim``.

    Raises:
        WorkloadError: there is no JSON in it (fio was killed), it has no job or not this
            operation, or it comes from fio 2.
    """
    version, jobs, warnings = read_jobs(text)
    try:
        return _result(version, jobs, op, text, warnings)
    except (KeyError, TypeError, ValueError) as error:
        raise WorkloadError(
            f"the output of fio {version} lacks fields of fio 3 ({error}); install fio 3.0 or "
            "newer and measure again."
        ) from error


def read_jobs(text: str) -> tuple[str, list[Mapping[str, Any]], tuple[str, ...]]:
    """Return the version, the jobs and warnings of fio's output.

    Of several documents (``--status-interval``) the last one counts, with a warning. A client's
    output has the jobs of its servers; the sum over them is left out.

    Raises:
        WorkloadError: there is no JSON or no job in it, or it comes from fio 2.
    """
    documents = _documents(text)
    document = documents[-1]
    version = str(document.get("fio version", "unknown")).removeprefix("fio-")
    if version.startswith("2."):
        raise WorkloadError(
            f"the output is of fio {version}, which has other units and names; install fio 3.0 or "
            "newer and measure again."
        )
    jobs = document.get("jobs") or document.get("client_stats") or []
    if not jobs:
        raise WorkloadError("fio reported no job.")
    warnings: tuple[str, ...] = ()
    if len(documents) > 1:
        warnings = (
            f"fio's output holds {len(documents)} documents (--status-interval): the last one is "
            "read, which covers the time from the start.",
        )
    own = [job for job in jobs if job.get("jobname") != "All clients"]
    return version, own or jobs, warnings


def _documents(text: str) -> list[dict[str, Any]]:
    # fio also writes "fio: terminating on signal 15" and warnings to standard output.
    found: list[dict[str, Any]] = []
    end = 0
    for begin in re.finditer(r"^\{", text, re.MULTILINE):
        with suppress(ValueError):
            if begin.start() >= end:
                document, end = json.JSONDecoder().raw_decode(text, begin.start())
                found.append(document)
    if not found:
        lines = text.strip().splitlines() or ["it printed nothing"]
        raise WorkloadError(f"fio left no result: {lines[-1][:200]}")
    return found


def _result(
    version: str,
    jobs: Sequence[Mapping[str, Any]],
    op: str,
    text: str,
    warnings: tuple[str, ...],
) -> FioResult:
    if not all(op in job for job in jobs):
        raise WorkloadError(
            f"fio {version} reported no {op}: leave out unified_rw_reporting, which adds up reads "
            "and writes."
        )
    parts = [job[op] for job in jobs]
    operations = sum(int(part["total_ios"]) for part in parts)
    # A job's runtime is in milliseconds, and 0 if it did nothing.
    seconds = max((float(part["runtime"]) for part in parts), default=0.0) / 1e3
    latencies = [part["clat_ns"] for part in parts if int(part["total_ios"]) > 0]
    only = latencies[0] if len(latencies) == 1 else {}
    return FioResult(
        version=version,
        op=op,
        seconds=seconds,
        operations=operations,
        bytes=sum(int(part["io_bytes"]) for part in parts),
        iops=sum(float(part["iops"]) for part in parts),
        latency_mean_s=_weighted_mean(parts, operations),
        latency_sd_s=float(only["stddev"]) / 1e9 if only else None,
        latency_max_s=max((float(part["max"]) for part in latencies), default=0.0) / 1e9 or None,
        percentiles={
            float(percent): float(value) / 1e9
            for percent, value in only.get("percentile", {}).items()
        },
        histogram=_histogram(latencies),
        errors=sum(int(job.get("total_err", 0)) + (job.get("error", 0) != 0) for job in jobs),
        terminated=bool(re.search(r"^fio: terminating on signal", text, re.MULTILINE)),
        warnings=warnings,
    )


def _weighted_mean(parts: list[Mapping[str, Any]], operations: int) -> float | None:
    if operations == 0:
        return None
    total = sum(float(part["clat_ns"]["mean"]) * int(part["total_ios"]) for part in parts)
    return total / operations / 1e9


def bucket(value_ns: int) -> tuple[int, int]:
    """Return the bounds [low, high) of fio's latency bucket with the middle `value_ns`."""
    if value_ns < 2 << _GROUP_BITS:
        return value_ns, value_ns + 1
    width = 1 << (value_ns.bit_length() - 1 - _GROUP_BITS)
    low = value_ns // width * width
    return low, low + width


def _histogram(latencies: list[Mapping[str, Any]]) -> tuple[tuple[int, int, int], ...]:
    counts: dict[tuple[int, int], int] = {}
    for part in latencies:
        for value, count in part.get("bins", {}).items():
            bounds = bucket(int(value))
            counts[bounds] = counts.get(bounds, 0) + int(count)
    return tuple((low, high, count) for (low, high), count in sorted(counts.items()))


def place_files(agent: Agent, nodes: Sequence[str], loaded: Collection[str], size: int) -> None:
    """Put fio's files of `size` bytes each on the `loaded` nodes, and remove them from the others.

    A store that shares the file system with them sees their space (FileStore). Complete files are
    left alone.

    Raises:
        WorkloadError: a file cannot be written.
    """
    argv = ["fio", f"--name={NAME}", f"--directory={DIRECTORY}", "--rw=randread"]
    argv += ["--create_only=1", "--fallocate=none", f"--numjobs={JOBS}", f"--size={size}"]
    absent = ["find", DIRECTORY, "-type", "f", "-delete"]
    for node in nodes:
        agent.unit_start(node, UNIT_FILES, argv if node in loaded else absent, max_s=FILES_S)
    done = [agent.unit_wait(node, UNIT_FILES, timeout_s=FILES_S) for node in nodes]
    for unit in done:
        if unit.exit_code != 0:
            lines = unit.stderr.strip().splitlines() or ["no message"]
            raise WorkloadError(f"fio's files on node {unit.node}: {lines[-1][:200]}")


def measure_capacity(
    agent: Agent, nodes: tuple[str, ...], file_bytes: int, *, seconds: float = 8.0
) -> Mapping[str, float]:
    """Return the random reads per second of each node's disk for a hotspot alone, measured node by
    node (the machine may be shared). Nothing else may use the disks meanwhile.

    Raises:
        WorkloadError: fio failed or read nothing on a node.
    """
    load = FioLoad(file_bytes=file_bytes)
    capacity = {}
    for node in nodes:
        agent.unit_start(node, "load-capacity", load.argv(seconds), max_s=seconds + 30)
        try:
            unit = agent.unit_wait(node, "load-capacity", timeout_s=seconds + 60)
        except BaseException:
            agent.unit_stop(node, "load-capacity")
            raise
        if unit.exit_code != 0:
            lines = unit.stderr.strip().splitlines() or ["no message"]
            raise WorkloadError(f"fio on node {node} failed: {lines[-1][:200]}")
        result = parse_fio(unit.stdout)
        if result.iops <= 0:
            raise WorkloadError(f"fio read nothing on node {node}: is its disk alive?")
        capacity[node] = result.iops
    return capacity
