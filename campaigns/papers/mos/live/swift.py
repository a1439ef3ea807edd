"""A testbed's Swift for a cell: its division, disks of a class, empty caches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

from campaigns.papers.mos.division import LARGE, SMALL, Disk, Division, Pool, Share
from campaigns.papers.mos.live.drives import Access
from schemas.errors import HotbedError, UserError
from testbed.agent.contract import Agent
from testbed.sites.contract import Site, Testbed
from testbed.spec import SwiftSpec, TestbedSpec, load_spec
from testbed.ssh import Shell
from workloads.cosbench.credentials import SWIFT_TENANTS
from workloads.cosbench.driver import tenant

LAYOUT_S = 120.0
CACHES_S = 60.0
DEVICES = "/srv/hotbed-swift"

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


@runtime_checkable
class DisksSite(Protocol):
    """A site that can set its disks' service times."""

    def set_disks(self, name: str, node: str, settings: Sequence[tuple[float, float]]) -> None:
        """Set mean positioning time (seconds) and bandwidth (bytes/s) of each of a node's disks."""


@dataclass(frozen=True)
class Reached:
    """A testbed that is up and deployed, with its agent and shells."""

    site: Site
    testbed: Testbed
    spec: TestbedSpec
    agent: Agent
    shell_to: Callable[[str], Shell]

    @property
    def store(self) -> SwiftSpec:
        """The spec's Swift section."""
        assert isinstance(self.spec.store, SwiftSpec)
        return self.spec.store

    @property
    def storage(self) -> tuple[str, ...]:
        """Names of the storage nodes."""
        return tuple(node.name for node in self.testbed.with_role("storage"))

    @property
    def proxies(self) -> tuple[str, ...]:
        """Names of the proxy nodes."""
        return tuple(node.name for node in self.testbed.with_role("proxy"))

    @property
    def clients(self) -> dict[str, str]:
        """Client node of each tenant, by tenant; one each if there are enough."""
        nodes = [node.name for node in self.testbed.with_role("client")]
        return {name: nodes[place % len(nodes)] for place, name in enumerate((SMALL, LARGE))}


def fitting(testbed: Testbed, spec: TestbedSpec, spec_file: Path) -> None:
    """Raise if these experiments cannot run on a testbed.

    Raises:
        UserError: the testbed was made from another spec, or lacks a microstore, tenant or proxy.
    """
    if load_spec(spec_file).digest() != spec.digest():
        raise UserError(
            f"testbed {testbed.name} was not made from {spec_file}: bring that up, or name another "
            "testbed with --testbed."
        )
    if not isinstance(spec.store, SwiftSpec):
        raise UserError(f"testbed {testbed.name} has no Swift microstores.")
    stores = {store.name for store in spec.store.microstores}
    tenants = {one.name: one.microstore for one in spec.store.tenants}
    if stores != {SMALL, LARGE} or tenants != {SMALL: SMALL, LARGE: LARGE}:
        raise UserError(
            f"testbed {testbed.name} has the microstores {', '.join(sorted(stores))} and the "
            f"tenants {', '.join(sorted(tenants))}: these experiments need {SMALL} and {LARGE}, "
            "and a tenant of each by the same name."
        )


class Swift:
    """Operations on a testbed's Swift."""

    def __init__(self, reached: Reached) -> None:
        self.reached = reached
        self.chosen_disks: dict[str, list[tuple[float, float]]] = {}
        """Settings of the disks by node, see `DisksSite.set_disks`."""

    def pool(self) -> Pool:
        """Return the resources to divide."""
        store = self.reached.store
        per_store = {
            len(set(self._nodes_of(microstore.storage))) for microstore in store.microstores
        }
        disks = {group.disks for group in self.reached.spec.groups if "storage" in group.roles}
        return Pool(
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
        store = self.reached.store
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
        groups = {group.name: group.node_names() for group in self.reached.spec.groups}
        return [node for name in names for node in groups.get(name, (name,))]

    def divide(self, division: Division) -> None:
        """Apply a division, including its disks.

        Raises:
            HotbedError: a node rejects the division.
        """
        self.reached.agent.call("swift-layout", layout_of(division), timeout_s=LAYOUT_S)
        self._set_disks(division.disks or self._deployed_disks())

    def _deployed_disks(self) -> tuple[Disk, ...]:
        for group in self.reached.spec.groups:
            if "storage" in group.roles and group.disk is not None:
                return (Disk(group.disk.positioning, group.disk.bandwidth),) * group.disks
        return ()

    def _set_disks(self, disks: Sequence[Disk]) -> None:
        site = self.reached.site
        settings = [(disk.positioning, disk.bandwidth) for disk in disks]
        if not isinstance(site, DisksSite):
            if len(set(disks)) > 1:
                raise UserError(
                    f"site {site.kind} cannot choose its disks' classes: experiments on HDDs and "
                    "SSDs need the local site, or nodes with both."
                )
            return
        for node in self.reached.storage:
            site.set_disks(self.reached.testbed.name, node, settings)
            self.chosen_disks[node] = settings

    def restore(self) -> None:
        """Restore the deployed layout and the spec's disks."""
        self.reached.agent.call(
            "swift-layout", {"layout": self.reached.store.layout}, timeout_s=LAYOUT_S
        )
        self._set_disks(self._deployed_disks())

    def access(self) -> dict[str, tuple[Access, ...]]:
        """Return the logins of each tenant's client at the proxies that serve it now. If machines
        come and go, return the first proxy and the file that names the others."""
        found = {}
        moving = self.reached.store.pool.machine is not None
        names = {node.address: node.name for node in self.reached.testbed.nodes}
        for name, client in self.reached.clients.items():
            told = tenant(self.reached.shell_to(client), name)
            path = urlsplit(told.values["auth_url"]).path
            found[name] = tuple(
                Access(
                    proxy=_node_at(url, names),
                    auth_url=f"{url.rstrip('/')}{path}",
                    user=told.values["username"],
                    key=told.values["password"],
                    file=f"{SWIFT_TENANTS}/{name}.json" if moving else None,
                )
                for url in told.proxies[: 1 if moving else None]
            )
        return found

    def drop_caches(self) -> None:
        """Drop the storage nodes' page caches of objects and databases."""

        def drop(node: str) -> None:
            self.reached.shell_to(node).run(["python3", "-c", _DROP], timeout_s=CACHES_S)

        with ThreadPoolExecutor(max(1, len(self.reached.storage))) as pool:
            for future in [pool.submit(drop, node) for node in self.reached.storage]:
                future.result()


def _node_at(url: str, names: Mapping[str, str]) -> str:
    host = urlsplit(url).hostname or ""
    if host not in names:
        raise HotbedError(f"a tenant's proxy {url} is no node of the testbed")
    return names[host]


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
