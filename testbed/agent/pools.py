"""Verbs: creation and removal of pools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.errors import UserError
from testbed.agent.contract import AgentConfig
from testbed.agent.health import opened
from testbed.stores.ceph.pools import create_pool, delete_pool

_WAIT_S = 120.0


def pool_create(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Create a pool: {name, pg_num?: 128, size?: 2, min_size?: 1, timeout_s?} -> {name}. Returns
    when its PGs are active+clean. Safe to repeat."""
    name = _name(payload, "pool-create")
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
    name = _name(payload, "pool-delete")
    timeout_s = float(payload.get("timeout_s", _WAIT_S))
    with opened(config) as store:
        return {"deleted": delete_pool(store.connection, name, timeout_s=timeout_s)}


def _name(payload: Mapping[str, Any], verb: str) -> str:
    name = payload.get("name")
    if not isinstance(name, str) or not name:
        raise UserError(f"{verb}: the payload needs the pool's name.")
    return name
