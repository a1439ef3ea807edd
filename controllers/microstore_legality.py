"""Check that a policy's microstore actions are allowed: all of a step's actions at once, since one
microstore may get what another gives up in the same step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from testbed.stores.microstores import (
    NOTHING,
    RESOURCE_NAMES,
    AssignMachine,
    MapTenant,
    Microstores,
    Resources,
    SetResources,
)

MicrostoreAction: TypeAlias = SetResources | AssignMachine | MapTenant


def illegal_for_microstores(
    actions: Sequence[MicrostoreAction], seen: Microstores | None
) -> str | None:
    """Return why `actions` must not be carried out, as one clause; None if they may be."""
    if seen is None:
        return f"{actions[0]!r}: no microstores were sensed"
    names = {store.name for store in seen.stores}
    for action in actions:
        reason = _one(action, names, seen)
        if reason:
            return f"{action!r}: {reason}"
    return _beyond_the_pool(actions, seen)


def _one(action: MicrostoreAction, names: set[str], seen: Microstores) -> str | None:
    if isinstance(action, AssignMachine):
        if action.machine not in {machine.name for machine in seen.machines}:
            return f"there is no machine {action.machine!r}"
        if action.microstore == "":
            return None
    if isinstance(action, MapTenant) and action.tenant not in {t.name for t in seen.tenants}:
        return f"there is no tenant {action.tenant!r}"
    if action.microstore not in names:
        return f"there is no microstore {action.microstore!r}"
    return _shares(action.resources) if isinstance(action, SetResources) else None


def _shares(resources: Resources) -> str | None:
    for name in RESOURCE_NAMES:
        value = getattr(resources, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return f"{name} is not a number"
        if not (math.isfinite(value) and value >= 0):
            return f"{name} must be 0 or more"
        if name in ("ssds", "hdds") and value != int(value):
            return f"{name} must be a whole number"
    return None


def _beyond_the_pool(actions: Sequence[MicrostoreAction], seen: Microstores) -> str | None:
    wanted = {a.microstore: a.resources for a in actions if isinstance(a, SetResources)}
    if not wanted:
        return None
    held = NOTHING
    for store in seen.stores:
        held = held + wanted.get(store.name, store.resources)
    if held.within(seen.total):
        return None
    return f"together the microstores would hold {held}, and the pool is {seen.total}"
