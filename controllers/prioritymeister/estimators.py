"""Estimators: the cost of a request at each stage (section 4.2), the JSON file of a device profile
(docs/prioritymeister.md gives the format), and the demand of a whole trace.

Work is in seconds of a device, and in bytes on the network. An estimator takes a trace block by
block and may remember the places of the last requests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from controllers.common.numbers import keys_of, number_of
from controllers.prioritymeister.limiters import CurveBuilder, RbCurve
from schemas.durable import read_json
from schemas.errors import UserError, not_allowed

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

STAGES = ("network-in", "storage", "network-out")
"""Order in which a request meets the stages; "in" and "out" are the server's."""
_NS = 1e-9
_MOST = np.iinfo(np.int64).max


class Requests(Protocol):
    """Requests in the order of their arrival, arrays of one length [n].

    `time_ns` counts from any zero; `offset` is -1 if the trace does not give it.
    """

    @property
    def time_ns(self) -> Integers: ...
    @property
    def size(self) -> Integers: ...
    @property
    def read(self) -> Mask: ...
    @property
    def offset(self) -> Integers: ...


Estimator = Callable[[Requests], Floats]
"""Function that returns the work of each request of a block [n], for blocks of a trace in order."""


@dataclass(frozen=True)
class NetworkCost:
    """Bytes on the wire of a request: ``constant + factor * size``, one pair for the direction that
    carries the data and one for the other."""

    data_constant: float = 200.0
    data_factor: float = 1.1
    other_constant: float = 200.0
    other_factor: float = 0.025

    def bytes(self, size: npt.NDArray[np.generic], data: Mask) -> Floats:
        """Return the bytes of requests with `size`; `data`: those with data in this direction."""
        given = np.asarray(size, np.float64)
        with_data = self.data_constant + self.data_factor * given
        return np.where(data, with_data, self.other_constant + self.other_factor * given)


@dataclass(frozen=True)
class SizeProfile:
    """Device with a bandwidth by kind and size: ``work = base + size / bandwidth(kind, size)``.

    Bandwidth (bytes per second) is interpolated between the sizes [k] of the table, and constant
    outside of it. Figure 10's less accurate estimator has one size, and the same base time
    (seconds) for every request.
    """

    sizes: Floats
    read: Floats
    write: Floats
    base: float = 0.0

    def estimator(self) -> Estimator:
        """Return an estimator for one trace."""
        return self._work

    def _work(self, requests: Requests) -> Floats:
        size = np.asarray(requests.size, np.float64)
        reads, writes = (np.interp(size, self.sizes, rates) for rates in (self.read, self.write))
        return self.base + size / np.where(requests.read, reads, writes)


@dataclass(frozen=True)
class DistanceTable:
    """`base` (seconds) and `bandwidth` (bytes per second) by offset and distance [o, d],
    interpolated in both directions, and constant outside of the table."""

    offsets: Floats
    distances: Floats
    base: Floats
    bandwidth: Floats

    def at(self, grid: Floats, offset: Floats, distance: Floats) -> Floats:
        """Return the values of a grid."""
        row, down = _between(self.offsets, offset)
        column, right = _between(self.distances, distance)
        next_row = np.minimum(row + 1, len(self.offsets) - 1)
        next_column = np.minimum(column + 1, len(self.distances) - 1)
        upper = grid[row, column] * (1 - right) + grid[row, next_column] * right
        lower = grid[next_row, column] * (1 - right) + grid[next_row, next_column] * right
        found: Floats = upper * (1 - down) + lower * down
        return found


def _between(points: Floats, value: Floats) -> tuple[Integers, Floats]:
    """Return the point at or below each value, and the share of the way to the next point."""
    if len(points) == 1:
        return np.zeros(len(value), np.int64), np.zeros(len(value))
    held = np.clip(value, points[0], points[-1])
    index = np.clip(np.searchsorted(points, held, side="right") - 1, 0, len(points) - 2)
    share: Floats = (held - points[index]) / (points[index + 1] - points[index])
    return index.astype(np.int64), share


