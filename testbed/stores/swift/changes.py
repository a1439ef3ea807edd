"""Changes of the Swift store on nodes, each computed from a `SwiftState`.

They are pure requests to the nodes' daemons, and the building and distribution of rings.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from schemas.errors import StoreError
from testbed.agent.contract import AGENT_ROOT, AgentConfig, AgentNode
from testbed.stores.swift.cluster import (
    BUILDERS,
    SwiftCluster,
    SwiftState,
    proxy_share,
    storage_share,
)
from testbed.stores.swift.confs import KINDS, MEMCACHE_PORT, VENV

_BUILD_S = 60.0
Requests = dict[str, dict[str, Any]]


class Changes:
    """Requests for the nodes of one cluster."""

    def __init__(self, config: AgentConfig, cluster: SwiftCluster) -> None:
        self._cluster = cluster
        self._nodes = {node.name: node for node in config.nodes}

    def node(self, name: str) -> AgentNode:
        """Return a node; raise KeyError if there is none."""
        return self._nodes[name]

    # -- what runs where ------------------------------------------------------------------------

    def configure(self, state: SwiftState, names: Sequence[str] | None = None) -> Requests:
        """Return the operation ``configure`` for every node of Swift, or for `names`."""
        everybody = [*self._cluster.all_proxies, *self.storage_nodes(state)]
        return {
            name: {
                "op": "configure",
                "wanted": self.wanted(state, name),
                "address": self._nodes[name].address,
                "devices": self._devices(name),
            }
            for name in dict.fromkeys(everybody if names is None else names)
        }

    def wanted(self, state: SwiftState, name: str) -> dict[str, Any]:
        """Return the servers that a node must run (`confs.Wanted` as JSON)."""
        cluster, address = self._cluster, self._nodes[name].address
        found: dict[str, Any] = {}
        if name in state.proxies:
            found["memcached"] = address
            store = state.proxies[name]
            if store:
                found["proxy"] = {
                    "microstore": store,
                    "address": address,
                    "port": cluster.port,
                    "workers": state.workers[store],
                    "memcaches": [
                        f"{self._nodes[proxy].address}:{MEMCACHE_PORT}" for proxy in state.proxies
                    ],
                    "tenants": list(cluster.tenants),
                    "s3": cluster.s3,
                }
        stores = [one for one in cluster.microstores if self._stores_for(state, name, one)]
        if stores:
            found["rsync"] = address
            found["rsync_peers"] = [
                node.address for node in self._nodes.values() if "storage" in node.roles
            ]
            found["storage"] = [
                {"microstore": store, "address": address, "port": cluster.ports[store]}
                for store in stores
            ]
        return found

    def _stores_for(self, state: SwiftState, name: str, store: str) -> bool:
        """Return True if a node runs storage servers of a microstore."""
        cluster = self._cluster
        return name in cluster.storage[store] or name in state.members[cluster.set_of(store)]

    def storage_nodes(self, state: SwiftState) -> tuple[str, ...]:
        """Return every node with storage servers, including nodes in no ring now."""
        found = [node for nodes in self._cluster.storage.values() for node in nodes]
        found += [node for nodes in state.members.values() for node in nodes]
        return tuple(dict.fromkeys(found))

    def _devices(self, name: str) -> dict[str, str]:
        devices = self._nodes[name].devices
        return {use: path for use, path in devices.items() if use.startswith("osd")}

    # -- shares ---------------------------------------------------------------------------------

    def shares(self, state: SwiftState) -> Requests:
        """Return the operation ``shares`` for every node, with scaled cores."""
        found: Requests = {}
        for node in state.proxies:
            share = proxy_share(self._cluster, state, node)
            found[node] = {"op": "shares", "network": share.network, "shares": {}}
            if state.proxies[node]:
                found[node]["shares"]["proxy"] = round(share.proxy_cores * state.scale, 6)
        for store in self._cluster.microstores:
            cores = round(storage_share(self._cluster, state, store) * state.scale, 6)
            for node in self.storage_nodes(state):
                if self._stores_for(state, node, store):
                    found.setdefault(node, {"op": "shares", "shares": {}})
                    found[node]["shares"][store] = cores
        return found

    def less_and_more(self, before: SwiftState, after: SwiftState) -> tuple[Requests, Requests]:
        """Return the changed shares: first the decreases, then the increases."""
        old, new = self.shares(before), self.shares(after)
        less: Requests = {}
        more: Requests = {}
        for node, request in new.items():
            was = old.get(node, {"shares": {}})
            for group, cores in request["shares"].items():
                had = was["shares"].get(group)
                if had != cores:
                    side = less if had is not None and cores < had else more
                    side.setdefault(node, {"op": "shares", "shares": {}})["shares"][group] = cores
            if "network" in request and request["network"] != was.get("network"):
                rate, had = request["network"], was.get("network")
                side = less if had is not None and rate < had else more
                side.setdefault(node, {"op": "shares", "shares": {}})["network"] = rate
        return less, more

    # -- clients --------------------------------------------------------------------------------

    def endpoints(self, state: SwiftState) -> Requests:
        """Return the operation ``endpoints`` for every client node."""
        tenants: dict[str, dict[str, Any]] = {}
        for tenant in self._cluster.tenants:
            urls = [
                f"http://{self._nodes[node].address}:{self._cluster.port}"
                for node in state.endpoints(tenant)
            ]
            tenants[tenant] = {
                "auth_url": f"{urls[0]}/auth/v1.0" if urls else "",
                "user": f"{tenant}:{tenant}",
                "proxies": urls,
                "s3": self._cluster.s3,
            }
        return {node: {"op": "endpoints", "tenants": tenants} for node in self._cluster.clients}

    # -- rings ----------------------------------------------------------------------------------

    def build_rings(
        self, state: SwiftState, storage: str, emptied: Collection[tuple[str, str]] = ()
    ) -> dict[str, Any]:
        """Build the rings of a set of storage nodes; see `testbed.stores.swift.rings`. `emptied`:
        disks, each (node, disk), that stay in the rings and get no partitions. StoreError: the
        builder failed."""
        cluster = self._cluster
        nodes = state.members[storage]
        order = list(self._nodes)
        request = {
            "builder": str(BUILDERS / f"{storage}.builder"),
            "part_power": cluster.part_power,
            "replicas": cluster.replicas,
            "seed": f"{storage}-{cluster.part_power}",
            "devices": [
                {
                    "node": node,
                    "address": self._nodes[node].address,
                    "disk": disk,
                    "zone": order.index(node) + 1,
                    "weight": 0.0 if (node, disk) in emptied else 100.0,
                }
                for node, disks in nodes.items()
                for disk in disks
            ],
            "microstores": {
                store: cluster.ports[store]
                for store in cluster.microstores
                if cluster.set_of(store) == storage
            },
        }
        done = subprocess.run(
            [f"{VENV}/bin/python", "-m", "testbed.stores.swift.rings"],
            input=json.dumps(request).encode(),
            capture_output=True,
            check=False,
            cwd=AGENT_ROOT,
            timeout=_BUILD_S,
        )
        if done.returncode != 0:
            words = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason"]
            raise StoreError(f"the rings of {storage} cannot be built: {words[-1][:300]}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def ring_requests(
        self, state: SwiftState, rings: Mapping[str, Mapping[str, str]]
    ) -> list[Requests]:
        """Return the operation ``ring`` for every node that serves by these rings, in rounds:
        storage nodes learn new places before proxies send requests there."""
        storage: list[Requests] = []
        proxies: list[Requests] = []
        for store, files in rings.items():
            request = {"op": "ring", "microstore": store, "rings": dict(files)}
            request["digests"] = {
                kind: hashlib.sha256(base64.b64decode(files[kind])).hexdigest() for kind in KINDS
            }
            nodes = self.storage_nodes(state)
            mine = [node for node in nodes if self._stores_for(state, node, store)]
            storage.append(dict.fromkeys(mine, request))
            proxies.append(dict.fromkeys(state.proxies_of(store), request))
        return [*storage, *proxies]
