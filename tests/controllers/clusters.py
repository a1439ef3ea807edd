"""Hypothesis strategies and small helpers for the controllers' tests."""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from operator import add
from random import Random
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st

from controllers.contract import LoopPolicy
from testbed.stores.contract import Observation, Osd, OsdLatency, Pg
from tests.testbed.fake_store import FakeStore

PERCENT = st.floats(0, 100)
HOT = {osd: 97.0 if osd < 4 else 5.0 for osd in range(8)}
CALM = dict.fromkeys(range(8), 5.0)
SLOW, QUICK = OsdLatency(40, 0.75), OsdLatency(200, 0.1)
LATENCY = {osd: SLOW if osd < 4 else QUICK for osd in range(8)}
"""Pressures of eight OSDs of which four are hot or none is, and the latencies of the former."""


@st.composite
def observations(draw: st.DrawFn, max_osds: int = 10, max_pgs: int = 60) -> Observation:
    """Draw a cluster with any pressures, replica sets, primaries, and PGs of any size.

    A seed draws each PG: dozens of single choices took most of the tests' time.
    """
    count = draw(st.integers(2, max_osds))
    osds = tuple(Osd(i, f"n{i}", up=draw(st.booleans()) or i < 2) for i in range(count))
    size = draw(st.integers(1, min(3, count)))
    seed = Random(draw(st.integers(0, 1 << 32)))
    sets = [tuple(seed.sample(range(count), size)) for _ in range(draw(st.integers(1, 60)))]
    pgs = []
    for number in range(draw(st.integers(0, max_pgs))):
        up = seed.choice(sets)
        acting = up if seed.randrange(10) else tuple(reversed(up))
        pgs.append(Pg(f"1.{number:x}", up, acting, bytes=seed.randrange(1 << 30)))
    pressure = {i: draw(PERCENT) for i in range(count) if draw(st.integers(0, 9))}
    return Observation(0, 20, pressure=pressure, osds=osds, pgs=tuple(pgs))


@contextmanager
def python_3_12() -> Iterator[None]:
    """Let `sum` add floats with compensation, as it does from Python 3.12 on: nodes may have
    another Python than the machine that replays their decisions."""

    def compensated(values: Iterable[Any], /, start: Any = 0) -> Any:
        given = [start, *values]
        floats = any(isinstance(one, float) for one in given)
        return math.fsum(given) if floats else reduce(add, given)

    with patch.object(builtins, "sum", compensated):
        yield


def settle(policy: LoopPolicy, store: FakeStore, steps: int) -> list[int]:
    """Let `policy` steer `store` and return the number of actions per step."""
    state = policy.initial()
    counts = []
    for _ in range(steps):
        state, actions = policy.decide(state, store.sense(policy.needs.senses))
        store.act(actions)
        counts.append(len(actions))
    return counts
