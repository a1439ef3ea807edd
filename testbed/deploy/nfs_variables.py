"""Variables of the roles ganesha, nfsproxy, replay and netenforcer, from a spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from schemas.errors import UserError
from testbed.deploy.disk_profile import profile_of
from testbed.sites.contract import Node, Testbed
from testbed.spec import SIZE_SLACK, DiskSpec, NfsSpec
from testbed.stores.nfs.wire import ETHERNET_MTU

BINARIES = Path(__file__).resolve().parents[2] / "dataplane" / "bin"


def variables_of(store: NfsSpec) -> dict[str, Any]:
    """Return the variables of all nodes.

    Raises:
        UserError: the programs that go to the nodes are not built.
    """
    for name in ("nfsproxy", "replay"):
        if not (BINARIES / name).is_file():
            raise UserError(f"{BINARIES / name} is missing: build the data plane (make setup).")
    return {
        "ganesha_export": store.export,
        "ganesha_port": store.server_port,
        "ganesha_mount_port": store.server_mount_port,
        "nfsproxy_binary": str(BINARIES / "nfsproxy"),
        "nfsproxy_port": store.port,
        "nfsproxy_mount_port": store.mount_port,
        "nfsproxy_metrics_port": store.metrics_port,
        "nfsproxy_server_port": store.server_port,
        "nfsproxy_server_mount_port": store.server_mount_port,
        "replay_binary": str(BINARIES / "replay"),
    }


def parameters_of(testbed: Testbed, store: NfsSpec) -> dict[str, Any]:
    """Return the proxy's initial parameters: each client is a workload, named like its node."""
    return {
        "policy": store.policy,
        "depth": store.depth,
        "unknown": store.unknown,
        "workloads": [
            {"name": node.name, "clients": [node.address]} for node in testbed.with_role("client")
        ],
    }


def host_of(
    testbed: Testbed, node: Node, disk: DiskSpec, store: NfsSpec, mtu: int = ETHERNET_MTU
) -> dict[str, Any]:
    """Return the variables of one server. Its whole disk or its scratch part holds the export.

    Raises:
        UserError: its site names no device.
    """
    device = node.devices.get("scratch") or next(iter(node.osd_devices), None)
    if device is None:
        raise UserError(
            f"node {node.name} has the role nfs but its site names no device for the store: "
            "give it one in the site's options."
        )
    size = disk.scratch or disk.size
    return {
        "hotbed_scratch_device": device,
        "validate_scratch_min_bytes": int(size * SIZE_SLACK),
        "nfsproxy_profile": store.profile or profile_of(disk, mtu),
        "nfsproxy_parameters": parameters_of(testbed, store),
    }
