"""Token buckets chosen from a curve: never below the trace, and within the stated error above."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.prioritymeister.curve import RbCurve, rb_curve
from controllers.prioritymeister.limiters import choose
from schemas.errors import UserError
from tests.errors import raises

Floats = npt.NDArray[np.float64]


def trace(seed: int, n: int = 60) -> tuple[Floats, Floats]:
    random = np.random.default_rng(seed)
    gaps = random.exponential(1.0, n) * np.where(random.random(n) < 0.2, 8, 0.2)
    return np.cumsum(gaps), random.choice([0.1, 0.5, 1.0], n)


def exact_lines(curve: RbCurve) -> tuple[Floats, Floats]:
    rates, _ = curve.corners()
    lines = np.append(rates[rates > curve.mean_rate], curve.mean_rate)
    return lines, curve.burst(lines)


def excess(lines: tuple[Floats, Floats], curve: RbCurve) -> float:
    """Return the largest relative excess of lines over the exact arrival curve, on a dense grid."""
    exact_r, exact_b = exact_lines(curve)
    meet = [
        (b2 - b1) / (r1 - r2)
        for (r1, b1), (r2, b2) in itertools.combinations(zip(*lines, strict=True), 2)
        if r1 != r2
    ]
    t = np.concatenate(([0.0], np.geomspace(1e-4, 1e4, 2000), [m for m in meet if m > 0]))
    found = np.min(lines[0][:, None] * t + lines[1][:, None], axis=0)
    exact = np.min(exact_r[:, None] * t + exact_b[:, None], axis=0)
    exact[0] = curve.work[0]
    return float(np.max(found / exact) - 1)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(5))
def test_the_error_is_what_is_stated(seed: int, count: int) -> None:
    times, work = trace(seed)
    curve = rb_curve(times, work)
    found = choose(curve, count)
    assert 1 <= len(found.rates) <= count
    assert found.rates[-1] == pytest.approx(work.sum() / (times[-1] - times[0]))
    assert (np.diff(found.rates) < 0).all()
    np.testing.assert_allclose(found.bursts, curve.burst(found.rates), rtol=1e-9)
    seen = excess((found.rates, found.bursts), curve)
    assert seen <= found.error + 1e-9
    assert seen == pytest.approx(found.error, abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_no_other_buckets_have_less_error(seed: int) -> None:
    times, work = trace(seed, 14)
    curve = rb_curve(times, work)
    rates, bursts = exact_lines(curve)
    for count in (2, 3):
        best = min(
            excess((rates[list(pick)], bursts[list(pick)]), curve)
            for size in range(1, count + 1)
            for pick in itertools.combinations(range(len(rates)), size)
            if rates.argmin() in pick
        )
        assert choose(curve, count).error == pytest.approx(best, abs=1e-6)


def test_enough_buckets_have_no_error() -> None:
    curve = rb_curve(*trace(1, 20))
    assert choose(curve, 64).error == 0.0


@given(st.integers(0, 10_000), st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_no_request_of_the_trace_is_held(seed: int, count: int) -> None:
    times, work = trace(seed, 40)
    found = choose(rb_curve(times, work), count)
    fill = np.zeros(len(found.rates))
    last = times[0]
    for t, w in zip(times, work, strict=True):
        fill = np.maximum(0, fill - found.rates * (t - last)) + w
        assert (fill <= found.bursts * (1 + 1e-9)).all()
        last = t


def test_one_instant_needs_a_length() -> None:
    curve = rb_curve([1.0, 1.0], [2.0, 3.0])
    with raises(UserError, "one instant"):
        choose(curve)
    found = choose(curve, 8, mean_rate=0.5)
    assert (found.rates.tolist(), found.bursts.tolist()) == ([0.5], [5.0])
