"""A testbed's Swift for a cell: its division, disks of a class, empty caches, objects to read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

from campaigns.grounds.cores import CoreShares
from campaigns.grounds.live import LiveTestbed, at_once
from campaigns.papers.mos import drives
from campaigns.papers.mos.drives import ProxyLogin, StoredObjects
from schemas.durable import write_file
from schemas.errors import HotbedError, UserError
from testbed.spec import SwiftSpec
from workloads.cosbench.credentials import SWIFT_TENANTS
from workloads.cosbench.driver import tenant

LAYOUT_S = 120.0
CACHES_S = 60.0
DEVICES = "/srv/hotbed-swift"
OBJECTS_FILE = "mos-objects.json"
"""File in the testbed's folder with the list of stored objects."""

# Files are synced and their pages dropped one by one. A container may not drop the machine's
# caches, and a full sync would reach other nodes' disks too.
_DROP = f"""
import os, pathlib, subprocess
for disk in pathlib.Path({DEVICES!r}).iterdir():
    subprocess.run(["sync", "-f", str(disk)], check=False)
for path in pathlib.Path({DEVICES!r}).rglob("*"):
    if path.is_file():
        handle = os.open(path, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)
"""


MEGABIT = 125_000.0
"""A megabit in bytes."""
SMALL, LARGE = "small", "large"
TOGETHER, APART = "default", "static"
"""Layouts: all proxies serve every tenant, or each tenant has its microstore's proxies."""


@dataclass(frozen=True)
class Share:
    """Total resources of a microstore: cores of its proxies and storage servers, bytes a second
    between its proxies and clients, and worker processes of each proxy."""

    proxy_cores: float
    storage_cores: float
    network: float
    proxy_workers: int = 1


@dataclass(frozen=True)
class MicrostorePool:
    """Resources to divide, the smallest step of each, storage servers of each microstore, and disks
    of each server. `machines`: each microstore's first resources, if whole machines are assigned
    instead of shares."""

    total: Share = Share(0.8, 0.8, 400 * MEGABIT)
    step: Share = Share(0.1, 0.1, 20 * MEGABIT)
    storage_servers: int = 2
    disks: int = 3
    machines: Mapping[str, Share] = field(default_factory=dict)


@dataclass(frozen=True)
class DiskClass:
    """A class of disks: mean positioning time in seconds, and bandwidth in bytes a second."""

    positioning: float
    bandwidth: float


@dataclass(frozen=True)
class Division:
    """A layout, each microstore's share, and the classes of the disks of every storage server.
    Without classes, the disks are as in the spec."""

    layout: str
    shares: Mapping[str, Share]
    disks: tuple[DiskClass, ...] = ()


def even(pool: MicrostorePool) -> Division:
    """Return section 8.1's Default: one store of everything with equal proxies."""
    total = pool.total
    half = Share(total.proxy_cores / 2, total.storage_cores / 2, total.network / 2)
    return Division(TOGETHER, {SMALL: half, LARGE: half})


@runtime_checkable
class SettableDisksSite(Protocol):
    """A site that can set its disks' service times."""

    def set_disks(self, name: str, node: str, settings: Sequence[tuple[float, float]]) -> None:
        """Set mean positioning time (seconds) and bandwidth (bytes/s) of each of a node's disks."""


