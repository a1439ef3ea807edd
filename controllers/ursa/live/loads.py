"""The mean of what was sensed since the store was last changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controllers.ursa.live.parameters import Parameters
from testbed.stores.contract import Observation, OpRates

_DIGITS = 6
Window = Mapping[str, Any]
"""{seconds, pgs: {id: [reads, writes]}, osds: {id: [reads, writes]}}: sums of rate x seconds."""


def empty() -> dict[str, Any]:
    """Nothing sensed yet."""
    return {"seconds": 0.0, "pgs": {}, "osds": {}}


def add(window: Window, observation: Observation) -> dict[str, Any]:
    """`window` with one more interval. What is absent from an interval counts as idle in it; one
    in which no rate is known yet does not count."""
    activity = observation.activity
    seconds = observation.interval_s
    if activity is None or not activity.pgs or seconds <= 0:
        return dict(window)
    osds = {str(osd): rates for osd, rates in activity.osds.items()}
    return {
        "seconds": round(window["seconds"] + seconds, _DIGITS),
        "pgs": _summed(window["pgs"], activity.pgs, seconds),
        "osds": _summed(window["osds"], osds, seconds),
    }


def _summed(
    sums: Mapping[str, Any], rates: Mapping[str, OpRates], seconds: float
) -> dict[str, list[float]]:
    after = {key: list(pair) for key, pair in sums.items()}
    for key, rate in rates.items():
        if rate.reads or rate.writes:
            reads, writes = after.get(key, (0.0, 0.0))
            after[key] = [
                round(reads + rate.reads * seconds, _DIGITS),
                round(writes + rate.writes * seconds, _DIGITS),
            ]
    return dict(sorted(after.items()))


def pg_loads(window: Window, parameters: Parameters) -> dict[str, tuple[float, float]]:
    """(load at the primary, load at each other replica) by PG, weighted operations a second."""
    seconds = window["seconds"]
    found = {}
    for pg, (reads, writes) in window["pgs"].items():
        written = parameters.write_weight * writes / seconds
        found[pg] = (parameters.read_weight * reads / seconds + written, written)
    return found


def osd_loads(window: Window, parameters: Parameters) -> dict[int, float]:
    """Measured weighted operations a second of each OSD, those of its replicas included."""
    seconds = window["seconds"]
    return {
        int(osd): (parameters.read_weight * reads + parameters.write_weight * writes) / seconds
        for osd, (reads, writes) in window["osds"].items()
    }
