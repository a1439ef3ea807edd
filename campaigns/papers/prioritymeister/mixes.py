"""Mixes: the workloads of each experiment of section 6, the machines that they share, and the files
of their traces, each with its own seed.

Traces are stand-ins with the loads and burstiness of Table 2 (docs/prioritymeister.md), or real
ones from a folder. All are made for the ground's own device and links.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from campaigns.papers.prioritymeister.topology import (
    Links,
    PmWorkload,
    Slo,
    StorageDevice,
    Topology,
    TopologyHost,
)
from campaigns.papers.prioritymeister.traces import REFERENCE, window
from controllers.prioritymeister.estimators import StageCosts, load_profile
from schemas.cells.prioritymeister import (
    Buckets,
    Copied,
    Misbehave,
    Network,
    OneBurst,
    OneDisk,
    PmCell,
)
from workloads.traces import arrivals, standins
from workloads.traces.reader import TraceReader
from workloads.traces.requests import RequestBlock, save

DISK, RAMDISK = "disk", "ram"
DISK_FILE, RAMDISK_FILE, CONSTANT_FILE = "disk.json", "ram.json", "constant.json"

RAMDISK_PROFILE = {
    "type": "storageConstant",
    "base": 2e-5,
    "readBandwidth": 2e9,
    "writeBandwidth": 2e9,
}


@dataclass(frozen=True)
class PmMachines:
    """Hosts, links and devices of workloads.

    `link` is the bits per second of every host's link (the paper's: 1 Gbit/s) but for
    `other_links`. `disk` and `ramdisk` are profiles; the paper's disk has 7200 RPM. `server` is the
    host with the disk that workloads share; `network` has host and kind of device of each workload
    of figure 9, if not all devices are `server`'s. `clients` are hosts of workloads, in turn; if
    empty, each workload has its own. `links` are the network's limits for a plan; None if the
    network is modelled, which keeps every plan and has the experiment's frames.
    """

    link: float = 1e9
    other_links: Mapping[str, float] = field(default_factory=dict)
    disk: Path = REFERENCE
    ramdisk: Path | None = None
    server: str = "s0"
    network: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    clients: tuple[str, ...] = ()
    links: Links | None = None

    def client(self, name: str, index: int) -> str:
        """Return the host that a workload runs on."""
        return self.clients[index % len(self.clients)] if self.clients else f"c-{name}"

    def kept(self, frame: float) -> Links:
        """Return the network's limits; a modelled network has frames of `frame` bytes."""
        return Links(frame=frame) if self.links is None else self.links

    def link_of(self, host: str) -> float:
        """Return the bits per second of a host's link."""
        return self.other_links.get(host, self.link)


def write_profiles(machines: PmMachines, folder: Path, disk: Path | None = None) -> None:
    """Write the devices' profiles into a mix's folder; `disk` replaces the ground's own."""
    (folder / DISK_FILE).write_text((disk or machines.disk).read_text())
    ramdisk = machines.ramdisk
    text = json.dumps(RAMDISK_PROFILE) if ramdisk is None else ramdisk.read_text()
    (folder / RAMDISK_FILE).write_text(text)


COPY = "L"
COPY_SLACK = 1.25
"""The copy's throughput SLO: its trace's work within this multiple of its length."""
COPY_LINK = 0.4
"""Largest share of a link for the copy."""
FLOOD_S = 40.0
"""Figure 4: seconds for which B sends more than announced, from the trace's middle on."""
FLOOD_LOAD = 1.5
"""Share of the device that B then needs."""
TICK_NS = 1000
TENANT_LOAD = 0.07
TENANT_C2 = (1.0, 4.0, 16.0)
"""Share of a link, and burstiness, of the workloads of the scenario `levels`, in turn."""

Place = tuple[str, str]
"""Host and device."""


@dataclass(frozen=True)
class SentRequests:
    """Requests that a workload really sends: a file in the format ``plain`` with offsets, times
    from 0.

    `closed` is 0 for an open loop, each request at its time (section 5.1). Otherwise it is the
    number of requests in flight: the file's requests in turn, repeated until the end (workload L).
    """

    file: Path
    closed: int = 0


