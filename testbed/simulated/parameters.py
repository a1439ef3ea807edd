"""Parameters of the Ceph model in addition to the testbed's spec: typed constants with sources.

The spec gives nodes, disks, links and pools. `ModelParameters` gives properties of a real machine:
an OSD's computing time, the block layer's behaviour, the cost of a peering. docs/simulation.md has
the source of each number. All of them are part of a run's provenance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from schemas.errors import UserError
from schemas.mistakes import checked
from schemas.model import Model
from schemas.yaml_file import read
from testbed.deploy.inventory import FIO_JOBS, fio_file_bytes
from testbed.spec import CephSpec, DiskSpec, GroupSpec, TestbedSpec

MODEL_VERSION = "3"
"""Version that changes with every change of the model that changes results."""

# Model parameters of a spec's ceph.conf settings.
_SETTINGS = {
    "osd_op_num_shards": "op_shards",
    "osd_op_num_threads_per_shard": "op_threads",
    "osd_op_queue": "op_queue",
    "osd_mclock_profile": "mclock_profile",
    "osd_mclock_max_sequential_bandwidth_hdd": "mclock_bandwidth",
    "osd_mclock_max_capacity_iops_hdd": "mclock_iops",
    "osd_max_backfills": "max_backfills",
    "osd_recovery_max_active": "recovery_max_active",
    "bluestore_prefer_deferred_size_hdd": "defer_bytes",
    "osd_recovery_sleep_hdd": "recovery_sleep_s",
    "mon_osd_down_out_interval": "out_after_s",
    "paxos_propose_interval": "propose_s",
    "mgr_stats_period": "stats_s",
}

_SAME = {
    *("rack_hosts", "max_io", "reorder", "spread", "delay_s", "fio_block", "stats_s"),
    *("client_byte_s", "client_op_s", "client_bytes"),
    *("commit_bytes", "commit_writes", "defer_bytes"),
    *("op_queue", "mclock_profile", "mclock_bandwidth", "mclock_iops"),
    *("propose_s", "peering_s", "peering_commits", "down_after_s", "out_after_s"),
    *("max_backfills", "recovery_max_active", "recovery_sleep_s"),
    *("balancer_every_s", "balancer_deviation", "balancer_moves"),
}
"""Parameters that the simulator's configuration takes under the same names."""


