"""Cells with COSBench's workloads A to D on Ceph's object gateway (S3).

Everything except the load is as with rados bench: hotspots, recorder, controllers. The objects to
read are written once, with disks and links unshaped, and serve every controller.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from campaigns.engine.write_cell import SampleRow, write_latency, write_samples
from campaigns.grounds.live import LiveTestbed
from campaigns.papers.dlr.cell import CellSetting
from campaigns.papers.dlr.live import SLACK_S, BenchServices
from campaigns.papers.dlr.measure import (
    disturbing_reads,
    mean_pressure,
    recorded_rows,
    steady_from_s,
)
from schemas.cells.dlr import GatewayWorkload
from schemas.errors import HotbedError, UserError
from schemas.run import OpSummary, Summary
from testbed.sites.contract import Progress, silent
from testbed.spec import TestbedSpec
from workloads.collect import CLIENT
from workloads.cosbench import tables
from workloads.cosbench.archive import Archive, MeasuredOperation, OperationSecond
from workloads.cosbench.credentials import filled
from workloads.cosbench.driver import ClientWorkload, DriveOptions, install, run_on, tenant
from workloads.cosbench.workload import TABLE_1, CosbenchWorkload, S3Storage, scaled, to_xml

OP = "s3"
TIMED = ("read", "write")
"""Operations with a latency that counts: a deletion moves no data."""
PREPARE_S = 900.0
_STAT_S = 30.0
LARGE_SHARE = 1 / 8
"""Scale of C's and D's largest objects: 1 to 16 MB instead of 1 to 128 MB."""
CONTAINERS = 4
OBJECTS = {"A": 200, "B": 200, "C": 16, "D": 16}
"""Objects of each container; writes have as many separate numbers, so that the store does not grow
from cell to cell."""
RAMPUP_S = 2
PREPARE_WORKERS = 8
PREPARING = ("init", "prepare")


def workload_of(setting: CellSetting) -> CosbenchWorkload:
    """Return a cell's workload on the gateway, without its tenant's keys."""
    parameters = setting.parameters
    assert isinstance(parameters, GatewayWorkload)
    letter = parameters.workload
    plain = TABLE_1[letter] if letter in "AB" else scaled(TABLE_1[letter], LARGE_SHARE)
    return plain.with_(
        name=f"s3-{letter.lower()}",
        prefix=f"hotbed-{letter.lower()}-",
        workers=parameters.workers,
        containers=CONTAINERS,
        objects=OBJECTS[letter],
        runtime_s=max(1, round(setting.duration_s)),
        rampup_s=RAMPUP_S,
        interval_s=1,
        prepare_workers=PREPARE_WORKERS,
        storage=S3Storage(),
    )


def tenant_of(spec: TestbedSpec) -> str:
    """Return the tenant of the load: the first user of the gateway. UserError: the spec has no
    user."""
    tenants = spec.ceph().tenants
    if not tenants:
        raise UserError(
            "the object gateway has no user",
            where=f"testbed {spec.name}",
            do="name one in store.tenants, as testbed/specs/dlr-gateway.yaml does, and deploy it",
        )
    return tenants[0]


def mark_of(workload: CosbenchWorkload) -> str:
    """Return the name of the RADOS object that marks a workload's objects as complete. A restore of
    the store removes it with them."""
    objects = workload.model_copy(update={"workers": 1, "runtime_s": 1})
    text = to_xml(objects, PREPARING)
    return f"hotbed-{workload.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


class GatewayServices(BenchServices):
    """See `campaigns.papers.dlr.cell.Services`."""

    def __init__(self, live: LiveTestbed, setting: CellSetting) -> None:
        super().__init__(live, setting)
        self._tenant = tenant_of(live.spec)
        self._workload = workload_of(setting)
        self._archive: Archive | None = None

    def prefill(self) -> None:
        """See `Services.prefill`; writes the objects to read and installs the driver."""
        shell, mark = self._live.shell_to(self._client.name), mark_of(self._workload)
        install(shell)
        where = ["rados", "-p", self._pool]
        if shell.run([*where, "stat", mark], timeout_s=_STAT_S, check=False).returncode == 0:
            return
        with self._live.unshaped():
            self._drive(self._load(f"{self._workload.name}-prepare", PREPARING, PREPARE_S))
            shell.run([*where, "put", mark, "/dev/null"], timeout_s=_STAT_S)
            self._snapshots.mark_prefilled()
            self._live.put_right()

    def workload(self) -> None:
        phases: list[str] = []

        def begun(phase: str, _share: float) -> None:
            if not phases:
                self.move_loads()
            phases.append(phase)

        load = self._load(self._workload.name, ("main",), self._setting.duration_s + SLACK_S)
        self._archive = self._drive(load, begun)

    def collect(self) -> Summary:
        archive = self._archive
        assert archive is not None
        samples, log = self.fetch()
        return collect(self._setting, archive, samples, log, nodes=self._nodes)

    def _load(self, name: str, stages: tuple[str, ...], most_s: float) -> ClientWorkload:
        access = tenant(self._live.shell_to(self._client.name), self._tenant)
        xml = filled(to_xml(self._workload, stages), access.for_cosdrive(), name)
        return ClientWorkload(
            name, self._client.name, xml, most_s, DriveOptions(seed=self._setting.seed)
        )

    def _drive(self, load: ClientWorkload, progress: Progress = silent) -> Archive:
        folder = self._setting.folder / "logs" / "cosbench"
        drives = run_on(self._live.agent, self._live.shell_to, [load], folder, progress)
        archive = drives[load.name].archive
        if not archive.finished:
            raise HotbedError(
                f"workload {load.name} did not complete on the object gateway: its archive is in "
                f"{folder / load.name}."
            )
        return archive


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
        setting: the cell.
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
    rows = [*_client_rows(archive, began), *recorded_rows(recording, began)]
    samples = write_samples(folder, rows)
    latencies = tables.latencies(archive, began)
    write_latency(folder, latencies.itertuples(index=False, name=None))
    return Summary(
        whole=[total(done, archive.measured, seconds), *tables.summaries(archive)],
        steady=[steady(archive, began, steady_from_s(setting))],
        pressure_mean=mean_pressure(samples, nodes, seconds),
        extra=disturbing_reads(disturbance),
    )


def total(
    done: Sequence[MeasuredOperation], every: Sequence[MeasuredOperation], seconds: float
) -> OpSummary:
    """Return the summary of all operations: bytes of reads and writes per measured time, and the
    mean latency of reads and writes.

    Args:
        done: kinds of operations with at least one success.
        every: all kinds, including those that only failed.
        seconds: measured time.
    """
    errors = sum(sum(one.failed.values()) for one in every)
    found = _summary(done, seconds, errors)
    most = max((one.max_s or 0.0) for one in done if one.op in TIMED)
    return found.model_copy(update={"latency_max_s": most})


def steady(archive: Archive, began: float, from_s: float) -> OpSummary:
    """Return the same from `from_s` seconds after `began` (epoch) on, from the driver's seconds.
    HotbedError: nothing was measured after that time."""
    rows = [(t_s, one) for t_s, one in _measured(archive, began) if t_s >= from_s - 1e-6]
    done = [one for _, one in rows]
    if not any(one.op in TIMED and one.mean_s is not None and one.operations for one in done):
        raise HotbedError(
            f"no object was read or written after the first {from_s:.1f} s: make the workload "
            "longer or the control interval shorter."
        )
    span = float(len({t_s for t_s, _ in rows}))
    return _summary(done, span, sum(one.failed for one in done))


def _summary(
    done: Sequence[MeasuredOperation] | Sequence[OperationSecond], seconds: float, errors: int
) -> OpSummary:
    timed = [one for one in done if one.op in TIMED]
    known = [one for one in timed if one.mean_s is not None]
    moved = sum(one.bytes for one in timed)
    operations = sum(one.operations for one in done)
    spent = sum((one.mean_s or 0.0) * one.operations for one in known)
    return OpSummary(
        op=OP,
        seconds=seconds,
        operations=operations,
        bytes=moved,
        throughput_mb_s=moved / seconds / 1e6,
        iops=operations / seconds,
        latency_mean_s=spent / sum(one.operations for one in known),
        errors=errors,
    )


def _measured(archive: Archive, began: float) -> Iterator[tuple[float, OperationSecond]]:
    """Yield the driver's measured seconds with their begins, counted from `began`."""
    driver = archive.driver
    zero = driver.started_at if driver is not None else began
    for one in archive.seconds:
        if one.measured:
            yield round(zero + one.t_s - began, 3), one


def _client_rows(archive: Archive, began: float) -> Iterator[SampleRow]:
    """Yield rows for the second that ends at each row's time, like rados bench's."""
    by_second: dict[float, list[OperationSecond]] = {}
    for t_s, one in _measured(archive, began):
        by_second.setdefault(t_s, []).append(one)
    for t_s, found in by_second.items():
        timed = [one for one in found if one.op in TIMED]
        known = [one for one in timed if one.mean_s is not None and one.operations]
        yield t_s + 1, CLIENT, "throughput_mb_s", sum(one.bytes for one in timed) / 1e6
        yield t_s + 1, CLIENT, "iops", float(sum(one.operations for one in found))
        if known:
            weighted = [one.mean_s or 0.0 for one in known for _ in range(one.operations)]
            yield t_s + 1, CLIENT, "latency_s", fmean(weighted)
