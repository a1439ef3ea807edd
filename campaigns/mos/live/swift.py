"""A testbed's Swift as a cell needs it: divided as asked, disks of a class, caches empty."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

from campaigns.mos.division import LARGE, SMALL, Disk, Division, Pool, Share
from campaigns.mos.live.drives import Access
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

# What files have in the page cache is written and dropped: a container may not empty the machine's,
# and a sync of everything would reach other nodes' disks too.
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
    """A site whose disks' service times can be chosen."""

    def set_disks(self, name: str, node: str, settings: Sequence[tuple[float, float]]) -> None:
        """Mean positioning time (seconds) and bandwidth (bytes/s) of each of a node's disks."""


@dataclass(frozen=True)
class Reached:
    """A testbed that is up and deployed, and what it is told through."""

    site: Site
    testbed: Testbed
    spec: TestbedSpec
    agent: Agent
    shell_to: Callable[[str], Shell]

    @property
    def store(self) -> SwiftSpec:
        """What the spec says of its Swift."""
        assert isinstance(self.spec.store, SwiftSpec)
        return self.spec.store

    @property
    def storage(self) -> tuple[str, ...]:
        """Storage nodes."""
        return tuple(node.name for node in self.testbed.with_role("storage"))

    @property
    def proxies(self) -> tuple[str, ...]:
        """Proxy nodes."""
        return tuple(node.name for node in self.testbed.with_role("proxy"))

    @property
    def clients(self) -> dict[str, str]:
        """By tenant, the client node that it sends from: one each, as far as there are."""
        nodes = [node.name for node in self.testbed.with_role("client")]
        return {name: nodes[place % len(nodes)] for place, name in enumerate((SMALL, LARGE))}


def fitting(testbed: Testbed, spec: TestbedSpec, spec_file: Path) -> None:
    """Refuse a testbed on which these experiments cannot run.

    Raises:
        UserError: it was made from another spec, or lacks a microstore, a tenant or a proxy.
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
    """What is done with a testbed's Swift."""

    def __init__(self, reached: Reached) -> None:
        self.reached = reached
        self.chosen_disks: dict[str, list[tuple[float, float]]] = {}
        """By node, what its disks were set to: `DisksSite.set_disks`."""

    def pool(self) -> Pool:
        """What there is to divide."""
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
        """Put a division into force, disks included.

        Raises:
            HotbedError: a node does not take it.
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
        """The layout that was deployed is in force, and its disks are the spec's."""
        self.reached.agent.call(
            "swift-layout", {"layout": self.reached.store.layout}, timeout_s=LAYOUT_S
        )
        self._set_disks(self._deployed_disks())

    def access(self) -> dict[str, tuple[Access, ...]]:
        """By tenant, how its client logs in at each proxy that serves it now; at the first one, and
        where to read of the others, where machines come and go."""
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
        """What storage nodes have of objects and databases in their page caches is dropped."""

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
    """A division as the admin node is told."""
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
