"""Prioritizer compared with exhaustive search, levels compared with all cuts of an order, and
queues loaded to exactly 100 %."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from controllers.prioritymeister.limiters import Limiters
from controllers.prioritymeister.network_calculus import QueueFlow, System
from controllers.prioritymeister.prioritizer import (
    Goal,
    PlannedWorkload,
    PriorityPlan,
    Stop,
    levels,
    make_plan,
    prioritize,
)
from schemas.errors import UserError
from tests.controllers.prioritymeister import linear_program as lp
from tests.errors import raises


def one_queue(rates: list[float], bursts: list[float]) -> System:
    flows = [
        QueueFlow((0,), np.array([r]), np.array([b])) for r, b in zip(rates, bursts, strict=True)
    ]
    return System([1.0], flows)


def random_case(seed: int) -> tuple[System, list[Goal]]:
    random = np.random.default_rng(seed)
    n = int(random.integers(2, 6))
    rates = random.uniform(0.1, 1, n)
    rates *= 0.8 / rates.sum()
    system = one_queue(rates.tolist(), random.uniform(0.1, 2, n).tolist())
    slos = random.uniform(0.5, 12, n)
    return system, [Goal(float(s), (Stop("storage", 0, k),)) for k, s in enumerate(slos)]


def feasible(system: System, goals: list[Goal]) -> bool:
    """Return True if at least one order meets all SLOs."""
    for order in itertools.permutations(range(len(goals))):
        above = np.zeros(len(goals), bool)
        for w in order:
            if system.bound(w, above) > goals[w].slo_s:
                break
            above[w] = True
        else:
            return True
    return False


@pytest.mark.parametrize("seed", range(40))
def test_greedy_finds_an_order_where_there_is_one(seed: int) -> None:
    system, goals = random_case(seed)
    order = prioritize([system], goals)
    assert bool(order.met.all()) == feasible(system, goals)
    ranks = order.ranks[0]
    assert sorted(ranks.tolist()) == list(range(len(goals)))
    for w, goal in enumerate(goals):
        bound = system.bound(w, ranks < ranks[w])
        assert (bound <= goal.slo_s) == bool(order.met[w])


def test_stages_may_have_different_priorities() -> None:
    """Two workloads meet at both stages; each can be second at only one stage."""
    storage = one_queue([0.1, 0.1], [1.0, 4.0])
    network = one_queue([0.1, 0.1], [4.0, 1.0])
    # Alone they take 1 + 4 and 4 + 1; second at a stage takes 5 / 0.9.
    goals = [
        Goal(6.8, (Stop("storage", 0, 0), Stop("network-in", 1, 0))),
        Goal(7.0, (Stop("storage", 0, 1), Stop("network-in", 1, 1))),
    ]
    for same in ([0, 1], [1, 0]):  # one order for both stages fails
        last = same[1]
        both = np.ones(2, bool)
        assert storage.bound(last, both) + network.bound(last, both) > goals[last].slo_s
    order = prioritize([storage, network], goals)
    first = [int(ranks.argmin()) for ranks in order.ranks]
    assert first[0] != first[1]


def by_the_text(systems: Sequence[System], goals: Sequence[Goal]) -> dict[tuple[int, int], int]:
    """Return the round in which section 4.3 gives each (system, flow) its priority, lowest first.

    A round either gives the lowest priority to every workload that meets its SLO with it, or one
    stage of the workload with the smallest violation: its stage of the lowest latency.
    """
    remaining = [set(range(len(system.flows))) for system in systems]
    open_stops = {w: list(goal.stops) for w, goal in enumerate(goals)}
    decided = dict.fromkeys(range(len(goals)), 0.0)
    rounds: dict[tuple[int, int], int] = {}

    def latency(stop: Stop) -> float:
        others = np.zeros(len(systems[stop.system].flows), bool)
        others[sorted(remaining[stop.system])] = True
        return systems[stop.system].bound(stop.flow, others)

    def violation(w: int) -> float:
        return decided[w] + sum(latency(stop) for stop in open_stops[w]) - goals[w].slo_s

    def give(w: int, stop: Stop, number: int) -> None:
        decided[w] += latency(stop)
        remaining[stop.system].remove(stop.flow)
        open_stops[w].remove(stop)
        rounds[stop.system, stop.flow] = number

    for number in itertools.count():
        left = [w for w, stops in open_stops.items() if stops]
        if not left:
            return rounds
        fits = next((w for w in left if violation(w) <= 0), None)
        if fits is not None:
            for stop in list(open_stops[fits]):
                give(fits, stop, number)
            continue
        worst = min(left, key=violation)
        give(worst, min(open_stops[worst], key=latency), number)
    raise AssertionError


@pytest.mark.parametrize("seed", range(40))
def test_the_greedy_algorithm_is_the_texts(seed: int) -> None:
    """Section 4.3, both of its steps. Of several workloads that fit, any may go first, which
    changes nothing for the others."""
    random = np.random.default_rng(seed)
    n = int(random.integers(2, 6))
    systems = []
    for _ in range(2):
        rates = random.uniform(0.1, 1, n)
        rates *= random.uniform(0.3, 0.9) / rates.sum()
        systems.append(one_queue(rates.tolist(), random.uniform(0.1, 2, n).tolist()))
    slos = random.uniform(0.5, 8, n) * random.choice([0.05, 0.5, 1])
    goals = [
        Goal(float(s), (Stop("storage", 0, k), Stop("network-in", 1, k)))
        for k, s in enumerate(slos)
    ]
    found, rounds = prioritize(systems, goals), by_the_text(systems, goals)
    missing = [w for w in range(n) if not found.met[w]]
    for system, ranks in enumerate(found.ranks):
        given = [rounds[system, w] for w in sorted(missing, key=ranks.__getitem__, reverse=True)]
        assert given == sorted(given)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("count", [1, 2, 3])
def test_levels_are_the_best_cut_of_the_order(seed: int, count: int) -> None:
    random = np.random.default_rng(seed)
    n = 6
    rates = random.uniform(0.1, 1, n)
    system = one_queue((rates * 0.8 / rates.sum()).tolist(), random.uniform(0.1, 2, n).tolist())
    ranks, slos = random.permutation(n), random.uniform(0.5, 9, n)

    def cost(level: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
        return sum(system.bound(f, level <= level[f]) / slos[f] for f in range(n))

    found = levels(system, range(n), ranks, slos, count)
    assert len(set(found.tolist())) == count
    order = np.argsort(ranks)
    assert (np.diff(found[order]) >= 0).all()
    tried = []
    for cuts in itertools.combinations(range(1, n), count - 1):
        level = np.zeros(n, np.int64)
        for cut in cuts:
            level[order[cut:]] += 1
        tried.append(cost(level))
    assert cost(found) == pytest.approx(min(tried))


def tenant(name: str, slo: float, burst: float = 1.0, rate: float = 0.1) -> PlannedWorkload:
    limits = {
        "storage": Limiters(np.array([rate]), np.array([burst]), 0.0),
        "network-in": Limiters(np.array([100.0]), np.array([1000.0]), 0.1),
        "network-out": Limiters(np.array([100.0]), np.array([2000.0]), 0.2),
    }
    routes = {
        "network-in": (f"{name}->sw", "sw->s"),
        "storage": ("s:d",),
        "network-out": ("s->sw", f"sw->{name}"),
    }
    return PlannedWorkload(
        name, slo, routes, limits, {"storage": 0.5, "network-in": 9e3, "network-out": 9.0}
    )


def queues_of(*names: str, link: float = 1e6) -> dict[str, float]:
    """Return the bandwidth of a server's device and link, and of clients' links."""
    links = ["s->sw", "sw->s", *(f"{n}->sw" for n in names), *(f"sw->{n}" for n in names)]
    return {"s:d": 1.0} | dict.fromkeys(links, link)


def planned(count: int, **options: object) -> PriorityPlan:
    tenants = [tenant(f"c{k}", slo=1000.0 - k) for k in range(count)]
    queues = queues_of(*(one.name for one in tenants), link=1e4)
    return make_plan(tenants, queues, **options)  # type: ignore[arg-type]


def test_a_plan_has_every_stage() -> None:
    plan = planned(3)
    assert plan.met
    assert [w.name for w in plan.workloads] == ["c0", "c1", "c2"]
    for workload in plan.workloads:
        assert [s.stage for s in workload.stages] == ["network-in", "storage", "network-out"]
        assert workload.bound == pytest.approx(sum(s.bound for s in workload.stages))
        assert workload.bound_blocking > workload.bound
        assert workload.met == (workload.bound <= workload.slo)
    storage = [w.stages[1] for w in plan.workloads]
    assert sorted(s.priority for s in storage) == [1, 2, 3]
    assert storage[0].priority == 3  # the loosest SLO goes last
    assert all(s.level is None for s in storage)
    assert [s.pairs for s in storage] == [((0.1, 1.0),)] * 3
    highest = next(s for s in storage if s.priority == 1)
    assert highest.bound == pytest.approx(1.0)
    assert {q.queue for q in plan.queues} >= {"s:d", "s->sw", "sw->s", "c0->sw", "sw->c2"}


def test_what_a_bucket_lets_through_beyond_its_burst_is_in_bounds_only() -> None:
    """Alone on 10 kB/s, after an equally fast own link: at most 1000 bytes in, 2000 out."""
    usual, more = planned(1).workloads[0], planned(1, overshoot=500.0).workloads[0]
    rises = [b.bound - a.bound for a, b in zip(usual.stages, more.stages, strict=True)]
    assert rises == pytest.approx([500 / 1e4, 0.0, 500 / 1e4])
    assert [s.pairs for s in usual.stages] == [s.pairs for s in more.stages]
    assert more.bound_blocking - usual.bound_blocking == pytest.approx(0.1)


def test_more_workloads_than_levels_share_them() -> None:
    plan = planned(9, network_levels=3)
    for stage in (0, 2):
        found = [w.stages[stage].level for w in plan.workloads]
        assert set(found) == {1, 2, 3}
    free = planned(9, network_levels=None)
    assert sorted(w.stages[0].level or 0 for w in free.workloads) == list(range(1, 10))
    for tight, loose in zip(plan.workloads, free.workloads, strict=True):
        assert tight.bound >= loose.bound - 1e-12


def test_servers_that_share_no_link_have_all_levels_each() -> None:
    """Four in an order, two per server, on two levels: no workload has to share a level."""
    tenants = [tenant(name, slo=1000.0) for name in ("a0", "a1", "b0", "b1")]
    tenants[2:] = [
        replace(
            one,
            routes={
                "network-in": (f"{one.name}->sw", "sw->t"),
                "storage": ("t:d",),
                "network-out": ("t->sw", f"sw->{one.name}"),
            },
        )
        for one in tenants[2:]
    ]
    queues = {queue: 1e4 for one in tenants for route in one.routes.values() for queue in route}
    queues |= {"s:d": 1.0, "t:d": 1.0}
    order = [one.name for one in tenants]
    few = make_plan(tenants, queues, network_levels=2, order=order)
    assert [w.stages[0].level for w in few.workloads] == [1, 2, 1, 2]
    many = make_plan(tenants, queues, network_levels=None, order=order)
    assert [w.bound for w in few.workloads] == pytest.approx([w.bound for w in many.workloads])


def test_load_above_100_percent_is_refused() -> None:
    with raises(UserError, "110.0", "c0", "c1"):
        planned(11)
    assert planned(10).queues  # exactly 100 %
    little = [tenant("c0", slo=1000.0, rate=1.00001)]
    with raises(UserError, "100.001"):
        make_plan(little, queues_of("c0", link=1e4))


def test_a_device_that_may_lag_behind_has_later_bounds() -> None:
    tenants = [tenant("a", slo=1000.0), tenant("b", slo=999.0)]
    queues = queues_of(*"ab")
    plain = make_plan(tenants, queues)
    late = make_plan([replace(one, lag=0.5) for one in tenants], queues)
    for before, after in zip(plain.workloads, late.workloads, strict=True):
        assert [s.bound for s in before.stages[::2]] == [s.bound for s in after.stages[::2]]
    first, last = (w.stages[1] for w in late.workloads[::-1])
    assert first.bound == pytest.approx(1.0 + 0.5)
    assert first.bound_blocking == pytest.approx(1.0 + 0.5 + 0.5)  # one request of b, and the lag
    assert last.bound == pytest.approx((2.0 + 0.5) / 0.9)  # a continues to arrive meanwhile


def test_blocking_is_held_against_the_slo_where_asked() -> None:
    tenants = [tenant("a", slo=1.3), tenant("b", slo=1000.0)]
    queues = queues_of(*"ab")
    assert make_plan(tenants, queues).met
    strict = make_plan(tenants, queues, blocking=True)
    assert not strict.met
    assert not strict.workloads[0].met


# Queues loaded to exactly 100 % by mean rates: bounds are finite, because bursts are.


PATHS = ((0, 1), (0,), (2, 1), (0, 1))
FULL = {
    "one queue": ([(0,)] * 4, [0.1, 0.2, 0.3, 0.4]),
    "rounded above 1": ([(0,)] * 6, [0.1, 0.1, 0.1, 0.1, 0.1, 0.5]),
    "two queues": (PATHS, [0.3, 0.3, 0.3, 0.4]),
    "two queues, halves": (PATHS, [0.25, 0.25, 0.25, 0.5]),
    "three queues": ([(0, 1, 2), (0, 1), (1, 2), (2,)], [0.3, 0.3, 0.4, 0.3]),
}


def system(paths: Sequence[tuple[int, ...]], rates: Sequence[float], scale: float = 1.0) -> System:
    """Return flows with a fast bucket each, in addition to the bucket of the mean rate."""
    flows = [
        QueueFlow(path, scale * np.array([3 * rate, rate]), np.array([0.5, 1.0 + index]))
        for index, (path, rate) in enumerate(zip(paths, rates, strict=True))
    ]
    return System([1.0] * (1 + max(max(path) for path in paths)), flows)


@pytest.mark.parametrize("name", FULL)
def test_a_full_queue_has_the_limit_of_the_bounds_of_less_full_ones(name: str) -> None:
    paths, rates = FULL[name]
    everybody = np.ones(len(paths), bool)
    full, nearly = system(paths, rates), system(paths, rates, 1 - 1e-7)
    assert max(full.load(queue) for queue in range(len(full.bandwidth))) == pytest.approx(1.0)
    for flow in range(len(paths)):
        bound = full.bound(flow, everybody)
        assert bound == pytest.approx(nearly.bound(flow, everybody), rel=1e-4)
        assert bound >= nearly.bound(flow, everybody) * (1 - 1e-9)


@pytest.mark.parametrize("name", ["one queue", "two queues", "two queues, halves"])
def test_a_full_queues_bound_is_the_linear_programs(name: str) -> None:
    paths, rates = FULL[name]
    everybody, full = np.ones(len(paths), bool), system(paths, rates)
    for flow in range(len(paths)):
        exact = lp.bound(full, flow, everybody)
        assert full.bound(flow, everybody) == pytest.approx(exact, rel=1e-6)
