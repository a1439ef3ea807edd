"""Replacements for the workloads of Table 2: same loads, same variability of arrivals.

The production traces must not be passed on (docs/prioritymeister.md explains how to fetch them). A
stand-in has requests of one size. Size, share of sequential requests and rate are solved for, so
that it loads a given device and link as in the table.
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
"""Times of arrival [count] for a rate, C2, count and seed."""


@dataclass(frozen=True)
class Table2Row:
    """Row of Table 2. Loads are shares of a device and of a link, None for N/A. `loop` is closed
    for L: its requests follow each other. `random`: no request begins where another ended (section
    6.2 on F, G and H: "random access traces")."""

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
        Table2Row("A", "DisplayAds production trace", 0.05, 0.05, 1.3, 0.8),
        Table2Row("B", "MSN storage production trace", 0.05, 0.05, 14.0, 0.8),
        Table2Row("C", "LiveMaps production trace", 0.55, 0.05, 2.2, 0.8),
        Table2Row("D", "Exchange production trace (behaved)", 0.10, 0.05, 23.0, 0.6),
        # "> 100 %": a fifth more than the device can do.
        Table2Row("E", "Exchange production trace (misbehaved)", 1.20, 0.15, 145.0, 0.6),
        Table2Row("F", "Synthetic low burst trace", 0.25, 0.05, 1.0, random=True),
        Table2Row("G", "Synthetic high burst trace", 0.25, 0.05, 20.0, random=True),
        Table2Row("H", "Synthetic very high burst trace", 0.25, 0.05, 40.0, random=True),
        Table2Row("I", "Synthetic medium network load trace 1", 0.35, 0.20, 1.0),
        Table2Row("J", "Synthetic medium network load trace 2", 0.45, 0.25, 1.0),
        Table2Row("K", "Synthetic ramdisk trace", None, 0.35, 3.6),
        Table2Row("L", "Synthetic large file copy", None, None, None, 0.0, "closed"),
    )
}

SIZES = tuple(512 << power for power in range(3, 12))  # 4 KiB to 1 MiB
PAGE = 4096
SHARPNESS = 10.0
_PROBE = 4000  # requests in the measurement of the mean work
_PROBE_TIMES: Floats = np.arange(_PROBE, dtype=np.float64)
_SHARE_STEP = 1e-6  # step of the share of sequential requests


@dataclass(frozen=True)
class StandIn:
    """Stand-in with its row and its shape."""

    row: Table2Row
    block: RequestBlock
    size: int
    sequential_share: float


def balanced(rate: float, c2: float, count: int, seed: int) -> Floats:
    """Return arrivals with gaps from two exponentials of balanced means, of exactly this C2."""
    return arrivals.hyperexponential(rate, c2, count, seed, exact=True)


def sharp(rate: float, c2: float, count: int, seed: int, *, sharpness: float = SHARPNESS) -> Floats:
    """Return bursts with `sharpness` times the average rate and the same C2. With balanced means
    the rate in a burst is at most twice the average, at any C2."""
    if c2 <= 1:
        return arrivals.poisson(rate, count, seed)
    pause = 1 - 1 / sharpness  # share of the time without requests
    burst = (c2 - 1) / (2 * pause * pause)  # requests, see `arrivals.interrupted_poisson`
    return arrivals.interrupted_poisson(rate, c2, burst / (sharpness * rate), count, seed)


def make(
    label: str | Table2Row,
    storage: WorkOf,
    network: WorkOf,
    link: float,
    *,
    seconds: float,
    seed: int = 1,
    arrive: Arrive = balanced,
) -> StandIn:
    """Return the stand-in for a workload of Table 2.

    Args:
        label: A to L, or a custom row.
        storage: seconds of the device per request.
        network: bytes per request in the direction that counts.
        link: bytes per second.
        seconds: length of the trace.
        seed: seed of arrivals, kinds and offsets.
        arrive: times between arrivals; exponentials of balanced means, of exactly this C2.

    Raises:
        UserError: there is no such workload, or no request size meets both loads on this device.
    """
    row = label if isinstance(label, Table2Row) else TABLE2.get(label)
    if row is None:
        raise UserError(f"workload {label!r}: Table 2 has {', '.join(TABLE2)}")
    if row.network_load is None or row.c2 is None:
        return _copy(row, storage, seconds)
    maker = _StandInMaker(row, storage, network, link, seed)
    shape = _shape(maker)
    count = maker.count(shape, seconds)
    times = arrive(count / seconds, row.c2, count, seed)
    # Kinds and places of the final trace differ slightly from the probe's.
    if shape.by_share:
        shape = maker.shared(times, shape.size)
    times = times * (maker.lasting(maker.requests(times, shape), shape) / float(times[-1]))
    block = maker.requests(times, shape)
    if not shape.by_share:
        row = replace(row, network_load=float(network(block).sum()) / float(times[-1]) / link)
    return StandIn(row, block, shape.size, shape.sequential)


@dataclass(frozen=True)
class _RequestShape:
    """Requests of one size, some sequential; `by_share` is True if the share of sequential ones
    sets the loads, and not the size alone."""

    size: int
    sequential: float = 0.0
    by_share: bool = False


@dataclass(frozen=True)
class _StandInMaker:
    """Maker of requests like a row of Table 2, for a device and a link."""

    row: Table2Row
    storage: WorkOf
    network: WorkOf
    link: float
    seed: int

    def requests(self, times: Floats, shape: _RequestShape) -> RequestBlock:
        """Return requests of this shape at these times."""
        return arrivals.requests(
            times,
            size=shape.size,
            read_share=self.row.read_share,
            sequential_share=shape.sequential,
            seed=self.seed,
            exact=True,
        )

    def lasting(self, block: RequestBlock, shape: _RequestShape) -> float:
        """Return the seconds that these requests should last: by the load of the link, as its work
        does not depend on places. If the size alone sets the loads, by the load of the device."""
        if shape.by_share or self.row.storage_load is None:
            assert self.row.network_load is not None
            return float(self.network(block).sum()) / (self.row.network_load * self.link)
        return float(self.storage(block).sum()) / self.row.storage_load

    def count(self, shape: _RequestShape, seconds: float) -> int:
        """Return the number of requests that last this long, and no longer: a later cut would lose
        load, above all in a long pause."""

        def lasting(count: int) -> float:
            return self.lasting(self.requests(np.arange(count, dtype=np.float64), shape), shape)

        count = max(2, math.floor(seconds / lasting(_PROBE) * _PROBE))
        count = max(2, math.floor(seconds / lasting(count) * count))
        while count > 2 and (took := lasting(count)) > seconds:
            count = max(2, min(count - 1, math.floor(count * seconds / took)))
        return count

    def ratio(self, times: Floats, shape: _RequestShape) -> float:
        """Return the seconds of the device per byte on the link, relative to the row's loads."""
        assert self.row.storage_load is not None and self.row.network_load is not None
        block = self.requests(times, shape)
        wanted = self.row.storage_load / (self.row.network_load * self.link)
        return float(self.storage(block).sum() / self.network(block).sum()) / wanted

    def shared(self, times: Floats, size: int) -> _RequestShape:
        """Return the share of sequential requests with ratio 1: more of them make less work."""
        from scipy.optimize import brentq  # slow to import, and few commands need it

        def excess(share: float) -> float:
            return self.ratio(times, _RequestShape(size, share)) - 1

        if excess(0.0) <= 0:
            share = 0.0
        elif excess(1.0) >= 0:
            share = 1.0
        else:
            share = float(brentq(excess, 0.0, 1.0, xtol=_SHARE_STEP))
        return _RequestShape(size, share, by_share=True)


