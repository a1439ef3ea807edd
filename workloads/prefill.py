"""Objects for the read benchmarks: their number, and writing them once.

A `seq` pass ends when its objects run out, so the set covers the duration at the highest rate of
the disks, up to a share of the store's space.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from testbed.agent.contract import Agent, UnitResult
from testbed.deploy.inventory import FIO_JOBS, fio_file_bytes
from testbed.spec import DiskSpec
from workloads.errors import WorkloadError
from workloads.rados_bench import GRACE_S, UNIT

RUN_PREFIX = "hotbed-prefill"
SHARE = 0.25  # of the usable space at most: write cells need the rest, and OSDs fill unevenly
MIN_OBJECTS_PER_SLOT = 8  # fewer objects for each concurrent reader make no workload
_ASK_S = 60.0
# Also removes objects of a killed benchmark, as no metadata names them.
_EMPTY = (
    'rados -p "$1" ls > objects || exit 1; '
    'if grep -q "^benchmark_data" objects; then '
    'rados -p "$1" cleanup --prefix benchmark_data > /dev/null || exit 1; fi; '
    'for name in $(grep "^$2-[0-9]*$" objects); do rados -p "$1" rm "$name" || exit 1; done; '
    "rm -f objects"
)
# Prints the metadata of a run in hexadecimal, and the number of the run's objects; nothing without
# metadata. The process id in it is part of the objects' names, as is the host name,
# which the tool cuts at 29 characters.
_FIND = (
    'rados -p "$1" get "$2" metadata > /dev/null 2>&1 || exit 0; '
    "od -An -v -tx1 metadata; echo objects; "
    'rados -p "$1" ls > objects || exit 1; '
    "pid=$(od -An -td4 -j12 -N4 metadata | tr -d ' '); "
    'grep -c "^benchmark_data_$(uname -n | cut -c1-29)_${pid}_object" objects; '
    "rm -f objects metadata"
)
_WRITERS = 32


@dataclass(frozen=True)
class PrefillPlan:
    """Plan of `objects` of `object_size` bytes under the run name `run_name`; `pass_s` is the
    shortest time that one sequential pass over them can take."""

    objects: int
    object_size: int
    pass_s: float

    @property
    def run_name(self) -> str:
        """Run name; every cell that reads objects of this size has the same."""
        return f"{RUN_PREFIX}-{self.object_size}"

    @property
    def bytes(self) -> int:
        """Payload bytes, without replicas."""
        return self.objects * self.object_size


@dataclass(frozen=True)
class Prefilled:
    """Present objects of the pool; `written` is False if all were there already."""

    objects: int
    written: bool
    seconds: float


def disk_bound_iops(disks: Iterable[DiskSpec], object_size: int) -> float:
    """Return the most objects per second that `disks` can serve: each object is one positioning and
    its transfer (an upper bound: stores cut large objects into several requests)."""
    return sum(1 / (disk.positioning + object_size / disk.bandwidth) for disk in disks)


def usable_bytes(disks: Iterable[DiskSpec], replicas: int, *, filestore: bool = False) -> int:
    """Return the bytes of objects that the raw parts of `disks` hold with `replicas` copies. With
    FileStore, their scratch parts hold the objects next to fio's files."""
    if filestore:
        parts = [disk.scratch - FIO_JOBS * fio_file_bytes(disk, "osd") for disk in disks]
    else:
        parts = [disk.size - disk.scratch for disk in disks]
    return sum(parts) // replicas


def plan_prefill(
    *,
    object_size: int,
    duration_s: float,
    max_iops: float,
    usable: int,
    concurrency: int = 16,
) -> PrefillPlan:
    """Return the number of objects for a read benchmark of `duration_s`.

    Args:
        object_size: bytes.
        duration_s: real seconds of the benchmark.
        max_iops: the most objects per second that the store can give (`disk_bound_iops`).
        usable: bytes that the store holds after replication (`usable_bytes`).
        concurrency: objects in flight.

    Raises:
        WorkloadError: the store is too small for a meaningful set.
    """
    wanted = math.ceil(duration_s * max_iops)
    room = int(SHARE * usable) // object_size
    least = MIN_OBJECTS_PER_SLOT * concurrency
    if room < least:
        raise WorkloadError(
            f"{least} objects of {object_size} bytes are needed to read with {concurrency} in "
            f"flight, and {SHARE:.0%} of the store's {usable} bytes hold {room}: give the spec "
            "larger disks or the cell smaller objects."
        )
    objects = min(max(wanted, least), room)
    return PrefillPlan(objects, object_size, objects / max_iops)


