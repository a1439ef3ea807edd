"""Runner of `rados bench` on a client node; returns its per-second series and totals.

`seq` ends by itself when its objects run out. It runs in passes over the prefilled set, with caches
dropped between passes, until its duration has been measured; the gaps are left out.
"""

from __future__ import annotations

import hashlib
import html
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field

from schemas.model import Model
from testbed.agent.contract import STATE, Agent, UnitResult
from workloads.errors import WorkloadError
from workloads.rados_output import BenchOutput, RadosSample, parse_rados_bench, samples

UNIT = "load-bench"
# To connect and to finish requests in flight, of which one took 58 s on disturbed disks that also
# moved data. Dead OSDs hang a benchmark for minutes.
GRACE_S = 120.0
ENOUGH = 0.95  # of the planned duration must be measured
CACHES_S = 120.0
_MAX_PASSES = 100
_MIN_PASS_S = 1.0
_STOP_S = 60.0

# `rados bench rand` seeds its generator with the second of its start, and draws an object at each
# completion. This replaces its seed, so that it draws a known sequence.
_SRAND = """#include <stdlib.h>
void srand(unsigned int seed) {
    const char *own = getenv("HOTBED_READ_SEED");
    srandom(own ? (unsigned int)strtoul(own, 0, 10) : seed);
}
"""
_LIBRARY = f"{STATE}/read-seed-{hashlib.sha256(_SRAND.encode()).hexdigest()[:12]}.so"
_SEEDED = """
library=$1 source=$2 HOTBED_READ_SEED=$3; shift 3
[ -e "$library" ] || {
    printf %s "$source" | cc -O1 -shared -fPIC -x c -o "$library.new" - &&
        mv "$library.new" "$library"
} || exit
export HOTBED_READ_SEED LD_PRELOAD="$library"
exec "$@"
"""


class RadosBench(Model):
    """Benchmark as in the paper (section V-B): mode, object size, concurrency, time.

    `read_seed`: seed of the objects of random reads, which then are the same in the same order; it
    needs a C compiler on the client. None draws them anew, from the time of the start."""

    op: Literal["write", "seq", "rand"]
    pool: str = Field(default="bench", pattern=r"^[A-Za-z0-9._][A-Za-z0-9._-]*$")
    object_size: int = Field(default=4 * 2**20, ge=1, le=2**28)
    concurrency: int = Field(default=16, ge=1, le=4096)
    duration_s: float = Field(default=180.0, gt=0, le=86400)
    run_name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    read_seed: int | None = Field(default=None, ge=0, lt=2**32)

    def argv(self, seconds: float | None = None) -> list[str]:
        """Return the command for `seconds` (rounded up; the duration by default).

        Reads take the object size from the metadata that the writer left under `run_name`."""
        whole = max(1, math.ceil(self.duration_s if seconds is None else seconds))
        argv = ["rados", "-p", self.pool, "bench", str(whole), self.op]
        argv += ["-t", str(self.concurrency), "--run-name", self.run_name, "--show-time"]
        if self.op == "write":
            argv += ["-b", str(self.object_size), "--no-cleanup"]
        if self.op == "rand" and self.read_seed is not None:
            seeded = ["sh", "-c", _SEEDED, "seeded", _LIBRARY, _SRAND, str(self.read_seed)]
            return seeded + argv
        return argv


@dataclass(frozen=True)
class Segment:
    """Stretch of measured time: `seconds` from the epoch `wall` on, at `offset_s` on the stitched
    axis."""

    wall: float
    offset_s: float
    seconds: float


