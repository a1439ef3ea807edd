"""Variables of the roles ganesha, nfsproxy, replay and netenforcer, from a spec.

The proxy charges requests by a profile (section 4.2 of PriorityMeister). A modelled disk
(docs/queue-disk.md) needs no measurement: its profile is the model's own positioning, in the form
of the table by distance that `hotbed pm profile --kind by-distance` would measure.
"""

from __future__ import annotations

from typing import Any

from testbed.deploy.parts import binary, scratch_device
from testbed.sites.contract import Node, Testbed
from testbed.spec import SIZE_SLACK, DiskSpec, NfsSpec
from testbed.stores.nfs.wire import ETHERNET_MTU, network_of

_POINTS = 16
_NEAR, _FAR = 0.4, 1.125
"""positioning(distance) = mean * (_NEAR + _FAR * sqrt(distance / size))"""


def profile_of(disk: DiskSpec, mtu: int = ETHERNET_MTU) -> dict[str, Any]:
    """Return the profile of a queue disk: type ``storageTable``, times in seconds, sizes in bytes.

    The estimator interpolates linearly between the table's distances, at most 1.8 % of the mean
    positioning below the model. A request costs no positioning only where the previous one ended:
    the disk has one head and no cache (``history`` 1). `mtu` is that of the links that requests
    use.
    """
    steps = [disk.size * (step / _POINTS) ** 2 for step in range(_POINTS + 1)]
    distances = [-step for step in steps[:0:-1]] + steps
    base = [
        disk.positioning * (_NEAR + _FAR * (abs(distance) / disk.size) ** 0.5)
        for distance in distances
    ]
    offsets = [0.0, float(disk.size)]
    table = {
        "offsets": offsets,
        "distances": distances,
        "base": [base, base],
        "bandwidth": [[disk.bandwidth] * len(distances)] * 2,
    }
    return {
        "type": "storageTable",
        "history": 1,
        "read": table,
        "write": table,
        "network": network_of(mtu),
    }


def variables_of(store: NfsSpec) -> dict[str, Any]:
    """Return the variables of all nodes. UserError: the programs that go to the nodes are not
    built."""
    return {
        "ganesha_export": store.export,
        "ganesha_port": store.server_port,
        "ganesha_mount_port": store.server_mount_port,
        "nfsproxy_binary": binary("nfsproxy"),
        "nfsproxy_port": store.port,
        "nfsproxy_mount_port": store.mount_port,
        "nfsproxy_metrics_port": store.metrics_port,
        "nfsproxy_server_port": store.server_port,
        "nfsproxy_server_mount_port": store.server_mount_port,
        "replay_binary": binary("replay"),
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
    UserError: its site names no device."""
    size = disk.scratch or disk.size
    return {
        "hotbed_scratch_device": scratch_device(node, "nfs"),
        "validate_scratch_min_bytes": int(size * SIZE_SLACK),
        "nfsproxy_profile": store.profile or profile_of(disk, mtu),
        "nfsproxy_parameters": parameters_of(testbed, store),
    }
