"""Verbs: the store's health, and waiting until the store serves and is at rest."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from schemas.errors import StoreError
from testbed.agent.contract import AgentConfig
from testbed.agent.sense import open_store
from testbed.stores.ceph.pgs import CLEAN, OsdMap, pg_states
from testbed.stores.ceph.pools import removing, wait_for
from testbed.stores.ceph.store import CephStore

WAIT_S = 120.0


def opened(config: AgentConfig) -> closing[CephStore]:
    """Open the store for one verb: without sensors, closed afterwards."""
    return closing(open_store(config, None))


def health(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the health: {} -> {status, checks, osds, up, in, pgs, removing, epoch}.

    `checks` maps Ceph's health checks to their messages, `pgs` states to counts (now, from the PGs
    themselves)."""
    with opened(config) as store:
        return read_health(store)


def wait_clean(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, float]:
    """Wait until all PGs are active+clean and no deletion is left: {timeout_s?} -> {seconds}."""
    timeout_s = float(payload.get("timeout_s", WAIT_S))
    with opened(config) as store:
        return {"seconds": until_clean(store, timeout_s)}


def read_health(store: CephStore) -> dict[str, Any]:
    """Return the health; see `health`."""
    connection = store.connection
    report = connection.mon("health", detail="detail").checked("health")
    osd_map = store.reader.osd_map()
    return {
        "status": str(report["status"]),
        "checks": {
            name: str(check["summary"]["message"]) for name, check in report["checks"].items()
        },
        "osds": len(osd_map.osds),
        "up": sum(1 for osd in osd_map.osds.values() if osd.up),
        "in": sum(1 for osd in osd_map.osds.values() if osd.in_),
        "pgs": pg_states(connection, all_pgs(osd_map)),
        "removing": removing(connection),
        "epoch": osd_map.epoch,
    }


def all_pgs(osd_map: OsdMap) -> list[str]:
    """Return the ids of every pool's PGs."""
    return [pgid for pool in osd_map.pools.values() for pgid in pool.pgids()]


def until_clean(store: CephStore, timeout_s: float) -> float:
    """Wait until every OSD is up and in, every PG active+clean and no PG is being deleted.

    Returns the seconds it took. Raises StoreError with the remaining problem.
    """
    amiss = ""

    def done() -> bool:
        nonlocal amiss
        amiss = what_is_amiss(store)
        return not amiss

    try:
        return wait_for(done, timeout_s, "")
    except StoreError as error:
        raise StoreError(f"the store is not at rest after {timeout_s:g} s: {amiss}.") from error


def what_is_amiss(store: CephStore) -> str:
    """Return in words the first thing that keeps the store from rest; "" if there is none."""
    osd_map = store.reader.osd_map()
    away = [osd for osd in osd_map.osds.values() if not (osd.up and osd.in_)]
    if away:
        names = ", ".join(
            f"osd.{osd.id} on {osd.node} is {'out' if osd.up else 'down'}" for osd in away
        )
        return names
    states = pg_states(store.connection, all_pgs(osd_map))
    dirty = {state: count for state, count in states.items() if state != CLEAN}
    if dirty:
        return ", ".join(f"{count} placement groups are {state}" for state, count in dirty.items())
    left = removing(store.connection)
    return f"{left} placement groups are still being deleted" if left else ""
