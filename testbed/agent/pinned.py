"""Verbs: pools with one OSD each, and the users of the agents in front of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.errors import UserError
from testbed.agent.contract import AgentConfig
from testbed.agent.health import opened
from testbed.stores.ceph.pinned import PG_NUM, empty, keyrings, pin, unpin

_WAIT_S = 120.0


def create(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Create pools: {prefix, osds, pg_num?: 4, timeout_s?} -> {changed, keyrings}. Returns when the
    PGs of all pools are active+clean. Safe to repeat. The keyrings, by OSD, are secret."""
    prefix, osds = _prefix(payload, "pinned-create"), _osds(payload, "pinned-create")
    with opened(config) as store:
        changed = pin(
            store.connection,
            prefix,
            osds,
            pg_num=int(payload.get("pg_num", PG_NUM)),
            timeout_s=float(payload.get("timeout_s", _WAIT_S)),
        )
        return {"changed": changed, "keyrings": keyrings(store.connection, prefix, osds)}


def make_empty(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, int]:
    """Replace pools by empty ones: {prefix, osds, timeout_s?} -> {pools}. Their agents must be
    stopped."""
    prefix, osds = _prefix(payload, "pinned-empty"), _osds(payload, "pinned-empty")
    timeout_s = float(payload.get("timeout_s", _WAIT_S))
    with opened(config) as store:
        return {"pools": empty(store.connection, prefix, osds, timeout_s=timeout_s)}


def delete(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Delete pools: {prefix, timeout_s?} -> {changed}; return when the data are removed."""
    prefix = _prefix(payload, "pinned-delete")
    timeout_s = float(payload.get("timeout_s", _WAIT_S))
    with opened(config) as store:
        return {"changed": unpin(store.connection, prefix, timeout_s=timeout_s)}


def _osds(payload: Mapping[str, Any], verb: str) -> list[int]:
    osds = payload.get("osds")
    if not isinstance(osds, list) or not osds or not all(type(osd) is int for osd in osds):
        raise UserError(f"{verb}: the payload needs the OSDs' numbers, such as [0, 1].")
    return osds


def _prefix(payload: Mapping[str, Any], verb: str) -> str:
    prefix = payload.get("prefix")
    if not isinstance(prefix, str):
        raise UserError(f"{verb}: the payload needs the prefix of the pools' names.")
    return prefix
