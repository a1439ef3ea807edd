"""Maximum lag of a server behind its charges, from rounds of made-up requests."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from campaigns.papers.prioritymeister.live.profiles import MORE, allowed, slower, table_of

Floats = npt.NDArray[np.float64]

ROUNDS, RUN = 6, 6
"""Rounds, and rounds in the length of a run."""
PER_S = 100


def lag(random: np.random.Generator, seconds: float, charged: float) -> float:
    """Return the maximum lag of a server that is never idle. Its requests take 10 ms on average,
    with a deviation of 2 ms."""
    took = random.normal(0.01, 0.002, round(seconds * PER_S))
    behind = np.cumsum(took - charged)
    return float(np.max(behind - np.minimum.accumulate(np.minimum(behind, 0.0))))


def test_the_longest_and_twice_the_spread_is_allowed() -> None:
    assert allowed([0.02, 0.03, 0.025]) == pytest.approx(0.05)
    assert allowed([0.02, 0.02]) == 0.02
    assert allowed([0.02, 0.06, 0.025]) > allowed([0.02, 0.03, 0.025])


@pytest.mark.parametrize("longest_of", [8, None])
def test_a_run_stays_within_what_is_allowed(longest_of: int | None) -> None:
    """A round's maximum is the largest of eight exponential values, or of many (Gumbel)."""
    random = np.random.default_rng(3)
    runs = 4000

    def drawn(count: int) -> Floats:
        if longest_of is None:
            return random.gumbel(5.0, size=(runs, count))
        found: Floats = random.exponential(size=(runs, count, longest_of)).max(axis=2)
        return found

    rounds, run = drawn(ROUNDS), drawn(RUN).max(axis=1)
    within = np.mean([at <= allowed(seen) for at, seen in zip(run, rounds.tolist(), strict=True)])
    assert within > 0.95
    # Less is not enough: more than a third of the runs exceed the plain maximum.
    assert np.mean(run <= rounds.max(axis=1)) < 0.65


def test_a_server_charged_exact_means_has_no_bound_and_one_charged_more_has() -> None:
    random = np.random.default_rng(4)
    runs = 400  # with twenty runs, half of all seeds show another result
    exact = [
        np.median([lag(random, seconds, 0.01) for _ in range(runs)]) for seconds in (30, 30 * RUN)
    ]
    assert exact[1] > 2 * exact[0]  # a walk without drift grows by the square root of six
    seen = [allowed([lag(random, 30, MORE * 0.01) for _ in range(ROUNDS)]) for _ in range(runs)]
    held = [lag(random, 30 * RUN, MORE * 0.01) <= bound for bound in seen]
    assert np.mean(held) > 0.95
    assert np.median(seen) < exact[0] / 2


def test_rounds_add_up_to_a_table() -> None:
    rows = [{"requestSize": 4096, "readBandwidth": 4096 / 0.004, "writeBandwidth": 4096 / 0.008}]

    def turn(kind: str, calls: int, each: float) -> dict[str, object]:
        return {"kind": kind, "most_bytes": 4096, "calls": calls, "seconds": calls * each}

    # Four calls per round are too few; the calls of both rounds are enough.
    both = [turn("read", 4, 0.005), turn("read", 4, 0.007), turn("write", 8, 0.01)]
    (made,) = table_of(rows, both)
    assert 4096 / made["readBandwidth"] == pytest.approx(0.006)
    assert 4096 / made["writeBandwidth"] == pytest.approx(0.01)
    (more,) = slower([made], 1.05)
    assert more["requestSize"] == 4096
    assert 4096 / more["readBandwidth"] == pytest.approx(1.05 * 0.006)