class ModelParameters(Model):
    """Constants of the modelled Ceph; seconds and bytes.

    Attributes:
        max_io: largest request of the block layer.
        reorder: probability that a part of a large read does not follow on the previous part.
        spread: share of the store's space that its objects occupy.
        osd_op_s, osd_byte_s: time of an OSD outside the disk, per operation and per byte.
        client_byte_s, client_op_s: time of a client, per byte and per operation.
        client_bytes: most bytes in flight per client.
        op_shards, op_threads: shards of an OSD, and threads of a shard.
        op_queue, mclock_profile: the OSD's scheduler and its profile.
        mclock_bandwidth, mclock_iops: the disk's bandwidth and operations per second for mClock.
        commit_bytes, commit_writes: bytes of a transaction, and its consecutive writes.
        defer_bytes: smaller overwrites go to the object's own place.
        store_bytes: space that a store takes for itself.
        stats_s: period of the manager's reports of used space.
        network_efficiency: share of a link's rate for payload.
        delay_s: time of a packet in one direction.
        propose_s: time from a command to the monitors to its epoch.
        peering_s, peering_commits: time of a peering's messages, and most transactions in a row.
        down_after_s, out_after_s: time from a crash to down, and from down to out (0: never).
        max_backfills, recovery_max_active, recovery_sleep_s: Ceph's settings of recovery.
        balancer_every_s, balancer_deviation, balancer_moves: period of the balancer, the deviation
            that it tolerates in placement groups, and its most changes at a time.
        pool_id: number of the pool.
        rack_hosts: more hosts than this are put into racks of this size.
        host_order: order in which hosts came into the CRUSH map; by number if empty.
        fio_iodepth, fio_block: operations in flight and block size of fio on a hot node.
        clients: clients on each of the spec's client nodes.
        prefill_pid: process number in the names of the objects that are read.
        detail_nodes: most nodes with samples of their own; with more, means are recorded.
    """

    max_io: int = Field(default=512 * 1024, ge=512, le=2**30)
    reorder: float = Field(default=0.56, ge=0, le=1)
    spread: float = Field(default=1.0, ge=0, le=1)
    osd_op_s: float = Field(default=0.008, ge=0, le=60)
    osd_byte_s: float = Field(default=0.0, ge=0, le=1)
    client_byte_s: float = Field(default=0.5e-9, ge=0, le=1)
    client_op_s: float = Field(default=0.010, ge=0, le=60)
    client_bytes: int = Field(default=100 * 2**20, ge=1, le=2**50)
    op_shards: int = Field(default=2, ge=1, le=1024)
    op_threads: int = Field(default=4, ge=1, le=1024)
    op_queue: Literal["wpq", "mclock_scheduler"] = "wpq"
    mclock_profile: Literal["balanced", "high_client_ops", "high_recovery_ops"] = "balanced"
    mclock_bandwidth: int = Field(default=150 * 2**20, ge=1, le=10**15)
    mclock_iops: float = Field(default=315.0, ge=1, le=1e9)
    commit_bytes: int = Field(default=4096, ge=512, le=2**24)
    commit_writes: int = Field(default=3, ge=1, le=100)
    defer_bytes: int = Field(default=65536, ge=0, le=2**30)
    store_bytes: int = Field(default=340 * 2**20, ge=0, le=2**40)
    stats_s: float = Field(default=2.0, ge=0, le=3600)
    network_efficiency: float = Field(default=0.95, gt=0, le=1)
    delay_s: float = Field(default=1e-4, ge=0, le=60)
    propose_s: float = Field(default=0.1, ge=0, le=600)
    peering_s: float = Field(default=0.1, ge=0, le=600)
    peering_commits: int = Field(default=5, ge=0, le=100)
    down_after_s: float = Field(default=1.0, ge=0, le=1e6)
    out_after_s: float = Field(default=600.0, ge=0, le=1e9)
    max_backfills: int = Field(default=1, ge=1, le=1000)
    recovery_max_active: int = Field(default=3, ge=1, le=1000)
    recovery_sleep_s: float = Field(default=0.1, ge=0, le=600)
    balancer_every_s: float = Field(default=60.0, ge=0.1, le=1e6)
    balancer_deviation: int = Field(default=5, ge=1, le=10**6)
    balancer_moves: int = Field(default=10, ge=1, le=10**6)
    pool_id: int = Field(default=1, ge=1, le=2**31)
    rack_hosts: int = Field(default=64, ge=0, le=2**20)
    host_order: tuple[int, ...] = ()
    fio_iodepth: int = Field(default=16, ge=1, le=1024)
    fio_block: int = Field(default=4096, ge=512, le=2**24)
    clients: int = Field(default=1, ge=1, le=10**6)
    prefill_pid: int = Field(default=4242, ge=1, le=2**31)
    detail_nodes: int = Field(default=64, ge=0, le=10**6)

    def canonical(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return self.model_dump(mode="json")


def load_parameters(path: Path) -> ModelParameters:
    """Read model parameters from a YAML file with those that differ from the defaults. UserError:
    the file cannot be read or does not fit; one sentence."""
    data = read(path) or {}
    return checked(ModelParameters, data, path)


def osd_group(spec: TestbedSpec) -> GroupSpec:
    """Return the group of a spec's OSD nodes; the model supports one kind of OSD node. UserError:
    the store is not Ceph, or there are several kinds of OSD nodes."""
    if not isinstance(spec.store, CephSpec):
        raise UserError(
            "only a Ceph can be simulated",
            where=f"spec {spec.name}",
            do="give it a store of kind ceph",
        )
    groups = [group for group in spec.groups if "osd" in group.roles]
    if len(groups) != 1:
        raise UserError(
            f"{len(groups)} groups have the role osd, and the simulator models one kind of "
            "OSD node",
            where=f"spec {spec.name}",
            do="put them into one group",
        )
    if groups[0].disks > 1:
        raise UserError(
            f"its OSD nodes have {groups[0].disks} disks each, and the simulator models one "
            "OSD a node",
            where=f"spec {spec.name}",
            do="give them one disk, and more of them",
        )
    return groups[0]


def osd_nodes(spec: TestbedSpec) -> tuple[str, ...]:
    """Return the names of the OSD nodes; osd.N runs on the N-th."""
    return osd_group(spec).node_names()


def client_node(spec: TestbedSpec) -> str:
    """Return the node on which the benchmark runs."""
    return next(group.node_names()[0] for group in spec.groups if "client" in group.roles)


def effective(spec: TestbedSpec, parameters: ModelParameters) -> ModelParameters:
    """Return `parameters` with the spec's own ceph.conf settings applied. UserError: a setting has
    a value that the model does not accept."""
    osd_group(spec)
    assert isinstance(spec.store, CephSpec)
    given: dict[str, Any] = {}
    for section in spec.store.config.values():
        for name, value in section.items():
            if name in _SETTINGS:
                given[_SETTINGS[name]] = value
    body = {**parameters.model_dump(), **given}
    return checked(ModelParameters, body, f"spec {spec.name}: store.config")


FILESTORE_BYTES = 220 * 2**20
"""Space of an empty FileStore, measured on dlr-filestore: the journal of 128 MiB, and metadata."""
EXT4_SHARE = 0.97
"""Part of a partition that ext4 offers, measured there: 5458 of 5632 MiB."""


def _space(ceph: CephSpec, disk: DiskSpec, node: str, model: ModelParameters) -> dict[str, int]:
    """Return the disk's parts. FileStore's objects lie behind fio's files on one file system; its
    journal is not modelled, so writes under it cost too little."""
    # Without scratch there are no files to read, but the model still needs a size.
    fio = fio_file_bytes(disk, node) if disk.scratch else model.fio_block
    parts = {"fio_jobs": FIO_JOBS, "fio_file_bytes": fio, "scratch": disk.scratch}
    if ceph.objectstore == "bluestore":
        return parts | {"store_bytes": min(model.store_bytes, disk.size)}
    return parts | {
        "scratch": FIO_JOBS * fio,
        "file_system": int(EXT4_SHARE * disk.scratch),
        "store_bytes": FILESTORE_BYTES,
    }


def _racks(spec: TestbedSpec, model: ModelParameters) -> dict[str, Any]:
    """Return the racks for the network if their uplinks are limited; placement ignores racks."""
    racks, names = spec.rack_of(), osd_nodes(spec)
    if spec.racks is None or spec.racks.uplink is None:
        return {}
    order = sorted(set(racks.values()))
    homeless = [node for node in names if node not in racks]
    if homeless:
        raise UserError(
            f"node {homeless[0]!r} is in no rack, and the simulator models narrow ways out of "
            "racks only where every OSD node is in one",
            where=f"spec {spec.name}",
        )
    return {
        "racks": [order.index(racks[node]) for node in names],
        "uplink_rate": model.network_efficiency * spec.racks.uplink / 8,
    }


def configuration(spec: TestbedSpec, parameters: ModelParameters, seed: int) -> Mapping[str, Any]:
    """Return the simulator's configuration (`ceph.Config` in dataplane/sim/ceph). UserError: the
    spec cannot be simulated."""
    group = osd_group(spec)
    model = effective(spec, parameters)
    assert group.disk is not None and isinstance(spec.store, CephSpec)
    disk, pool = group.disk, spec.store.pools[0]
    client = next(g for g in spec.groups if "client" in g.roles)
    if len(model.host_order) not in (0, group.count):
        raise UserError(
            f"host_order names {len(model.host_order)} hosts and spec {spec.name} has "
            f"{group.count} OSD nodes",
            do="name each once, or none",
        )
    return {
        "seed": seed,
        "osds": group.count,
        "pool": model.pool_id,
        "pgs": pool.pg_num,
        "size": pool.size,
        "min_size": min(pool.min_size, pool.size),
        "add_order": list(model.host_order),
        **_racks(spec, model),
        **model.model_dump(include=_SAME),
        "disk_size": disk.size,
        "positioning_s": disk.positioning,
        "bandwidth": disk.bandwidth,
        "queue_depth": disk.queue_depth,
        "node_rate": model.network_efficiency * group.network / 8,
        "client_rate": model.network_efficiency * client.network / 8,
        "clients": model.clients * client.count,
        "shards": model.op_shards,
        "threads": model.op_threads,
        "op_time_s": model.osd_op_s,
        "byte_time_s": model.osd_byte_s,
        "fio_depth": model.fio_iodepth,
        **_space(spec.store, disk, group.node_names()[0], model),
        "detail": model.detail_nodes,
        "host_names": list(group.node_names()),
        "rack_names": [spec.rack_of().get(node, "") for node in group.node_names()],
        "client_names": [node for node in client.node_names() for _ in range(model.clients)],
    }


# ----------------------------------------------------------------------------------------------
# Scaled stores: more or fewer nodes of a spec's kind, with the same disk and link.
#
# Placement groups grow with the number of OSDs, by Ceph's own rule. Clients keep the spec's number
# per OSD, so that every OSD has the same number of operations in flight at any size.

PGS_PER_OSD = 100
"""Ceph's rule for a pool that has the cluster to itself: about a hundred placement groups for each
OSD, replicas counted, as a power of two (Ceph's documentation, `mon_target_pg_per_osd`)."""

MOST_PGS = 65_536
"""`mon_max_pool_pg_num`: Ceph makes no larger pool, so above 1,300 OSDs (with two replicas) each
has fewer placement groups."""

CLIENT = "client"


def placement_groups(osds: int, size: int) -> int:
    """Return the number of placement groups of a pool with `size` replicas on `osds` OSDs: the
    power of two nearest to `PGS_PER_OSD` for each, at most `MOST_PGS`."""
    wanted = osds * PGS_PER_OSD / size
    below = 1 << math.floor(math.log2(max(1.0, wanted)))
    nearest = below if wanted - below <= 2 * below - wanted else 2 * below
    return min(nearest, MOST_PGS)


def scaled(spec: TestbedSpec, osds: int) -> TestbedSpec:
    """Return `spec` with `osds` OSD nodes of its kind.

    Its clients are nodes of their own with the link of the spec's client. Their number per OSD is
    the spec's, rounded up. The first pool has the placement groups of `placement_groups`.
    UserError: the spec has several kinds of OSD nodes, or `osds` is less than the number of a
    pool's replicas."""
    group = osd_group(spec)
    ceph = spec.ceph()
    first = ceph.pools[0]
    if osds < first.size:
        raise UserError(
            f"spec {spec.name} with {osds} OSDs: pool {first.name!r} keeps {first.size} replicas",
            allowed=f"at least {first.size} OSDs",
        )
    client = next(g for g in spec.groups if "client" in g.roles)
    clients = max(1, math.ceil(osds * client.count / group.count))
    pool = first.model_copy(update={"pg_num": placement_groups(osds, first.size)})
    groups = (
        *(_without_client(g) for g in spec.groups if g is not group and g.roles != (CLIENT,)),
        client.model_copy(update={"name": CLIENT, "count": clients, "roles": (CLIENT,)}),
        _without_client(group).model_copy(update={"count": osds}),
    )
    body = spec.model_copy(
        update={"groups": groups, "store": ceph.model_copy(update={"pools": (pool,)})}
    )
    return TestbedSpec.model_validate(body.model_dump())


def _without_client(group: GroupSpec) -> GroupSpec:
    return group.model_copy(update={"roles": tuple(r for r in group.roles if r != CLIENT)})
