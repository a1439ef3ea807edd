"""Saved state: everything that a controller may change on a cluster, and its restoration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from schemas.errors import StoreError
from testbed.stores.ceph.connection import Connection, Reply
from testbed.stores.ceph.osdmap import OsdMap
from testbed.stores.ceph.pgs import PgReader
from testbed.stores.ceph.steps import set_balancer
from testbed.stores.contract import Effect

SAVED_VERSION = 1
_TOLERANCE = 1e-3  # Ceph keeps weights in 16 bits


@dataclass(frozen=True)
class Change:
    """A command that restores one setting, and its description in words."""

    words: str
    prefix: str
    arguments: Mapping[str, Any]


def save(connection: Connection, osd_map: OsdMap) -> dict[str, Any]:
    """Return the settings in force now, JSON-able, for `restore`. Raises StoreError."""
    status = connection.mgr("balancer status").checked("balancer status")
    return {
        "version": SAVED_VERSION,
        "primary_affinity": {str(osd.id): osd.primary_affinity for osd in osd_map.osds.values()},
        "reweight": {str(osd.id): osd.reweight for osd in osd_map.osds.values()},
        "pg_upmap": {pgid: list(osds) for pgid, osds in osd_map.pg_upmap.items()},
        "pg_upmap_items": {
            pgid: [list(pair) for pair in pairs] for pgid, pairs in osd_map.pg_upmap_items.items()
        },
        "pg_upmap_primary": dict(osd_map.pg_upmap_primary),
        "balancer": {"mode": str(status["mode"]), "active": bool(status["active"])},
    }


def pristine(osd_map: OsdMap) -> dict[str, Any]:
    """Return the initial state of every run: weights and affinities 1, no upmaps, balancer off."""
    return {
        "version": SAVED_VERSION,
        "primary_affinity": {str(osd): 1.0 for osd in osd_map.osds},
        "reweight": {str(osd): 1.0 for osd in osd_map.osds},
        "pg_upmap": {},
        "pg_upmap_items": {},
        "pg_upmap_primary": {},
        "balancer": {"mode": "none", "active": False},
    }


def restore(connection: Connection, reader: PgReader, saved: Mapping[str, Any]) -> list[Effect]:
    """Restore the settings of `saved`, all at once; settings that do not differ are not touched.

    The balancer is first, so that it does not undo the rest. OSDs and PGs that no longer exist are
    left out. One effect per restored setting. An effect is not ok if Ceph accepted the change but
    the setting still differs.

    Raises:
        StoreError: the cluster cannot be asked, or `saved` is not from `save`.
    """
    if saved.get("version") != SAVED_VERSION:
        raise StoreError("what is to be restored was not saved by this version of the Ceph store")
    effects = _restore_balancer(connection, saved["balancer"])
    changes = differences(reader.osd_map(), saved)
    if not changes:
        return effects
    replies = connection.together(
        [partial(connection.mon, change.prefix, **change.arguments) for change in changes]
    )
    remaining = {change.words for change in differences(reader.osd_map(), saved)}
    return effects + [
        _effect(change, reply, change.words in remaining)
        for change, reply in zip(changes, replies, strict=True)
    ]


def _effect(change: Change, reply: Reply, still: bool) -> Effect:
    if not reply.ok:
        why = reply.message or f"error {reply.code}"
        return Effect(False, f"{change.words}: {why}", reply.seconds)
    if still:
        return Effect(False, f"{change.words}: accepted, but it still differs", reply.seconds)
    return Effect(True, change.words, reply.seconds)


def balancer_differs(connection: Connection, wanted: Mapping[str, Any]) -> bool:
    """Return True if the balancer's mode or activity is not the `wanted` one. Raises StoreError."""
    status = connection.mgr("balancer status").checked("balancer status")
    found = str(status["mode"]), bool(status["active"])
    return found != (str(wanted["mode"]), bool(wanted["active"]))