class Swift:
    """Operations on a testbed's Swift.

    Attributes:
        live: the testbed.
        store: the spec's Swift section.
        storage: names of the storage nodes.
        clients: client node of each tenant, by tenant; one each if there are enough.
        chosen_disks: settings of the disks by node, see `SettableDisksSite`.

    Raises:
        UserError: the testbed lacks a microstore, tenant or proxy that these experiments need.
    """

    def __init__(self, live: LiveTestbed) -> None:
        store = live.spec.store
        if not isinstance(store, SwiftSpec):
            raise UserError("no Swift microstores", where=f"testbed {live.name}")
        stores = {microstore.name for microstore in store.microstores}
        tenants = {one.name: one.microstore for one in store.tenants}
        if stores != {SMALL, LARGE} or tenants != {SMALL: SMALL, LARGE: LARGE}:
            raise UserError(
                f"the microstores are {', '.join(sorted(stores))}, and the tenants are "
                f"{', '.join(sorted(tenants))}",
                where=f"testbed {live.name}",
                allowed=f"{SMALL} and {LARGE}, each with a tenant of the same name",
            )
        nodes = live.names("client")
        self.live = live
        self.store = store
        self.storage = live.names("storage")
        self.clients = {
            name: nodes[place % len(nodes)] for place, name in enumerate((SMALL, LARGE))
        }
        self.chosen_disks: dict[str, list[tuple[float, float]]] = {}

    def pool(self) -> MicrostorePool:
        """Return the resources to divide."""
        store = self.store
        per_store = {
            len(set(self._nodes_of(microstore.storage))) for microstore in store.microstores
        }
        disks = {group.disks for group in self.live.spec.groups if "storage" in group.roles}
        return MicrostorePool(
            total=Share(store.pool.proxy_cores, store.pool.storage_cores, store.pool.network / 8),
            step=Share(
                store.pool.step.proxy_cores,
                store.pool.step.storage_cores,
                store.pool.step.network / 8,
            ),
            storage_servers=max(per_store),
            disks=max(disks),
            machines=self._machines(),
        )

    def _machines(self) -> dict[str, Share]:
        store = self.store
        machine = store.pool.machine
        if machine is None:
            return {}
        found = {}
        for microstore in store.microstores:
            count = len(set(self._nodes_of(microstore.proxies)))
            storage = machine.storage_cores
            found[microstore.name] = Share(
                count * (machine.proxy_cores or 0.0),
                store.shares(store.layout, "storage_cores")[microstore.name]
                if storage is None
                else count * storage,
                count * (machine.network or 0.0) / 8,
            )
        return found

    def _nodes_of(self, names: Sequence[str]) -> list[str]:
        groups = {group.name: group.node_names() for group in self.live.spec.groups}
        return [node for name in names for node in groups.get(name, (name,))]

    def divide(self, division: Division) -> None:
        """Apply a division, including its disks. HotbedError: a node rejects the division."""
        payload = layout_of(division) | {"scale": self.live.cores.factor}
        self.live.agent.call("swift-layout", payload, timeout_s=LAYOUT_S)
        self._set_disks(division.disks or self._deployed_disks())

    def _deployed_disks(self) -> tuple[DiskClass, ...]:
        for group in self.live.spec.groups:
            if "storage" in group.roles and group.disk is not None:
                return (DiskClass(group.disk.positioning, group.disk.bandwidth),) * group.disks
        return ()

    def _set_disks(self, disks: Sequence[DiskClass]) -> None:
        site = self.live.site
        settings = [(disk.positioning, disk.bandwidth) for disk in disks]
        if not isinstance(site, SettableDisksSite):
            if len(set(disks)) > 1:
                raise UserError(
                    "the site cannot choose classes of disks",
                    where=f"site {site.kind}",
                    do="use the local site, or nodes with HDDs and SSDs",
                )
            return
        for node in self.storage:
            site.set_disks(self.live.name, node, settings)
            self.chosen_disks[node] = settings

    def restore(self) -> None:
        """Restore the deployed layout and the spec's disks."""
        self.live.agent.call("swift-layout", {"layout": self.store.layout}, timeout_s=LAYOUT_S)
        self._set_disks(self._deployed_disks())

    def access(self) -> dict[str, tuple[ProxyLogin, ...]]:
        """Return the logins of each tenant's client at the proxies that serve it now. If machines
        come and go, return the first proxy and the file that names the others."""
        found = {}
        moving = self.store.pool.machine is not None
        names = {node.address: node.name for node in self.live.testbed.nodes}
        for name, client in self.clients.items():
            login = tenant(self.live.shell_to(client), name)
            path = urlsplit(login.values["auth_url"]).path
            found[name] = tuple(
                ProxyLogin(
                    proxy=_node_at(url, names),
                    auth_url=f"{url.rstrip('/')}{path}",
                    user=login.values["username"],
                    key=login.values["password"],
                    file=f"{SWIFT_TENANTS}/{name}.json" if moving else None,
                )
                for url in login.proxies[: 1 if moving else None]
            )
        return found

    def drop_caches(self) -> None:
        """Drop the storage nodes' page caches of objects and databases."""
        drop = ["python3", "-c", _DROP]
        if self.storage:
            shells = [self.live.shell_to(node) for node in self.storage]
            at_once(*(partial(shell.run, drop, timeout_s=CACHES_S) for shell in shells))

    def ensure_objects(self, needed: Sequence[StoredObjects]) -> None:
        """Write a cell's missing objects, with disks and links unshaped. They are written once in a
        testbed's life, because every layout finds them. HotbedError: the store does not accept
        them."""
        stored = self._stored_objects()
        missing = [one for one in needed if asdict(one) not in stored]
        if not missing:
            return
        pool, live = self.pool(), self.live
        self.divide(Division(APART, even(pool).shares, even(pool).disks))
        access = self.access()
        with live.unshaped():
            for one in missing:
                client, login = self.clients[one.tenant], access[one.tenant][0]
                drives.prepare(live.agent, live.shell_to, client, one, login)
                stored.append(asdict(one))
                self._write_stored(stored)

    def forget_objects(self, objects: Sequence[StoredObjects]) -> None:
        """Forget a cell's objects, because they are gone; its next attempt writes them again."""
        gone = [asdict(one) for one in objects]
        self._write_stored([one for one in self._stored_objects() if one not in gone])

    def _stored_objects(self) -> list[dict[str, object]]:
        try:
            path = self.live.testbed.directory / OBJECTS_FILE
            found: list[dict[str, object]] = json.loads(path.read_text())
        except (OSError, ValueError):
            return []
        return found

    def _write_stored(self, objects: Sequence[Mapping[str, object]]) -> None:
        write_file(self.live.testbed.directory / OBJECTS_FILE, json.dumps(objects) + "\n")


def _node_at(url: str, names: Mapping[str, str]) -> str:
    host = urlsplit(url).hostname or ""
    if host not in names:
        raise HotbedError(f"a tenant's proxy {url} is no node of the testbed")
    return names[host]


def recorded(division: Division, cores: CoreShares) -> dict[str, Any]:
    """Return the nominal and effective cores of microstores, by path in a run's calibration; empty
    while shares are the spec's."""
    if not cores.record:
        return {}
    found: dict[str, Any] = {}
    for store, share in division.shares.items():
        nominal = {"proxy_cores": share.proxy_cores, "storage_cores": share.storage_cores}
        effective = {name: round(amount * cores.factor, 6) for name, amount in nominal.items()}
        found[f"cores.microstores.{store}"] = {"nominal": nominal, "effective": effective}
    return found


def layout_of(division: Division) -> dict[str, Any]:
    """Return a division as the argument of the admin node's call."""
    shares: Mapping[str, Share] = division.shares
    return {
        "layout": division.layout,
        "microstores": {
            name: {
                "proxy_cores": share.proxy_cores,
                "storage_cores": share.storage_cores,
                "network": share.network,
                "workers": share.proxy_workers,
            }
            for name, share in shares.items()
        },
    }
