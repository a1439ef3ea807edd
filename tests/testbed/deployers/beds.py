"""Testbeds for tests of deployers, as a site would return them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.sites.contract import Node, Testbed
from testbed.spec import TestbedSpec

DISK = {"size": "8GiB", "scratch": "2560MiB"}
GROUPS: list[dict[str, Any]] = [
    {"name": "admin", "roles": ["admin", "mon", "mgr", "client"]},
    {"name": "osd", "count": 3, "roles": ["osd"], "disk": DISK},
    {"name": "gate", "roles": ["rgw"]},
]


RAW = {"kind": "ceph-ansible", "release": "reef", "packages": "distro", "osds": "raw"}


def spec_with(deployer: object = "own", **store: object) -> TestbedSpec:
    """Return a small Ceph spec with additional keys in its store block."""
    return TestbedSpec.model_validate(
        {"name": "t", "groups": GROUPS, "store": {"kind": "ceph", "deployer": deployer, **store}}
    )


def bed_of(spec: TestbedSpec, directory: Path, user: str = "root") -> Testbed:
    """Return the spec's nodes at 10.1.0.10 and up, with OSD devices where the role needs them."""
    nodes = [
        Node(
            name,
            f"10.1.0.{10 + number}",
            frozenset(group.roles),
            group.name,
            ssh_user=user,
            devices={"osd": "/dev/sdb2", "scratch": "/dev/sdb1"} if group.disk else {},
            memory_bytes=group.memory,
        )
        for number, (group, name) in enumerate(
            (group, name) for group in spec.groups for name in group.node_names()
        )
    ]
    key, known = directory / "key", directory / "known_hosts"
    return Testbed(spec.name, "somewhere", tuple(nodes), key, known, directory, spec.digest())
