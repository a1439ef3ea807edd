"""A policy's reading of a workload monitor's numbers (sections 4 and 6)."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.stores.microstores import MEASURES, Microstore


def util(store: Microstore) -> float | None:
    """Return the utilization of the busiest resource, as it limits the microstore; None if nothing
    could be sensed."""
    seen = [store.utilization[name] for name in MEASURES if name in store.utilization]
    return max(seen, default=None)


def busiest(store: Microstore) -> str:
    """Return the measure of the value of `util`; the first of `MEASURES` among equals."""
    seen = [name for name in MEASURES if name in store.utilization]
    return max(seen, key=lambda name: store.utilization[name])


def sample(slots: Sequence[float], low: float, high: float) -> float | None:
    """Return the part of the epoch's time slots (1 % of it each) with utilization between `low` and
    `high`, the listing's sample(); None without slots."""
    if not slots:
        return None
    return sum(low <= slot <= high for slot in slots) / len(slots)
