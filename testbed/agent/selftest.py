"""Verb: try and time everything that controllers do to the store, then restore the store.

For a check of a new cluster or Ceph version; tests on a deployed testbed also use it. Do not run it
in parallel with a benchmark or a controller: it changes every primary twice.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeVar

from schemas.errors import StoreError
from testbed.agent.contract import AgentConfig
from testbed.agent.health import until_clean
from testbed.agent.sense import open_store
from testbed.stores.ceph.pgs import changed_primaries
from testbed.stores.ceph.store import CephStore
from testbed.stores.contract import (
    OSDS,
    PG_UPMAP,
    PGS,
    PRESSURE,
    Action,
    ClearUpmap,
    Effect,
    Pg,
    SetPrimaryAffinity,
    SwapPrimary,
)

T = TypeVar("T")
_ALL = frozenset({PRESSURE, OSDS, PGS})
_TURNS = 5
_REST_S = 60.0


def selftest(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Test: {signal?: "node"} -> {sense_s, pgs, affinity, swap, clear, restore, restored, lost}.

    `sense_s` is {first, median} over a few senses. `affinity`, `swap` and `clear` each hold act_s,
    stall_s (until every changed PG is active under its new primary), changed (PGs) and errors.
    `restored` is True if the store is as found. Raises StoreError if it cannot be restored.
    """
    with closing(open_store(config, str(payload.get("signal", "node")))) as store:
        saved = store.save()
        try:
            report = _exercise(store)
        finally:
            effects, seconds = _timed(lambda: store.restore(saved))
            failed = [effect.message for effect in effects if not effect.ok]
            if failed:
                raise StoreError(f"the store was not put back: {failed[0]}")
        until_clean(store, _REST_S)
        report["restore"] = {"seconds": seconds, "changes": len(effects)}
        report["restored"] = store.save() == saved
        return report


def _exercise(store: CephStore) -> dict[str, Any]:
    senses = []
    for _ in range(_TURNS):
        time.sleep(0.2)
        observation, seconds = _timed(lambda: store.sense(_ALL))
        senses.append(seconds)
    report: dict[str, Any] = {
        "sense_s": {"first": senses[0], "median": statistics.median(senses[1:])},
        "pressure": {str(osd): value for osd, value in observation.pressure.items()},
        "pgs": len(observation.pgs),
        "lost": dict(store.lost),
    }
    half = [osd.id for osd in observation.osds][::2]
    down: list[Action] = [SetPrimaryAffinity(osd, 0.1) for osd in half]
    up: list[Action] = [SetPrimaryAffinity(osd, 1.0) for osd in half]
    report["affinity"] = _step(store, down)
    report["affinity_back"] = _step(store, up)
    if PG_UPMAP in store.offers().acts:
        pgs = store.sense(_ALL).pgs
        swaps: list[Action] = [
            SwapPrimary(pg.id, next(osd for osd in pg.up if osd != pg.primary))
            for pg in pgs
            if len(pg.up) > 1
        ]
        report["swap"] = _step(store, swaps)
        clears: list[Action] = [ClearUpmap(pg.id) for pg in pgs if not pg.upmap]
        report["clear"] = _step(store, clears)
    return report


def _step(store: CephStore, actions: Sequence[Action]) -> dict[str, Any]:
    before = _pgs(store)
    effects: list[Effect]
    effects, seconds = _timed(lambda: store.act(actions))
    stall = effects[0].detail.get("stall_s") if effects else None
    if stall is None:
        stall = store.last_stall()
    after = _pgs(store)
    return {
        "actions": len(actions),
        "act_s": seconds,
        "stall_s": stall,
        "late": effects[0].detail.get("late", 0.0) if effects else 0.0,
        "changed": len(changed_primaries(before, after)),
        "moved": sum(1 for a, b in zip(before, after, strict=True) if set(a.up) != set(b.up)),
        "errors": [effect.message for effect in effects if not effect.ok],
    }


def _pgs(store: CephStore) -> Sequence[Pg]:
    return store.sense(frozenset({PGS})).pgs


def _timed(call: Callable[[], T]) -> tuple[T, float]:
    start = time.monotonic()
    result = call()
    return result, time.monotonic() - start