@dataclass(frozen=True)
class MixLoad:
    """A workload of a mix: its announced trace (`trace`, next to the topology), its replay, its
    device, and its mean load as a share. `completion_s` is the throughput SLO of a copy, `required`
    the resulting bytes per second."""

    name: str
    client: str
    server: str
    device: str
    trace: str
    replay: SentRequests
    storage_load: float
    completion_s: float | None = None
    required: float = 0.0


class TraceMaker:
    """Maker of one block's traces on a ground's machines."""

    def __init__(
        self,
        parameters: PmCell,
        seed: int,
        machines: PmMachines,
        folder: Path,
        *,
        block: int = 0,
    ) -> None:
        self._block = block
        self._parameters, self._seed, self._folder = parameters, seed, folder
        self.machines = machines
        self.disk, self.ram = (load_profile(folder / f) for f in (DISK_FILE, RAMDISK_FILE))
        self._on_disk: list[tuple[float, int, int]] = []  # work, bytes, requests

    def row(self, label: str) -> standins.Table2Row:
        """Return a row of Table 2, or of the tenants of `levels`."""
        if label in standins.TABLE2:
            return self._varied(standins.TABLE2[label])
        c2 = TENANT_C2[int(label[1:]) % len(TENANT_C2)]
        return standins.Table2Row(label, "Synthetic tenant", None, TENANT_LOAD, c2)

    def _varied(self, row: standins.Table2Row) -> standins.Table2Row:
        """Return Table 2's row with the cell's changes."""
        cell = self._parameters
        if isinstance(cell, OneBurst) and cell.access == "mixed":
            row = replace(row, random=False)
        if isinstance(cell, OneDisk) and cell.network_share < 1 and row.network_load is not None:
            row = replace(row, network_load=row.network_load * cell.network_share)
        return row

    def standin(
        self, row: standins.Table2Row, costs: StageCosts, server: str | None = None
    ) -> standins.StandIn:
        """Return a stand-in like `row` for this block and the link of `server` (by default the
        server with the shared disk)."""
        cell, arrive = self._parameters, standins.balanced
        if isinstance(cell, OneBurst) and cell.gaps == "sharp":
            arrive = partial(standins.sharp, sharpness=cell.sharpness)
        return standins.make(
            row,
            partial(costs.work, "storage"),
            partial(costs.work, "network-out"),
            self.machines.link_of(server or self.machines.server) / 8,
            seconds=self._parameters.seconds,
            seed=seed_of(self._seed, row.label),
            arrive=arrive,
        )

    def load(self, label: str, client: str, place: Place | None = None) -> MixLoad:
        """Return a workload at a device (by default the shared disk), and write its trace."""
        server, device = place or (self.machines.server, DISK)
        costs, row = self.disk, self.row(label)
        if device.startswith(RAMDISK):
            costs, row = self.ram, replace(row, storage_load=None)
        real = self._real(row, costs)
        block = self._cut(self.standin(row, costs, server).block if real is None else real)
        work = float(costs.work("storage", block).sum())
        if costs is self.disk:
            self._on_disk.append((work, int(block.size.sum()), len(block)))
        file = f"{label}.csv"
        return MixLoad(
            name=label,
            client=client,
            server=server,
            device=device,
            trace=file,
            replay=self._write(file, block),
            storage_load=work / self._parameters.seconds,
        )

    def copy(self, client: str) -> MixLoad:
        """Return workload L, a copy: one request after the other without end. It announces
        `copy_share` of the disk, and its SLO is that work in `COPY_SLACK` times the time."""
        assert isinstance(self._parameters, Copied)
        size, seconds = self._parameters.copy_kib << 10, self._parameters.seconds
        probe = arrivals.file_copy(64 * size, size, 1e9)
        each = float(self.disk.work("storage", probe).mean())
        most = COPY_LINK * self.machines.link_of(self.machines.server) / 8 / 1.1
        bandwidth = min(self._parameters.copy_share * size / each, most)
        total = max(2, round(bandwidth * seconds / size)) * size
        block = arrivals.file_copy(total, size, bandwidth)
        return MixLoad(
            name=COPY,
            client=client,
            server=self.machines.server,
            device=DISK,
            trace=f"{COPY}.csv",
            replay=self._write(f"{COPY}.csv", block, self._parameters.copy_in_flight),
            storage_load=bandwidth / size * each,
            completion_s=COPY_SLACK * seconds,
            required=bandwidth / COPY_SLACK,
        )

    def sends(self, load: MixLoad, label: str) -> MixLoad:
        """Return a workload that announces its own trace but sends another workload's."""
        block = self._cut(self.standin(self.row(label), self.disk).block)
        return replace(load, replay=self._write(f"{load.name}-sent.csv", block))

    def floods(self, load: MixLoad) -> MixLoad:
        """Return a workload that floods, far above its announcement (section 3.2, figure 4)."""
        made = self.standin(self.row(load.name), self.disk)
        block, seconds = self._cut(made.block), self._parameters.seconds
        each = float(self.disk.work("storage", block).mean())
        length = min(FLOOD_S, seconds / 4)
        rate = FLOOD_LOAD / each
        seed = seed_of(self._seed, f"{load.name} flood")
        times = arrivals.poisson(rate, max(1, round(rate * length)), seed)
        extra = arrivals.requests(
            times[times < length] + seconds / 2,
            size=made.size,
            read_share=made.row.read_share,
            sequential_share=made.sequential_share,
            seed=seed,
        )
        both = RequestBlock.joined([block, extra]).by_time()
        return replace(load, replay=self._write(f"{load.name}-sent.csv", both))

    def write_constant(self) -> None:
        """Write figure 10's estimator. It has one base time for all requests, so that the sum of
        estimates is right; single estimates are wrong."""
        if not self._on_disk:
            return
        probe = RequestBlock.of([(i, 1 << 20, True, i << 20) for i in range(64)])
        bandwidth = (1 << 20) / float(self.disk.work("storage", probe)[1:].mean())
        work, carried, count = (sum(column) for column in zip(*self._on_disk, strict=True))
        document = {
            "type": "storageConstant",
            "base": max(0.0, (work - carried / bandwidth) / count),
            "readBandwidth": bandwidth,
            "writeBandwidth": bandwidth,
        }
        (self._folder / CONSTANT_FILE).write_text(json.dumps(document))

    def _real(self, row: standins.Table2Row, costs: StageCosts) -> RequestBlock | None:
        cell = self._parameters
        if cell.traces is None or row.storage_load is None:
            return None
        return window(
            Path(cell.traces),
            row.label,
            costs,
            load=row.storage_load if cell.trace_load == "table2" else None,
            seconds=cell.seconds,
            seed=seed_of(self._seed, row.label),
            place=self._block if cell.trace_windows == "consecutive" else None,
        )

    def _cut(self, block: RequestBlock) -> RequestBlock:
        """Return requests of the experiment's length, with arrivals in whole microseconds, as in
        production. Requests some ns apart would need buckets faster than any link."""
        kept = block.chosen(block.time_ns < np.int64(self._parameters.seconds * 1e9))
        return replace(kept, time_ns=kept.time_ns // TICK_NS * TICK_NS)

    def _write(self, file: str, block: RequestBlock, closed: int = 0) -> SentRequests:
        save([block], self._folder / file)
        return SentRequests(self._folder / file, closed)


def seed_of(seed: int, what: str) -> int:
    """Return a separate seed for each thing of a block."""
    return int.from_bytes(hashlib.sha256(f"pm {seed} {what}".encode()).digest()[:4], "big")


TENANTS = 12
"""Workloads of the scenario `levels`, more than the switch has levels."""
ONE_CLIENT = "c-all"
"""The client host of figure 9's other bottleneck."""


@dataclass(frozen=True)
class Mix:
    """Workloads on machines, without SLOs yet; `base` is the folder of the files."""

    base: Path
    hosts: Mapping[str, TopologyHost]
    loads: tuple[MixLoad, ...]

    @property
    def sensitive(self) -> tuple[str, ...]:
        """Workloads with a latency SLO."""
        return tuple(load.name for load in self.loads if load.completion_s is None)

    def load(self, name: str) -> MixLoad:
        """Return the workload with this name."""
        return next(load for load in self.loads if load.name == name)

    def topology(self, slos: Mapping[str, float], parameters: PmCell) -> Topology:
        """Return the topology with SLOs in seconds by workload; a copy has its own SLO."""
        workloads = tuple(
            PmWorkload(
                name=load.name,
                client=load.client,
                server=load.server,
                device=load.device,
                trace=load.trace,
                format="plain",
                slo=Slo(latency=slos[load.name])
                if load.completion_s is None
                else Slo(completion=load.completion_s),
            )
            for load in self.loads
        )
        return Topology(
            hosts=dict(self.hosts),
            workloads=workloads,
            network_levels=parameters.levels or None,
            buckets=parameters.buckets,
            blocking=parameters.blocking,
        )


def build(
    parameters: PmCell, seed: int, machines: PmMachines, folder: Path, *, block: int = 0
) -> Mix:
    """Make the traces of a cell's scenario and write them into an empty folder. Policy and k do not
    matter: by the block's seed every policy has the same traces. `block` selects one of consecutive
    windows of a real trace.

    Raises:
        UserError: a real trace cannot be read, or the device cannot get this load.
    """
    profile = None if parameters.device_profile is None else Path(parameters.device_profile)
    write_profiles(machines, folder, profile)
    maker = TraceMaker(parameters, seed, machines, folder, block=block)
    loads = _loads(maker, parameters)
    if isinstance(parameters, Copied):
        loads.append(maker.copy(machines.client(COPY, len(loads))))
    maker.write_constant()
    devices: dict[str, dict[str, StorageDevice]] = {load.client: {} for load in loads}
    for load in loads:
        file = RAMDISK_FILE if load.device.startswith(RAMDISK) else DISK_FILE
        devices.setdefault(load.server, {})[load.device] = StorageDevice(profile=file)
    hosts = {
        name: TopologyHost(link=machines.link_of(name), devices=its)
        for name, its in devices.items()
    }
    return Mix(folder, hosts, tuple(loads))


def labels_of(parameters: PmCell) -> tuple[str, ...]:
    """Return the workloads of a scenario without a copy; for figure 4 by falling priority."""
    return {
        "disk": ("A", "B", "C"),
        "burst": (parameters.burst if isinstance(parameters, OneBurst) else "",),
        "misbehave": ("C", "D"),
        "network": ("C", "I", "J", "K"),
        "buckets": ("B", "A", "C"),
        "levels": tuple(f"V{index + 1}" for index in range(TENANTS)),
        "table2": tuple("ABCDEFGHIJK"),
    }[parameters.scenario]


def _loads(maker: TraceMaker, parameters: PmCell) -> list[MixLoad]:
    """Return the loads of a scenario, on the one disk unless noted."""
    machines = maker.machines
    loads = []
    for index, label in enumerate(labels_of(parameters)):
        client, place = machines.client(label, index), None
        if parameters.scenario == "levels":
            # Ramdisks of their own; all share the server's outgoing link.
            place = (machines.server, f"{RAMDISK}-{label}")
        if isinstance(parameters, Network):
            # Figure 9: a device each, on one server, or from one client host.
            egress = parameters.bottleneck == "egress"
            device = RAMDISK if maker.row(label).storage_load is None else f"{DISK}-{label}"
            usual = (machines.server if egress else f"s-{label}", device)
            place = machines.network.get(label, usual)
            client = client if egress else ONE_CLIENT
        loads.append(maker.load(label, client, place))
    if isinstance(parameters, Misbehave) and parameters.misbehaves:
        loads[1] = maker.sends(loads[1], "E")  # figure 8: D sends E's trace
    if isinstance(parameters, Buckets) and parameters.misbehaves:
        loads[0] = maker.floods(loads[0])  # figure 4: B, of the highest priority
    return loads


def larger(mix: Mix) -> str | None:
    """Return a workload that sends larger reads or writes than its announced trace, or None.

    Token buckets limit a misbehaving workload, so that it breaks no bound of the others (section
    3.2). A larger request than announced can break one: it holds the device longer than the bound
    with blocking assumes, and passes a bucket that is smaller than the request.
    """
    for load in mix.loads:
        announced = mix.base / load.trace
        if load.replay.file == announced:
            continue
        sizes = zip(_largest(load.replay.file), _largest(announced), strict=True)
        if any(sent > most for sent, most in sizes):
            return load.name
    return None


def _largest(trace: Path) -> tuple[int, int]:
    """Return the bytes of a trace's largest read and write; 0 if there is none."""
    read = write = 0
    for block in TraceReader(trace):
        read = max(read, int(block.size[block.read].max(initial=0)))
        write = max(write, int(block.size[~block.read].max(initial=0)))
    return read, write
