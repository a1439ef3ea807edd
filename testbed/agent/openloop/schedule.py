"""Schedule of writes to placement groups: intended starts, fixed before the first is sent.

Every PG has its own stream, drawn from the seed and the PG's id. A new rate for one PG leaves the
other PGs' arrivals unchanged, so two loads can be compared arrival by arrival.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Iterator, Mapping

from testbed.agent.openloop.plan import CONSTANT

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
