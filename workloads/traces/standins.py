"""Stand-ins for the workloads of Table 2: same loads, same variability of arrivals.

The production traces may not be passed on (docs/prioritymeister.md tells how to fetch them). A
stand-in has requests of one size; size, share of sequential requests and rate are solved for, so
that it loads a given device and link as the table says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from schemas.errors import UserError
from workloads.traces import arrivals
from workloads.traces.requests import RequestBlock

Floats = npt.NDArray[np.float64]
WorkOf = Callable[[RequestBlock], Floats]
"""Work of each request of a whole trace: seconds of a device, or bytes on a link."""
Arrive = Callable[[float, float, int, int], Floats]
"""Times of arrival [count] of a rate, C2, count and seed."""


@dataclass(frozen=True)
class Row:
    """A row of Table 2. Loads are shares of a device and of a link, None where it has N/A;
    `loop` is closed for L, whose requests follow each other. `random`: no request follows another
    where it ended (section 6.2 of F, G and H: "random access traces")."""

    label: str
    source: str
    storage_load: float | None
    network_load: float | None
    c2: float | None
    read_share: float = 0.6
    loop: str = "open"
    random: bool = False


TABLE2 = {
    row.label: row
    for row in (
        Row("A", "DisplayAds production trace", 0.05, 0.05, 1.3, 0.8),
        Row("B", "MSN storage production trace", 0.05, 0.05, 14.0, 0.8),
        Row("C", "LiveMaps production trace", 0.55, 0.05, 2.2, 0.8),
        Row("D", "Exchange production trace (behaved)", 0.10, 0.05, 23.0, 0.6),
        # "> 100 %": a fifth more than the device can do.
        Row("E", "Exchange production trace (misbehaved)", 1.20, 0.15, 145.0, 0.6),
        Row("F", "Synthetic low burst trace", 0.25, 0.05, 1.0, random=True),
        Row("G", "Synthetic high burst trace", 0.25, 0.05, 20.0, random=True),
        Row("H", "Synthetic very high burst trace", 0.25, 0.05, 40.0, random=True),
        Row("I", "Synthetic medium network load trace 1", 0.35, 0.20, 1.0),
        Row("J", "Synthetic medium network load trace 2", 0.45, 0.25, 1.0),
        Row("K", "Synthetic ramdisk trace", None, 0.35, 3.6),
        Row("L", "Synthetic large file copy", None, None, None, 0.0, "closed"),
    )
}

SIZES = tuple(512 << power for power in range(3, 12))  # 4 KiB to 1 MiB
PAGE = 4096
SHARPNESS = 10.0
_PROBE = 4000  # requests whose mean work is measured
_ROUNDS = 25


@dataclass(frozen=True)
class StandIn:
    """A stand-in, and what it was made of."""

    row: Row
    block: RequestBlock
    size: int
    sequential_share: float


def balanced(rate: float, c2: float, count: int, seed: int) -> Floats:
    """Gaps from two exponentials of balanced means, of exactly this C2."""
    return arrivals.hyperexponential(rate, c2, count, seed, exact=True)


def sharp(rate: float, c2: float, count: int, seed: int, *, sharpness: float = SHARPNESS) -> Floats:
    """Bursts in which requests come `sharpness` times as often as on average, of the same C2: with
    balanced means the rate in a burst is at most twice the average, whatever C2 is."""
    if c2 <= 1:
        return arrivals.poisson(rate, count, seed)
    pause = 1 - 1 / sharpness  # share of the time in which nothing comes
    burst = (c2 - 1) / (2 * pause * pause)  # requests, see `arrivals.interrupted_poisson`
    return arrivals.interrupted_poisson(rate, c2, burst / (sharpness * rate), count, seed)


def make(
    label: str | Row,
    storage: WorkOf,
    network: WorkOf,
    link: float,
    *,
    seconds: float,
    seed: int = 1,
    arrive: Arrive = balanced,
) -> StandIn:
    """The stand-in for a workload of Table 2.

    Args:
        label: A to L, or a row of one's own.
        storage: seconds of the device per request.
        network: bytes per request in the direction that counts.
        link: bytes per second.
        seconds: length of the trace.
        seed: of arrivals, kinds and offsets.
        arrive: times between arrivals; exponentials of balanced means, of exactly this C2.

    Raises:
        UserError: there is no such workload, or no request size meets both loads on this device.
    """
    row = label if isinstance(label, Row) else TABLE2.get(label)
    if row is None:
        raise UserError(f"workload {label!r}: Table 2 has {', '.join(TABLE2)}")
    if row.network_load is None or row.c2 is None:
        return _copy(row, storage, seconds)
    shape = _shape(row, storage, network, link, seed)
    size, sequential = shape.size, shape.sequential
    c2, load = row.c2, shape.network_load
    row = replace(row, network_load=load)
    mean = float(_probe(row, size, sequential, network, seed).mean())
    rate = load * link / mean
    count = max(2, round(rate * seconds))
    times = arrive(rate, c2, count, seed)
    block = _requests(row, times, size, sequential, seed)
    # The last per mille: kinds and places of this very trace are not quite those of the probe.
    scale = float(network(block).sum()) / (load * link) / float(times[-1])
    block = _requests(row, times * scale, size, sequential, seed)
    return StandIn(row, block, size, sequential)


def _requests(row: Row, times: Floats, size: int, sequential: float, seed: int) -> RequestBlock:
    return arrivals.requests(
        times, size=size, read_share=row.read_share, sequential_share=sequential, seed=seed
    )


def _probe(row: Row, size: int, sequential: float, work: WorkOf, seed: int) -> Floats:
    return work(_requests(row, np.arange(_PROBE, dtype=np.float64), size, sequential, seed))


@dataclass(frozen=True)
class _Shape:
    """Requests of one size, some of them sequential, and the network load that they come to."""

    size: int
    sequential: float
    network_load: float


Ratio = Callable[[int, float], float]
"""Work of the device per byte on the link, of requests of a size, a share of them sequential."""


def _shape(row: Row, storage: WorkOf, network: WorkOf, link: float, seed: int) -> _Shape:
    """Requests whose work is in the proportion of the loads.

    Where all are random, and on a device that does not mind where requests are (a profile by size),
    their size alone makes it so, in steps of a page; then the storage load is met, and the
    network's nearly. A random row that no size fits on this device is partly sequential.
    """
    assert row.network_load is not None
    if row.storage_load is None:
        return _Shape(64 * 1024, 0.0, row.network_load)
    wanted = row.storage_load / (row.network_load * link)  # seconds of the device per byte

    def ratio(size: int, sequential: float) -> float:
        seconds = _probe(row, size, sequential, storage, seed).mean()
        return float(seconds / _probe(row, size, sequential, network, seed).mean())

    ways = (_by_size, _by_share) if row.random else (_by_share, _by_size)
    for way in ways:
        found = way(row, ratio, wanted, link)
        if found is not None:
            return found
    raise UserError(
        f"workload {row.label}: on this device no requests of 4 KiB to 1 MiB make a storage load "
        f"of {100 * row.storage_load:g} % with a network load of {100 * row.network_load:g} %"
    )


def _by_share(row: Row, ratio: Ratio, wanted: float, _link: float) -> _Shape | None:
    """Of a size near 64 KiB, some sequential; None where no share of them fits."""
    assert row.network_load is not None
    for size in sorted(SIZES, key=lambda s: (abs(math.log(s / 65536)), s)):
        low, high = 0.0, 1.0  # more sequential requests, less work
        most, least = ratio(size, low), ratio(size, high)
        if not least * 0.999 <= wanted <= most * 1.001:
            continue
        for _ in range(_ROUNDS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if ratio(size, middle) > wanted else (low, middle)
        return _Shape(size, 0.5 * (low + high), row.network_load)
    return None


def _by_size(row: Row, ratio: Ratio, wanted: float, link: float) -> _Shape | None:
    """All random, of the size that fits best; None where none does."""
    assert row.storage_load is not None
    low, high = 1, SIZES[-1] // PAGE
    if not ratio(high * PAGE, 0.0) <= wanted <= ratio(PAGE, 0.0):
        return None
    while high - low > 1:
        pages = (low + high) // 2
        if ratio(pages * PAGE, 0.0) >= wanted:
            low = pages
        else:
            high = pages
    near = {pages: ratio(pages * PAGE, 0.0) for pages in (low, high)}
    best = min(near, key=lambda pages: abs(math.log(near[pages] / wanted)))
    return _Shape(best * PAGE, 0.0, row.storage_load / (near[best] * link))


def _copy(row: Row, storage: WorkOf, seconds: float) -> StandIn:
    """A copy that keeps the device busy for `seconds` when it is alone."""
    size = 1 << 20
    each = float(storage(arrivals.file_copy(64 * size, size, 1e9)).mean())
    count = max(1, round(seconds / each))
    return StandIn(row, arrivals.file_copy(count * size, size, size / each), size, 1.0)
