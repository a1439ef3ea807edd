"""TCP ports of a node's daemons, from the spec's store and the node's roles, and the machines that
may reach them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from testbed.spec import CephSpec, GroupSpec, NfsSpec, ObjectsSpec, SwiftSpec, TestbedSpec
from testbed.spec.stores import members
from testbed.stores.swift.confs import MEMCACHE_PORT, RSYNC_PORT

MON_PORTS = (3300, 6789)
GATEWAY_PORT = 7480
"""Port of the object gateway, with every deployer."""
CEPHADM_PORT = 8765
"""Port on which the manager's cephadm module lists the services."""
DAEMONS = range(6800, 7301)
"""Each OSD and manager takes the next free ports of this range."""
METRICS_PORTS = {"testbed": 19464, "node": 19100}
"""Exporters' ports if a spec asks for metrics: the testbed's on the admin node, and each node's."""
PROMETHEUS_PORT = 19090
SWIFT_STEP, SWIFT_SERVERS = 10, 3
"""Port distance of microstores (`testbed.deploy.swift_variables`), and storage servers of each."""


class At(StrEnum):
    """Addresses that a daemon listens on; daemons conflict only on a common address."""

    ADDRESS = "address"  # the node's
    EVERYWHERE = "everywhere"
    LOOPBACK = "loopback"  # unreachable from other machines


@dataclass(frozen=True)
class Port:
    """One port. With `peers` only the testbed's nodes may reach it; the role base enforces this."""

    number: int
    at: At = At.ADDRESS
    peers: bool = False

    def taken(self, survey: Mapping[str, Any]) -> bool:
        """Return True if another process of the machine listens there already."""
        if self.number in survey["listening"]:
            return True
        return self.at is not At.ADDRESS and self.number in survey["listening_loopback"]


def ports_of(spec: TestbedSpec, node: str) -> tuple[Port, ...]:
    """Return the ports of a node's daemons in order, without those in `DAEMONS`."""
    group = next(group for group in spec.groups if node in group.node_names())
    store = spec.store
    found: Iterator[Port] = iter(())
    if isinstance(store, CephSpec):
        found = _ceph(store, group)
    elif isinstance(store, NfsSpec):
        found = _nfs(store, group)
    elif isinstance(store, ObjectsSpec):
        count = 1 if group.disk is None or group.disk.scratch else group.disks
        found = (Port(store.port + place) for place in range(count) if "object" in group.roles)
    elif isinstance(store, SwiftSpec):
        found = _swift(spec, store, node, group)
    return tuple(sorted({*found, *_metrics(spec, group)}, key=lambda port: port.number))


def _ceph(store: CephSpec, group: GroupSpec) -> Iterator[Port]:
    if "mon" in group.roles:
        yield from map(Port, MON_PORTS)
    if "mgr" in group.roles and store.deployer.kind == "cephadm":
        yield Port(CEPHADM_PORT, At.EVERYWHERE)
    if "rgw" in group.roles:
        yield Port(GATEWAY_PORT, At.EVERYWHERE)
    if "osd" in group.roles and store.twochoice is not None:
        yield from (Port(store.twochoice.port + place) for place in range(group.disks))


def _nfs(store: NfsSpec, group: GroupSpec) -> Iterator[Port]:
    if "nfs" in group.roles:
        yield from map(Port, (store.port, store.mount_port))
        yield Port(store.metrics_port, peers=True)
        for number in (store.server_port, store.server_mount_port):
            yield Port(number, At.LOOPBACK)


def _swift(spec: TestbedSpec, store: SwiftSpec, node: str, group: GroupSpec) -> Iterator[Port]:
    if "proxy" in group.roles:
        yield Port(store.port)
        yield Port(MEMCACHE_PORT, peers=True)
    if "storage" not in group.roles:
        return
    yield Port(RSYNC_PORT, peers=True)
    groups = {each.name: each.node_names() for each in spec.groups}
    for place, microstore in enumerate(store.microstores):
        if node in members(microstore.storage, groups, "storage"):
            first = store.storage_port + SWIFT_STEP * place
            yield from (Port(number, peers=True) for number in range(first, first + SWIFT_SERVERS))


def _metrics(spec: TestbedSpec, group: GroupSpec) -> Iterator[Port]:
    if spec.metrics:
        yield Port(METRICS_PORTS["node"], peers=True)
        if "admin" in group.roles:
            yield Port(METRICS_PORTS["testbed"], peers=True)
            yield Port(PROMETHEUS_PORT, At.LOOPBACK)


def for_peers(spec: TestbedSpec, node: str) -> tuple[str, ...]:
    """Return the ports of a node that only the testbed's nodes may reach, as numbers and ranges
    (``873``, ``6200-6219``), with all microstores' ports: their servers may move to the node."""
    store = spec.store
    numbers = [port.number for port in ports_of(spec, node) if port.peers]
    if not isinstance(store, SwiftSpec) or RSYNC_PORT not in numbers:
        return tuple(map(str, numbers))
    servers = range(store.storage_port, store.storage_port + SWIFT_STEP * len(store.microstores))
    others = (str(number) for number in numbers if number not in servers)
    return (*others, f"{servers[0]}-{servers[-1]}")


def chosen_by_daemons(spec: TestbedSpec, node: str) -> bool:
    """Return True if daemons of the node take ports of `DAEMONS`."""
    group = next(group for group in spec.groups if node in group.node_names())
    return isinstance(spec.store, CephSpec) and bool({"osd", "mgr"} & set(group.roles))


def to_be_reached(spec: TestbedSpec, node: str) -> tuple[int, ...]:
    """Return the ports at which other nodes must reach a node, only the ends of each consecutive
    range: firewalls close whole ranges.
    """
    numbers = [port.number for port in ports_of(spec, node) if port.at is not At.LOOPBACK]
    there = set(numbers)
    ends = [n for n in numbers if n - 1 not in there or n + 1 not in there]
    return tuple(ends + [DAEMONS[0]] * chosen_by_daemons(spec, node))
