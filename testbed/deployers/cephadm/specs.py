"""Hosts and services as cephadm's service specifications, one YAML document each.

Source: Ceph's documentation, "Service Management" and "OSD Service" (docs.ceph.com/en/latest/
cephadm/services). Tests hold them against `ServiceSpec.from_json` of Debian's python3-ceph-common.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from testbed.deployers.foreign import volumes
from testbed.sites.contract import Node, Testbed

GATEWAY_PORT = 7480  # Ceph's own; cephadm's is 80
GATEWAYS = "hotbed"
SSH_PORT = 22
ADMIN_LABEL = "_admin"
"""cephadm keeps ceph.conf and the administrator's keyring on hosts with it."""

Spec = dict[str, Any]


def host(node: Node, *, administers: bool) -> Spec:
    """A machine under the spec's name, with its roles as labels."""
    labels = [*sorted(node.roles), *([ADMIN_LABEL] if administers else [])]
    return {
        "service_type": "host",
        "hostname": node.name,
        "addr": node.address,
        "labels": labels,
    }


def administrators(testbed: Testbed) -> tuple[Node, ...]:
    """Who gets the administrator's key: admin node, clients, and the host of the bootstrap."""
    names = {testbed.admin.name, testbed.with_role("mon")[0].name}
    names |= {node.name for node in testbed.with_role("client")}
    return tuple(node for node in testbed.nodes if node.name in names)


def hosts(testbed: Testbed) -> list[Spec]:
    """Every machine, the first monitor first."""
    administer = {node.name for node in administrators(testbed)}
    first = testbed.with_role("mon")[0]
    nodes = sorted(testbed.nodes, key=lambda node: node != first)
    return [host(node, administers=node.name in administer) for node in nodes]


def on_hosts(service: str, nodes: Iterable[Node]) -> Spec:
    """A service with a daemon on each of `nodes`."""
    return {"service_type": service, "placement": {"hosts": [node.name for node in nodes]}}


def controls(testbed: Testbed) -> list[Spec]:
    """Monitors and managers."""
    return [on_hosts(kind, testbed.with_role(kind)) for kind in ("mon", "mgr")]


def osd_service(node: Node) -> str:
    """The name of a node's OSDs as a service, without ``osd.``."""
    return f"hotbed-{node.name}"


def osds(testbed: Testbed, *, managed: bool = True) -> list[Spec]:
    """OSDs on the volumes of each node. Paths are taken whatever cephadm's inventory says of them.

    Args:
        managed: whether cephadm makes them. When they are there it must not: it would make one
            again that an experiment took out.
    """
    return [
        {
            **on_hosts("osd", (node,)),
            "service_id": osd_service(node),
            **({} if managed else {"unmanaged": True}),
            "spec": {
                "data_devices": {
                    "paths": [f"/dev/{volume['vg']}/{volume['lv']}" for volume in found]
                }
            },
        }
        for node in testbed.with_role("osd")
        if (found := volumes(testbed, node))
    ]


def gateways(testbed: Testbed) -> list[Spec]:
    """RADOS gateways; none where no node has the role."""
    nodes = testbed.with_role("rgw")
    if not nodes:
        return []
    return [
        {
            **on_hosts("rgw", nodes),
            "service_id": GATEWAYS,
            "spec": {"rgw_frontend_port": GATEWAY_PORT},
        }
    ]


def document(specs: Iterable[Mapping[str, Any]]) -> bytes:
    """Specs as `ceph orch apply -i -` reads them."""
    return "---\n".join(yaml.safe_dump(dict(spec), sort_keys=False) for spec in specs).encode()


def ssh_config(testbed: Testbed) -> bytes | None:
    """How cephadm's manager reaches hosts, by the addresses that their specifications have; None
    where all listen at the usual port, for which its own will do.

    It checks no host keys, with this or its own: its connections ask for none.
    """
    ports = {node.address: node.ssh_port for node in testbed.nodes if node.ssh_port != SSH_PORT}
    if not ports:
        return None
    lines = [f"Host {address}\n  Port {port}" for address, port in ports.items()]
    common = ("User root", "StrictHostKeyChecking no", "UserKnownHostsFile /dev/null")
    lines += ["Host *", *(f"  {line}" for line in (*common, "ConnectTimeout 30"))]
    return "\n".join([*lines, ""]).encode()


def configuration(settings: Mapping[str, Mapping[str, str]]) -> bytes:
    """A ceph.conf for `cephadm bootstrap --config`, which moves it into the monitors' database."""
    lines = []
    for section, values in settings.items():
        lines += [f"[{section}]", *(f"{name} = {value}" for name, value in values.items()), ""]
    return "\n".join(lines).encode()
