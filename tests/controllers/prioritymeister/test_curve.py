"""The r-b curve compared with all windows of a trace and with a token bucket that replays the
trace, and the token buckets chosen from the curve."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.prioritymeister import limiters as module
from controllers.prioritymeister.limiters import CurveBuilder, RbCurve, choose, rb_curve
from schemas.errors import UserError
from tests.errors import raises

Floats = npt.NDArray[np.float64]


def by_windows(times: Floats, work: Floats, rate: float) -> float:
    """Return the burst by definition: every window, one by one."""
    return max(
        float(work[i : j + 1].sum() - rate * (times[j] - times[i]))
        for i in range(len(times))
        for j in range(i, len(times))
    )


def by_accumulation(times: Floats, work: Floats, rate: float) -> float:
    """Return the same burst with two lines of numpy, for long traces."""
    after = np.cumsum(work)
    starts = np.maximum.accumulate(rate * times - (after - work))
    return float(np.max(after - rate * times + starts))


TRACES = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 9)), min_size=1, max_size=30).map(
    lambda rows: np.array(rows, dtype=np.float64)
)


@given(TRACES, st.floats(0, 40))
@settings(max_examples=150, deadline=None)
def test_burst_is_the_worst_window(rows: Floats, rate: float) -> None:
    times, work = np.cumsum(rows[:, 0]), rows[:, 1]
    curve = rb_curve(times, work)
    found = float(curve.burst(rate))
    assert found == pytest.approx(by_windows(times, work, rate), rel=1e-12)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use tangents for traces of any length."""
    monkeypatch.setattr(module, "_LONG", 1)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("n", [1, 63, 64, 65, 2000])
def test_tangents_and_hulls_have_the_same_windows(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(n)
    bursts = random.exponential(1.0, n) * np.where(random.random(n) < 0.05, 50, 0.02)
    times = np.round(np.cumsum(bursts), 3)  # several at the same instant
    work = random.choice([0.0, 0.1, 0.4, 2.0], n)
    work[0] = 0.3
    found = rb_curve(times, work)
    builder = CurveBuilder()
    for low in range(0, n, 700):
        builder.add(times[low : low + 700], work[low : low + 700])
    rates = np.append(0.0, np.geomspace(1e-4, 1e5, 50))
    np.testing.assert_allclose(builder.curve().burst(rates), found.burst(rates), rtol=1e-12)
    expected = [by_accumulation(times, work, rate) for rate in rates]
    np.testing.assert_allclose(found.burst(rates), expected, rtol=1e-9)
    monkeypatch.setattr(module, "_LONG", 1 << 62)
    hulls = rb_curve(times, work)
    np.testing.assert_allclose(found.duration, hulls.duration, rtol=1e-12)
    np.testing.assert_allclose(found.work, hulls.work, rtol=1e-12)
    assert (found.total, found.seconds) == (hulls.total, hulls.seconds)


@pytest.mark.usefixtures("short")
def test_more_windows_than_replays_are_left_to_hulls() -> None:
    times = np.arange(700.0) ** 2
    _, whole = module.tangent_windows(times, np.ones(700), np.arange(701.0))
    assert not whole
    assert len(rb_curve(times, np.ones(700)).corners()[0]) == 700


def test_order_does_not_matter_and_one_request_is_a_curve() -> None:
    shuffled = rb_curve([5.0, 1.0, 3.0], [1.0, 2.0, 3.0])
    assert shuffled.burst([0.0, 1.0]).tolist() == [6.0, 3.0]
    one = rb_curve([7.0], [2.5])
    assert [part.tolist() for part in one.corners()] == [[0.0], [2.5]]
    assert one.burst([0.0, 100.0]).tolist() == [2.5, 2.5]
    assert one.mean_rate == float("inf")


def test_nothing_is_no_curve_and_disorder_is_seen() -> None:
    with raises(UserError, "no request"):
        rb_curve([], [])
    builder = CurveBuilder()
    builder.add([1.0, 2.0], [1.0, 1.0])
    for times in ([1.5], [3.0, 2.5]):
        with raises(ValueError, "fall"):
            builder.add(times, [1.0] * len(times))
    for work in ([-1.0, 1.0], [1.0, np.nan], [0.0, np.inf], [1.5e308, 1.5e308]):
        with raises(ValueError, "work must be 0 or more"):
            builder.add([3.0, 4.0], work)
    builder.add([3.0, 4.0], [0.0, 0.0])
    assert builder.curve().requests == 2


# Token buckets chosen from a curve: never below the trace, within the stated error above.


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


def test_one_instant_needs_a_length() -> None:
    curve = rb_curve([1.0, 1.0], [2.0, 3.0])
    with raises(UserError, "one instant"):
        choose(curve)
    found = choose(curve, 8, mean_rate=0.5)
    assert (found.rates.tolist(), found.bursts.tolist()) == ([0.5], [5.0])
