"""Closed-form latency bound compared with the paper's linear program and with simulation, on one
queue, on two, and on longer paths."""

from __future__ import annotations

import heapq
import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.prioritymeister.network_calculus import QueueFlow, System
from schemas.errors import UserError
from tests.controllers.prioritymeister import linear_program as lp
from tests.errors import raises

pytestmark = pytest.mark.slow  # linear programmes

Random = np.random.Generator


def concave(random: Random, buckets: int, share: float) -> tuple[npt.NDArray[np.float64], ...]:
    """Return token buckets with a slowest rate of `share`."""
    rates = share * np.cumprod(np.append(1.0, random.uniform(1.2, 6, buckets - 1)))[::-1]
    bursts = np.cumprod(np.append(random.uniform(0.01, 1), random.uniform(1.05, 5, buckets - 1)))
    return rates, bursts


def two_hops(seed: int, load: float = 0.9, *, late: bool = False) -> System:
    """Return queues 0-2 that feed 3 and 4; some flows end at a feeder or begin at the second layer.
    With `late`, queues lag behind."""
    random = np.random.default_rng(seed)
    count = int(random.integers(2, 9))
    paths = [(0, 3), (0, 3), (1, 3), (1, 4), (2, 3), (0,), (0, 4), (2,), (1,)]
    chosen = [(0, 3), *(paths[int(random.integers(len(paths)))] for _ in range(count - 1))]
    shares = random.uniform(0.2, 1, count)
    shares *= load / shares.sum()
    flows = [
        QueueFlow(path, *concave(random, int(random.integers(1, 5)), share))
        for path, share in zip(chosen, shares, strict=True)
    ]
    bandwidth = [*random.uniform(1, 2, 3), *random.uniform(1, 3, 2)]
    lags = (random.uniform(0, 2, 5) * (random.random(5) < 0.7)).tolist() if late else ()
    return System(bandwidth, flows, lags=lags)


@pytest.mark.parametrize("lag", [0.0, 0.7])
@pytest.mark.parametrize("seed", range(12))
def test_one_queue_is_the_linear_program(seed: int, lag: float) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 7))
    shares = random.uniform(0.1, 1, count)
    shares *= random.uniform(0.2, 0.97) / shares.sum()
    flows = [
        QueueFlow((0,), *concave(random, int(random.integers(1, 9)), share)) for share in shares
    ]
    system = System([1.0], flows, lags=[lag])
    for flow in range(count):
        others = random.random(count) < 0.7
        exact = lp.bound(system, flow, others)
        assert system.bound(flow, others) == pytest.approx(exact, rel=1e-9)


@given(st.integers(0, 2**32), st.booleans())
@settings(max_examples=40, deadline=None)
def test_any_two_queues_are_the_linear_program(seed: int, late: bool) -> None:
    """The cases vary load, sharing and burstiness."""
    random = np.random.default_rng(seed)
    system = two_hops(seed, load=float(random.uniform(0.3, 0.999)), late=late)
    others = random.random(len(system.flows)) < 0.8
    assert system.bound(0, others) == pytest.approx(lp.bound(system, 0, others), rel=1e-6)


@pytest.mark.parametrize("seed", [234, 592, 2750])
def test_the_first_queue_is_not_backlogged_for_longer_than_it_has_work(seed: int) -> None:
    """The linear program uses this fact. The usual service curve of a path does not: its bounds of
    these systems are an eighth too large."""
    system = two_hops(seed)
    others = np.ones(len(system.flows), bool)
    exact = lp.bound(system, 0, others)
    assert system.bound(0, others) == pytest.approx(exact, rel=1e-7)


def test_overload_has_no_bound() -> None:
    flows = [QueueFlow((0,), np.array([0.6]), np.array([1.0])) for _ in range(2)]
    system = System([1.0], flows)
    both = np.ones(2, bool)
    assert system.bound(0, both) == float("inf") == lp.bound(system, 0, both)
    assert system.bound(0, np.zeros(2, bool)) == pytest.approx(1.0)
    assert system.load(0) == pytest.approx(1.2)


def test_a_cycle_of_queues_is_refused() -> None:
    paths = [(0, 1), (1, 2), (2, 0)]
    flows = [QueueFlow(path, np.array([0.1]), np.array([1.0])) for path in paths]
    with raises(UserError, "cycle of queues"):
        System([1.0] * 3, flows, ["a", "b", "c"])


def simulate(
    arrivals: list[list[tuple[float, float]]],
    paths: list[tuple[int, ...]],
    bandwidth: list[float],
    priority: list[int],
) -> list[float]:
    """Simulate whole requests through non-preemptive queues; return each flow's largest latency."""
    count = itertools.count()
    events: list[tuple[float, int, int, float, float, int]] = []
    for flow, requests in enumerate(arrivals):
        for t, work in requests:
            heapq.heappush(events, (t, next(count), flow, work, t, 0))
    waiting: list[list[tuple[int, int, int, float, float, int]]] = [[] for _ in bandwidth]
    free = [0.0] * len(bandwidth)
    worst = [0.0] * len(paths)
    while events or any(waiting):
        now = min([e[0] for e in events[:1]] + [free[q] for q, w in enumerate(waiting) if w])
        while events and events[0][0] <= now:
            _, order, flow, work, born, hop = heapq.heappop(events)
            queue = paths[flow][hop]
            free[queue] = max(free[queue], now)
            heapq.heappush(waiting[queue], (priority[flow], order, flow, work, born, hop))
        for queue, line in enumerate(waiting):
            if line and free[queue] <= now:
                _, _, flow, work, born, hop = heapq.heappop(line)
                free[queue] = now + work / bandwidth[queue]
                if hop + 1 < len(paths[flow]):
                    heapq.heappush(events, (free[queue], next(count), flow, work, born, hop + 1))
                else:
                    worst[flow] = max(worst[flow], free[queue] - born)
    return worst


