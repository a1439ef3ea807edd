"""Bounds of queues loaded to exactly 100 % by mean rates: finite, because bursts are finite."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from controllers.prioritymeister import lp
from controllers.prioritymeister.limiters import Limiters
from controllers.prioritymeister.plan import PlannedWorkload, make_plan
from controllers.prioritymeister.system import QueueFlow, System

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
def test_a_full_queue_has_the_bound_that_fuller_and_fuller_ones_come_to(name: str) -> None:
    paths, rates = FULL[name]
    everybody = np.ones(len(paths), bool)
    full, nearly = system(paths, rates), system(paths, rates, 1 - 1e-7)
    assert max(full.load(queue) for queue in range(len(full.bandwidth))) == pytest.approx(1.0)
    for flow in range(len(paths)):
        bound = full.bound(flow, everybody)
        assert bound == pytest.approx(nearly.bound(flow, everybody), rel=1e-4)
        assert bound >= nearly.bound(flow, everybody) * (1 - 1e-9)


@pytest.mark.parametrize("name", ["one queue", "two queues", "two queues, halves"])
def test_it_is_the_linear_programs(name: str) -> None:
    paths, rates = FULL[name]
    everybody, full = np.ones(len(paths), bool), system(paths, rates)
    for flow in range(len(paths)):
        exact = lp.bound(full, flow, everybody)
        assert full.bound(flow, everybody) == pytest.approx(exact, rel=1e-6)


def test_what_is_above_100_percent_has_none() -> None:
    paths, rates = FULL["two queues"]
    above = system(paths, rates, 1 + 1e-6)
    assert above.bound(0, np.ones(4, bool)) == float("inf")


def test_a_plan_of_full_links_has_bounds() -> None:
    links = ("c->switch", "switch->s")
    tenants = [
        PlannedWorkload(
            name=f"w{index}",
            slo_s=100.0,
            routes={"network-in": links},
            limiters={"network-in": Limiters(np.array([rate]), np.array([1.0]), 0.0)},
            largest={"network-in": 0.5},
        )
        for index, rate in enumerate([0.1, 0.2, 0.7])
    ]
    plan = make_plan(tenants, dict.fromkeys(links, 1.0))
    assert plan.met
    assert [queue.load for queue in plan.queues] == pytest.approx([1.0, 1.0])
    assert all(np.isfinite(w.bound_blocking) for w in plan.workloads)
