"""Cost of a request at each stage (section 4.2): seconds of a device, bytes on the network.

An estimator takes a trace block by block and may remember the places of the last requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from schemas.errors import UserError, not_allowed

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

STAGES = ("network-in", "storage", "network-out")
"""Order in which a request meets the stages; "in" and "out" are the server's."""


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


class WorkEstimator(Protocol):
    """Work of each request of a block [n]; blocks of one trace are given in order."""

    def work(self, requests: Requests) -> Floats: ...


class StorageProfile(Protocol):
    """A device's profile; each trace is estimated by a fresh estimator."""

    def estimator(self) -> WorkEstimator: ...


@dataclass(frozen=True)
class NetworkCost:
    """Bytes on the wire of a request: ``constant + factor * size``, one pair for the direction that
    carries the data and one for the other."""

    data_constant: float = 200.0
    data_factor: float = 1.1
    other_constant: float = 200.0
    other_factor: float = 0.025

    def bytes_in(self, size: npt.NDArray[np.generic], read: Mask) -> Floats:
        """Return the bytes towards the server: a write carries its data."""
        return self._bytes(size, ~np.asarray(read, np.bool_))

    def bytes_out(self, size: npt.NDArray[np.generic], read: Mask) -> Floats:
        """Return the bytes from the server: a read's answer carries its data."""
        return self._bytes(size, np.asarray(read, np.bool_))

    def _bytes(self, size: npt.NDArray[np.generic], data: Mask) -> Floats:
        given = np.asarray(size, np.float64)
        with_data = self.data_constant + self.data_factor * given
        return np.where(data, with_data, self.other_constant + self.other_factor * given)


@dataclass(frozen=True)
class NetworkEstimator:
    """Bytes of a trace's requests in one direction."""

    cost: NetworkCost
    inwards: bool

    def work(self, requests: Requests) -> Floats:
        bytes_of = self.cost.bytes_in if self.inwards else self.cost.bytes_out
        return bytes_of(requests.size, requests.read)


@dataclass(frozen=True)
class SizeProfile:
    """Device with a bandwidth by kind and size: ``work = size / bandwidth(kind, size)``.

    Bandwidth (bytes per second) is interpolated between the sizes [k] of the table, and constant
    outside of the table.
    """

    sizes: Floats
    read: Floats
    write: Floats

    def estimator(self) -> WorkEstimator:
        return self

    def work(self, requests: Requests) -> Floats:
        size = np.asarray(requests.size, np.float64)
        bandwidth = np.where(
            requests.read,
            np.interp(size, self.sizes, self.read),
            np.interp(size, self.sizes, self.write),
        )
        return size / bandwidth


@dataclass(frozen=True)
class ConstantProfile:
    """Figure 10's less accurate estimator: the same base time for every request."""

    base: float
    read: float
    write: float

    def estimator(self) -> WorkEstimator:
        return self

    def work(self, requests: Requests) -> Floats:
        size = np.asarray(requests.size, np.float64)
        return self.base + size / np.where(requests.read, self.read, self.write)


@dataclass(frozen=True)
class DistanceTable:
    """`base` (seconds) and `bandwidth` (bytes per second) by offset and distance [o, d].

    Values are interpolated in both directions, and constant outside of the table.
    """

    offsets: Floats
    distances: Floats
    base: Floats
    bandwidth: Floats

    def at(self, grid: Floats, offset: Floats, distance: Floats) -> Floats:
        row, down = _between(self.offsets, offset)
        column, right = _between(self.distances, distance)
        next_row = np.minimum(row + 1, len(self.offsets) - 1)
        next_column = np.minimum(column + 1, len(self.distances) - 1)
        upper = grid[row, column] * (1 - right) + grid[row, next_column] * right
        lower = grid[next_row, column] * (1 - right) + grid[next_row, next_column] * right
        found: Floats = upper * (1 - down) + lower * down
        return found


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

    def estimator(self) -> WorkEstimator:
        return _DistanceEstimator(self)


class _DistanceEstimator:
    def __init__(self, profile: DistanceProfile) -> None:
        self._profile = profile
        self._ends = np.full(profile.history, -1, np.int64)
        self._last: int | None = None

    def work(self, requests: Requests) -> Floats:
        offset = np.asarray(requests.offset, np.int64)
        if (offset < 0).any():
            raise UserError(
                "this profile is by offset and distance, and the trace has no offsets",
                do="use a profile by size",
            )
        if not len(offset):
            return np.empty(0)
        size = np.asarray(requests.size, np.int64)
        before = np.append(offset[0] if self._last is None else self._last, offset[:-1])
        distance = (offset - before).astype(np.float64)
        if self._last is None:
            distance[0] = np.inf
        ends = np.concatenate((self._ends, offset + size))
        sequential = np.zeros(len(offset), np.bool_)
        for back in range(1, self._profile.history + 1):
            place = len(self._ends) - back
            sequential |= offset == ends[place : place + len(offset)]
        self._ends, self._last = ends[len(ends) - len(self._ends) :], int(offset[-1])
        where = offset.astype(np.float64)
        costs = []
        for table in (self._profile.read, self._profile.write):
            base = np.where(sequential, 0.0, table.at(table.base, where, distance))
            costs.append(base + size / table.at(table.bandwidth, where, distance))
        return np.where(requests.read, costs[0], costs[1])


def _between(points: Floats, value: Floats) -> tuple[Integers, Floats]:
    """Return the point at or below each value, and the share of the way to the next point."""
    if len(points) == 1:
        return np.zeros(len(value), np.int64), np.zeros(len(value))
    held = np.clip(value, points[0], points[-1])
    index = np.clip(np.searchsorted(points, held, side="right") - 1, 0, len(points) - 2)
    share: Floats = (held - points[index]) / (points[index + 1] - points[index])
    return index.astype(np.int64), share


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
class _WithOverhead:
    estimator: WorkEstimator
    request: float

    def work(self, requests: Requests) -> Floats:
        found: Floats = self.estimator.work(requests) + self.request
        return found


@dataclass(frozen=True)
class StageCosts:
    """Inputs to estimate every stage: a device's profile and the network's."""

    storage: StorageProfile | None
    network: NetworkCost = NetworkCost()
    overhead: Overhead = Overhead()

    def estimator(self, stage: str) -> WorkEstimator:
        """Return a fresh estimator of a stage.

        Raises:
            UserError: there is no such stage, or the storage stage has no profile.
        """
        if stage not in STAGES:
            raise not_allowed("stage", stage, ", ".join(STAGES))
        if stage != "storage":
            return NetworkEstimator(self.network, inwards=stage == "network-in")
        if self.storage is None:
            raise UserError("the storage stage needs a device's profile", do="give --profile FILE")
        found = self.storage.estimator()
        return _WithOverhead(found, self.overhead.request) if self.overhead.request > 0 else found


def estimate(estimator: WorkEstimator, blocks: Sequence[Requests]) -> Floats:
    """Return the work of all requests of a trace given in blocks."""
    return np.concatenate([estimator.work(block) for block in blocks] or [np.empty(0)])
