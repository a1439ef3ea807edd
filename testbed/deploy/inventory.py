"""A testbed as an Ansible inventory, with the same groups and variables for every site.

Most groups have ceph-ansible's names: mons, mgrs, osds, rgws, clients. The others are `admins`
(the one node with the control plane), `servers` (NFS servers), `nfs` (all nodes if the store is
NFS), `objects` (object servers on files), `files` (all nodes if the store is object servers),
`twochoice` (nodes with the two-choice scheduler's agents or clients), `proxies` and `storages`
(Swift's), and `swift` (all nodes if the store is microstores). docs/deployment.md lists the
variables, for inventories written by hand.
"""

from __future__ import annotations

import itertools
import shlex
import uuid
from collections.abc import Mapping
from typing import Any

from schemas.errors import UserError
from testbed import reach
from testbed.agent.contract import AgentConfig, AgentNode
from testbed.deploy import ports
from testbed.deploy import swift_variables as swift
from testbed.deploy import twochoice_variables as twochoice
from testbed.deploy.nfs_variables import host_of, variables_of
from testbed.deploy.parts import no_device
from testbed.sites.contract import Node, Testbed
from testbed.spec import (
    SIZE_SLACK,
    CephSpec,
    DiskSpec,
    NfsSpec,
    ObjectsSpec,
    SwiftSpec,
    TestbedSpec,
)
from testbed.ssh import config_word

GROUPS = {
    "mon": "mons",
    "mgr": "mgrs",
    "osd": "osds",
    "rgw": "rgws",
    "client": "clients",
    "admin": "admins",
    "nfs": "servers",
    "object": "objects",
    "proxy": "proxies",
    "storage": "storages",
}
SCRATCH_PATH = "/var/lib/hotbed/scratch"
SCRATCH_LABEL = "hotbed-scratch"
FIO_JOBS = 4
FIO_SHARE_OF_DISK = 0.05  # a job's file: DLR's 2 GB of a 40 GB disk
_MIB = 2**20
_NAMESPACE = uuid.UUID("6d6b0d1c-0f6c-5b0e-9f0b-6f4a9d8b2f11")


def cluster_id(testbed: Testbed) -> str:
    """Return the fsid of the testbed's cluster; it never changes, so a deployment can resume."""
    return fsid_of(testbed.site, testbed.name)


def fsid_of(site: str, name: str) -> str:
    """Return the fsid that a testbed's cluster has, or would have."""
    return str(uuid.uuid5(_NAMESPACE, f"{site}/{name}"))


def osd_ids(testbed: Testbed) -> dict[str, tuple[int, ...]]:
    """Return the OSD numbers by node, one for each device. They count over the nodes with the role
    osd in the spec's order, and over each node's devices."""
    numbers = itertools.count()
    return {
        node.name: tuple(itertools.islice(numbers, len(node.osd_devices)))
        for node in testbed.with_role("osd")
    }


