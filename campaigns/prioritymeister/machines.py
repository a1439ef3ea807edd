"""The machines of a ground: what a mix of workloads runs on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaigns.prioritymeister.links import Links
from campaigns.prioritymeister.topology import Device, Host
from campaigns.prioritymeister.tracework import REFERENCE

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
    """Where workloads run and store.

    Attributes:
        link: of every host, bits per second (the paper's: 1 Gbit/s).
        other_links: of hosts whose link is another.
        disk, ramdisk: profiles; the paper's disk is a 7200 RPM one.
        server: host with the disk that workloads share.
        network: host and kind of device of each workload of figure 9, where not all devices are
            `server`'s own.
        clients: hosts of workloads, in turn; without any, each has one of its own.
        links: what the network keeps of a plan; None where it is modelled, keeps all of it, and has
            the frames of the experiment.
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
        """The host that a workload runs on."""
        return self.clients[index % len(self.clients)] if self.clients else f"c-{name}"

    def kept(self, frame: float) -> Links:
        """What the network keeps; its frames are of `frame` bytes where it is modelled."""
        return Links(frame=frame) if self.links is None else self.links

    def link_of(self, host: str) -> float:
        """Bits per second of a host's link."""
        return self.other_links.get(host, self.link)


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
    hosts: dict[str, Host] = {name: Host(link=machines.link_of(name)) for name in clients}
    for name, profiles in devices.items():
        own: dict[str, Any] = {key: Device(profile=file) for key, file in profiles.items()}
        hosts[name] = Host(link=machines.link_of(name), devices=own)
    return hosts
