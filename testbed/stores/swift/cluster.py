"""What the admin node knows of its Swift, and what is in force: pure data, no node is asked.

`Cluster` comes with a deployment; `State` is what a layout or a controller made of it since: who
holds which share, which proxies and storage nodes are whose, which microstores serve a tenant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from schemas.errors import UserError
from testbed.stores.microstores import NOTHING, Resources

CLUSTER = Path("/etc/hotbed/swift/cluster.json")
STATE = Path("/var/lib/hotbed/swift/state.json")
BUILDERS = Path("/var/lib/hotbed/swift/builders")


@dataclass(frozen=True)
class Cluster:
    """A deployment. `ports` are the first ports of the microstores' storage servers, `storage` the
    storage nodes that they began with; `disks` by storage node; `clients` get endpoint files.
    `machine` is what each proxy carries where they are handed out whole: its storage cores go to
    the microstore's servers, and 0 of them leave those to shares. `spare_proxies` begin in the
    pool."""

    proxies: Mapping[str, tuple[str, ...]]
    storage: Mapping[str, tuple[str, ...]]
    ports: Mapping[str, int]
    tenants: Mapping[str, str]
    total: Resources
    step: Resources
    machine: Resources | None
    layouts: Mapping[str, Mapping[str, Any]]
    layout: str
    replicas: int
    part_power: int
    workers: int
    s3: bool
    port: int
    disks: Mapping[str, tuple[str, ...]]
    clients: tuple[str, ...] = ()
    spare_proxies: tuple[str, ...] = ()

    @property
    def microstores(self) -> tuple[str, ...]:
        """Names, in the spec's order."""
        return tuple(self.ports)

    @property
    def all_proxies(self) -> tuple[str, ...]:
        """Every proxy node, also those in the pool."""
        return tuple(node for nodes in self.proxies.values() for node in nodes) + self.spare_proxies

    def set_of(self, microstore: str) -> str:
        """The name of its set of storage nodes: that of the first microstore with the same ones."""
        return next(name for name in self.ports if self.storage[name] == self.storage[microstore])


@dataclass(frozen=True)
class State:
    """What is in force. `proxies`: microstore by proxy node, "" while it is in the pool; `members`:
    disks by storage node, by set of storage nodes; `rings`: how often rings were changed."""

    layout: str
    shares: Mapping[str, Resources]
    proxies: Mapping[str, str]
    tenants: Mapping[str, tuple[str, ...]]
    members: Mapping[str, Mapping[str, tuple[str, ...]]]
    workers: Mapping[str, int]
    overrides: Mapping[str, Resources] = field(default_factory=dict)
    rings: int = 0

    def proxies_of(self, microstore: str) -> tuple[str, ...]:
        """Its proxy nodes, in order."""
        return tuple(node for node, name in self.proxies.items() if name == microstore)

    def microstores_of(self, tenant: str) -> tuple[str, ...]:
        """Who serves a tenant."""
        return self.tenants[tenant]

    def endpoints(self, tenant: str) -> tuple[str, ...]:
        """The proxy nodes that serve a tenant."""
        return tuple(p for name in self.tenants[tenant] for p in self.proxies_of(name))


def cluster_from_json(data: Mapping[str, Any]) -> Cluster:
    """A cluster from what the role wrote; ValueError names what is missing."""
    try:
        stores = data["microstores"]
        pool = data["pool"]
        return Cluster(
            proxies={name: tuple(body["proxies"]) for name, body in stores.items()},
            storage={name: tuple(body["storage"]) for name, body in stores.items()},
            ports={name: int(body["port"]) for name, body in stores.items()},
            tenants=dict(data["tenants"]),
            total=Resources(**pool["total"]),
            step=Resources(**pool["step"]),
            machine=Resources(**pool["machine"]) if pool["machine"] else None,
            layouts=data["layouts"],
            layout=data["layout"],
            replicas=int(data["replicas"]),
            part_power=int(data["part_power"]),
            workers=int(data["workers"]),
            s3=bool(data["s3"]),
            port=int(data["port"]),
            disks={node: tuple(disks) for node, disks in data["disks"].items()},
            clients=tuple(data["clients"]),
            spare_proxies=tuple(data.get("spare_proxies", ())),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"missing or malformed: {error}") from error


