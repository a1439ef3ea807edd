"""Maker of a block's traces, each with its own seed, as files of a mix."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from campaigns.papers.prioritymeister.experiment import Replay
from campaigns.papers.prioritymeister.machines import (
    CONSTANT_FILE,
    DISK,
    DISK_FILE,
    RAMDISK,
    RAMDISK_FILE,
    Machines,
)
from campaigns.papers.prioritymeister.real_traces import window
from controllers.prioritymeister.estimators import Costs
from controllers.prioritymeister.profiles import load_profile
from schemas.cells.prioritymeister import Copied, OneBurst, OneDisk, PmCell
from workloads.traces import arrivals, standins
from workloads.traces.requests import RequestBlock, save

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
class Load:
    """A workload of a mix: its announced trace (`trace`, next to the topology), its replay, its
    device, and its mean load as a share. `completion_s` is the throughput SLO of a copy, `required`
    the resulting bytes per second."""

    name: str
    client: str
    server: str
    device: str
    trace: str
    replay: Replay
    storage_load: float
    completion_s: float | None = None
    required: float = 0.0


class TraceMaker:
    """Maker of one block's traces on a ground's machines."""

    def __init__(
        self,
        parameters: PmCell,
        seed: int,
        machines: Machines,
        folder: Path,
        *,
        block: int = 0,
    ) -> None:
        self._block = block
        self._parameters, self._seed, self._folder = parameters, seed, folder
        self.machines = machines
        self.disk, self.ram = (load_profile(folder / f) for f in (DISK_FILE, RAMDISK_FILE))
        self._on_disk: list[tuple[float, int, int]] = []  # work, bytes, requests

    def row(self, label: str) -> standins.Row:
        """Return a row of Table 2, or of the tenants of `levels`."""
        if label in standins.TABLE2:
            return self._varied(standins.TABLE2[label])
        c2 = TENANT_C2[int(label[1:]) % len(TENANT_C2)]
        return standins.Row(label, "Synthetic tenant", None, TENANT_LOAD, c2)

    def _varied(self, row: standins.Row) -> standins.Row:
        """Return Table 2's row with the cell's changes."""
        told = self._parameters
        if isinstance(told, OneBurst) and told.access == "mixed":
            row = replace(row, random=False)
        if isinstance(told, OneDisk) and told.network_share < 1 and row.network_load is not None:
            row = replace(row, network_load=row.network_load * told.network_share)
        return row

    def standin(
        self, row: standins.Row, costs: Costs, server: str | None = None
    ) -> standins.StandIn:
        """Return a stand-in like `row` for this block and the link of `server` (by default the
        server with the shared disk)."""
        told, arrive = self._parameters, standins.balanced
        if isinstance(told, OneBurst) and told.gaps == "sharp":
            arrive = partial(standins.sharp, sharpness=told.sharpness)
        return standins.make(
            row,
            lambda block: costs.estimator("storage").work(block),
            lambda block: costs.estimator("network-out").work(block),
            self.machines.link_of(server or self.machines.server) / 8,
            seconds=self._parameters.seconds,
            seed=seed_of(self._seed, row.label),
            arrive=arrive,
        )

    def load(self, label: str, client: str, place: Place | None = None) -> Load:
        """Return a workload at a device (by default the shared disk), and write its trace."""
        server, device = place or (self.machines.server, DISK)
        costs, row = self.disk, self.row(label)
        if device.startswith(RAMDISK):
            costs, row = self.ram, replace(row, storage_load=None)
        real = self._real(row, costs)
        block = self._cut(self.standin(row, costs, server).block if real is None else real)
        work = float(costs.estimator("storage").work(block).sum())
        if costs is self.disk:
            self._on_disk.append((work, int(block.size.sum()), len(block)))
        file = f"{label}.csv"
        return Load(
            name=label,
            client=client,
            server=server,
            device=device,
            trace=file,
            replay=self._write(label, file, block),
            storage_load=work / self._parameters.seconds,
        )

    def copy(self, client: str) -> Load:
        """Return workload L, a copy: one request after the other without end. It announces
        `copy_share` of the disk, and its SLO is that work in `COPY_SLACK` times the time."""
        assert isinstance(self._parameters, Copied)
        size, seconds = self._parameters.copy_kib << 10, self._parameters.seconds
        probe = arrivals.file_copy(64 * size, size, 1e9)
        each = float(self.disk.estimator("storage").work(probe).mean())
        most = COPY_LINK * self.machines.link_of(self.machines.server) / 8 / 1.1
        bandwidth = min(self._parameters.copy_share * size / each, most)
        total = max(2, round(bandwidth * seconds / size)) * size
        block = arrivals.file_copy(total, size, bandwidth)
        return Load(
            name=COPY,
            client=client,
            server=self.machines.server,
            device=DISK,
            trace=f"{COPY}.csv",
            replay=self._write(COPY, f"{COPY}.csv", block, self._parameters.copy_in_flight),
            storage_load=bandwidth / size * each,
            completion_s=COPY_SLACK * seconds,
            required=bandwidth / COPY_SLACK,
        )

    def sends(self, load: Load, label: str) -> Load:
        """Return a workload that announces its own trace but sends another workload's."""
        block = self._cut(self.standin(self.row(label), self.disk).block)
        return replace(load, replay=self._write(load.name, f"{load.name}-sent.csv", block))

    def floods(self, load: Load) -> Load:
        """Return a workload that floods, far above its announcement (section 3.2, figure 4)."""
        made = self.standin(self.row(load.name), self.disk)
        block, seconds = self._cut(made.block), self._parameters.seconds
        each = float(self.disk.estimator("storage").work(block).mean())
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
        return replace(load, replay=self._write(load.name, f"{load.name}-sent.csv", both))

    def write_constant(self) -> None:
        """Write figure 10's estimator. It has one base time for all requests, so that the sum of
        estimates is right; single estimates are wrong."""
        if not self._on_disk:
            return
        probe = RequestBlock.of([(i, 1 << 20, True, i << 20) for i in range(64)])
        bandwidth = (1 << 20) / float(self.disk.estimator("storage").work(probe)[1:].mean())
        work, carried, count = (sum(column) for column in zip(*self._on_disk, strict=True))
        document = {
            "type": "storageConstant",
            "base": max(0.0, (work - carried / bandwidth) / count),
            "readBandwidth": bandwidth,
            "writeBandwidth": bandwidth,
        }
        (self._folder / CONSTANT_FILE).write_text(json.dumps(document))

    def _real(self, row: standins.Row, costs: Costs) -> RequestBlock | None:
        told = self._parameters
        if told.traces is None or row.storage_load is None:
            return None
        return window(
            Path(told.traces),
            row.label,
            costs,
            load=row.storage_load if told.trace_load == "table2" else None,
            seconds=told.seconds,
            seed=seed_of(self._seed, row.label),
            place=self._block if told.trace_windows == "consecutive" else None,
        )

    def _cut(self, block: RequestBlock) -> RequestBlock:
        """Return requests of the experiment's length, with arrivals in whole microseconds, as in
        production. Requests some ns apart would need buckets faster than any link."""
        kept = block.chosen(block.time_ns < np.int64(self._parameters.seconds * 1e9))
        return replace(kept, time_ns=kept.time_ns // TICK_NS * TICK_NS)

    def _write(self, name: str, file: str, block: RequestBlock, closed: int = 0) -> Replay:
        save([block], self._folder / file)
        return Replay(
            name=name,
            file=self._folder / file,
            requests=len(block),
            seconds=float(block.time_ns[-1]) * 1e-9,
            span=int((block.offset + block.size).max()),
            closed=closed,
        )


def seed_of(seed: int, what: str) -> int:
    """Return a separate seed for each thing of a block."""
    return int.from_bytes(hashlib.sha256(f"pm {seed} {what}".encode()).digest()[:4], "big")
