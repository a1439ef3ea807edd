"""Mute of Ceph's warning about pools with one replica, for pools that are meant to have one.

Ceph mutes a warning, not a pool. A mute that is not sticky ends when the warning grows: Ceph warns
again about a further pool with one replica. So the warning is muted only while it names only our
pools.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.stores.ceph.connection import Connection

CODE = "POOL_NO_REDUNDANCY"


def mute(connection: Connection, pools: Sequence[str]) -> list[str]:
    """Mute the warning if it is raised and names only `pools`; return the actions taken."""
    report = connection.mon("health", detail="detail").checked("health")
    check = report["checks"].get(CODE)
    if check is None or check.get("muted"):
        return []
    warned = [str(line["message"]) for line in check["detail"]]
    if any(not any(f"'{pool}'" in line for pool in pools) for line in warned):
        return []
    connection.mon("health mute", code=CODE).checked(f"health mute {CODE}")
    return [f"warning {CODE} muted for {len(pools)} pools"]


def unmute(connection: Connection, *, leaving: Sequence[str]) -> None:
    """End the mute if all pools with one replica are `leaving`; else leave it alone."""
    report = connection.mon("health", detail="detail").checked("health")
    check = report["checks"].get(CODE)
    if check is None or not check.get("muted"):
        return
    warned = [str(line["message"]) for line in check["detail"]]
    if all(any(f"'{pool}'" in line for pool in leaving) for line in warned):
        connection.mon("health unmute", code=CODE).checked(f"health unmute {CODE}")
