"""Detect and map (section 9): a tenant with drifting object sizes moves to a suitable microstore.

The paper names the danger, thrashing, and leaves the mechanism open. Here a microstore serves a
band of sizes and suits a tenant by the share of its requests, in a fading histogram with one vote
an epoch, within the band. A tenant moves if another microstore has suited it better by `margin` for
`patience` epochs in a row. After its n-th move it stays for ``cooldown * 2 ** (n - 1)`` epochs.
After `calm` epochs in a row without a wish its moves are forgotten. So a tenant of constant sizes
moves at most once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controllers.common.numbers import finite
from controllers.common.parameters import integer, number, read
from schemas.errors import UserError, not_allowed
from testbed.stores.microstores import MapTenant, Microstores, Tenant

_DIGITS = 9
_MOST_LEVEL = 30


@dataclass(frozen=True)
class DetectSettings:
    """Parameters of detect and map; an epoch is a control interval."""

    fade: float = number(0.5, 0, 0.99, "what the memory of sizes keeps from one epoch to the next")
    margin: float = number(0.2, 0.01, 1, "share of requests by which another microstore suits more")
    patience: int = integer(3, 1, 10_000, "epochs on end that it must")
    cooldown: int = integer(10, 1, 100_000, "epochs that a tenant stays after its first move")
    calm: int = integer(100, 1, 1_000_000, "epochs without a wish after which moves are forgotten")
    min_requests: int = integer(20, 1, 1_000_000, "requests that an epoch must have to count")


Bands = Mapping[str, tuple[float, float]]
"""Sizes in bytes that a microstore serves: above the first, up to the second."""


def bands_from_json(data: Mapping[str, object], where: str) -> dict[str, tuple[float, float]]:
    """Read {MICROSTORE: [LOW, HIGH]} in bytes, HIGH null for no limit; else raise UserError."""
    found: dict[str, tuple[float, float]] = {}
    for name, pair in data.items():
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise not_allowed(f"{where}: {name}", pair, "[LOW, HIGH] in bytes")
        low, high = pair[0], math.inf if pair[1] is None else pair[1]
        for value in (low, high):
            if value != math.inf and not finite(value):
                raise not_allowed(f"{where}: {name}", pair, "[LOW, HIGH] in bytes")
        if not 0 <= low < high:
            raise UserError(f"{name} is {pair!r}; LOW must be from 0 and below HIGH", where=where)
        found[str(name)] = (float(low), float(high))
    return found


def detector_from_json(
    data: Mapping[str, object], controller: str
) -> tuple[Bands, DetectSettings] | None:
    """Read {bands: {..}} and any of `DetectSettings`; None for {}: no tenant is mapped."""
    if not data:
        return None
    where = f"controller {controller}: parameter 'detect'"
    given = data.get("bands")
    if not isinstance(given, Mapping) or len(given) < 2:
        raise UserError(
            "bands must name two microstores or more with their [LOW, HIGH]", where=where
        )
    others = {name: value for name, value in data.items() if name != "bands"}
    return bands_from_json(given, f"{where}: bands"), read(DetectSettings, controller, others)


def step(
    state: Mapping[str, Any], seen: Microstores, bands: Bands, p: DetectSettings
) -> tuple[dict[str, Any], list[MapTenant]]:
    """Run an epoch: return the new memory by tenant, and the moves."""
    names = {store.name for store in seen.stores}
    usable = {name: band for name, band in bands.items() if name in names}
    after: dict[str, Any] = {}
    moves: list[MapTenant] = []
    for tenant in seen.tenants:
        memory = state.get(tenant.name) or _new()
        after[tenant.name], to = _one(memory, tenant, usable, p)
        if to is not None:
            moves.append(MapTenant(tenant.name, to))
    return after, moves


def _new() -> dict[str, Any]:
    return {"sizes": {}, "wants": "", "for": 0, "stay": 0, "moves": 0, "calm": 0}


def _one(
    memory: Mapping[str, Any], tenant: Tenant, bands: Bands, p: DetectSettings
) -> tuple[dict[str, Any], str | None]:
    after = dict(memory) | {"stay": max(0, memory["stay"] - 1)}
    count = sum(tenant.sizes.values())
    if count < p.min_requests:
        return after, None  # too few requests to judge
    after["sizes"] = _remember(memory["sizes"], tenant.sizes, p.fade)
    wanted = _better(after["sizes"], tenant.microstore, bands, p.margin)
    if wanted is None:
        after |= {"wants": "", "for": 0, "calm": memory["calm"] + 1}
        if after["calm"] >= p.calm:
            after |= {"moves": 0, "calm": 0}
        return after, None
    after |= {"calm": 0, "wants": wanted}
    after["for"] = memory["for"] + 1 if memory["wants"] == wanted else 1
    if after["for"] < p.patience or after["stay"] > 0:
        return after, None
    stay = p.cooldown * 2 ** min(_MOST_LEVEL, memory["moves"])
    after |= {"wants": "", "for": 0, "stay": stay, "moves": memory["moves"] + 1}
    return after, wanted


def _remember(
    sizes: Mapping[str, float], counts: Mapping[int, int], fade: float
) -> dict[str, float]:
    """Return the histogram (share of requests by exponent) after one more epoch."""
    total = sum(counts.values())
    keep = fade if sizes else 0.0
    after = {exponent: keep * share for exponent, share in sizes.items()}
    for exponent, count in counts.items():
        key = str(exponent)
        after[key] = after.get(key, 0.0) + (1 - keep) * count / total
    return {key: round(after[key], _DIGITS) for key in sorted(after) if after[key] > 1e-6}


def suits(sizes: Mapping[str, float], band: tuple[float, float]) -> float:
    """Return the share of requests with a size in the band. An exponent covers sizes from half its
    power of two up to it, and counts as three quarters of it."""
    low, high = band
    inside = [share for exponent, share in sizes.items() if low < 0.75 * 2 ** int(exponent) <= high]
    return math.fsum(inside)


def _better(sizes: Mapping[str, float], home: str, bands: Bands, margin: float) -> str | None:
    """Return the microstore that suits most, if it beats `home` by `margin`."""
    if not bands:
        return None
    here = suits(sizes, bands[home]) if home in bands else 0.0
    best = max(sorted(bands), key=lambda name: suits(sizes, bands[name]))
    if best == home or suits(sizes, bands[best]) < here + margin:
        return None
    return best