@dataclass(frozen=True)
class BenchResult:
    """Finished benchmark. Bandwidth in 10^6 bytes per second, times in seconds.

    Measured time is that in which requests were sent (`sending_s`); `series` counts it, and
    `segments` tie it to the clock. Latencies are of all operations, late ones too.
    `latency_sd_s` is None for reads, as rados bench does not print it. `cpu_s` is the processor
    time of the client. `raw` is the output, one text per pass.
    """

    bench: RadosBench
    seconds: float
    operations: int
    bytes: int
    latency_mean_s: float
    latency_sd_s: float | None
    latency_max_s: float
    latency_min_s: float
    incorrect: int
    series: tuple[RadosSample, ...]
    segments: tuple[Segment, ...]
    cpu_s: float | None
    raw: tuple[str, ...]

    @property
    def throughput_mb_s(self) -> float:
        """Mean over the measured time."""
        return self.bytes / self.seconds / 1e6

    @property
    def iops(self) -> float:
        """Mean over the measured time."""
        return self.operations / self.seconds

    def measured(self, wall: float) -> float | None:
        """Return the place of the epoch `wall` on the stitched axis: negative before the start,
        past the end after it, None in a gap between two passes."""
        if wall < self.segments[0].wall:
            return wall - self.segments[0].wall
        last = self.segments[-1]
        if wall >= last.wall:
            return last.offset_s + (wall - last.wall)
        for segment in self.segments:
            if 0 <= wall - segment.wall < segment.seconds:
                return segment.offset_s + (wall - segment.wall)
        return None

    def _repr_html_(self) -> str:
        rows = {
            "operation": f"{self.bench.op}, {self.bench.object_size} B × {self.bench.concurrency}",
            "measured": f"{self.seconds:.1f} s in {len(self.segments)} pass(es)",
            "throughput": f"{self.throughput_mb_s:.1f} MB/s, {self.iops:.1f} operations/s",
            "latency": f"{self.latency_mean_s:.4f} s mean, {self.latency_max_s:.3f} s max",
        }
        body = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
            for name, value in rows.items()
        )
        return f"<table>{body}</table>"


def run(
    agent: Agent,
    client_node: str,
    bench: RadosBench,
    *,
    started: Callable[[float], None] | None = None,
) -> BenchResult:
    """Run `bench` on `client_node` and wait for it.

    Args:
        agent: the admin node.
        client_node: node of the load; reads find only objects that were written by a client of
            the same host name, which is part of their names.
        bench: the benchmark; for seq and rand the objects must be there (see `prefill`).
        started: called with the epoch of the start just after the first pass was launched.

    Raises:
        WorkloadError: it failed, hung, or measured less than 95 % of its duration.
    """
    passes: list[tuple[BenchOutput, UnitResult]] = []
    measured = 0.0
    while True:
        output, unit = _one_pass(agent, client_node, bench, bench.duration_s - measured, started)
        started = None
        passes.append((output, unit))
        assert output.seconds is not None
        measured += output.seconds
        # rados bench counts whole seconds, so it cannot run for less than one.
        if bench.op != "seq" or bench.duration_s - measured < _MIN_PASS_S:
            break
        if output.seconds < _MIN_PASS_S or len(passes) == _MAX_PASSES:
            raise WorkloadError(
                f"rados bench seq read its {output.operations} objects in {output.seconds:.1f} s "
                f"of {bench.duration_s:g} s: prefill more objects of {bench.object_size} bytes."
            )
        agent.call("caches", {}, timeout_s=CACHES_S)
    if measured < ENOUGH * bench.duration_s:
        raise WorkloadError(
            f"rados bench {bench.op} measured {measured:.1f} s of {bench.duration_s:g} s, less "
            f"than {ENOUGH:.0%}."
        )
    return stitch(bench, passes)


def _one_pass(
    agent: Agent,
    node: str,
    bench: RadosBench,
    seconds: float,
    started: Callable[[float], None] | None,
) -> tuple[BenchOutput, UnitResult]:
    name = f"{UNIT}-{bench.op}"
    max_s = max(1, math.ceil(seconds)) + GRACE_S
    agent.unit_start(node, name, bench.argv(seconds), max_s=max_s)
    try:
        if started is not None:
            started(time.time())
        unit = agent.unit_wait(node, name, timeout_s=max_s + _STOP_S)
    except BaseException:
        agent.unit_stop(node, name)  # no load outlives its cell, not even after an interrupt
        raise
    return _checked(bench, unit, max_s), unit