@dataclass(frozen=True)
class DistanceProfile:
    """The paper's tables: ``work = base + size / bandwidth``, both by kind, offset and distance.

    Distance is the request's offset less that of the request before, with its sign. A request that
    begins where one of the last `history` requests ended is sequential: its base time is 0. The
    first request of a trace comes from the largest distance.
    """

    read: DistanceTable
    write: DistanceTable
    history: int = 8

    def estimator(self) -> Estimator:
        """Return an estimator for one trace, which remembers its last requests."""
        before_ends = np.full(self.history, -1, np.int64)
        last: int | None = None

        def work(requests: Requests) -> Floats:
            nonlocal before_ends, last
            offset = np.asarray(requests.offset, np.int64)
            if (offset < 0).any():
                raise UserError(
                    "this profile is by offset and distance, and the trace has no offsets",
                    do="use a profile by size",
                )
            if not len(offset):
                return np.empty(0)
            size = np.asarray(requests.size, np.int64)
            before = np.append(offset[0] if last is None else last, offset[:-1])
            distance = (offset - before).astype(np.float64)
            if last is None:
                distance[0] = np.inf
            ends = np.concatenate((before_ends, offset + size))
            sequential = np.zeros(len(offset), np.bool_)
            for back in range(1, self.history + 1):
                place = len(before_ends) - back
                sequential |= offset == ends[place : place + len(offset)]
            before_ends, last = ends[len(ends) - len(before_ends) :], int(offset[-1])
            where = offset.astype(np.float64)
            costs = []
            for table in (self.read, self.write):
                base = np.where(sequential, 0.0, table.at(table.base, where, distance))
                costs.append(base + size / table.at(table.bandwidth, where, distance))
            return np.where(requests.read, costs[0], costs[1])

        return work


@dataclass(frozen=True)
class Overhead:
    """Cost of serving a request in addition to the device's time, measured where it is enforced.

    `request` is a part of every request's work, seconds: processor time of the server and of the
    software before it, while the device waits. `latency` is no work: it is the most, in seconds, by
    which the server may lag behind all requested work in a backlog period. Single requests take
    longer than a profile's mean, timers are late, and processors are busy.
    """

    request: float = 0.0
    latency: float = 0.0


@dataclass(frozen=True)
class StageCosts:
    """Inputs to estimate every stage: a device's profile and the network's."""

    storage: SizeProfile | DistanceProfile | None
    network: NetworkCost = NetworkCost()
    overhead: Overhead = Overhead()

    def estimator(self, stage: str) -> Estimator:
        """Return a fresh estimator of a stage.

        Raises:
            UserError: there is no such stage, or the storage stage has no profile.
        """
        if stage not in STAGES:
            raise not_allowed("stage", stage, ", ".join(STAGES))
        if stage == "network-in":  # a write carries its data
            return lambda requests: self.network.bytes(requests.size, ~requests.read)
        if stage == "network-out":  # a read's answer carries its data
            return lambda requests: self.network.bytes(requests.size, requests.read)
        if self.storage is None:
            raise UserError("the storage stage needs a device's profile", do="give --profile FILE")
        work, more = self.storage.estimator(), self.overhead.request
        return (lambda requests: work(requests) + more) if more > 0 else work

    def work(self, stage: str, requests: Requests) -> Floats:
        """Return the work of requests that are a trace of their own; see `estimator`."""
        return self.estimator(stage)(requests)


# Profiles.


def load_profile(path: Path) -> StageCosts:
    """Return the profile in a JSON file; raise UserError if it cannot be read, or has a mistake."""
    return parse_profile(read_json(path, f"profile {path}"), f"profile {path}")


