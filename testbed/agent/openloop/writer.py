"""Writer that sends a plan's writes when they are due and keeps the books, whatever the store does.

One thread sends and reports. The store's own thread calls back when a write is done, and only notes
the time. Clock and waiting are parameters, so that tests run everything on virtual time.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from testbed.agent.openloop.plan import Arrival

# ----------------------------------------------------------------------------------------------
# Histogram of latencies with buckets that grow with the value, as in HdrHistogram.
#
# A value is counted in whole microseconds, in a bucket at most 1/128 of the value wide. So
# quantiles are exact to 0.8 %, from microseconds to hours, in a few hundred counts.

_BITS = 7
_SUB = 1 << _BITS


def bucket_of(microseconds: int) -> int:
    """Return the bucket of a value of at least 0."""
    shift = max(0, microseconds.bit_length() - _BITS - 1)
    return shift * _SUB + (microseconds >> shift)


def bounds_us(bucket: int) -> tuple[int, int]:
    """Return the first value (microseconds) of a bucket and the first value above the bucket."""
    shift = max(0, bucket // _SUB - 1)
    low = (bucket - shift * _SUB) << shift
    return low, low + (1 << shift)


@dataclass
class Histogram:
    """Counts by bucket. Sum and extremes (seconds) are exact."""

    counts: dict[int, int] = field(default_factory=dict)
    total: int = 0
    sum_s: float = 0.0
    min_s: float = math.inf
    max_s: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one value; a negative value (clocks) counts as 0."""
        value = max(0.0, seconds)
        bucket = bucket_of(int(value * 1e6))
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.total += 1
        self.sum_s += value
        self.min_s = min(self.min_s, value)
        self.max_s = max(self.max_s, value)

    @property
    def mean_s(self) -> float | None:
        """The mean; None if nothing was counted."""
        return self.sum_s / self.total if self.total else None

    def quantile_s(self, share: float) -> float | None:
        """Return the smallest value with at least `share` (0 to 1) of all at or below it: the
        middle of its bucket, within the seen extremes. None if nothing was counted."""
        if not self.total:
            return None
        wanted, seen = max(1, math.ceil(share * self.total - 1e-9)), 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= wanted:
                low, high = bounds_us(bucket)
                return min(self.max_s, max(self.min_s, (low + high) / 2e6))
        raise AssertionError("the counts do not add up to their total")

    def to_json(self) -> dict[str, object]:
        """Return the histogram as JSON-able data."""
        return {
            "counts": {str(bucket): count for bucket, count in sorted(self.counts.items())},
            "sum_s": self.sum_s,
            "min_s": self.min_s if self.total else None,
            "max_s": self.max_s if self.total else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Histogram:
        """Invert `to_json`; raise ValueError for anything else."""
        try:
            counts = {int(bucket): int(n) for bucket, n in dict(data["counts"]).items()}  # type: ignore[call-overload]
            low, high = data["min_s"], data["max_s"]
            return cls(
                counts=counts,
                total=sum(counts.values()),
                sum_s=float(data["sum_s"]),  # type: ignore[arg-type]
                min_s=math.inf if low is None else float(low),  # type: ignore[arg-type]
                max_s=0.0 if high is None else float(high),  # type: ignore[arg-type]
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a histogram: {error}") from error


def merged(parts: Iterable[Histogram]) -> Histogram:
    """Return one histogram with all counts of `parts`."""
    whole = Histogram()
    for part in parts:
        for bucket, count in part.counts.items():
            whole.counts[bucket] = whole.counts.get(bucket, 0) + count
        whole.total += part.total
        whole.sum_s += part.sum_s
        whole.min_s = min(whole.min_s, part.min_s)
        whole.max_s = max(whole.max_s, part.max_s)
    return whole


LATE_S = 0.010
"""A write counts as late if it leaves the client later than this after its intended start."""


class Sender(Protocol):
    """Destination of the writes."""

    def send(self, pgid: str, number: int, done: Callable[[int], None]) -> None:
        """Start to write object `number` of a PG. `done` gets 0 or a negative errno, from any
        thread. Must not block."""


class Waiter(Protocol):
    """Time, and waiting for it."""

    def now(self) -> float:
        """Return seconds, monotonic."""

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or as soon as `wake` was called since the last wait."""

    def wake(self) -> None:
        """End the wait, from any thread."""


@dataclass
class PgBooks:
    """Counts and latencies of one PG's writes."""

    intended: int = 0
    done: int = 0
    failed: int = 0
    latencies: Histogram = field(default_factory=Histogram)


@dataclass
class _WriterSecond:
    """Counts of one second of the load."""

    intended: int = 0
    sent: int = 0
    done: int = 0
    failed: int = 0
    latency_sum_s: float = 0.0
    latency_max_s: float = 0.0


class Writer:
    """One load. Call `run` once.

    Args:
        schedule: all arrivals, in order.
        duration_s, drain_s: time in which writes arrive, and time for writes then in flight to end.
        max_in_flight: limit of writes at the store; further writes are held back here.
        emit: gets a mapping each second (see `workloads.open_loop.OpenLoopResult.series`).
        keep: True to keep every request for the summary.
    """

    def __init__(
        self,
        schedule: Iterable[Arrival],
        sender: Sender,
        waiter: Waiter,
        *,
        duration_s: float,
        drain_s: float,
        max_in_flight: int,
        emit: Callable[[dict[str, Any]], None],
        keep: bool = False,
    ) -> None:
        self._schedule, self._sender, self._waiter = iter(schedule), sender, waiter
        self._duration_s, self._drain_s = duration_s, drain_s
        self._most, self._emit, self._keep = max_in_flight, emit, keep
        self._start = 0.0
        self._pgs: dict[str, PgBooks] = {}
        self._seconds: dict[int, _WriterSecond] = {}
        self._answers: deque[tuple[int, float, int]] = deque()  # filled by the store's thread
        self._open: dict[int, tuple[float, str]] = {}  # by number: intended start, PG
        self._oldest: list[tuple[float, int]] = []  # heap over _open, pruned when it is read
        self._held: deque[tuple[int, Arrival]] = deque()
        self._requests: list[list[Any]] = []
        self._errors: Counter[int] = Counter()
        self._count = self._in_flight = self._reported = 0
        self._late = self._held_back = 0
        self._late_max_s = 0.0

    def run(self) -> dict[str, Any]:
        """Carry out the whole load; return the summary."""
        self._start = self._waiter.now()
        due = next(self._schedule, None)
        while True:
            now = self._elapsed()
            self._take_answers()
            while due is not None and due[0] <= now:
                self._report(due[0])  # report a finished second before later arrivals
                self._arrive(due)
                due = next(self._schedule, None)
            self._report(now)
            if due is None and now >= self._duration_s:
                nothing_left = not self._open and not self._answers
                if nothing_left or now >= self._duration_s + self._drain_s:
                    break
            # An answer that came before the wait has woken nobody.
            if not (self._answers and self._waits_for_answers()):
                self._waiter.wait(max(0.0, self._next_event(due, now) - self._elapsed()))
        self._take_answers()
        self._report(math.inf)
        return self._summary()

    def _next_event(self, due: Arrival | None, now: float) -> float:
        """Return the latest time of the next check: an arrival, a second's end, or the end."""
        end = self._duration_s + (self._drain_s if now >= self._duration_s else 0.0)
        following = min(end, float(self._reported + 1))
        return following if due is None else min(following, due[0])

    def _elapsed(self) -> float:
        return self._waiter.now() - self._start

    def _second(self, at: float) -> _WriterSecond:
        # Each second is reported once: an answer that is noted late counts in the next second.
        return self._seconds.setdefault(max(int(at), self._reported), _WriterSecond())

    def _arrive(self, arrival: Arrival) -> None:
        at, pgid, _ = arrival
        number, self._count = self._count, self._count + 1
        self._open[number] = (at, pgid)
        heapq.heappush(self._oldest, (at, number))
        self._pgs.setdefault(pgid, PgBooks()).intended += 1
        self._second(at).intended += 1
        if self._keep:
            self._requests.append([round(at, 6), None, pgid])
        if self._in_flight >= self._most:
            self._held_back += 1
            self._held.append((number, arrival))
        else:
            self._send(number, arrival)

    def _send(self, number: int, arrival: Arrival) -> None:
        at, pgid, place = arrival
        sent = self._elapsed()
        self._in_flight += 1
        self._second(sent).sent += 1
        if sent - at > LATE_S:
            self._late += 1
            self._late_max_s = max(self._late_max_s, sent - at)

        def done(code: int) -> None:
            self._answers.append((number, self._waiter.now(), code))
            if self._waits_for_answers():
                self._waiter.wake()

        self._sender.send(pgid, place, done)

    def _waits_for_answers(self) -> bool:
        """Return True if an answer allows an action: sending a held write, or ending."""
        return bool(self._held) or self._elapsed() >= self._duration_s

    def _take_answers(self) -> None:
        while self._answers:
            number, when, code = self._answers.popleft()
            at, pgid = self._open.pop(number)
            self._in_flight -= 1
            ended = when - self._start
            second, books = self._second(ended), self._pgs[pgid]
            if code < 0:
                books.failed += 1
                second.failed += 1
                self._errors[code] += 1
                continue
            latency = max(0.0, ended - at)
            books.done += 1
            books.latencies.add(latency)
            second.done += 1
            second.latency_sum_s += latency
            second.latency_max_s = max(second.latency_max_s, latency)
            if self._keep:
                self._requests[number][1] = round(latency, 6)
        while self._held and self._in_flight < self._most:
            self._send(*self._held.popleft())

    def _report(self, now: float) -> None:
        """Report every finished second; at the end (`now` infinite) the unfinished one too."""
        last = int(now) if math.isfinite(now) else max(self._seconds, default=-1) + 1
        while self._reported < last:
            row = self._seconds.pop(self._reported, None) or _WriterSecond()
            self._reported += 1
            # At the time of the report, slightly after the second's end.
            open_now, oldest = self._outstanding_since()
            self._emit(
                {
                    "t_s": float(self._reported),
                    "intended": row.intended,
                    "sent": row.sent,
                    "done": row.done,
                    "failed": row.failed,
                    "latency_mean_s": row.latency_sum_s / row.done if row.done else None,
                    "latency_max_s": row.latency_max_s if row.done else None,
                    "outstanding": open_now,
                    "oldest_s": None if oldest is None else max(0.0, self._elapsed() - oldest),
                }
            )

    def _outstanding_since(self) -> tuple[int, float | None]:
        """Return the number of unfinished writes, and the intended start of the oldest one."""
        while self._oldest and self._oldest[0][1] not in self._open:
            heapq.heappop(self._oldest)
        return len(self._open), self._oldest[0][0] if self._oldest else None

    def _summary(self) -> dict[str, Any]:
        now, ages = self._elapsed(), Histogram()
        outstanding: Counter[str] = Counter()
        for _, (at, _, _) in self._held:  # never sent
            self._late += 1
            self._late_max_s = max(self._late_max_s, now - at)
        for at, pgid in self._open.values():
            ages.add(now - at)
            outstanding[pgid] += 1
        names = {pgid: place for place, pgid in enumerate(self._pgs)}
        summary: dict[str, Any] = {
            "intended": self._count,
            "done": sum(books.done for books in self._pgs.values()),
            "failed": sum(books.failed for books in self._pgs.values()),
            "outstanding": len(self._open),
            "late": self._late,
            "late_max_s": self._late_max_s,
            "held": self._held_back,
            "errors": [f"errno {-code}: {count} writes" for code, count in self._errors.items()],
            "ages": ages.to_json(),
            "pgs": {
                pgid: {
                    "intended": books.intended,
                    "done": books.done,
                    "failed": books.failed,
                    "outstanding": outstanding[pgid],
                    "histogram": books.latencies.to_json(),
                }
                for pgid, books in self._pgs.items()
            },
        }
        if self._keep:
            summary["requests"] = [[at, took, names[pgid]] for at, took, pgid in self._requests]
        return summary
