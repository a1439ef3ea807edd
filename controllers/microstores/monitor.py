"""What a policy makes of a workload monitor's numbers (sections 4 and 6)."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.stores.microstores import MEASURES, Microstore


def util(store: Microstore) -> float | None:
    """util(ms.hw): how busy the busiest of what the microstore holds is, as that is what keeps it
    from doing more; None where nothing could be sensed."""
    seen = [store.utilization[name] for name in MEASURES if name in store.utilization]
    return max(seen, default=None)


def busiest(store: Microstore) -> str:
    """The measure that `util` is of; the first of `MEASURES` among equals."""
    seen = [name for name in MEASURES if name in store.utilization]
    return max(seen, key=lambda name: store.utilization[name])


def sample(slots: Sequence[float], low: float, high: float) -> float | None:
    """sample(): the part of the epoch's time slots (1 % of it each) in which utilization was
    between `low` and `high`; None without slots."""
    if not slots:
        return None
    return sum(low <= slot <= high for slot in slots) / len(slots)
