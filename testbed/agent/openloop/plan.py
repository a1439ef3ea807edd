"""Plan of an open-loop writer, checked on the node that runs it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from schemas.errors import UserError

POISSON, CONSTANT = "poisson", "constant"
MOST_IN_FLIGHT_BYTES = 2**30
BALLAST_BYTES = 2**22
"""Size of each ballast object."""

MOST_BALLAST = 1024
_PGID = re.compile(r"(\d+)\.([0-9a-f]+)")


@dataclass(frozen=True)
class Plan:
    """Writes of `object_bytes` for `duration_s` seconds at `rates`, in writes per second by PG id.

    A write overwrites one of `objects_per_pg` objects of its PG. The client holds back requests
    beyond `max_in_flight`; their latency still counts from the intended start. After the duration,
    writes in flight have `drain_s` seconds to end. `prefill` writes every object once before the
    start. It also writes `ballast_per_pg` objects of `BALLAST_BYTES` into every PG, once: the cost
    of moving a PG then does not depend on the size of the writes. `keep_requests` lists every
    request in the summary.
    """

    pool: str
    object_bytes: int
    duration_s: float
    seed: int
    rates: Mapping[str, float]
    arrivals: str = POISSON
    max_in_flight: int = 1024
    objects_per_pg: int = 8
    drain_s: float = 5.0
    prefill: bool = True
    keep_requests: bool = False
    ballast_per_pg: int = 0

    def __post_init__(self) -> None:
        if not self.pool:
            raise UserError("open-loop: pool must name a pool.")
        if not 1 <= self.object_bytes <= 2**27:
            raise UserError(
                f"open-loop: object_bytes must be 1 to {2**27}, not {self.object_bytes}."
            )
        if not 0 < self.duration_s <= 86400:
            raise UserError(
                f"open-loop: duration_s must be above 0 and at most 86400, not {self.duration_s}."
            )
        if not 0 <= self.drain_s <= 3600:
            raise UserError(f"open-loop: drain_s must be 0 to 3600, not {self.drain_s}.")
        if self.arrivals not in (POISSON, CONSTANT):
            raise UserError(
                f"open-loop: arrivals must be {POISSON!r} or {CONSTANT!r}, not {self.arrivals!r}."
            )
        if not 1 <= self.objects_per_pg <= 10_000:
            raise UserError(
                f"open-loop: objects_per_pg must be 1 to 10000, not {self.objects_per_pg}."
            )
        if not 0 <= self.ballast_per_pg <= MOST_BALLAST:
            raise UserError(
                f"open-loop: ballast_per_pg must be 0 to {MOST_BALLAST}, not {self.ballast_per_pg}."
            )
        if self.max_in_flight < 1 or self.max_in_flight * self.object_bytes > MOST_IN_FLIGHT_BYTES:
            raise UserError(
                f"open-loop: max_in_flight {self.max_in_flight} must be 1 or more, and with "
                f"{self.object_bytes} bytes each at most {MOST_IN_FLIGHT_BYTES} bytes: at most "
                f"{MOST_IN_FLIGHT_BYTES // self.object_bytes} here."
            )
        self._check_rates()

    def _check_rates(self) -> None:
        if not self.rates:
            raise UserError("open-loop: rates must give writes per second for one PG or more.")
        for pgid, rate in self.rates.items():
            if not _PGID.fullmatch(pgid):
                raise UserError(f'open-loop: rates: {pgid!r} is no PG id such as "2.1f".')
            if not (math.isfinite(rate) and 0 <= rate <= 1e6):
                raise UserError(
                    f"open-loop: rates: PG {pgid} must get 0 to 1e6 writes per second, not {rate}."
                )
        if not any(self.rates.values()):
            raise UserError("open-loop: rates: every PG has rate 0; nothing would be written.")

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON-able data."""
        return asdict(self) | {"rates": dict(self.rates)}


def plan_from_json(data: object) -> Plan:
    """Return the plan in `data`; raise UserError if it is invalid."""
    if not isinstance(data, Mapping):
        raise UserError("open-loop: the plan must be a JSON object.")
    known = {each.name: each for each in fields(Plan)}
    for name in data:
        if name not in known:
            raise UserError(
                f"open-loop: unknown field {name!r}; there are: {', '.join(sorted(known))}."
            )
    for name in ("pool", "object_bytes", "duration_s", "seed", "rates"):
        if name not in data:
            raise UserError(f"open-loop: the plan lacks {name!r}.")
    values = {name: _typed(name, str(known[name].type), value) for name, value in data.items()}
    return Plan(**values)


def _typed(name: str, kind: str, value: object) -> Any:
    good = {
        "str": isinstance(value, str),
        "bool": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
    }
    if kind in good:
        if not good[kind]:
            raise UserError(f"open-loop: {name} must be of type {kind}, not {value!r}.")
        return float(value) if kind == "float" else value  # type: ignore[arg-type]
    if not isinstance(value, Mapping):
        raise UserError(f"open-loop: {name} must map PG ids to writes per second.")
    return {str(pgid): _typed(f"rates of PG {pgid}", "float", rate) for pgid, rate in value.items()}
