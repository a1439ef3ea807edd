"""The machines of a ground: what a mix of workloads runs on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from campaigns.prioritymeister.topology import Device, Host
from campaigns.prioritymeister.tracework import REFERENCE
from controllers.prioritymeister.plan import Tenant

DISK, RAMDISK = "disk", "ram"
NETWORK_STAGES = ("network-in", "network-out")
DISK_FILE, RAMDISK_FILE, CONSTANT_FILE = "disk.json", "ram.json", "constant.json"

RAMDISK_PROFILE = {
    "type": "storageConstant",
    "base": 2e-5,
    "readBandwidth": 2e9,
    "writeBandwidth": 2e9,
}


@dataclass(frozen=True)
class Machines:
    """Where workloads run and store.

    Attributes:
        link: of every host, bits per second (the paper's: 1 Gbit/s).
        disk, ramdisk: profiles; the paper's disk is a 7200 RPM one.
        server: host with the disk that workloads share.
        network: host and kind of device of each workload of figure 9, where not all devices are
            `server`'s own.
        clients: hosts of workloads, in turn; without any, each has one of its own.
        bucket: the token bucket (bytes per second, bytes) that the network keeps where a plan wants
            another; None where it keeps any. A plan goes by what is kept: it lets more through.
        link_share: of every link, what is left for workloads at the worst.
        frame: most bytes of a frame of its links; None where they are modelled, and have those of
            the experiment.
        overshoot: bytes that a token bucket of the network lets through beyond its burst.
    """

    link: float = 1e9
    disk: Path = REFERENCE
    ramdisk: Path | None = None
    server: str = "s0"
    network: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    clients: tuple[str, ...] = ()
    bucket: Callable[[float, float], tuple[float, float]] | None = None
    link_share: float = 1.0
    frame: float | None = None
    overshoot: float = 0.0

    def client(self, name: str, index: int) -> str:
        """The host that a workload runs on."""
        return self.clients[index % len(self.clients)] if self.clients else f"c-{name}"

    def kept(self, tenant: Tenant) -> Tenant:
        """A workload with the token buckets that the network can keep."""
        if self.bucket is None:
            return tenant
        limiters = dict(tenant.limiters)
        for stage in NETWORK_STAGES:
            found = limiters[stage]
            pairs = [self.bucket(*p) for p in zip(found.rates, found.bursts, strict=True)]
            rates, bursts = np.array(pairs, np.float64).T
            limiters[stage] = replace(found, rates=rates, bursts=bursts)
        return replace(tenant, limiters=limiters)

    def frames(self, modelled: float) -> float:
        """Most bytes of a frame, `modelled` where links are."""
        return modelled if self.frame is None else self.frame

    def bytes_s(self) -> float:
        """Of a link."""
        return self.link / 8


def write_profiles(machines: Machines, folder: Path, disk: Path | None = None) -> None:
    """Put the devices' profiles into a mix's folder; `disk` instead of the ground's own."""
    (folder / DISK_FILE).write_text((disk or machines.disk).read_text())
    ramdisk = machines.ramdisk
    text = json.dumps(RAMDISK_PROFILE) if ramdisk is None else ramdisk.read_text()
    (folder / RAMDISK_FILE).write_text(text)


def hosts_of(
    machines: Machines, clients: list[str], devices: Mapping[str, Mapping[str, str]]
) -> dict[str, Host]:
    """Hosts by name: every client, and every server with its devices' profiles."""
    hosts: dict[str, Host] = {name: Host(link=machines.link) for name in clients}
    for name, profiles in devices.items():
        own: dict[str, Any] = {key: Device(profile=file) for key, file in profiles.items()}
        hosts[name] = Host(link=machines.link, devices=own)
    return hosts