def load_cluster(path: Path = CLUSTER) -> Cluster:
    """The cluster of this admin node; UserError when it is not deployed."""
    try:
        return cluster_from_json(json.loads(path.read_text()))
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing: deploy the testbed first (hotbed deploy).") from error
    except ValueError as error:
        raise UserError(f"{path} is {error}: deploy the testbed again.") from error


def initial(cluster: Cluster, layout: str | None = None) -> State:
    """What a deployment, or a change of layout, puts into force.

    Raises:
        UserError: there is no such layout.
    """
    name = layout or cluster.layout
    if name not in cluster.layouts:
        raise UserError(f"there is no layout {name!r}; there are {', '.join(cluster.layouts)}.")
    body = cluster.layouts[name]
    sets = dict.fromkeys(cluster.set_of(store) for store in cluster.microstores)
    return State(
        layout=name,
        shares={store: Resources(**body["microstores"][store]) for store in cluster.microstores},
        proxies={node: store for store in cluster.microstores for node in cluster.proxies[store]}
        | dict.fromkeys(cluster.spare_proxies, ""),
        tenants={tenant: tuple(names) for tenant, names in body["tenants"].items()},
        members={one: {node: cluster.disks[node] for node in cluster.storage[one]} for one in sets},
        workers=dict.fromkeys(cluster.microstores, cluster.workers),
    )


def state_to_json(state: State) -> dict[str, Any]:
    """As JSON-able data."""
    data = asdict(state)
    data["members"] = {
        one: {node: list(disks) for node, disks in nodes.items()}
        for one, nodes in state.members.items()
    }
    return data


def state_from_json(data: Mapping[str, Any]) -> State:
    """The inverse of `state_to_json`."""
    return State(
        layout=data["layout"],
        shares={name: Resources(**share) for name, share in data["shares"].items()},
        proxies=dict(data["proxies"]),
        tenants={name: tuple(stores) for name, stores in data["tenants"].items()},
        members={
            one: {node: tuple(disks) for node, disks in nodes.items()}
            for one, nodes in data["members"].items()
        },
        workers={name: int(count) for name, count in data["workers"].items()},
        overrides={name: Resources(**share) for name, share in data["overrides"].items()},
        rings=int(data["rings"]),
    )


def proxy_share(cluster: Cluster, state: State, node: str) -> Resources:
    """What a proxy node may use: an even part of its microstore's share, a whole machine where
    machines are handed out, nothing beyond a step while it is in the pool."""
    if node in state.overrides:
        return state.overrides[node]
    store = state.proxies[node]
    if not store:
        return cluster.step
    if cluster.machine is not None:
        return cluster.machine
    share, count = state.shares[store], max(1, len(state.proxies_of(store)))
    return Resources(
        proxy_cores=round(share.proxy_cores / count, 6), network=round(share.network / count, 3)
    )


def storage_share(cluster: Cluster, state: State, microstore: str) -> float:
    """Cores that a microstore's servers may use on each of its storage nodes; together a step at
    least, as they run also where all of its machines are gone."""
    nodes = state.members[cluster.set_of(microstore)]
    cores = held(cluster, state, microstore).storage_cores or cluster.step.storage_cores
    return round(cores / max(1, len(nodes)), 6)


def held(cluster: Cluster, state: State, microstore: str) -> Resources:
    """What a microstore holds: its share, of machines the sum; disks as they are in the ring."""
    share = state.shares[microstore]
    disks = sum(len(found) for found in state.members[cluster.set_of(microstore)].values())
    if cluster.machine is not None:
        mine = NOTHING
        for _ in state.proxies_of(microstore):
            mine = mine + cluster.machine
        share = replace(share, proxy_cores=mine.proxy_cores, network=mine.network)
        if cluster.machine.storage_cores:
            share = replace(share, storage_cores=mine.storage_cores)
    return replace(share, hdds=disks if _owns_disks(cluster, microstore) else 0)


def _owns_disks(cluster: Cluster, microstore: str) -> bool:
    """Disks that several microstores share count for none: nobody can give them away."""
    mine = cluster.set_of(microstore)
    return sum(cluster.set_of(other) == mine for other in cluster.microstores) == 1