def _shape(maker: _StandInMaker) -> _RequestShape:
    """Return requests with work in the proportion of the loads.

    If all are random, or places do not matter to the device (a profile by size), their size alone
    is fitted, in steps of a page; then the storage load is met, and the network's nearly. A random
    row that no size fits on this device is partly sequential.
    """
    row = maker.row
    if row.storage_load is None or row.network_load is None:
        return _RequestShape(64 * 1024)
    for way in (_by_size, _by_share) if row.random else (_by_share, _by_size):
        found = way(maker)
        if found is not None:
            return found
    raise UserError(
        "on this device no requests of 4 KiB to 1 MiB make a storage load of "
        f"{100 * row.storage_load:g} % with a network load of {100 * row.network_load:g} %",
        where=f"workload {row.label}",
    )


def _by_share(maker: _StandInMaker) -> _RequestShape | None:
    """Return a shape near 64 KiB, partly sequential; None if no share fits."""
    for size in sorted(SIZES, key=lambda s: (abs(math.log(s / 65536)), s)):
        most, least = (
            maker.ratio(_PROBE_TIMES, _RequestShape(size, share)) for share in (0.0, 1.0)
        )
        if least * 0.999 <= 1 <= most * 1.001:
            return maker.shared(_PROBE_TIMES, size)
    return None


def _by_size(maker: _StandInMaker) -> _RequestShape | None:
    """Return an all-random shape of the size that fits best; None if no size fits."""

    def ratio(pages: int) -> float:
        return maker.ratio(_PROBE_TIMES, _RequestShape(pages * PAGE))

    low, high = 1, SIZES[-1] // PAGE
    if not ratio(high) <= 1 <= ratio(low):
        return None
    while high - low > 1:
        pages = (low + high) // 2
        low, high = (pages, high) if ratio(pages) >= 1 else (low, pages)
    return _RequestShape(min((low, high), key=lambda pages: abs(math.log(ratio(pages)))) * PAGE)


def _copy(row: Table2Row, storage: WorkOf, seconds: float) -> StandIn:
    """Return a copy that keeps the device busy for `seconds` if it is alone."""
    size = 1 << 20
    each = float(storage(arrivals.file_copy(64 * size, size, 1e9)).mean())
    count = max(1, round(seconds / each))
    return StandIn(row, arrivals.file_copy(count * size, size, size / each), size, 1.0)
