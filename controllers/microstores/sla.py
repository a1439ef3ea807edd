"""SLA of a tenant (MOS, section 6): a latency for small objects, a bandwidth for large.

``low`` and ``high`` are of performance, as in the paper. A latency's ``low`` is the longest
acceptable mean response time and its ``high`` the shortest useful one, so that ``low >= high`` in
seconds. A bandwidth has ``low <= high`` in bytes per second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from controllers.common.numbers import finite
from schemas.errors import UserError
from schemas.numbers import plain
from testbed.stores.microstores import Tenant

LATENCY, BANDWIDTH = "latency", "bandwidth"
KEYS = {"latency_ms": (LATENCY, 1e-3), "bandwidth_mb_s": (BANDWIDTH, 1e6)}
"""Keys of an SLA in a file: the kind, and its unit in seconds or bytes per second."""

TWICE = 2.0
"""The paper's ``sla_high`` is twice ``sla_low`` (section 8.1); for a latency, half of it."""


@dataclass(frozen=True)
class Sla:
    """SLA of a tenant; see the module.

    `kind` is ``latency`` (mean seconds) or ``bandwidth`` (mean bytes/s). With `per_worker`, `low`
    and `high` are per worker and grow with the load ("proportional to the workloads' load", 8.1).
    """

    kind: str
    low: float
    high: float
    per_worker: bool = False

    def at(self, workers: float) -> Sla:
        """Return the SLA while `workers` concurrent requests are offered."""
        if not self.per_worker or workers <= 0:
            return replace(self, per_worker=False)
        return Sla(self.kind, self.low * workers, self.high * workers)

    def level(self, measured: float) -> float:
        """Return the performance in multiples of ``low``: 1 and more is enough."""
        if self.kind == BANDWIDTH:
            return measured / self.low
        return self.low / measured if measured > 0 else math.inf

    @property
    def high_level(self) -> float:
        """Performance of ``high`` in multiples of ``low``."""
        return self.level(self.high)

    def of(self, tenant: Tenant) -> float | None:
        """Return the level of a tenant's measurements; None if no request finished."""
        if tenant.requests_s <= 0:
            return None
        measured = tenant.bytes_s if self.kind == BANDWIDTH else tenant.mean_latency_s
        return None if measured is None else self.level(measured)

    def required(self, workers: float, mean_bytes: float) -> tuple[float, float]:
        """Return the requests per second at which `workers` see ``low``, and ``high``, in a closed
        loop: the mean response time is workers / rate (Little's law)."""
        if self.kind == BANDWIDTH:
            return self.low / mean_bytes, self.high / mean_bytes
        return workers / self.low, workers / self.high


def sla_to_json(sla: Sla) -> dict[str, Any]:
    """Return the data that `sla_from_json` reads."""
    key, unit = next((key, unit) for key, (kind, unit) in KEYS.items() if kind == sla.kind)
    data: dict[str, Any] = {key: {"low": sla.low / unit, "high": sla.high / unit}}
    return data | ({"per_worker": True} if sla.per_worker else {})


def sla_from_json(data: object, where: str) -> Sla:
    """Read {latency_ms: LOW} or {bandwidth_mb_s: LOW}; LOW is a number or {low, high}.

    {per_worker: true} is optional; without a high it is twice the performance of low.

    Raises:
        UserError: anything else, in a sentence that begins with `where`.
    """
    if not isinstance(data, Mapping):
        raise UserError(f"{where}: an SLA is a mapping with {' or '.join(KEYS)}, not {data!r}")
    unknown = sorted(set(map(str, data)) - {*KEYS, "per_worker"})
    if unknown:
        allowed = ", ".join([*KEYS, "per_worker"])
        raise UserError(f"{where}: unknown key {unknown[0]!r} in an SLA (allowed: {allowed})")
    given = [key for key in KEYS if key in data]
    if len(given) != 1:
        raise UserError(
            f"{where}: an SLA has exactly one of {' and '.join(KEYS)}; this one has "
            f"{' and '.join(given) or 'none'}"
        )
    per_worker = data.get("per_worker", False)
    if not isinstance(per_worker, bool):
        raise UserError(f"{where}: per_worker is {per_worker!r}; it must be true or false")
    (key,) = given
    kind, unit = KEYS[key]
    low, high = _bounds(data[key], f"{where}: {key}", kind)
    if (high > low) if kind == LATENCY else (high < low):
        raise UserError(
            f"{where}: {key} has low {low:g} and high {high:g}; low is the worst that is good "
            f"enough, so it must be {'at least' if kind == LATENCY else 'at most'} high"
        )
    return Sla(kind, low * unit, high * unit, per_worker)


def _bounds(value: object, where: str, kind: str) -> tuple[float, float]:
    if not isinstance(value, Mapping):
        low = _positive(value, where)
        return low, low / TWICE if kind == LATENCY else low * TWICE
    unknown = sorted(set(map(str, value)) - {"low", "high"})
    if unknown or "low" not in value:
        what = f"unknown key {unknown[0]!r}" if unknown else "low is missing"
        raise UserError(f"{where}: {what}; it is a number, or a mapping with low and high")
    low = _positive(value["low"], f"{where}: low")
    twice = low / TWICE if kind == LATENCY else low * TWICE
    return low, _positive(value.get("high", twice), f"{where}: high")


def _positive(value: object, where: str) -> float:
    value = plain(value)
    if not finite(value) or value <= 0:
        raise UserError(f"{where} is {value!r}; it must be a number above 0")
    return float(value)
