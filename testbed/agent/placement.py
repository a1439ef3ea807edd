"""Verb: placement of a pool's PGs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.errors import UserError
from testbed.agent.contract import AgentConfig
from testbed.agent.health import opened
from testbed.stores.ceph.pgs import PgReader


def placement(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the placement: {pool} -> {pgs: {id: {up, bytes}}, osds: {id: {node, rack}}}.

    `up` are the PG's OSDs in the map, `bytes` the PG's data (seconds old)."""
    pool = payload.get("pool")
    if not isinstance(pool, str) or not pool:
        raise UserError("placement: the payload needs the pool's name.")
    with opened(config) as store:
        osd_map = store.reader.osd_map()
        if pool not in osd_map.pools:
            known = ", ".join(sorted(osd_map.pools)) or "none"
            raise UserError(f"placement: there is no pool {pool!r}; there are {known}.")
        reader = PgReader(store.connection, [pool])
        pgs = reader.pgs(osd_map, with_bytes=True)
        return {
            "pgs": {pg.id: {"up": list(pg.up), "bytes": pg.bytes} for pg in pgs},
            "osds": {
                str(osd.id): {"node": osd.node, "rack": osd.rack} for osd in osd_map.osds.values()
            },
        }