def parse_profile(document: object, where: str = "profile") -> StageCosts:
    """Return the profile in a JSON document; `where` begins each message."""
    if not isinstance(document, Mapping):
        raise UserError("is not a JSON object with a type and tables", where=where)
    kind = document.get("type")
    parsers: dict[str, Callable[[Mapping[str, Any], str], SizeProfile | DistanceProfile]] = {
        "storageSSD": _by_size,
        "storageConstant": _constant,
        "storageTable": _by_distance,
    }
    if not isinstance(kind, str) or kind not in parsers:
        raise not_allowed(f"{where}: type", kind, ", ".join(parsers))
    network = dict(zip(_NETWORK_KEYS, (field.name for field in fields(NetworkCost)), strict=True))
    overhead = {field.name: field.name for field in fields(Overhead)}
    return StageCosts(
        parsers[kind](document, where),
        NetworkCost(**_numbers(document, "network", network, where)),
        Overhead(**_numbers(document, "overhead", overhead, where)),
    )


_NETWORK_KEYS = ("dataConstant", "dataFactor", "nonDataConstant", "nonDataFactor")


def _numbers(
    document: Mapping[str, Any], name: str, known: Mapping[str, str], where: str
) -> dict[str, float]:
    """Return the numbers of an optional block, by the names of their fields."""
    place = f"{where}: {name}"
    block = keys_of(document.get(name, {}), place, known)
    return {known[k]: number_of(v, f"{place}.{k}", 0.0) for k, v in block.items()}


def _array(value: object, where: str, low: float, *, above: bool = False) -> Floats:
    """Return a list of numbers."""
    if not isinstance(value, list) or not value:
        raise UserError("is missing or empty", where=where, allowed="a list")
    numbers = enumerate(value)
    return np.array([number_of(v, f"{where}[{i}]", low, above=above) for i, v in numbers])


def _rising(value: object, where: str) -> Floats:
    points = _array(value, where, -math.inf)
    if any(b <= a for a, b in pairwise(points)):
        raise UserError("must rise from entry to entry", where=where)
    return points


def _by_size(document: Mapping[str, Any], where: str) -> SizeProfile:
    table = document.get("bandwidthTable")
    if not isinstance(table, list) or not table:
        raise UserError("is missing or empty", where=f"{where}: bandwidthTable", allowed="a list")
    rows = []
    for index, row in enumerate(table):
        place = f"{where}: bandwidthTable[{index}]"
        if not isinstance(row, Mapping):
            raise UserError("is not an object with requestSize and bandwidths", where=place)
        keys = ("requestSize", "readBandwidth", "writeBandwidth")
        rows.append(tuple(number_of(row.get(k), f"{place}.{k}", 0.0, above=True) for k in keys))
    sizes, read, write = (np.array(column) for column in zip(*sorted(rows), strict=True))
    if (np.diff(sizes) == 0).any():
        raise UserError("bandwidthTable has a requestSize twice", where=where)
    return SizeProfile(sizes, read, write)


def _constant(document: Mapping[str, Any], where: str) -> SizeProfile:
    base = number_of(document.get("base"), f"{where}: base", 0.0)
    read, write = (
        np.array([number_of(document.get(key), f"{where}: {key}", 0.0, above=True)])
        for key in ("readBandwidth", "writeBandwidth")
    )
    return SizeProfile(np.ones(1), read, write, base)


def _by_distance(document: Mapping[str, Any], where: str) -> DistanceProfile:
    history = document.get("history", 8)
    if not isinstance(history, int) or isinstance(history, bool) or not 1 <= history <= 1024:
        raise not_allowed(f"{where}: history", history, "a whole number from 1 to 1024")
    tables = []
    for kind in ("read", "write"):
        place, block = f"{where}: {kind}", document.get(kind)
        if not isinstance(block, Mapping):
            wanted = "an object with offsets and distances"
            raise UserError("is missing or no object", where=place, allowed=wanted)
        offsets = _rising(block.get("offsets"), f"{place}.offsets")
        distances = _rising(block.get("distances"), f"{place}.distances")
        shape = (len(offsets), len(distances))
        base = _grid(block.get("base"), shape, f"{place}.base", above=False)
        bandwidth = _grid(block.get("bandwidth"), shape, f"{place}.bandwidth", above=True)
        tables.append(DistanceTable(offsets, distances, base, bandwidth))
    return DistanceProfile(tables[0], tables[1], history)


