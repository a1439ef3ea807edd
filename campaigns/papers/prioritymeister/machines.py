"""Machines of a ground that a mix of workloads runs on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaigns.papers.prioritymeister.links import Links
from campaigns.papers.prioritymeister.topology import Device, Host
from campaigns.papers.prioritymeister.tracework import REFERENCE

DISK, RAMDISK = "disk", "ram"
DISK_FILE, RAMDISK_FILE, CONSTANT_FILE = "disk.json", "ram.json", "constant.json"

RAMDISK_PROFILE = {
    "type": "storageConstant",
    "base": 2e-5,
    "readBandwidth": 2e9,
    "writeBandwidth": 2e9,
}


@dataclass(frozen=True)
class Machines:
    """Hosts, links and devices of workloads.

    Attributes:
        link: bits per second of every host's link (the paper's: 1 Gbit/s).
        other_links: links of hosts with another speed.
        disk, ramdisk: profiles; the paper's disk has 7200 RPM.
        server: host with the disk that workloads share.
        network: host and kind of device of each workload of figure 9, if not all devices are
            `server`'s.
        clients: hosts of workloads, in turn; if empty, each workload has its own host.
        links: the network's limits for a plan; None if the network is modelled, which keeps every
            plan and has the experiment's frames.
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


def write_profiles(machines: Machines, folder: Path, disk: Path | None = None) -> None:
    """Write the devices' profiles into a mix's folder; `disk` replaces the ground's own."""
    (folder / DISK_FILE).write_text((disk or machines.disk).read_text())
    ramdisk = machines.ramdisk
    text = json.dumps(RAMDISK_PROFILE) if ramdisk is None else ramdisk.read_text()
    (folder / RAMDISK_FILE).write_text(text)


def hosts_of(
    machines: Machines, clients: list[str], devices: Mapping[str, Mapping[str, str]]
) -> dict[str, Host]:
    """Return hosts by name: every client, and every server with its devices' profiles."""
    hosts: dict[str, Host] = {name: Host(link=machines.link_of(name)) for name in clients}
    for name, profiles in devices.items():
        own: dict[str, Any] = {key: Device(profile=file) for key, file in profiles.items()}
        hosts[name] = Host(link=machines.link_of(name), devices=own)
    return hosts
