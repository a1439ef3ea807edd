"""Algorithm 2's fine-tuning: a container more or less of a too busy or too idle resource.

The listing has one utilization for a microstore and says "a container". Here every resource is
judged separately, so that network can be given back while cores are added, and a container is a
step of one resource. A disk container is an SSD, or an HDD if no SSD is free. A microstore of only
SSDs gets no HDD, as all of its requests would meet the HDD's latency (R6).
"""

from __future__ import annotations

from controllers.microstores.shares import NONE, Ledger, Steps
from controllers.mos_pp.parameters import Parameters
from testbed.stores.microstores import MEASURES, RESOURCE_NAMES, Microstore

_PLACE = {"proxy_cpu": 0, "storage_cpu": 1, "network": 2}
_SSDS, _HDDS = RESOURCE_NAMES.index("ssds"), RESOURCE_NAMES.index("hdds")


def too_busy(store: Microstore, p: Parameters) -> list[str]:
    """Return the measures above the band."""
    return [m for m in MEASURES if store.utilization.get(m, 0.0) > p.util_high]


def too_idle(store: Microstore, ledger: Ledger, p: Parameters) -> list[str]:
    """Return the measures below the band; with `guard`, only if one container less stays in it."""
    found: list[str] = []
    for measure in MEASURES:
        busy = store.utilization.get(measure)
        if busy is None or busy >= p.util_low:
            continue
        count = _count(ledger.held[store.name], measure)
        if count > 1 and (not p.guard or busy * count / (count - 1) <= p.util_high):
            found.append(measure)
    return found


def one_more(measure: str, store: str, ledger: Ledger) -> Steps:
    """Return a container that helps `measure`."""
    if measure != "disk":
        return _one(_PLACE[measure])
    return _one(_SSDS if ledger.free[_SSDS] > 0 or ledger.held[store][_HDDS] == 0 else _HDDS)


def one_less(measure: str, held: Steps) -> Steps:
    """Return a container that `measure` can spare."""
    if measure != "disk":
        return _one(_PLACE[measure])
    return _one(_HDDS if held[_HDDS] > 0 else _SSDS)


def _one(place: int) -> Steps:
    return tuple(int(index == place) for index in range(len(NONE)))


def _count(held: Steps, measure: str) -> int:
    if measure == "disk":
        return held[_SSDS] + held[_HDDS]
    return held[_PLACE[measure]]
