"""The admin node's knowledge of its Swift, and the state in force: pure data, no node is asked.

A deployment writes the `SwiftCluster`. The `SwiftState` is the result of layouts and controllers
since: the shares, the owners of proxies and storage nodes, and the microstores of each tenant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from schemas.durable import read_deployed
from schemas.errors import UserError
from testbed.stores.microstores import NOTHING, Resources

CLUSTER = Path("/etc/hotbed/swift/cluster.json")
STATE = Path("/var/lib/hotbed/swift/state.json")
BUILDERS = Path("/var/lib/hotbed/swift/builders")


@dataclass(frozen=True)
class SwiftCluster:
    """A deployment. `ports` are the first ports of the microstores' storage servers, `storage`
    their initial storage nodes, `disks` the disks by storage node. `clients` get endpoint files.
    `machine` is set if proxies are assigned whole: the resources of each. Its storage cores go to
    the microstore's servers; 0 storage cores leave them to shares. `spare_proxies` start in the
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
        """Every proxy node, including those in the pool."""
        return tuple(node for nodes in self.proxies.values() for node in nodes) + self.spare_proxies

    def set_of(self, microstore: str) -> str:
        """Return the name of its storage node set: the first microstore with the same nodes."""
        return next(name for name in self.ports if self.storage[name] == self.storage[microstore])


@dataclass(frozen=True)
class SwiftState:
    """State in force. `proxies`: microstore by proxy node, "" for the pool; `members`: disks by
    storage node, by set of storage nodes; `rings`: number of ring changes; `scale`: cores that a
    node enforces for each core of a share."""

    layout: str
    shares: Mapping[str, Resources]
    proxies: Mapping[str, str]
    tenants: Mapping[str, tuple[str, ...]]
    members: Mapping[str, Mapping[str, tuple[str, ...]]]
    workers: Mapping[str, int]
    overrides: Mapping[str, Resources] = field(default_factory=dict)
    rings: int = 0
    scale: float = 1.0

    def proxies_of(self, microstore: str) -> tuple[str, ...]:
        """Return its proxy nodes, in order."""
        return tuple(node for node, name in self.proxies.items() if name == microstore)

    def endpoints(self, tenant: str) -> tuple[str, ...]:
        """Return the proxy nodes that serve a tenant."""
        return tuple(p for name in self.tenants[tenant] for p in self.proxies_of(name))


def cluster_from_json(data: Mapping[str, Any]) -> SwiftCluster:
    """Return a cluster from the role's file; raise ValueError that names what is missing."""
    try:
        stores = data["microstores"]
        pool = data["pool"]
        return SwiftCluster(
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


def load_cluster() -> SwiftCluster:
    """Return the cluster of this admin node; raise UserError if it is not deployed."""
    try:
        return cluster_from_json(read_deployed(CLUSTER))
    except ValueError as error:
        raise UserError(f"is {error}", where=CLUSTER, do="deploy the testbed again") from error


def initial(cluster: SwiftCluster, layout: str | None = None) -> SwiftState:
    """Return the state that a deployment, or a change of layout, puts into force. UserError: there
    is no such layout."""
    name = layout or cluster.layout
    if name not in cluster.layouts:
        raise UserError(f"there is no layout {name!r}", allowed=", ".join(cluster.layouts))
    body = cluster.layouts[name]
    sets = dict.fromkeys(cluster.set_of(store) for store in cluster.microstores)
    return SwiftState(
        layout=name,
        shares={store: Resources(**body["microstores"][store]) for store in cluster.microstores},
        proxies={node: store for store in cluster.microstores for node in cluster.proxies[store]}
        | dict.fromkeys(cluster.spare_proxies, ""),
        tenants={tenant: tuple(names) for tenant, names in body["tenants"].items()},
        members={one: {node: cluster.disks[node] for node in cluster.storage[one]} for one in sets},
        workers=dict.fromkeys(cluster.microstores, cluster.workers),
    )


def state_to_json(state: SwiftState) -> dict[str, Any]:
    """Return the state as JSON-able data."""
    return asdict(state)


def state_from_json(data: Mapping[str, Any]) -> SwiftState:
    """Invert `state_to_json`."""
    return SwiftState(
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
        scale=float(data.get("scale", 1.0)),  # older files have none
    )


def proxy_share(cluster: SwiftCluster, state: SwiftState, node: str) -> Resources:
    """Return the share of a proxy node: an even part of its microstore's share, a whole machine if
    machines are assigned whole, one step if the node is in the pool."""
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


def storage_share(cluster: SwiftCluster, state: SwiftState, microstore: str) -> float:
    """Return the cores for a microstore's servers on each of its storage nodes. Together they get
    at least one step: they run even without any machine."""
    nodes = state.members[cluster.set_of(microstore)]
    cores = held(cluster, state, microstore).storage_cores or cluster.step.storage_cores
    return round(cores / max(1, len(nodes)), 6)


def held(cluster: SwiftCluster, state: SwiftState, microstore: str) -> Resources:
    """Return a microstore's resources: its share or its machines' sum, and its ring's disks."""
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


def _owns_disks(cluster: SwiftCluster, microstore: str) -> bool:
    """Return False for shared disks: no single microstore can give them away."""
    mine = cluster.set_of(microstore)
    return sum(cluster.set_of(other) == mine for other in cluster.microstores) == 1