def test_no_simulated_burst_over_two_switches_waits_longer_than_the_bound() -> None:
    """Pieces arrive as early as buckets allow, from several start times. Queues 0 to 2 are sender
    links, 3 and 4 the trunk in each direction, 5 to 7 receiver links."""
    paths = [(0, 3, 5), (1, 3, 5), (0, 3, 6), (1, 3, 6), (2, 6), (2, 4, 7), (1, 7)]
    bandwidth, share = [1.0, 1.0, 1.0, 1.5, 1.0, 1.0, 1.0, 1.0], 0.15
    tightest = 0.0
    for seed in range(8):
        random = np.random.default_rng(seed)
        size = random.choice([0.3, 0.5, 1.0], len(paths))
        bursts = size * random.integers(1, 6, len(paths))
        flows = [
            QueueFlow(path, np.array([share]), np.array([burst]), float(piece))
            for path, burst, piece in zip(paths, bursts, size, strict=True)
        ]
        system, priority = System(bandwidth, flows), random.integers(0, 5, len(paths)).tolist()
        others = [np.array([p <= mine for p in priority]) for mine in priority]
        bounds = [system.bound(k, mask, blocking=True) for k, mask in enumerate(others)]
        for _ in range(6):
            begins = random.uniform(0, max(bounds) / 2, len(paths)) * (random.random(7) < 0.3)
            arrivals = []
            for begin, burst, piece in zip(begins, bursts, size, strict=True):
                sent = np.arange(piece, burst + 15 * share, piece)
                times = begin + np.maximum(0, sent - burst) / share
                arrivals.append([(float(t), float(piece)) for t in times])
            for latency, bound in zip(
                simulate(arrivals, paths, bandwidth, priority), bounds, strict=True
            ):
                assert latency <= bound * (1 + 1e-9)
                tightest = max(tightest, latency / bound)
    assert tightest > 0.9  # otherwise the test is too weak


# Paths of three and more queues, as across several switches.


TRUNK = ((0, 3, 4), (1, 3, 4), (2, 3, 4), (0, 3, 4))
"""Clients on one switch, a server on another: links of clients, the trunk, the server's link."""
BACK = ((4, 3, 0), (4, 3, 1), (4, 3, 2), (4, 3, 0))
"""Replies to these clients."""
SERVERS = ((4, 3, 0), (5, 3, 0), (4, 3, 1), (5, 3, 1), (4, 3, 2), (4, 3, 0), (5, 3, 2))
"""Replies of two servers: replies of one server and replies to one client cross."""
CROSSING = ((0, 1, 2, 3), (4, 0, 1), (1, 2), (5, 2, 3), (0, 1, 2), (2,), (0, 1, 2, 3))


def long_paths(paths: tuple[tuple[int, ...], ...], seed: int, load: float, late: bool) -> System:
    random = np.random.default_rng(seed)
    shares = random.uniform(0.1, 1, len(paths))
    shares *= load / shares.sum()
    flows = []
    for path, share in zip(paths, shares, strict=True):
        rates = share * np.array([random.uniform(2, 8), 1.0])
        flows.append(QueueFlow(path, rates, np.cumsum(random.uniform(0.05, 2, 2)), 0.05))
    queues = 1 + max(max(path) for path in paths)
    lags = random.uniform(0, 1, queues).tolist() if late else ()
    return System(random.uniform(1, 2, queues).tolist(), flows, lags=lags)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("paths", [TRUNK, BACK, SERVERS, CROSSING])
def test_the_bound_is_never_below_the_linear_program(
    paths: tuple[tuple[int, ...], ...], late: bool
) -> None:
    for seed in range(8):
        made = long_paths(paths, seed, load=[0.3, 0.9][seed % 2], late=late)
        others = np.random.default_rng(seed).random(len(paths)) < 0.8
        exact = lp.bound(made, 0, others)
        assert made.bound(0, others) >= exact * (1 - 1e-7)
        assert made.bound(0, others, blocking=True) >= made.bound(0, others)


@pytest.mark.parametrize("paths", [TRUNK, BACK])
def test_a_burst_is_met_once_on_a_trunk_and_the_link_behind_it(
    paths: tuple[tuple[int, ...], ...],
) -> None:
    """Three others of burst 9 share two queues with a flow of burst 1. Subtracted at each queue,
    the bursts would count twice."""
    bursts = (1.0, 9.0, 9.0, 9.0)
    flows = [
        QueueFlow(p, np.array([0.01]), np.array([b])) for p, b in zip(paths, bursts, strict=True)
    ]
    made, everybody = System([1.0] * 5, flows), np.ones(4, bool)
    exact = lp.bound(made, 0, everybody)
    assert exact < 31
    assert made.bound(0, everybody) == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("seed", [9, 11])
def test_of_two_ways_to_cut_stretches_the_better_one_counts(seed: int) -> None:
    """The first cut alone gives bounds 45 and 49 % above the program's."""
    made, everybody = long_paths(SERVERS, seed, load=0.9, late=False), np.ones(len(SERVERS), bool)
    assert made.bound(0, everybody) < 1.25 * lp.bound(made, 0, everybody)
