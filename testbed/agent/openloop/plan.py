"""Plan of an open-loop writer, checked on the node that runs it."""

from __future__ import annotations

import heapq
import itertools
import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from schemas.errors import UserError, not_allowed

POISSON, CONSTANT = "poisson", "constant"
MOST_IN_FLIGHT_BYTES = 2**30
BALLAST_BYTES = 2**22
"""Size of each ballast object."""

MOST_BALLAST = 1024
_PGID = re.compile(r"(\d+)\.([0-9a-f]+)")


@dataclass(frozen=True)
class WritePlan:
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
            raise UserError("pool must name a pool", where="open-loop")
        for name, least, most in (
            ("object_bytes", 1, 2**27),
            ("drain_s", 0, 3600),
            ("objects_per_pg", 1, 10_000),
            ("ballast_per_pg", 0, MOST_BALLAST),
        ):
            if not least <= getattr(self, name) <= most:
                raise not_allowed(f"open-loop: {name}", getattr(self, name), f"{least} to {most}")
        if not 0 < self.duration_s <= 86400:
            raise not_allowed("open-loop: duration_s", self.duration_s, "above 0 and at most 86400")
        if self.arrivals not in (POISSON, CONSTANT):
            raise not_allowed("open-loop: arrivals", self.arrivals, f"{POISSON!r} or {CONSTANT!r}")
        if self.max_in_flight < 1 or self.max_in_flight * self.object_bytes > MOST_IN_FLIGHT_BYTES:
            raise UserError(
                f"max_in_flight {self.max_in_flight} must be 1 or more, and with "
                f"{self.object_bytes} bytes each at most {MOST_IN_FLIGHT_BYTES} bytes",
                where="open-loop",
                allowed=f"at most {MOST_IN_FLIGHT_BYTES // self.object_bytes} here",
            )
        self._check_rates()

    def _check_rates(self) -> None:
        if not self.rates:
            raise UserError(
                "rates must give writes per second for one PG or more", where="open-loop"
            )
        for pgid, rate in self.rates.items():
            if not _PGID.fullmatch(pgid):
                raise UserError(f'{pgid!r} is no PG id such as "2.1f"', where="open-loop: rates")
            if not (math.isfinite(rate) and 0 <= rate <= 1e6):
                raise UserError(
                    f"PG {pgid} must get 0 to 1e6 writes per second, not {rate}",
                    where="open-loop: rates",
                )
        if not any(self.rates.values()):
            raise UserError(
                "every PG has rate 0; nothing would be written", where="open-loop: rates"
            )

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON-able data."""
        return asdict(self) | {"rates": dict(self.rates)}


def plan_from_json(data: object) -> WritePlan:
    """Return the plan in `data`; raise UserError if it is invalid."""
    if not isinstance(data, Mapping):
        raise UserError("the plan must be a JSON object", where="open-loop")
    known = {each.name: each for each in fields(WritePlan)}
    for name in data:
        if name not in known:
            raise UserError(
                f"unknown field {name!r}", where="open-loop", allowed=", ".join(sorted(known))
            )
    for name in ("pool", "object_bytes", "duration_s", "seed", "rates"):
        if name not in data:
            raise UserError(f"the plan lacks {name!r}", where="open-loop")
    values = {name: _typed(name, str(known[name].type), value) for name, value in data.items()}
    return WritePlan(**values)


def _typed(name: str, kind: str, value: object) -> Any:
    good = {
        "str": isinstance(value, str),
        "bool": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
    }
    if kind in good:
        if not good[kind]:
            raise UserError(f"{name} must be of type {kind}, not {value!r}", where="open-loop")
        return float(value) if kind == "float" else value  # type: ignore[arg-type]
    if not isinstance(value, Mapping):
        raise UserError(f"{name} must map PG ids to writes per second", where="open-loop")
    return {str(pgid): _typed(f"rates of PG {pgid}", "float", rate) for pgid, rate in value.items()}


# ----------------------------------------------------------------------------------------------
# Schedule of writes to placement groups: intended starts, fixed before the first is sent.
#
# Every PG has its own stream, drawn from the seed and the PG's id. A new rate for one PG leaves the
# other PGs' arrivals unchanged, so two loads can be compared arrival by arrival.

Arrival = tuple[float, str, int]
"""Intended start (seconds from the start of the load), PG id, and the PG's object by number."""


def arrivals(
    rates: Mapping[str, float], duration_s: float, seed: int, kind: str, objects: int
) -> Iterator[Arrival]:
    """Return all arrivals before `duration_s`, in order of time.

    Args:
        rates: writes per second by PG id; a PG of rate 0 gets none.
        kind: ``poisson`` (exponential gaps) or ``constant`` (equal gaps; the first gap is a random
            part of a gap, so that PGs of one rate do not write in step).
        objects: number of objects per PG; each write goes to one of them, drawn evenly.
    """
    streams = (
        _stream(pgid, _starts(rate, duration_s, draw, kind), draw, objects)
        for pgid, rate in rates.items()
        if rate > 0
        # Not shared: every stream draws from its own generator.
        for draw in (random.Random(f"{seed}/{pgid}"),)
    )
    return heapq.merge(*streams)


