"""Variables of the role swift and of the admin node for Swift microstores, and the secrets."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from schemas.durable import make_folder, write_file
from schemas.errors import UserError
from testbed.deploy import swift_packages
from testbed.sites.contract import Node, Testbed
from testbed.spec import SIZE_SLACK, SwiftSpec, TestbedSpec
from testbed.spec.swift import TOGETHER, members

SECRETS = "swift-secrets.json"
"""File in the testbed's folder, private to its owner: hash prefix and suffix, tenants' keys."""
_SECRET_BYTES = 24
_STORAGE_PORTS = 10  # between the first ports of two microstores' servers


def variables_of(
    testbed: Testbed,
    spec: TestbedSpec,
    store: SwiftSpec,
    packages: Callable[[], swift_packages.Packages] = swift_packages.ensure,
) -> dict[str, Any]:
    """Return the variables of all nodes. Secrets appear only as names of files, never as values.

    Args:
        packages: makes the archive of Swift's packages if it is not cached.

    Raises:
        UserError: Swift's packages are not available.
    """
    found = packages()
    return {
        "swift_packages": str(found.archive),
        "swift_packages_digest": found.digest,
        "swift_packages_for": found.platform,
        "swift_secrets": str(secrets_of(testbed, store)),
        "swift_wipe": "{{ validate_wipe | default(false) }}",
        "swift_cluster": cluster_of(testbed, spec, store),
    }


def hosts_of(testbed: Testbed, spec: TestbedSpec) -> dict[str, dict[str, Any]]:
    """Return the variables of each storage node: its disks.

    Raises:
        UserError: its site names no device.
    """
    sizes = {
        name: group.disk.size - group.disk.scratch
        for group in spec.groups
        if group.disk is not None
        for name in group.node_names()
    }
    return {
        node.name: {
            "hotbed_swift_disks": disks_of(node),
            "swift_disk_min_bytes": int(sizes.get(node.name, 0) * SIZE_SLACK),
        }
        for node in testbed.with_role("storage")
    }


def disks_of(node: Node) -> list[dict[str, str]]:
    """Return the name, device and mount point of each disk of a storage node."""
    if not node.osd_devices:
        raise UserError(
            f"node {node.name} has the role storage but its site names no device for the store: "
            "give it one in the site's options."
        )
    return [
        {"name": f"d{place}", "device": device} for place, device in enumerate(node.osd_devices)
    ]


def cluster_of(testbed: Testbed, spec: TestbedSpec, store: SwiftSpec) -> dict[str, Any]:
    """Return the admin node's description of Swift (`testbed.stores.swift.cluster`): network in
    bytes a second, nodes by name."""
    groups = {group.name: group.node_names() for group in spec.groups}
    microstores: dict[str, dict[str, Any]] = {
        microstore.name: {
            "proxies": list(members(microstore.proxies, groups, "proxies")),
            "storage": list(members(microstore.storage, groups, "storage")),
            "port": store.storage_port + _STORAGE_PORTS * place,
        }
        for place, microstore in enumerate(store.microstores)
    }
    machine = store.pool.machine
    named = {node for body in microstores.values() for node in body["proxies"]}
    proxies = [node.name for node in testbed.with_role("proxy")]
    return {
        "microstores": microstores,
        "tenants": {tenant.name: tenant.microstore for tenant in store.tenants},
        "pool": {
            "total": _resources(store.pool),
            "step": _resources(store.pool.step),
            "machine": _resources(machine) if machine is not None else None,
        },
        "layouts": {name: _layout(store, microstores, name) for name in store.layout_names()},
        "layout": store.layout,
        "replicas": store.replicas,
        "part_power": store.part_power,
        "workers": store.proxy_workers,
        "s3": store.s3,
        "port": store.port,
        "disks": {
            node.name: [disk["name"] for disk in disks_of(node)]
            for node in testbed.with_role("storage")
        },
        "clients": [node.name for node in testbed.with_role("client")],
        "spare_proxies": [name for name in proxies if name not in named] if machine else [],
    }


def _layout(
    store: SwiftSpec, microstores: dict[str, dict[str, Any]], layout: str
) -> dict[str, Any]:
    cores, storage = store.shares(layout, "proxy_cores"), store.shares(layout, "storage_cores")
    network = store.shares(layout, "network")
    return {
        "microstores": {
            name: {
                "proxy_cores": round(cores[name], 6),
                "storage_cores": round(storage[name], 6),
                "network": network[name] / 8,
            }
            for name in microstores
        },
        "tenants": {
            tenant.name: [
                name
                for name, body in microstores.items()
                if name == tenant.microstore
                or (
                    layout == TOGETHER
                    and body["storage"] == microstores[tenant.microstore]["storage"]
                )
            ]
            for tenant in store.tenants
        },
    }


def _resources(share: Any) -> dict[str, float]:
    return {
        "proxy_cores": share.proxy_cores or 0.0,
        "storage_cores": share.storage_cores or 0.0,
        "network": (share.network or 0.0) / 8,
    }


def secrets_of(testbed: Testbed, store: SwiftSpec) -> Path:
    """Return the file with the testbed's secrets; make it, or add keys of new tenants, if needed.
    Existing keys stay, because clients hold them."""
    path = testbed.directory / SECRETS
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    wanted = {name: found.get(name) or _secret() for name in ("prefix", "suffix")}
    keys = found.get("keys", {})
    wanted["keys"] = {tenant.name: keys.get(tenant.name) or _secret() for tenant in store.tenants}
    if wanted != found:
        make_folder(path.parent)
        write_file(path, json.dumps(wanted), 0o600)
    return path


def _secret() -> str:
    return secrets.token_hex(_SECRET_BYTES)
