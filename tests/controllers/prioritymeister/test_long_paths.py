"""Bounds of paths of three and more queues, as across several switches, compared with the paper's
linear program."""

from __future__ import annotations

import numpy as np
import pytest

from controllers.prioritymeister.network_calculus import QueueFlow, System
from tests.controllers.prioritymeister import linear_program as lp

pytestmark = pytest.mark.slow  # linear programmes

TRUNK = ((0, 3, 4), (1, 3, 4), (2, 3, 4), (0, 3, 4))
"""Clients on one switch, a server on another: links of clients, the trunk, the server's link."""
BACK = ((4, 3, 0), (4, 3, 1), (4, 3, 2), (4, 3, 0))
"""Replies to these clients."""
SERVERS = ((4, 3, 0), (5, 3, 0), (4, 3, 1), (5, 3, 1), (4, 3, 2), (4, 3, 0), (5, 3, 2))
"""Replies of two servers: replies of one server and replies to one client cross."""
CROSSING = ((0, 1, 2, 3), (4, 0, 1), (1, 2), (5, 2, 3), (0, 1, 2), (2,), (0, 1, 2, 3))


def system(paths: tuple[tuple[int, ...], ...], seed: int, load: float, late: bool) -> System:
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
        made = system(paths, seed, load=[0.3, 0.9][seed % 2], late=late)
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
    made, everybody = system(SERVERS, seed, load=0.9, late=False), np.ones(len(SERVERS), bool)
    assert made.bound(0, everybody) < 1.25 * lp.bound(made, 0, everybody)
