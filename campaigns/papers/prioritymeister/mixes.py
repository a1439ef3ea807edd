"""Mixes: the workloads of each experiment of section 6, and the resources that they share.

Traces are stand-ins with the loads and burstiness of Table 2 (docs/prioritymeister.md), or real
ones from a folder. All are made for the ground's own device and links.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from campaigns.papers.prioritymeister.machines import (
    DISK,
    DISK_FILE,
    RAMDISK,
    RAMDISK_FILE,
    Machines,
    hosts_of,
    write_profiles,
)
from campaigns.papers.prioritymeister.topology import Host, Slo, Topology, Workload
from campaigns.papers.prioritymeister.trace_maker import COPY, Load, Place, TraceMaker
from schemas.cells.prioritymeister import Buckets, Copied, Misbehave, Network, OneBurst, PmCell

TENANTS = 12
"""Workloads of the scenario `levels`, more than the switch has levels."""
ONE_CLIENT = "c-all"
"""The client host of figure 9's other bottleneck."""


@dataclass(frozen=True)
class Mix:
    """Workloads on machines, without SLOs yet; `base` is the folder of the files."""

    base: Path
    hosts: Mapping[str, Host]
    loads: tuple[Load, ...]

    @property
    def sensitive(self) -> tuple[str, ...]:
        """Workloads with a latency SLO."""
        return tuple(load.name for load in self.loads if load.completion_s is None)

    def load(self, name: str) -> Load:
        """Return the workload with this name."""
        return next(load for load in self.loads if load.name == name)

    def topology(self, slos: Mapping[str, float], parameters: PmCell) -> Topology:
        """Return the topology with SLOs in seconds by workload; a copy has its own SLO."""
        workloads = tuple(
            Workload(
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
    parameters: PmCell, seed: int, machines: Machines, folder: Path, *, block: int = 0
) -> Mix:
    """Make the traces of a cell's scenario and write them into `folder`.

    Args:
        parameters: the cell's parameters; policy and k do not matter.
        seed: the block's seed, so that every policy has the same traces.
        machines: the ground's machines.
        folder: an empty folder.
        block: the campaign's block, from 0; it selects one of consecutive windows of a real trace.

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
    devices: dict[str, dict[str, str]] = {}
    for load in loads:
        file = RAMDISK_FILE if load.device.startswith(RAMDISK) else DISK_FILE
        devices.setdefault(load.server, {})[load.device] = file
    clients = list(dict.fromkeys(load.client for load in loads))
    return Mix(folder, hosts_of(machines, clients, devices), tuple(loads))


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


def _on_the_disk(maker: TraceMaker, parameters: PmCell) -> list[Load]:
    """Return the loads, all on the one disk."""
    return [
        maker.load(label, maker.machines.client(label, index))
        for index, label in enumerate(labels_of(parameters))
    ]


def _misbehave(maker: TraceMaker, parameters: Misbehave) -> list[Load]:
    """Return figure 8's loads: C, and D, which sends E's trace if it misbehaves."""
    good, bad = _on_the_disk(maker, parameters)
    return [good, maker.sends(bad, "E") if parameters.misbehaves else bad]


def _buckets(maker: TraceMaker, parameters: Buckets) -> list[Load]:
    """Return figure 4's loads: B has the highest priority, and floods for 40 s."""
    first, *rest = _on_the_disk(maker, parameters)
    return [maker.floods(first) if parameters.misbehaves else first, *rest]


def _network(maker: TraceMaker, parameters: Network) -> list[Load]:
    """Return figure 9's loads, each with its own device: on one server, or from one client host."""
    egress, machines = parameters.bottleneck == "egress", maker.machines
    loads = []
    for index, label in enumerate(labels_of(parameters)):
        on_ram = maker.row(label).storage_load is None
        device = RAMDISK if on_ram else f"{DISK}-{label}"
        usual = (machines.server if egress else f"s-{label}", device)
        place: Place = machines.network.get(label, usual)
        client = machines.client(label, index) if egress else ONE_CLIENT
        loads.append(maker.load(label, client, place))
    return loads


def _levels(maker: TraceMaker, parameters: PmCell) -> list[Load]:
    """Return twelve loads with their own ramdisks that share the server's outgoing link."""
    server = maker.machines.server
    return [
        maker.load(label, maker.machines.client(label, index), (server, f"{RAMDISK}-{label}"))
        for index, label in enumerate(labels_of(parameters))
    ]


def _loads(maker: TraceMaker, parameters: PmCell) -> list[Load]:
    if isinstance(parameters, Misbehave):
        return _misbehave(maker, parameters)
    if isinstance(parameters, Buckets):
        return _buckets(maker, parameters)
    if isinstance(parameters, Network):
        return _network(maker, parameters)
    if parameters.scenario == "levels":
        return _levels(maker, parameters)
    return _on_the_disk(maker, parameters)