def _starts(rate: float, duration_s: float, draw: random.Random, kind: str) -> Iterator[float]:
    starts: Iterator[float]
    if kind == CONSTANT:
        first = draw.random() / rate
        # Not accumulated: even the thousandth start is exact to the microsecond.
        starts = (first + count / rate for count in itertools.count())
    else:
        starts = itertools.accumulate(draw.expovariate(rate) for _ in itertools.count())
    return itertools.takewhile(lambda at: at < duration_s, starts)


def _stream(
    pgid: str, starts: Iterator[float], draw: random.Random, objects: int
) -> Iterator[Arrival]:
    for at in starts:
        yield at, pgid, draw.randrange(objects)


# ----------------------------------------------------------------------------------------------
# Mapping from object names to placement groups, and names for given placement groups.
#
# Ceph hashes the name with Robert Jenkins' 1996 function (``ceph_str_hash_rjenkins``). It folds the
# hash into the pool's number of PGs (``ceph_stable_mod``). The constants are part of every
# cluster's placement. Objects have no namespace and no locator key here.

_GOLDEN = 0x9E3779B9
_WORD = 0xFFFFFFFF
_BLOCK = 12
MOST_TRIES_A_NAME = 1000
"""Tries per name, times the number of PGs. With that many tries, the search for a name in an
existing PG fails with probability e^-1000."""


def _mix(a: int, b: int, c: int) -> tuple[int, int, int]:
    a = ((a - b - c) & _WORD) ^ (c >> 13)
    b = ((b - c - a) & _WORD) ^ ((a << 8) & _WORD)
    c = ((c - a - b) & _WORD) ^ (b >> 13)
    a = ((a - b - c) & _WORD) ^ (c >> 12)
    b = ((b - c - a) & _WORD) ^ ((a << 16) & _WORD)
    c = ((c - a - b) & _WORD) ^ (b >> 5)
    a = ((a - b - c) & _WORD) ^ (c >> 3)
    b = ((b - c - a) & _WORD) ^ ((a << 10) & _WORD)
    c = ((c - a - b) & _WORD) ^ (b >> 15)
    return a, b, c


def _words(block: bytes) -> tuple[int, int, int]:
    return (
        int.from_bytes(block[0:4], "little"),
        int.from_bytes(block[4:8], "little"),
        int.from_bytes(block[8:12], "little"),
    )


def name_hash(name: bytes) -> int:
    """Return the 32-bit hash of an object's name."""
    a, b, c = _GOLDEN, _GOLDEN, 0
    whole = len(name) - len(name) % _BLOCK
    for start in range(0, whole, _BLOCK):
        x, y, z = _words(name[start : start + _BLOCK])
        a, b, c = _mix((a + x) & _WORD, (b + y) & _WORD, (c + z) & _WORD)
    rest = name[whole:]
    # The lowest byte of the third word is reserved for the length.
    x, y, z = _words(rest[:8].ljust(8, b"\0") + b"\0" + rest[8:].ljust(3, b"\0"))
    _, _, c = _mix((a + x) & _WORD, (b + y) & _WORD, (c + z + len(name)) & _WORD)
    return c


def stable_mod(value: int, count: int) -> int:
    """Fold `value` into `count` (1 or more) such that few values move when `count` grows."""
    mask = (1 << (count - 1).bit_length()) - 1
    folded = value & mask
    return folded if folded < count else value & (mask >> 1)


def pg_of(name: str, pool: int, pg_num: int) -> str:
    """Return the id (``"2.1f"``) of an object's placement group in the pool with this number."""
    return f"{pool}.{stable_mod(name_hash(name.encode()), pg_num):x}"


def names_for(
    pgids: Iterable[str], pool: int, pg_num: int, count: int, prefix: str = "hotbed-ol"
) -> Mapping[str, tuple[str, ...]]:
    """Return `count` object names for each of `pgids`, always the same: ``<prefix>-<number>``.

    The names depend only on the arguments, so that another run overwrites the same objects.
    ValueError: a PG is not in the pool."""
    wanted: dict[int, list[str]] = {}
    order = list(pgids)
    for pgid in order:
        of_pool, _, placement = pgid.partition(".")
        if of_pool != str(pool) or not 0 <= int(placement, 16) < pg_num:
            raise ValueError(
                f"PG {pgid} is not in pool {pool}, which has PGs {pool}.0 to {pool}.{pg_num - 1:x}"
            )
        wanted[int(placement, 16)] = []
    missing = len(wanted)
    for number in itertools.count():
        if missing == 0:
            break
        assert number < MOST_TRIES_A_NAME * pg_num * max(1, count)
        name = f"{prefix}-{number}"
        found = wanted.get(stable_mod(name_hash(name.encode()), pg_num))
        if found is not None and len(found) < count:
            found.append(name)
            missing -= len(found) == count
    return {pgid: tuple(wanted[int(pgid.partition(".")[2], 16)]) for pgid in order}
