"""Accounting of the open-loop writer, on virtual time, with stores that answer at any time."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.agent.openloop.plan import Arrival
from testbed.agent.openloop.writer import Histogram, Writer


class VirtualTime:
    """`Waiter`, and the store that answers while a caller waits."""

    def __init__(self) -> None:
        self.at = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._awake = False

    def now(self) -> float:
        return self.at

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (self.at + seconds, self._count, call))

    def wait(self, seconds: float) -> None:
        end = self.at + seconds
        while not self._awake and self._due and self._due[0][0] <= end:
            self.at, _, call = heapq.heappop(self._due)
            call()
        if not self._awake:
            self.at = max(self.at, end)
        self._awake = False

    def wake(self) -> None:
        self._awake = True


class Store:
    """Store that answers a write after `latency` (None: never) with `code`."""

    def __init__(self, time, latency, code=lambda pgid: 0):
        self._time, self._latency, self._code = time, latency, code
        self.sent: list[tuple[float, str, int]] = []
        self.in_flight = self.most = 0

    def send(self, pgid: str, number: int, done: Callable[[int], None]) -> None:
        self.sent.append((self._time.at, pgid, number))
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        takes = self._latency(pgid, len(self.sent))

        def answer() -> None:
            self.in_flight -= 1
            done(self._code(pgid))

        if takes == 0:
            answer()
        elif takes is not None:
            self._time.later(takes, answer)


def carry_out(
    schedule, latency, *, duration_s=10.0, drain_s=5.0, most=1000, keep=False, code=lambda pgid: 0
):
    time, rows = VirtualTime(), list[dict[str, Any]]()
    store = Store(time, latency, code)
    writer = Writer(
        schedule,
        store,
        time,
        duration_s=duration_s,
        drain_s=drain_s,
        max_in_flight=most,
        emit=rows.append,
        keep=keep,
    )
    return writer.run(), rows, store


def every(gap: float, until: float, pgid: str = "1.0") -> list[Arrival]:
    return [(n * gap, pgid, n % 3) for n in range(math.ceil(until / gap))]


def histogram(end: dict[str, Any], pgid: str = "1.0") -> Histogram:
    return Histogram.from_json(end["pgs"][pgid]["histogram"])


def test_a_store_that_stands_still_does_not_slow_its_load_down():
    # Other load generators would send 1 write here and report one slow request.
    end, rows, store = carry_out(every(0.1, 10.0), lambda pgid, n: None)
    assert len(store.sent) == 100
    assert (end["done"], end["outstanding"]) == (0, 100)
    assert [row["outstanding"] for row in rows[:10]] == [10 * n for n in range(1, 11)]
    assert [row["oldest_s"] for row in rows[:10]] == pytest.approx(list(range(1, 11)))
    assert all(row["latency_mean_s"] is None for row in rows)
    ages = Histogram.from_json(end["ages"])
    assert ages.total == 100
    assert ages.max_s == pytest.approx(15.0)
    assert ages.min_s == pytest.approx(15.0 - 9.9)


def test_latency_counts_from_the_intended_start_also_when_held_back():
    # One at a time, 0.3 s each, arriving every 0.1 s: the n-th ends 0.3 (n + 1) s after the start.
    end, _, store = carry_out(
        every(0.1, 1.0), lambda pgid, n: 0.3, duration_s=1.0, most=1, keep=True
    )
    assert store.most == 1
    assert (end["done"], end["held"], end["late"]) == (10, 9, 9)
    assert [took for _, took, _ in end["requests"]] == pytest.approx(
        [0.3 * (n + 1) - 0.1 * n for n in range(10)], abs=1e-5
    )
    assert end["late_max_s"] == pytest.approx(0.3 * 9 - 0.9)
    assert [at for at, _, _ in store.sent] == pytest.approx([0.3 * n for n in range(10)])


def test_failures_are_counted_apart_with_their_reason():
    both = sorted(every(0.5, 2.0, "1.0") + every(0.5, 2.0, "1.1"))
    end, rows, _ = carry_out(
        both,
        lambda pgid, n: 0.1,
        duration_s=2.0,
        code=lambda pgid: -28 if pgid == "1.1" else 0,
    )
    assert (end["done"], end["failed"], end["outstanding"]) == (4, 4, 0)
    assert end["errors"] == ["errno 28: 4 writes"]
    assert histogram(end, "1.1").total == 0
    assert sum(row["failed"] for row in rows) == 4


ARRIVALS = st.lists(
    st.tuples(st.floats(0, 4.999), st.sampled_from(["1.0", "1.1"]), st.integers(0, 2)), max_size=40
).map(sorted)


@given(
    ARRIVALS,
    st.lists(st.one_of(st.none(), st.floats(0, 8)), min_size=1, max_size=10),
    st.integers(1, 6),
    st.floats(0, 4),
)
@settings(max_examples=50)
def test_nothing_is_lost_from_the_books(schedule, latencies, most, drain_s):
    end, rows, store = carry_out(
        schedule,
        lambda pgid, n: latencies[n % len(latencies)],
        duration_s=5.0,
        drain_s=drain_s,
        most=most,
        keep=True,
    )
    assert store.most <= most
    assert end["intended"] == len(schedule) == sum(row["intended"] for row in rows)
    assert end["done"] + end["outstanding"] == len(schedule)
    assert sum(row["done"] for row in rows) == end["done"]
    assert sum(row["sent"] for row in rows) == len(store.sent)
    assert sum(one["outstanding"] for one in end["pgs"].values()) == end["outstanding"]
    assert [row["t_s"] for row in rows] == [float(n + 1) for n in range(len(rows))]
    assert Histogram.from_json(end["ages"]).total == end["outstanding"]
    took = [latency for _, latency, _ in end["requests"] if latency is not None]
    assert len(took) == end["done"]
    names = list(end["pgs"])
    assert [(at, names[pg]) for at, _, pg in end["requests"]] == [
        (round(at, 6), pgid) for at, pgid, _ in schedule
    ]
    # Requests are sent in the order of intended starts, never earlier.
    assert [(pgid, n) for _, pgid, n in store.sent] == [
        (pgid, n) for _, pgid, n in schedule[: len(store.sent)]
    ]
    for (sent, _, _), (at, _, _) in zip(store.sent, schedule, strict=False):
        assert sent >= at - 1e-9
