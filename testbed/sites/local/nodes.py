"""Start, check and stop of single nodes of a testbed."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TypeVar

from testbed.sites import keys
from testbed.sites.contract import Node, SiteError
from testbed.sites.local import network, racks
from testbed.sites.local.cgroups import Cgroups
from testbed.sites.local.container import PRESSURE_FOLDER, Container
from testbed.sites.local.disk import LocalDisk, detach_loop, folder_name, folders, loops_on, uses
from testbed.sites.local.image import metrics_layer
from testbed.sites.local.names import LocalNames
from testbed.sites.local.process import read_pid, stop
from testbed.sites.local.record import LocalRecord, PlannedNode
from testbed.spec import DiskSpec

ANY_DISK = DiskSpec()
"""Spec of a disk that is only stopped."""
DISKS = "_disks"
"""Group of a testbed's queue disks; no node's name starts with an underscore."""
_PARALLEL = 16
T = TypeVar("T")
R = TypeVar("R")


def at_once(
    function: Callable[[T], R], items: Iterable[T], interrupted: Event | None = None
) -> list[R]:
    """Call `function` on every item in threads; the first error is raised after all have ended.
    `interrupted`: set on Ctrl-C, so that a waiting `function` can give up."""
    with ThreadPoolExecutor(_PARALLEL) as pool:
        futures = [pool.submit(function, item) for item in items]
        try:
            wait(futures)
        except BaseException:
            if interrupted is not None:
                interrupted.set()
            for future in futures:
                future.cancel()
            raise
    return [future.result() for future in futures]


@dataclass(frozen=True)
class LocalNodes:
    """Operations on the nodes of the testbed `name`."""

    places: LocalNames
    cgroups: Cgroups
    name: str

    @property
    def folder(self) -> Path:
        return self.places.testbed(self.name)

    def of(self, node: str) -> Path:
        """Return a node's folder."""
        return self.folder / "nodes" / node

    def group(self, node: str) -> str:
        """Return a node's control group, below the top."""
        return f"{self.name}/{node}"

    def container(self, node: str) -> Container:
        return Container(self.of(node), node, self.places.machine(self.name, node))

    def disks(self, member: PlannedNode) -> list[LocalDisk]:
        """Return the node's disks, in order; none if its group has none."""
        spec = member.group.disk
        if spec is None:
            return []
        folder = self.of(member.name)
        return [LocalDisk(folder / folder_name(n), spec) for n in range(member.group.disks)]

    def gone(self, member: PlannedNode, ports: Mapping[str, bool]) -> dict[str, bool]:
        """Return the node's parts (node, disk, link) if one is missing; True for a missing part.
        `member`: the node. `ports`: see `network.ports`."""
        pid = read_pid(self.container(member.name).pid_file)
        netns = Path("/run/netns", self.places.netns(self.name, member.name))
        parts = {
            "node": pid is None or pid not in self.cgroups.pids(self.group(member.name)),
            "link": not netns.exists() or self.places.port(member.name) not in ports,
        }
        if disks := self.disks(member):
            parts["disk"] = not all(disk.running() for disk in disks)
        return parts if any(parts.values()) else {}

    def state(self, member: PlannedNode, ports: Mapping[str, bool]) -> str:
        """Return ``running``, ``stopped``, or the missing parts, such as ``disk gone``."""
        parts = self.gone(member, ports)
        if not parts:
            return "running" if ports[self.places.port(member.name)] else "link down"
        if all(parts.values()):
            return "stopped"
        return f"{' and '.join(part for part, gone in parts.items() if gone)} gone"

    def start(self, record: LocalRecord, member: PlannedNode, image: Path) -> None:
        """Start a node that does not run, from any state that its last life left."""
        self.clear(member.name)
        folder, container = self.of(member.name), self.container(member.name)
        layers = [folder / "layers" / str(layer) for layer in record.chain]
        layers[-1].mkdir(parents=True, exist_ok=True)
        netns = self.places.netns(self.name, member.name)
        network.make_link(
            self.places,
            self.name,
            member.name,
            member.address,
            member.group.network,
            bridge=racks.bridge_of(record.spec, member.name),
            levels=record.spec.priority_levels,
            mtu=record.spec.mtu,
            congestion_control=network.congestion_control_of(record.spec),
        )
        binds: dict[str, str] = {}
        for number, disk in enumerate(self.disks(member)):
            procs = self.cgroups.create(f"{self.name}/{DISKS}")
            device = disk.start([layer / folder_name(number) for layer in layers], procs)
            binds |= disk.binds(device, number)
        images = [image]
        if record.spec.metrics:
            images.append(metrics_layer(self.places.cache, record.suite))
        container.mount(images, record.chain, member.group.root_size)
        host_key = folder / "host_key"
        keys.make(host_key, member.name)
        login = keys.public(self.folder / keys.LOGIN)
        container.furnish(_hosts(record), login, host_key)
        group = self.group(member.name)
        procs = self.cgroups.create(group, cpus=member.group.cpus, memory=member.group.memory)
        container.start(
            netns=netns,
            procs=procs,
            binds=binds,
            pressure=self.cgroups.pressure_folder(group),
            shares=self.cgroups.share_folders(group),
        )

    def halt(self, member: PlannedNode, timeout_s: float = 20.0) -> None:
        """Shut a node down like a machine, then hard; its disk and files stay."""
        pid = read_pid(self.container(member.name).pid_file)
        if pid is not None and pid in self.cgroups.pids(self.group(member.name)):
            stop(pid, timeout_s=timeout_s, number=signal.SIGTERM)
        self.clear(member.name)

    def clear(self, node: str) -> None:
        """Kill a node and remove its processes and mounts; its layers and keys stay."""
        folder, group = self.of(node), self.group(node)
        disks = [LocalDisk(path, ANY_DISK) for path in folders(folder)]
        if not self.cgroups.kill(group, timeout_s=4.0):
            # A process that waits for a disk cannot die: without the disk it gets an error.
            for disk in disks:
                disk.stop()
            if not self.cgroups.kill(group, timeout_s=4.0):
                raise SiteError(f"processes of node {node} do not end", retry_after_s=5.0)
        self.container(node).unmount()
        for disk in disks:
            disk.stop()
        if not all(map(detach_loop, loops_on(folder))):
            raise SiteError(f"a disk of node {node} is still in use", retry_after_s=5.0)
        network.drop_link(self.places, self.name, node)
        self.cgroups.remove(group)
        propagate = Path("/run/systemd/nspawn/propagate", self.places.machine(self.name, node))
        shutil.rmtree(propagate, ignore_errors=True)

    def drop_layers(self, node: str, used: set[int]) -> None:
        """Delete the layers outside `used`."""
        for layers in (self.of(node) / "layers", self.container(node).files):
            for layer in layers.glob("[0-9]*"):
                if int(layer.name) not in used:
                    shutil.rmtree(layer)

    def describe(self, member: PlannedNode) -> Node:
        """Return the node as the packages above see it."""
        devices: dict[str, str] = {}
        for number, disk in enumerate(self.disks(member)):
            devices |= uses(disk.spec, number)
        sensed = self.cgroups.pressure_folder(self.group(member.name)) is not None
        return Node(
            name=member.name,
            address=member.address,
            roles=frozenset(member.group.roles),
            group=member.group.name,
            devices=devices,
            signal="io_pressure" if sensed else "iowait",
            pressure_file=f"{PRESSURE_FOLDER}/io.pressure" if sensed else None,
            cpus=member.group.cpus,
            memory_bytes=member.group.memory,
            rack=member.rack,
        )


def _hosts(record: LocalRecord) -> str:
    lines: Sequence[str] = [f"{member.address}\t{member.name}" for member in record.members()]
    return "\n".join(["127.0.0.1\tlocalhost", "::1\tlocalhost", *lines]) + "\n"
