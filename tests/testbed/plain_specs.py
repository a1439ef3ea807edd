"""Specs for tests that need nodes, whatever they are for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from testbed.spec import TestbedSpec

CEPH_ROLES = ("admin", "mon", "mgr", "client")


def plain_spec(
    name: str = "small",
    *,
    admin: Sequence[str] = ("admin", "client"),
    osds: int = 2,
    disk: Mapping[str, object] | None = None,
    **more: object,
) -> TestbedSpec:
    """Return the spec of a node with the roles `admin` and of `osds` nodes with a disk. It has no
    store unless `more`, other parts of the spec, has one."""
    groups = [
        {"name": "admin", "roles": [*admin]},
        {"name": "osd", "count": osds, "roles": ["osd"], "disk": disk or {}},
    ]
    return TestbedSpec.model_validate({"name": name, "store": None, "groups": groups, **more})
