"""Verbs about pools of Ceph: ordinary pools, pools with one OSD each, and the placement of PGs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.errors import UserError
from testbed.agent.contract import AgentConfig
from testbed.agent.health import opened
from testbed.agent.verbs import text_of
from testbed.stores.ceph.pgs import PgReader
from testbed.stores.ceph.pinned import PG_NUM, empty, keyrings, pin, unpin
from testbed.stores.ceph.pools import create_pool, delete_pool

_WAIT_S = 120.0


def pool_create(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Create a pool: {name, pg_num?: 128, size?: 2, min_size?: 1, timeout_s?} -> {name}. Returns
    when its PGs are active+clean. Safe to repeat."""
    name = text_of(payload, "pool-create", "name")
    with opened(config) as store:
        create_pool(
            store.connection,
            name,
            pg_num=int(payload.get("pg_num", 128)),
            size=int(payload.get("size", 2)),
            min_size=int(payload.get("min_size", 1)),
            timeout_s=float(payload.get("timeout_s", _WAIT_S)),
        )
    return {"name": name}


def pool_delete(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Delete a pool: {name, timeout_s?} -> {deleted}; return when its data are removed."""
    name = text_of(payload, "pool-delete", "name")
    timeout_s = float(payload.get("timeout_s", _WAIT_S))
    with opened(config) as store:
        return {"deleted": delete_pool(store.connection, name, timeout_s=timeout_s)}


def pinned_create(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Create pools: {prefix, osds, pg_num?: 4, timeout_s?} -> {changed, keyrings}. Returns when the
    PGs of all pools are active+clean. Safe to repeat. The keyrings, by OSD, are secret."""
    prefix, osds = text_of(payload, "pinned-create", "prefix"), _osds(payload, "pinned-create")
    with opened(config) as store:
        changed = pin(
            store.connection,
            prefix,
            osds,
            pg_num=int(payload.get("pg_num", PG_NUM)),
            timeout_s=float(payload.get("timeout_s", _WAIT_S)),
        )
        return {"changed": changed, "keyrings": keyrings(store.connection, prefix, osds)}


def pinned_empty(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, int]:
    """Replace pools by empty ones: {prefix, osds, timeout_s?} -> {pools}. Their agents must be
    stopped."""
    prefix, osds = text_of(payload, "pinned-empty", "prefix"), _osds(payload, "pinned-empty")
    timeout_s = float(payload.get("timeout_s", _WAIT_S))
    with opened(config) as store:
        return {"pools": empty(store.connection, prefix, osds, timeout_s=timeout_s)}


def pinned_delete(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Delete pools: {prefix, timeout_s?} -> {changed}; return when the data are removed."""
    prefix = text_of(payload, "pinned-delete", "prefix")
    timeout_s = float(payload.get("timeout_s", _WAIT_S))
    with opened(config) as store:
        return {"changed": unpin(store.connection, prefix, timeout_s=timeout_s)}


def _osds(payload: Mapping[str, Any], verb: str) -> list[int]:
    osds = payload.get("osds")
    if not isinstance(osds, list) or not osds or not all(type(osd) is int for osd in osds):
        raise UserError("the payload needs the OSDs' numbers, such as [0, 1]", where=verb)
    return osds


def placement(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the placement: {pool} -> {pgs: {id: {up, bytes}}, osds: {id: {node, rack}}}.

    `up` are the PG's OSDs in the map, `bytes` the PG's data (seconds old)."""
    pool = text_of(payload, "placement", "pool")
    with opened(config) as store:
        osd_map = store.reader.osd_map()
        if pool not in osd_map.pools:
            known = ", ".join(sorted(osd_map.pools)) or "none"
            raise UserError(f"there is no pool {pool!r}", where="placement", allowed=known)
        reader = PgReader(store.connection, [pool])
        pgs = reader.pgs(osd_map, with_bytes=True)
        return {
            "pgs": {pg.id: {"up": list(pg.up), "bytes": pg.bytes} for pg in pgs},
            "osds": {
                str(osd.id): {"node": osd.node, "rack": osd.rack} for osd in osd_map.osds.values()
            },
        }
