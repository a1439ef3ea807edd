"""DLR compared with an independent transcription of the paper's Algorithm 1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.registry import create, find
from testbed.stores.contract import Observation, Osd, SetPrimaryAffinity

PERCENT = st.floats(0, 100)
AFFINITY = st.floats(0.1, 1)
DLR = find("dlr")


def observe(iow: list[float], alpha: list[float]) -> Observation:
    osds = tuple(Osd(i, f"n{i}", primary_affinity=a) for i, a in enumerate(alpha))
    return Observation(0, 20, pressure=dict(enumerate(iow)), osds=osds)


def algorithm_1(iow, alpha, theta_h=50, theta_i=0.2, theta_l=20):
    """Compute lines 3 to 17 as printed, written without a look at the policy."""
    n = len(iow)
    avg_iow = sum(iow[i] / n for i in range(n))
    following = list(alpha)
    for i in range(n):
        if iow[i] > theta_h:
            delta_1 = (iow[i] - theta_h) / 100
            phi = (iow[i] - avg_iow) / iow[i]
            if phi > theta_i:
                delta_2 = phi - theta_i
                following[i] = max(0.1, alpha[i] - (delta_1 + delta_2))
        elif iow[i] < theta_l and alpha[i] < 1:
            following[i] = 1
    return following


def after(policy, observation) -> list[float]:
    _, actions = policy.decide(policy.initial(), observation)
    values = {osd.id: osd.primary_affinity for osd in observation.osds}
    for action in actions:
        assert isinstance(action, SetPrimaryAffinity)
        values[action.osd] = action.value
    return [values[i] for i in sorted(values)]


@given(
    st.lists(st.tuples(PERCENT, AFFINITY), min_size=1, max_size=20),
    PERCENT,
    st.floats(0, 1),
    PERCENT,
)
def test_equals_algorithm_1(osds, theta_h, theta_i, theta_l):
    iow, alpha = [list(column) for column in zip(*osds, strict=True)]
    average = sum(iow) / len(iow)
    # At an exact threshold, the order of summation decides.
    if any(value > 0 and abs((value - average) / value - theta_i) < 1e-9 for value in iow):
        return
    thresholds = {"theta_h": theta_h, "theta_i": theta_i, "theta_l": theta_l}
    policy = create(DLR, thresholds, 1)
    expected = algorithm_1(iow, alpha, theta_h, theta_i, theta_l)
    assert after(policy, observe(iow, alpha)) == pytest.approx(expected, abs=1.1e-3)


def test_the_papers_hotspot_is_at_the_floor_after_two_steps():
    policy = create(DLR, {}, 1)
    iow = [97.0] * 4 + [4.0] * 4
    one = after(policy, observe(iow, [1.0] * 8))
    # delta_1 = .47, average 50.5, phi = .4794, delta_2 = .2794
    assert one == pytest.approx([1 - 0.47 - (46.5 / 97 - 0.2)] * 4 + [1.0] * 4)
    assert after(policy, observe(iow, one)) == pytest.approx([0.1] * 4 + [1.0] * 4)


def test_an_osd_between_the_thresholds_keeps_its_affinity():
    policy = create(DLR, {}, 1)
    assert after(policy, observe([35.0, 5.0], [0.3, 0.3])) == [0.3, 1.0]


def test_osds_that_are_down_out_or_not_sensed_count_for_nothing():
    policy = create(DLR, {}, 1)
    osds = (
        Osd(0, "a"),
        Osd(1, "b"),
        Osd(2, "c", up=False, primary_affinity=0.5),
        Osd(3, "d", in_=False),
        Osd(4, "e", primary_affinity=0.5),
    )
    pressure = {0: 90.0, 1: 10.0, 2: 0.0, 3: 0.0}
    _, actions = policy.decide({}, Observation(0, 20, pressure=pressure, osds=osds))
    # Only 90 and 10 enter the mean.
    assert actions == [SetPrimaryAffinity(0, pytest.approx(1 - 0.4 - (40 / 90 - 0.2)))]


@given(st.lists(st.tuples(PERCENT, AFFINITY), min_size=1, max_size=20))
def test_affinity_stays_between_floor_and_one(osds):
    iow, alpha = [list(column) for column in zip(*osds, strict=True)]
    assert all(0.1 <= a <= 1 for a in after(create(DLR, {}, 1), observe(iow, alpha)))


@given(st.lists(PERCENT, min_size=1, max_size=12))
def test_constant_pressures_come_to_rest(iow):
    policy = create(DLR, {}, 1)
    alpha = [1.0] * len(iow)
    for _ in range(2000):
        following = after(policy, observe(iow, alpha))
        if following == alpha:
            return
        alpha = following
    pytest.fail("still changing affinities after 2000 steps of constant pressure")