def fio_file_bytes(disk: DiskSpec, node: str) -> int:
    """Return the size of each of fio's files on a node with this disk, in whole MiB. UserError: the
    scratch part is too small for them."""
    size = max(1, int(disk.size * FIO_SHARE_OF_DISK) // _MIB) * _MIB
    need = int(FIO_JOBS * size * 1.03) + 24 * _MIB  # ext4's own tables and journal
    if need > disk.scratch:
        raise UserError(
            f"its scratch part of {disk.scratch // _MIB} MiB cannot hold fio's {FIO_JOBS} "
            f"files of {size // _MIB} MiB (5 % of the disk each)",
            where=f"node {node}",
            do=f"give scratch at least {-(-need // _MIB)} MiB in the spec",
        )
    return size


def agent_config(testbed: Testbed, spec: TestbedSpec) -> AgentConfig:
    """Return the admin node's description of its testbed."""
    numbers = osd_ids(testbed)
    nodes = tuple(
        AgentNode(
            name=node.name,
            address=node.address,
            roles=tuple(sorted(node.roles)),
            signal=node.signal,
            pressure_file=node.pressure_file,
            devices=dict(node.devices),
            osds=numbers.get(node.name, ()),
            ssh_port=node.ssh_port,
        )
        for node in testbed.nodes
    )
    store = spec.store
    pools = tuple(pool.name for pool in store.pools) if isinstance(store, CephSpec) else ()
    return AgentConfig(testbed.name, store.kind if store else "none", nodes, pools)


def host_variables(testbed: Testbed, node: Node, disk: DiskSpec | None) -> dict[str, Any]:
    """Return the variables of one node. UserError: a node with the role osd has no device for its
    OSD."""
    variables: dict[str, Any] = {
        "ansible_host": node.reached_at,
        "ansible_port": node.ssh_port,
        "ansible_user": node.ssh_user,
        "hotbed_address": node.address,
    }
    if node.ssh_user != "root":
        variables["ansible_become"] = True
    if node.via is not None:
        variables["ansible_ssh_common_args"] = ssh_arguments(testbed, node)
    if node.memory_bytes is not None:
        variables["hotbed_memory_bytes"] = node.memory_bytes
    if "osd" not in node.roles:
        return variables
    if not node.osd_devices:
        raise no_device(node, "osd")
    variables["hotbed_osds"] = _osds(testbed, node)
    if node.rack is not None:
        variables["hotbed_rack"] = node.rack
    if disk is not None:
        variables["validate_osd_min_bytes"] = int((disk.size - disk.scratch) * SIZE_SLACK)
        variables["hotbed_fio_file_bytes"] = fio_file_bytes(disk, node.name) if disk.scratch else 0
    if "scratch" in node.devices:
        variables["hotbed_scratch_device"] = node.devices["scratch"]
        if disk is not None:
            variables["validate_scratch_min_bytes"] = int(disk.scratch * SIZE_SLACK)
    return variables


def _osds(testbed: Testbed, node: Node) -> list[dict[str, Any]]:
    """Return the number, permanent UUID and device of each OSD of a node."""
    cluster = uuid.UUID(cluster_id(testbed))
    # The first OSD's UUID depends on the node alone, so that older testbeds stay deployable.
    names = [node.name, *(f"{node.name}/{place}" for place in range(1, len(node.osd_devices)))]
    return [
        {"id": number, "uuid": str(uuid.uuid5(cluster, name)), "device": device}
        for number, name, device in zip(
            osd_ids(testbed)[node.name], names, node.osd_devices, strict=True
        )
    ]


def ssh_arguments(testbed: Testbed, node: Node | None = None) -> str:
    """Return the options of every ssh that Ansible starts: checked host keys, no files of the home
    folder, and for a `node` also the way through another machine.
    """
    options = (
        "IdentitiesOnly=yes",
        "StrictHostKeyChecking=yes",
        f"UserKnownHostsFile={config_word(testbed.known_hosts)}",
        "GlobalKnownHostsFile=/dev/null",
        "ConnectTimeout=10",
        "ServerAliveInterval=5",
        "ServerAliveCountMax=3",
    )
    words = [word for option in options for word in ("-o", option)]
    through = reach.proxy_command_of(testbed, node) if node is not None else None
    if through is not None:
        words += ["-o", f"ProxyCommand={through}"]
    return shlex.join(["-F", "none", *words])


def build_inventory(
    testbed: Testbed, spec: TestbedSpec, extra: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the inventory for Ansible's YAML plugin; `extra` adds variables for all nodes.
    UserError: the spec has no store, a device is missing, or scratch is too small."""
    if spec.store is None:
        raise UserError("store is empty; there is nothing to deploy", where=f"spec {spec.name}")
    store = spec.store
    disks = spec.disks()
    common: dict[str, Any] = {
        "ansible_python_interpreter": "/usr/bin/python3",
        # Ansible quotes the path for ssh, which expands percent signs in it.
        "ansible_ssh_private_key_file": str(testbed.ssh_key).replace("%", "%%"),
        "ansible_ssh_common_args": ssh_arguments(testbed),
        "hotbed_testbed": testbed.name,
        "hotbed_fsid": cluster_id(testbed),
        "hotbed_store": store.kind,
        "hotbed_scratch_path": SCRATCH_PATH,
        "hotbed_scratch_label": SCRATCH_LABEL,
    }
    if spec.metrics:
        common |= {"hotbed_metrics": True, "hotbed_metrics_ports": ports.METRICS_PORTS}
    variables = common | _of_store(testbed, spec, store) | dict(extra or {})
    children: dict[str, Any] = {
        group: {"hosts": {node.name: {} for node in testbed.with_role(role)}}
        for role, group in GROUPS.items()
    }
    for group, kind in (
        ("nfs", NfsSpec),
        ("files", ObjectsSpec),
        ("swift", SwiftSpec),
    ):
        everybody = [node.name for node in testbed.nodes] if isinstance(store, kind) else []
        children[group] = {"hosts": {name: {} for name in everybody}}
    hosts = {
        node.name: host_variables(testbed, node, disks.get(node.name)) for node in testbed.nodes
    }
    for node in testbed.nodes:
        if closed := ports.for_peers(spec, node.name):
            hosts[node.name]["hotbed_peer_ports"] = list(closed)
    if isinstance(store, NfsSpec):
        for node in testbed.with_role("nfs"):
            hosts[node.name] |= host_of(testbed, node, disks[node.name], store, spec.mtu)
    elif isinstance(store, SwiftSpec):
        for name, more in swift.hosts_of(testbed, spec).items():
            hosts[name] |= more
    else:
        found = twochoice.hosts_of(testbed, store)
        for name, more in found.items():
            hosts[name] |= more
        children["twochoice"] = {"hosts": {name: {} for name in found}}
        for node in testbed.with_role("object"):
            numbers = hosts[node.name]["twochoice_agents"]
            hosts[node.name] |= twochoice.disk_of(node, disks[node.name], numbers)
    return {"all": {"hosts": hosts, "vars": variables, "children": children}}


def _of_store(
    testbed: Testbed, spec: TestbedSpec, store: CephSpec | NfsSpec | ObjectsSpec | SwiftSpec
) -> dict[str, Any]:
    if isinstance(store, NfsSpec):
        return variables_of(store)
    if isinstance(store, SwiftSpec):
        return swift.variables_of(testbed, spec, store)
    of_agents = twochoice.variables_of(testbed, store)
    return _ceph(store) | of_agents if isinstance(store, CephSpec) else of_agents


def _ceph(store: CephSpec) -> dict[str, Any]:
    tenants = {"radosgw_tenants": list(store.tenants)} if store.tenants else {}
    return tenants | {
        "hotbed_objectstore": store.objectstore,
        "ceph_failure_domain": store.failure_domain,
        "ceph_pools": [pool.model_dump() for pool in store.pools],
        "ceph_settings": {section: dict(values) for section, values in store.config.items()},
    }
