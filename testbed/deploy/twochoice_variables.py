"""Variables of the role twochoice_agent, from a spec: agents on files, or in front of OSDs."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from schemas.durable import make_folder, write_file
from testbed.deploy.parts import binary, scratch_device
from testbed.sites.contract import Node, Testbed
from testbed.spec import (
    SIZE_SLACK,
    CephSpec,
    DiskSpec,
    NfsSpec,
    ObjectsSpec,
    SwiftSpec,
    TwoChoiceSpec,
)

POOL_PREFIX = "twochoice."
KEY = "twochoice.key"
FOLDERS_ROOT = "/var/lib/hotbed/scratch/twochoice"
"""Folder of object servers on scratch, the role's default."""
DISKS_ROOT = "/var/lib/hotbed/objects"
"""Mount folder of the disks of nodes with several object servers."""
_KEY_BYTES = 32


def asked(store: CephSpec | NfsSpec | ObjectsSpec | SwiftSpec | None) -> TwoChoiceSpec | None:
    """Return the agents' part of a spec's store; None if it has none."""
    if isinstance(store, CephSpec):
        return store.twochoice
    return store if isinstance(store, ObjectsSpec) else None


def agents(testbed: Testbed, store: CephSpec | ObjectsSpec) -> dict[str, tuple[int, ...]]:
    """Return the agents' numbers by node: for Ceph one for each OSD with the OSD's number, for
    object servers one for each disk."""
    numbers: dict[str, tuple[int, ...]] = {}
    count = 0
    for node in testbed.with_role("osd" if isinstance(store, CephSpec) else "object"):
        here = len(node.osd_devices) if isinstance(store, CephSpec) else disks_of(node)
        numbers[node.name] = tuple(range(count, count + here))
        count += here
    return numbers


def peers(testbed: Testbed, store: CephSpec | ObjectsSpec, port: int) -> list[str]:
    """Return the agents' addresses in the order of their numbers; the second agent of a node has
    the port after the first's."""
    return [
        f"{testbed.node(name).address}:{port + place}"
        for name, numbers in agents(testbed, store).items()
        for place in range(len(numbers))
    ]


def cluster_text(document: Mapping[str, Any]) -> bytes:
    """Return a cluster file exactly as the role writes it (`to_nice_json`). So a deployment after a
    settings change and its reversal changes nothing, and restarts no agent."""
    return (json.dumps(document, indent=4, sort_keys=True) + "\n").encode()


def variables_of(testbed: Testbed, store: CephSpec | ObjectsSpec) -> dict[str, Any]:
    """Return the variables of all nodes. UserError: the programs that go to the nodes are not
    built."""
    spec = asked(store)
    if spec is None:
        return {}
    settings: dict[str, Any] = {
        "copies": spec.copies,
        "scheduler": {"scheduler": spec.scheduler, "choices": spec.choices},
    }
    if spec.maintainer:
        settings["maintainer"] = dict(spec.maintainer)
    return {
        "twochoice_binary": binary("twochoiced"),
        "twochoice_bench_binary": binary("twochoicebench"),
        "twochoice_backend": "rados" if isinstance(store, CephSpec) else "file",
        "twochoice_key": str(key_of(testbed)),
        "twochoice_peers": peers(testbed, store, spec.port),
        "twochoice_pool_prefix": POOL_PREFIX,
        "twochoice_settings": settings,
        "twochoice_memory_bytes": spec.memory,
    }


def hosts_of(testbed: Testbed, store: CephSpec | ObjectsSpec) -> dict[str, dict[str, Any]]:
    """Return the variables of each node with agents or a client: the group `twochoice`."""
    if asked(store) is None:
        return {}
    out: dict[str, dict[str, Any]] = {
        name: {"twochoice_agents": list(numbers)}
        for name, numbers in agents(testbed, store).items()
    }
    for node in testbed.with_role("client"):
        out.setdefault(node.name, {})["twochoice_client"] = True
    return out


def disks_of(node: Node) -> int:
    """Return the number of a node's object servers: one for each of its disks."""
    return 1 if "scratch" in node.devices else max(1, len(node.osd_devices))


def folders(node: Node, numbers: Sequence[int]) -> tuple[str, ...]:
    """Return the folder of each object server of a node; with several disks, each is mounted at its
    own folder."""
    root = DISKS_ROOT if disks_of(node) > 1 else FOLDERS_ROOT
    return tuple(f"{root}/{number}" for number in numbers)


def disk_of(node: Node, disk: DiskSpec, numbers: Sequence[int]) -> dict[str, Any]:
    """Return the variables of an object server's disk (its scratch part, or the whole disk), or of
    each of several disks. UserError: its site names no device."""
    if disks_of(node) > 1:
        places = zip(numbers, node.osd_devices, folders(node, numbers), strict=True)
        return {
            "twochoice_root": DISKS_ROOT,
            "twochoice_requires": "hotbed-objectdisks.service",
            "objectdisks_disks": [
                {"number": number, "device": device, "path": path}
                for number, device, path in places
            ],
            "objectdisks_min_bytes": int(disk.size * SIZE_SLACK),
            "objectdisks_wipe": "{{ validate_wipe | default(false) }}",
        }
    return {
        "hotbed_scratch_device": scratch_device(node, "object"),
        "validate_scratch_min_bytes": int((disk.scratch or disk.size) * SIZE_SLACK),
    }


def key_of(testbed: Testbed) -> Path:
    """Return the file of the agents' shared key, in the testbed's folder; make it if missing."""
    path = testbed.directory / KEY
    if not path.exists():
        make_folder(path.parent)
        write_file(path, secrets.token_bytes(_KEY_BYTES), 0o600)
    return path
