"""Check that the actions of a policy are allowed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import get_args

from controllers.microstore_legality import MicrostoreAction, illegal_for_microstores
from testbed.stores.contract import (
    BALANCER_MODES,
    BALANCER_READ,
    OPTIONS,
    OSDS,
    PG_UPMAP,
    PG_UPMAP_PRIMARY,
    PGS,
    PRIMARY_AFFINITY,
    READ_MODES,
    Action,
    CephAction,
    ClearUpmap,
    ClearUpmapPrimary,
    MoveReplica,
    Needs,
    Observation,
    Pg,
    ReweightByUtilization,
    RunReadBalancer,
    RunSizeBalancer,
    SetBalancer,
    SetOption,
    SetPrimaryAffinity,
    SetUpmapPrimary,
    SwapPrimary,
)
from testbed.stores.microstores import (
    MACHINES,
    MICROSTORES,
    RESOURCES,
    TENANTS,
    AssignMachine,
    MapTenant,
    SetResources,
)

_KINDS = get_args(Action)


def senses_for(needs: Needs) -> frozenset[str]:
    """Return the senses that the policy needs, plus those to check its actions against."""
    extra = set()
    if PRIMARY_AFFINITY in needs.acts:
        extra.add(OSDS)
    if needs.acts & {PG_UPMAP, PG_UPMAP_PRIMARY}:
        extra |= {OSDS, PGS}
    if needs.acts & {RESOURCES, MACHINES, TENANTS}:
        extra.add(MICROSTORES)
    return needs.senses | frozenset(extra)


def illegal(actions: object, observation: Observation, needs: Needs) -> str | None:
    """Return why `actions` must not be carried out, as one clause; None if they may be."""
    if not isinstance(actions, Sequence) or isinstance(actions, (str, bytes)):
        return f"decide() returned {type(actions).__name__} instead of a sequence of actions"
    if not actions:
        return None
    osds = {osd.id for osd in observation.osds}
    pgs = {pg.id: pg for pg in observation.pgs}
    on_microstores: list[MicrostoreAction] = []
    for action in actions:
        if not isinstance(action, _KINDS):
            return f"{action!r} is not an action"
        if action.kind not in needs.acts:
            return f"{action!r} is of kind {action.kind!r}, which the policy's needs do not declare"
        if isinstance(action, MicrostoreAction):
            on_microstores.append(action)
            continue
        reason = _one(action, osds, pgs, needs)
        if reason:
            return f"{action!r}: {reason}"
    if on_microstores:
        reason = illegal_for_microstores(on_microstores, observation.microstores)
        if reason:
            return reason
    return _twice(actions)


def _one(action: CephAction, osds: set[int], pgs: dict[str, Pg], needs: Needs) -> str | None:
    if isinstance(action, SetPrimaryAffinity):
        return _affinity(action, osds)
    if isinstance(action, ReweightByUtilization):
        return _reweight(action)
    if isinstance(action, SetBalancer):
        return _balancer(action, needs)
    if isinstance(action, SetOption):
        return _option(action)
    if isinstance(action, RunReadBalancer):
        return None
    if isinstance(action, RunSizeBalancer):
        return None if _in_range(action.moves, 1, math.inf) else "moves must be at least 1"
    if action.pg not in pgs:
        return f"there is no placement group {action.pg!r}"
    pg = pgs[action.pg]
    if isinstance(action, (SwapPrimary, SetUpmapPrimary)) and action.osd not in pg.up:
        return f"osd.{action.osd} holds no replica of it (up set {list(pg.up)})"
    if isinstance(action, MoveReplica):
        if action.source not in pg.up:
            return f"osd.{action.source} holds no replica of it (up set {list(pg.up)})"
        if action.target in pg.up or action.target not in osds:
            return f"osd.{action.target} is unknown or holds a replica of it already"
    return None


def _affinity(action: SetPrimaryAffinity, osds: set[int]) -> str | None:
    if action.osd not in osds:
        return f"there is no osd.{action.osd}"
    return None if _in_range(action.value, 0, 1) else "an affinity is a number from 0 to 1"


def _balancer(action: SetBalancer, needs: Needs) -> str | None:
    if action.mode not in BALANCER_MODES:
        return f"the mode must be {', '.join(BALANCER_MODES[:-1])} or {BALANCER_MODES[-1]}"
    if action.mode in READ_MODES and BALANCER_READ not in needs.acts:
        return f"the policy's needs do not declare {BALANCER_READ!r}"
    return None


def _option(action: SetOption) -> str | None:
    option = OPTIONS.get(action.option)
    if option is None:
        return f"the option must be one of {', '.join(OPTIONS)}"
    fits = isinstance(action.value, str) and re.fullmatch(option.pattern, action.value)
    return None if fits else f"its value must match {option.pattern}"


def _reweight(action: ReweightByUtilization) -> str | None:
    if not _in_range(action.oload, 101, math.inf):
        return "oload must be above 100"
    if not _in_range(action.max_change, 1e-9, 1):
        return "max_change must be above 0 and at most 1"
    return None if _in_range(action.max_osds, 1, math.inf) else "max_osds must be at least 1"


def _in_range(value: object, low: float, high: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return not math.isnan(value) and low <= value <= high and value != math.inf


def _twice(actions: Iterable[Action]) -> str | None:
    """Return an error if a step orders the same thing twice: the outcome is undefined."""
    seen: set[object] = set()
    for action in actions:
        subject: object = (action.kind, getattr(action, "osd", None))
        if isinstance(
            action,
            (SwapPrimary, ClearUpmap, MoveReplica, SetUpmapPrimary, ClearUpmapPrimary),
        ):
            subject = (action.kind, action.pg)
        elif isinstance(action, AssignMachine):
            subject = (action.kind, action.machine)
        elif isinstance(action, MapTenant):
            subject = (action.kind, action.tenant)
        elif isinstance(action, SetResources):
            subject = (action.kind, action.microstore)
        if subject in seen:
            return f"{action!r} is the second order for the same thing in one step"
        seen.add(subject)
    return None