@dataclass(frozen=True)
class Metadata:
    """Metadata that `rados bench write` leaves (ObjBencher::fetch_bench_metadata)."""

    object_size: int
    operations: int
    pid: int
    op_size: int


def decode_metadata(raw: bytes) -> Metadata | None:
    """Decode a benchmark's metadata object; None if `raw` is no such object.

    Little endian: object size u64, operations i32, pid i32 and, from Jewel on, operation size u64.
    """
    if len(raw) == 24:
        return Metadata(*struct.unpack("<QiiQ", raw))
    if len(raw) == 16:
        size, operations, pid = struct.unpack("<Qii", raw)
        return Metadata(size, operations, pid, size)
    return None


def prefill(
    agent: Agent,
    client_node: str,
    pool: str,
    plan: PrefillPlan,
    *,
    max_s: float = 3600.0,
    concurrency: int = _WRITERS,
    writing: AbstractContextManager[None] | None = None,
) -> Prefilled:
    """Make sure that `plan`'s objects are in `pool`; write them only if some are missing.

    Before writing, every other benchmark's objects are removed: the sets of several sizes would not
    fit together (each takes up to `SHARE` of the store). The objects' names contain the client's
    host name, so the readers must run on `client_node`. `writing` is entered while objects are
    removed and written.

    Raises:
        WorkloadError: they cannot be written within `max_s`.
    """
    found = _count(agent, client_node, pool, plan)
    if found is not None and found >= plan.objects:
        return Prefilled(found, False, 0.0)
    with writing or nullcontext():
        _ask(agent, client_node, ["sh", "-c", _EMPTY, "empty", pool, RUN_PREFIX], max_s)
        unit = _ask(agent, client_node, fill_argv(pool, plan, max_s, concurrency), max_s + GRACE_S)
    found = _count(agent, client_node, pool, plan)
    if found is None or found < plan.objects:
        raise WorkloadError(
            f"prefilling wrote {found or 0} of {plan.objects} objects of {plan.object_size} bytes "
            f"in {unit.ended_at - unit.started_at:.0f} s; is the cluster healthy and not full?"
        )
    return Prefilled(found, True, unit.ended_at - unit.started_at)


def fill_argv(pool: str, plan: PrefillPlan, max_s: float, concurrency: int) -> list[str]:
    """Return the command that writes the plan's objects."""
    argv = ["rados", "-p", pool, "bench", str(math.ceil(max_s)), "write", "--no-cleanup"]
    argv += ["-b", str(plan.object_size), "-t", str(min(concurrency, plan.objects))]
    return [*argv, "--run-name", plan.run_name, "--max-objects", str(plan.objects)]


def _count(agent: Agent, node: str, pool: str, plan: PrefillPlan) -> int | None:
    # Objects that are both in the metadata and listed; None without usable metadata.
    unit = _ask(agent, node, ["sh", "-c", _FIND, "find", pool, plan.run_name], _ASK_S)
    raw, _, count = unit.stdout.partition("objects")
    metadata = decode_metadata(bytes.fromhex("".join(raw.split())))
    if metadata is None or metadata.object_size != plan.object_size:
        return None
    return min(metadata.operations, int(count))


def _ask(agent: Agent, node: str, argv: list[str], max_s: float) -> UnitResult:
    name = f"{UNIT}-prefill"
    agent.unit_start(node, name, argv, max_s=max_s)
    try:
        unit = agent.unit_wait(node, name, timeout_s=max_s + GRACE_S)
    except BaseException:
        agent.unit_stop(node, name)
        raise
    if unit.exit_code != 0:
        lines = unit.stderr.strip().splitlines() or ["no message"]
        ended = "did not end in time" if unit.exit_code is None else f"failed ({unit.exit_code})"
        raise WorkloadError(
            f"prefilling on node {node}: `{' '.join(argv)[:120]}` {ended}: {lines[-1][:200]}"
        )
    return unit