def _restore_balancer(connection: Connection, wanted: Mapping[str, Any]) -> list[Effect]:
    if not balancer_differs(connection, wanted):
        return []
    return [set_balancer(connection, str(wanted["mode"]), active=bool(wanted["active"]))]


def differences(osd_map: OsdMap, saved: Mapping[str, Any]) -> list[Change]:
    """Return the commands that turn `osd_map` into the saved state (without the balancer)."""
    return [
        *_weights(osd_map, saved["primary_affinity"], saved["reweight"]),
        *_upmaps(osd_map, saved["pg_upmap"]),
        *_upmap_items(osd_map, saved["pg_upmap_items"]),
        *_upmap_primaries(osd_map, saved["pg_upmap_primary"]),
    ]


def _weights(
    osd_map: OsdMap, affinities: Mapping[str, float], weights: Mapping[str, float]
) -> list[Change]:
    changes: list[Change] = []
    for osd in osd_map.osds.values():
        affinity = affinities.get(str(osd.id), osd.primary_affinity)
        if abs(affinity - osd.primary_affinity) > _TOLERANCE:
            words = f"primary affinity of osd.{osd.id} to {affinity:g}"
            arguments = {"id": osd.id, "weight": float(affinity)}
            changes.append(Change(words, "osd primary-affinity", arguments))
        weight = weights.get(str(osd.id), osd.reweight)
        if abs(weight - osd.reweight) > _TOLERANCE:
            words = f"reweight of osd.{osd.id} to {weight:g}"
            changes.append(Change(words, "osd reweight", {"id": osd.id, "weight": float(weight)}))
    return changes


def _upmaps(osd_map: OsdMap, wanted: Mapping[str, list[int]]) -> list[Change]:
    changes = [
        Change(f"upmap of {pgid} removed", "osd rm-pg-upmap", {"pgid": pgid})
        for pgid in osd_map.pg_upmap
        if pgid not in wanted
    ]
    for pgid, osds in wanted.items():
        there = list(osd_map.pg_upmap.get(pgid, ()))
        if there != list(osds) and _exists(osd_map, pgid, osds):
            arguments = {"pgid": pgid, "id": list(osds)}
            changes.append(Change(f"upmap of {pgid} to {osds}", "osd pg-upmap", arguments))
    return changes


def _upmap_items(osd_map: OsdMap, wanted: Mapping[str, list[list[int]]]) -> list[Change]:
    changes = [
        Change(f"upmap items of {pgid} removed", "osd rm-pg-upmap-items", {"pgid": pgid})
        for pgid in osd_map.pg_upmap_items
        if pgid not in wanted
    ]
    for pgid, pairs in wanted.items():
        there = [list(pair) for pair in osd_map.pg_upmap_items.get(pgid, ())]
        flat = [osd for pair in pairs for osd in pair]
        if there != [list(pair) for pair in pairs] and _exists(osd_map, pgid, flat):
            arguments = {"pgid": pgid, "id": flat}
            words = f"upmap items of {pgid} to {pairs}"
            changes.append(Change(words, "osd pg-upmap-items", arguments))
    return changes


def _upmap_primaries(osd_map: OsdMap, wanted: Mapping[str, int]) -> list[Change]:
    changes = [
        Change(f"upmap primary of {pgid} removed", "osd rm-pg-upmap-primary", {"pgid": pgid})
        for pgid in osd_map.pg_upmap_primary
        if pgid not in wanted
    ]
    for pgid, osd in wanted.items():
        if osd_map.pg_upmap_primary.get(pgid) != osd and _exists(osd_map, pgid, [osd]):
            words = f"upmap primary of {pgid} to osd.{osd}"
            changes.append(Change(words, "osd pg-upmap-primary", {"pgid": pgid, "id": osd}))
    return changes


def _exists(osd_map: OsdMap, pgid: str, osds: list[int]) -> bool:
    pool, _, number = pgid.partition(".")
    there = {p.id: p.pg_num for p in osd_map.pools.values()}
    return int(number, 16) < there.get(int(pool), 0) and set(osds) <= set(osd_map.osds)