def _grid(value: object, shape: tuple[int, int], where: str, *, above: bool) -> Floats:
    rows = value if isinstance(value, list) else []
    if len(rows) != shape[0] or any(not isinstance(r, list) or len(r) != shape[1] for r in rows):
        wanted = f"{shape[0]} rows, one for each offset, of {shape[1]} numbers"
        raise UserError("has another shape", where=where, allowed=wanted)
    return np.array([_array(r, f"{where}[{i}]", 0.0, above=above) for i, r in enumerate(rows)])


# Traces.


@dataclass(frozen=True)
class TraceDemand:
    """Demand of a trace at the requested stages.

    `seconds` is from the first to the last arrival; `largest` is the most work of any request at a
    stage. `scv` is the squared coefficient of variation of the times between arrivals, None if
    there are fewer than three requests or all come at one instant.
    """

    requests: int
    reads: int
    bytes: int
    seconds: float
    scv: float | None
    work: dict[str, float]
    largest: dict[str, float]
    curves: dict[str, RbCurve]

    def load(self, stage: str, bandwidth: float = 1.0) -> float | None:
        """Return mean work per second as a share of `bandwidth`; None for a one-instant trace."""
        return self.work[stage] / self.seconds / bandwidth if self.seconds > 0 else None


def measure(
    blocks: Iterable[Requests],
    costs: StageCosts,
    stages: Sequence[str] = STAGES,
    *,
    curves: bool = True,
) -> TraceDemand:
    """Read a trace once, block by block; times never fall, within a block and between blocks.
    Without `curves` memory does not grow with the trace.

    Raises:
        UserError: the trace holds no request, or a stage cannot be estimated.
    """
    estimators = {stage: costs.estimator(stage) for stage in stages}
    builders = {stage: CurveBuilder(_NS) for stage in stages} if curves else {}
    work, largest = dict.fromkeys(stages, 0.0), dict.fromkeys(stages, 0.0)
    gaps = _RunningVariance()
    count = reads = size = first = last = 0
    for block in blocks:
        times = block.time_ns
        if not len(times):
            continue
        first = first if count else int(times[0])
        gaps.add(np.diff(times, prepend=last) if count else np.diff(times))
        last = int(times[-1])
        count += len(times)
        reads += int(np.count_nonzero(block.read))
        # Sizes of exabytes may add up to more than 64 bits, and would overflow silently.
        fits = int(block.size.max()) <= _MOST // len(times)
        size += int(block.size.sum()) if fits else sum(block.size.tolist())
        for stage, estimator in estimators.items():
            with np.errstate(over="ignore"):
                each = estimator(block)
                work[stage] += float(each.sum())
            if not math.isfinite(work[stage]):
                raise UserError(
                    f"at the stage {stage} requests add up to more work than a number can hold",
                    do="correct the profile, or the sizes",
                )
            largest[stage] = max(largest[stage], float(each.max()))
            if curves:
                builders[stage].add(times - first, each)
    if not count:
        raise UserError("the trace holds no request")
    return TraceDemand(
        requests=count,
        reads=reads,
        bytes=size,
        seconds=(last - first) * _NS,
        scv=gaps.scv(),
        work=work,
        largest=largest,
        curves={stage: builder.curve() for stage, builder in builders.items()},
    )


class _RunningVariance:
    """Mean and variance of values added block by block (Chan, Golub and LeVeque)."""

    def __init__(self) -> None:
        self._count = 0
        self._mean = self._squares = 0.0

    def add(self, values: Integers) -> None:
        if not len(values):
            return
        mean = float(values.mean())
        squares = float(((values - mean) ** 2).sum())
        step, whole = mean - self._mean, self._count + len(values)
        self._squares += squares + step * step * self._count * len(values) / whole
        self._mean += step * len(values) / whole
        self._count = whole

    def scv(self) -> float | None:
        """Return the variance by squared mean."""
        if self._count < 2 or self._mean <= 0:
            return None
        return self._squares / self._count / self._mean**2
