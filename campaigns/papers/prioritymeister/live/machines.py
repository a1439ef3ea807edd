"""Roles of a testbed's nodes, and the machines that traces are made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from campaigns.papers.prioritymeister.live.replays import NfsServer
from campaigns.papers.prioritymeister.mixes import RAMDISK, PmMachines, labels_of
from campaigns.papers.prioritymeister.topology import Topology, htb_links
from schemas.cells.prioritymeister import PmCell
from schemas.errors import UserError
from testbed.sites.contract import Testbed
from testbed.spec import DiskSpec, GroupSpec, NfsSpec, TestbedSpec
from testbed.stores.nfs.shaping import FRAME
from testbed.stores.nfs.wire import frame_of

NFS, CLIENT = "nfs", "client"
SCRATCH = "/var/lib/hotbed/scratch"
"""Mount point of a server's disk; an export is a folder in it with the export's name."""
FILE_BYTES = 1 << 29
"""Largest size of a client's file. Seeks within and between files are typical of the disk. A run
reads little of the files, so the server's page cache holds almost nothing of them."""
FILE_SHARE = 0.8
"""Share of a disk for all clients' files."""
ON_RAM = ("C", "I", "J", "K")
"""Workloads of figure 9; here they share one fast disk in addition to one link, the server's."""


@dataclass(frozen=True)
class NfsPlaces:
    """Nodes by role.

    Attributes:
        disk: the NFS server with the disk that workloads share.
        ram: the server with a disk that is no bottleneck; None if there is none.
        clients: nodes that send, one workload each.
        servers: bytes of a client's file on each server.
        store: the store's settings for clients.
        switch_levels: priorities of the switch's ports; 0 if it has none.
        frame: bytes of the links' largest frame.
    """

    disk: str
    ram: str | None
    clients: tuple[str, ...]
    servers: Mapping[str, int]
    store: NfsSpec
    switch_levels: int = 0
    frame: int = FRAME

    @property
    def folder(self) -> str:
        """Folder of clients' files on a server."""
        return f"{SCRATCH}{self.store.export}"

    def server(self, testbed: Testbed, name: str) -> NfsServer:
        """Return a server's address and export for clients."""
        address, store = testbed.node(name).address, self.store
        return NfsServer(name, address, store.export, store.port, store.mount_port)


def places_of(spec: TestbedSpec) -> NfsPlaces:
    """Return the places of a testbed.

    Raises:
        UserError: the testbed lacks an NFS server or a client.
    """
    disks = {name: group.disk for group in _with_role(spec, NFS) for name in group.node_names()}
    clients = tuple(name for group in _with_role(spec, CLIENT) for name in group.node_names())
    if not disks or not clients or not isinstance(spec.store, NfsSpec):
        raise UserError(
            f"testbed {spec.name} has {len(disks)} nodes of role {NFS} and {len(clients)} of "
            f"role {CLIENT}: experiments of PriorityMeister need one of each at least."
        )
    speeds = {name: _positioning(disk) for name, disk in disks.items()}
    slow = max(speeds, key=lambda name: speeds[name])
    fast = min(speeds, key=lambda name: speeds[name])
    return NfsPlaces(
        disk=slow,
        ram=fast if speeds[fast] < speeds[slow] else None,
        clients=clients,
        servers={name: _file_bytes(disk, len(clients)) for name, disk in disks.items()},
        store=spec.store,
        switch_levels=spec.priority_levels,
        frame=frame_of(spec.mtu),
    )


def machines_of(spec: TestbedSpec, places: NfsPlaces) -> PmMachines:
    """Return the machines for traces; the disks' profiles are the defaults until measured.

    Links are as fast as the slowest, except the link of the server with a disk that is no
    bottleneck."""
    used = [*_with_role(spec, NFS), *_with_role(spec, CLIENT)]
    rates = {name: float(group.network) for group in used for name in group.node_names()}
    ram = places.ram
    others = {} if ram is None else {ram: rates.pop(ram)}
    return PmMachines(
        link=min(rates.values()),
        other_links=others,
        server=places.disk,
        clients=places.clients,
        network={} if ram is None else dict.fromkeys(ON_RAM, (ram, RAMDISK)),
        links=htb_links(places.frame),
    )


def server_of(cell: PmCell, places: NfsPlaces) -> str:
    """Return the server of all workloads of a cell. For figure 9 it is the one without a bottleneck
    at its disk, if any, otherwise the one with the shared disk."""
    on_ram = cell.scenario == "network" and set(labels_of(cell)) <= set(ON_RAM)
    return places.ram if on_ram and places.ram is not None else places.disk


def client_nodes(topology: Topology, testbed: Testbed) -> dict[str, str]:
    """Return the client node of each workload.

    Raises:
        UserError: the testbed lacks a host of the experiment, or two workloads share a client.
    """
    names = {node.name: node for node in testbed.nodes}
    for host in topology.hosts:
        if host not in names:
            raise UserError(
                f"the experiment needs a host {host}, and testbed {testbed.name} has none: run it "
                "on the ground sim."
            )
    found: dict[str, str] = {}
    for workload in topology.workloads:
        if workload.client in found.values():
            raise UserError(
                f"workloads {workload.name} and another would share node {workload.client}: "
                f"testbed {testbed.name} has {len(testbed.with_role(CLIENT))} clients, run "
                "the experiment on the ground sim."
            )
        if NFS not in names[workload.server or ""].roles:
            raise UserError(f"node {workload.server} of testbed {testbed.name} is no NFS server.")
        found[workload.name] = workload.client
    return found


def _with_role(spec: TestbedSpec, role: str) -> list[GroupSpec]:
    return [group for group in spec.groups if role in group.roles]


def _positioning(disk: DiskSpec | None) -> float:
    return 0.0 if disk is None else float(disk.positioning)


def _file_bytes(disk: DiskSpec | None, clients: int) -> int:
    if disk is None:
        return FILE_BYTES
    room = int(FILE_SHARE * (disk.scratch or disk.size) / clients)
    return min(FILE_BYTES, room) >> 20 << 20
