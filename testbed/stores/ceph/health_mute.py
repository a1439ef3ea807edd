"""Ceph's warning of pools with one replica, muted for pools that are meant to have one.

Ceph mutes a warning, not a pool; but a mute that is not sticky ends when the warning grows: a
further pool with one replica is warned of again. So it is muted only while all that it warns of are
ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.stores.ceph.connection import Connection

CODE = "POOL_NO_REDUNDANCY"


def mute(connection: Connection, pools: Sequence[str]) -> list[str]:
    """Mute the warning where it is raised, and of no other pools than `pools`; what was done."""
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
    """End the mute when all pools with one replica are `leaving`; else it is left alone."""
    report = connection.mon("health", detail="detail").checked("health")
    check = report["checks"].get(CODE)
    if check is None or not check.get("muted"):
        return
    warned = [str(line["message"]) for line in check["detail"]]
    if all(any(f"'{pool}'" in line for pool in leaving) for line in warned):
        connection.mon("health unmute", code=CODE).checked(f"health unmute {CODE}")
