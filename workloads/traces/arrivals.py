"""Arrival processes of a given burstiness, and the requests that arrive.

C2 is the squared coefficient of variation of the times between arrivals: 1 for a Poisson process,
more if arrivals come in bursts (table 2 of the PriorityMeister paper).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from schemas.errors import UserError
from workloads.traces.requests import RequestBlock

Floats = npt.NDArray[np.float64]

SECTOR = 512
_SECONDS_LIMIT = 1e9
_LONGEST_S = 4e9  # in nanoseconds well below the readers' limit, 2^62
_FITTINGS = 60


def poisson(rate: float, count: int, seed: int) -> Floats:
    """Return `count` arrival times in seconds, the first at 0: independent exponential gaps."""
    _check(rate, count)
    gaps = np.random.default_rng(seed).exponential(1 / rate, count - 1)
    return np.concatenate(([0.0], np.cumsum(gaps)))


def hyperexponential(
    rate: float, c2: float, count: int, seed: int, *, exact: bool = False
) -> Floats:
    """Return arrivals with gaps from two exponentials of balanced means and with this `c2`.

    With p = (1 + sqrt((c2 - 1) / (c2 + 1))) / 2 a gap has rate 2 p `rate` with probability p, else
    2 (1 - p) `rate`.

    Args:
        rate: arrivals per second.
        c2: at least 1.
        count: number of arrivals.
        seed: seed of the generator.
        exact: shape the drawn gaps so that the trace itself has `c2` and `rate`, which a sample
            of a heavy-tailed distribution meets only if it is very long.
    """
    _check(rate, count)
    if not 1 <= c2 < _SECONDS_LIMIT:
        raise UserError(f"c2 {c2:g}: a hyperexponential has a C2 of at least 1")
    random = np.random.default_rng(seed)
    which, size = random.random(count - 1), random.exponential(1.0, count - 1)
    if not exact or count < 3:
        return np.concatenate(([0.0], np.cumsum(_gaps(rate, c2, which, size))))
    return np.concatenate(([0.0], np.cumsum(_fitted(rate, c2, random, count - 1))))


def _gaps(rate: float, c2: float, which: Floats, size: Floats) -> Floats:
    p = (1 + math.sqrt((c2 - 1) / (c2 + 1))) / 2
    return size / np.where(which < p, 2 * p * rate, 2 * (1 - p) * rate)


def _fitted(rate: float, c2: float, random: np.random.Generator, count: int) -> Floats:
    """Return gaps with this C2 and rate as a sample: evenly spread quantiles of two exponentials,
    in random order. The fit adjusts the ratio of the two means."""
    order = random.permutation(count)
    p = (1 + math.sqrt((c2 - 1) / (c2 + 1))) / 2
    rare = min(count - 1, max(1, round((1 - p) * count)))
    quick, slow = _quantiles(count - rare), _quantiles(rare)

    def gaps(longer: float) -> Floats:
        both = np.concatenate((quick, longer * slow))[order]
        found: Floats = both / both.mean() / rate
        return found

    low, high = 0.0, math.log(1e9)
    if scv(gaps(math.exp(high))) < c2:
        raise UserError(
            f"{count + 1} requests cannot have a C2 of {c2:g}", do="make the trace longer"
        )
    for _ in range(_FITTINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if scv(gaps(math.exp(middle))) < c2 else (low, middle)
    return gaps(math.exp(high))


def _quantiles(count: int) -> Floats:
    """Return evenly spread quantiles of an exponential distribution with mean 1."""
    found: Floats = -np.log1p(-(np.arange(count) + 0.5) / count)
    return found


def interrupted_poisson(rate: float, c2: float, burst_s: float, count: int, seed: int) -> Floats:
    """Return on-off arrivals: bursts of `burst_s` seconds on average, nothing in between.

    While on, arrivals are Poisson with rate l; with mean on time s1 and off time s2, ``c2 = 1 + 2 l
    s2^2 s1 / (s1 + s2)^2`` and ``rate = l s1 / (s1 + s2)``.

    Args:
        rate: arrivals per second over all time.
        c2: above 1.
        burst_s: mean length of a burst, s1.
        count: number of arrivals.
        seed: seed of the generator.
    """
    _check(rate, count)
    if not 1 < c2 < _SECONDS_LIMIT or not 0 < burst_s < _SECONDS_LIMIT:
        raise UserError(f"c2 {c2:g} must be above 1 and the burst's length {burst_s:g} s above 0")
    off = _off_time(rate, c2, burst_s)
    on_rate = rate * (burst_s + off) / burst_s
    random = np.random.default_rng(seed)
    # Arrivals on a clock that runs only while on; then the off times are inserted.
    clock = np.concatenate(([0.0], np.cumsum(random.exponential(1 / on_rate, count - 1))))
    bursts = max(2, int(clock[-1] / burst_s * 1.5) + 10)
    ends = np.cumsum(random.exponential(burst_s, bursts))
    while ends[-1] < clock[-1]:
        ends = np.append(ends, ends[-1] + np.cumsum(random.exponential(burst_s, bursts)))
    pauses = np.concatenate(([0.0], np.cumsum(random.exponential(off, len(ends)))))
    found: Floats = clock + pauses[np.searchsorted(ends, clock)]
    return found


def _off_time(rate: float, c2: float, burst_s: float) -> float:
    """Return the mean pause s2 that gives C2: ``c2 = 1 + 2 rate s2^2 / (s1 + s2)``."""
    half = (c2 - 1) / (4 * rate)
    return half + math.sqrt(half * half + 2 * half * burst_s)


def scv(gaps: Floats) -> float:
    """Return the squared coefficient of variation."""
    mean = float(gaps.mean())
    return float(gaps.var()) / mean**2 if mean > 0 else math.inf


def requests(
    times: Floats,
    *,
    size: int,
    read_share: float,
    sequential_share: float = 0.0,
    span: int = 1 << 36,
    seed: int = 0,
    exact: bool = False,
) -> RequestBlock:
    """Return requests of one size at given times: reads and writes, random and sequential, mixed.

    Args:
        times: arrival in seconds [n].
        size: bytes of each, a multiple of 512.
        read_share: 0 to 1.
        sequential_share: share of requests that begin where the request before ended.
        span: bytes over which the others are spread.
        seed: seed of the generator.
        exact: make exactly this share of reads, instead of drawing each request's kind.
    """
    if size <= 0 or size % SECTOR or span < 2 * size:
        raise UserError(f"size {size}: a multiple of {SECTOR} bytes, at most half of the span")
    _check_span(times[-1:])
    random = np.random.default_rng(seed)
    n = len(times)
    kinds = (random.permutation(n) + 0.5) / n if exact else random.random(n)
    read = kinds < read_share
    jump = random.random(n) >= sequential_share
    jump[:1] = True
    slots = random.integers(0, span // size // 2, n)
    at = np.flatnonzero(jump)
    since = np.arange(n) - at[np.cumsum(jump) - 1]
    offset = (slots[at][np.cumsum(jump) - 1] + since) * size
    return RequestBlock(
        np.round(times * 1e9).astype(np.int64), np.full(n, size, np.int64), read, offset
    )


def file_copy(total: int, size: int, bandwidth: float, *, write: bool = True) -> RequestBlock:
    """Return a large file copy (workload L) in pieces of `size` bytes: each comes when a device of
    `bandwidth` bytes per second alone would be done with the piece before."""
    if size <= 0 or total < size or bandwidth <= 0:
        raise UserError(
            f"a copy of {total} bytes by {size} at {bandwidth:g} bytes/s",
            allowed="sizes and a bandwidth above 0, and a piece no larger than the file",
        )
    n = math.ceil(total / size)
    index = np.arange(n, dtype=np.int64)
    sizes = np.minimum(size, total - index * size)
    seconds = index * size / bandwidth
    _check_span(seconds[-1:])
    times = np.round(seconds * 1e9).astype(np.int64)
    return RequestBlock(times, sizes, np.full(n, not write), index * size)


def _check_span(last: Floats) -> None:
    """Raise UserError if times in nanoseconds could overflow to negative ones."""
    if (last >= _LONGEST_S).any():
        raise UserError(
            f"the last request would come after {last[-1]:.3g} s, and a trace lasts "
            f"{_LONGEST_S:.3g} s at most",
            do="ask for fewer requests or a higher rate",
        )


def _check(rate: float, count: int) -> None:
    if not 0 < rate < _SECONDS_LIMIT:
        raise UserError(f"rate {rate:g}: arrivals per second must be above 0")
    if count < 1:
        raise UserError(f"{count} requests", allowed="at least 1")