def _checked(bench: RadosBench, unit: UnitResult, max_s: float) -> BenchOutput:
    said = unit.stderr.strip().splitlines() or unit.stdout.strip().splitlines() or ["no message"]
    if unit.exit_code is None:
        raise WorkloadError(
            f"rados bench {bench.op} on node {unit.node} did not end within {max_s:g} s and was "
            "stopped: are all OSDs up, and is none full (see `ceph health detail`)? "
            f"Its last line: {said[-1][:200]}"
        )
    if unit.exit_code != 0:
        raise WorkloadError(
            f"rados bench {bench.op} on node {unit.node} failed with exit code {unit.exit_code}: "
            f"{said[0][:200]}"
        )
    output = parse_rados_bench(unit.stdout)
    if not output.complete or output.latency_mean_s is None or not output.operations:
        raise WorkloadError(
            f"rados bench {bench.op} on node {unit.node} ended without totals; its last line: "
            f"{said[-1][:200]}"
        )
    if output.op_size is not None and output.op_size != bench.object_size:
        raise WorkloadError(
            f"the objects of run {bench.run_name!r} have {output.op_size} bytes, not "
            f"{bench.object_size}: prefill them under a name of their own."
        )
    return output


def sending_s(series: Sequence[RadosSample], asked_s: float) -> float:
    """Return the end of the last second of a pass in which requests were sent, of `asked_s` seconds
    or until every object was read.

    At its end, rados bench waits for the requests in flight and counts this as measured time.
    Behind a busy disk it waited up to six seconds, in which next to nothing finished. The papers
    measured for minutes; here a benchmark may last 17 s, and the wait would choose the winner."""
    finished = before = sent = 0.0
    started = 0
    for sample in series:
        finished += sample.iops * (sample.t_s - before)
        before = sample.t_s
        if sample.t_s <= math.ceil(asked_s) + 0.5 and round(finished) + sample.in_flight > started:
            started, sent = round(finished) + sample.in_flight, sample.t_s
    return sent


def stitch(bench: RadosBench, passes: list[tuple[BenchOutput, UnitResult]]) -> BenchResult:
    """Return one result from the passes of a benchmark, without the gaps between them and without
    the wait for the last requests of each."""
    series: list[RadosSample] = []
    segments: list[Segment] = []
    offset, finished, left_s = 0.0, 0.0, bench.duration_s
    operations, latency_total, incorrect = 0, 0.0, 0
    for output, unit in passes:
        assert output.seconds is not None and output.operations is not None
        assert output.latency_mean_s is not None
        wall = output.started_wall
        began = unit.started_at if wall is None else wall
        found = samples(output, bench.object_size)
        seconds, before = sending_s(found, left_s), 0.0
        left_s -= output.seconds
        segments.append(Segment(began, offset, seconds))
        for sample in found:
            if sample.t_s > seconds:
                break
            finished += sample.iops * (sample.t_s - before)
            before = sample.t_s
            at = began + sample.t_s if sample.wall is None else sample.wall
            series.append(replace(sample, t_s=sample.t_s + offset, wall=at))
        offset += seconds
        operations += output.operations
        latency_total += output.latency_mean_s * output.operations
        incorrect += output.incorrect + parse_incorrect(unit.stderr)
    cpu = [unit.cpu_s for _, unit in passes if unit.cpu_s is not None]
    return BenchResult(
        bench=bench,
        seconds=offset,
        operations=round(finished),
        bytes=round(finished) * bench.object_size,
        latency_mean_s=latency_total / operations,
        latency_sd_s=passes[0][0].latency_sd_s if len(passes) == 1 else None,
        latency_max_s=max(output.latency_max_s or 0.0 for output, _ in passes),
        latency_min_s=min(output.latency_min_s or 0.0 for output, _ in passes),
        incorrect=incorrect,
        series=tuple(series),
        segments=tuple(segments),
        cpu_s=sum(cpu) if len(cpu) == len(passes) else None,
        raw=tuple(unit.stdout for _, unit in passes),
    )


def parse_incorrect(stderr: str) -> int:
    """Return the number of objects with wrong content, by rados bench's own check."""
    return sum(1 for line in stderr.splitlines() if line.rstrip().endswith("is not correct!"))
