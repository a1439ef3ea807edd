"""Scaled stores: more or fewer nodes of a spec's kind, with the same disk and link.

Placement groups grow with the number of OSDs, by Ceph's own rule. Clients keep the spec's number
per OSD, so that every OSD has the same number of operations in flight at any size.
"""

from __future__ import annotations

import math

from schemas.errors import UserError
from testbed.simulated.parameters import osd_group
from testbed.spec import GroupSpec, TestbedSpec

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

    Raises:
        UserError: the spec has several kinds of OSD nodes, or `osds` is less than the number of a
            pool's replicas.
    """
    group = osd_group(spec)
    ceph = spec.ceph()
    first = ceph.pools[0]
    if osds < first.size:
        raise UserError(
            f"testbed {spec.name} with {osds} OSDs: pool {first.name!r} keeps {first.size} "
            f"replicas: give at least {first.size} OSDs."
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
