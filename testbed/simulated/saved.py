"""Save and restore of everything that a controller may change on a modelled Ceph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from schemas.errors import StoreError

SAVED_VERSION = 1
_TOLERANCE = 1e-3  # weights are kept in 16 bits


@dataclass(frozen=True)
class Change:
    """An action (for the simulator) that restores one thing, and a description of it in words."""

    words: str
    action: dict[str, Any]


def saved_from(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the simulator's state in the form of `Store.save`: JSON values, OSDs by number."""
    return {
        "version": SAVED_VERSION,
        "primary_affinity": {str(i): value for i, value in enumerate(state["primary_affinity"])},
        "reweight": {str(i): value for i, value in enumerate(state["reweight"])},
        "pg_upmap": dict(sorted(state["pg_upmap"].items())),
        "pg_upmap_items": dict(sorted(state["pg_upmap_items"].items())),
        "balancer": state["balancer"],
    }


def changes(now: Mapping[str, Any], saved: Mapping[str, Any]) -> list[Change]:
    """Return the changes from `now` to `saved`, the balancer first so that it does not undo others.

    Raises:
        StoreError: `saved` was not saved by this version.
    """
    if saved.get("version") != SAVED_VERSION:
        raise StoreError("what is to be restored was not saved by this version of the simulator")
    return [*_balancer(now, saved), *_weights(now, saved), *_upmaps(now, saved)]


def _balancer(now: Mapping[str, Any], saved: Mapping[str, Any]) -> Iterable[Change]:
    if now["balancer"] != saved["balancer"]:
        mode = saved["balancer"]
        yield Change(f"balancer to {mode}", {"action": "SetBalancer", "mode": mode})


def _weights(now: Mapping[str, Any], saved: Mapping[str, Any]) -> Iterable[Change]:
    kinds = (
        ("primary_affinity", "primary affinity", "SetPrimaryAffinity"),
        ("reweight", "reweight", "SetReweight"),
    )
    for key, words, action in kinds:
        for osd, there in now[key].items():
            wanted = saved[key].get(osd, there)
            if abs(wanted - there) > _TOLERANCE:
                yield Change(
                    f"{words} of osd.{osd} to {wanted:g}",
                    {"action": action, "osd": int(osd), "value": wanted},
                )


def _upmaps(now: Mapping[str, Any], saved: Mapping[str, Any]) -> Iterable[Change]:
    kept = saved["pg_upmap"].keys() | saved["pg_upmap_items"].keys()
    there = now["pg_upmap"].keys() | now["pg_upmap_items"].keys()
    for pg in sorted(there):
        whole, parts = saved["pg_upmap"].get(pg), saved["pg_upmap_items"].get(pg)
        if now["pg_upmap"].get(pg) == whole and now["pg_upmap_items"].get(pg) == parts:
            continue
        yield Change(f"upmap of {pg} removed", {"action": "ClearUpmap", "pg": pg})
    for pg in sorted(kept):
        whole, parts = saved["pg_upmap"].get(pg), saved["pg_upmap_items"].get(pg)
        if now["pg_upmap"].get(pg) == whole and now["pg_upmap_items"].get(pg) == parts:
            continue
        if whole is not None:
            yield Change(
                f"upmap of {pg} to {whole}", {"action": "SetUpmap", "pg": pg, "osds": whole}
            )
        if parts is not None:
            yield Change(
                f"upmap items of {pg} to {parts}", {"action": "SetItems", "pg": pg, "items": parts}
            )
