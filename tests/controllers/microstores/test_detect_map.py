"""Section 9: the policy follows drift, and no tenant moves endlessly."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.microstores.detect_map import (
    DetectSettings,
    bands_from_json,
    detector_from_json,
    step,
    suits,
)
from controllers.microstores.performance import SMALL_BELOW
from schemas.errors import UserError
from testbed.stores.microstores import NOTHING, Microstore, Microstores, Tenant
from tests.errors import raises

BANDS = {"small": (0.0, SMALL_BELOW), "large": (SMALL_BELOW, math.inf)}


def most_moves(epochs: int, p: DetectSettings) -> int:
    """Return the largest number of moves of one tenant in `epochs` epochs."""
    spells = 1 + epochs // p.calm
    return spells * (1 + math.floor(math.log2(1 + epochs / p.cooldown)))


SMALL, LARGE = {15: 60, 17: 40}, {21: 50, 23: 50}
EXPONENTS = st.dictionaries(st.sampled_from([10, 15, 17, 21, 23]), st.integers(0, 50), max_size=4)


def follow(epochs, p=None, home="small", bands=BANDS):
    """Return the microstore after every epoch, and the number of moves."""
    p = p or DetectSettings()
    state, moves, homes = {}, 0, []
    for sizes in epochs:
        seen = Microstores(
            (Microstore("small", NOTHING), Microstore("large", NOTHING)),
            (Tenant("web", home, 10.0, 1e6, sizes=sizes),),
        )
        state, found = step(state, seen, bands, p)
        for move in found:
            assert move.tenant == "web"
            home, moves = move.microstore, moves + 1
        homes.append(home)
    return homes, moves


def test_a_drift_is_followed_once_it_lasts():
    homes, moves = follow([SMALL] * 10 + [LARGE] * 10)
    assert moves == 1
    assert homes[:12] == ["small"] * 12
    assert homes[14:] == ["large"] * 6


def test_a_short_visit_is_not():
    homes, moves = follow(([SMALL] * 8 + [LARGE] * 2) * 4)
    assert moves == 0
    assert set(homes) == {"small"}


def test_a_better_home_that_is_hardly_better_is_not():
    _, moves = follow([{15: 45, 21: 55}] * 50)
    assert moves == 0
    _, moves = follow([{15: 35, 21: 65}] * 50)
    assert moves == 1


def test_too_few_requests_say_nothing():
    assert follow([{21: 5}] * 50)[1] == 0


def test_a_tenant_that_comes_and_goes_stays_longer_every_time():
    homes, moves = follow(([SMALL] * 20 + [LARGE] * 20) * 10)
    assert 2 <= moves <= 6
    assert moves <= most_moves(len(homes), DetectSettings())


@settings(max_examples=15, deadline=None)
@given(EXPONENTS, st.integers(1, 120), st.sampled_from(["small", "large"]))
def test_constant_sizes_move_once_at_most(sizes, epochs, home):
    homes, moves = follow([sizes] * epochs, home=home)
    assert moves <= 1
    if sum(sizes.values()) >= 20 and epochs >= 10:
        mine = {str(k): v / sum(sizes.values()) for k, v in sizes.items()}
        best = max(BANDS, key=lambda name: suits(mine, BANDS[name]))
        gap = suits(mine, BANDS[best]) - suits(mine, BANDS[home])
        assert (homes[-1] == best) or gap < 0.2 + 1e-6


@settings(max_examples=15, deadline=None)
@given(
    st.lists(EXPONENTS, min_size=1, max_size=6),
    st.integers(1, 60),
    st.builds(
        DetectSettings,
        fade=st.sampled_from([0.0, 0.5, 0.9]),
        margin=st.just(0.05),
        patience=st.integers(1, 3),
        cooldown=st.integers(1, 8),
        calm=st.integers(5, 50),
        min_requests=st.just(1),
    ),
)
def test_whatever_comes_moves_are_bounded(cycle, times, p):
    epochs = (cycle * times)[:200]
    _, moves = follow(epochs, p)
    assert moves <= most_moves(len(epochs), p)


@settings(max_examples=8, deadline=None)
@given(st.data(), st.floats(0, 1))
def test_stationary_noise_is_bounded_too(data, part):
    """One distribution draws every epoch, so chance decides the side of the middle."""
    draws = data.draw(st.lists(st.floats(0, 1), min_size=60, max_size=60))
    epochs = [{15: 100, 21: 1} if draw < part else {15: 1, 21: 100} for draw in draws]
    _, moves = follow(epochs)
    assert moves <= most_moves(60, DetectSettings()) == 3


def test_a_band_without_a_microstore_is_no_place_to_go():
    assert follow([LARGE] * 30, bands={"small": BANDS["small"], "huge": BANDS["large"]})[1] == 0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"bands": {"small": [0, 1]}}, "two microstores or more"),
        ({"bands": {"small": [0, 1], "large": 3}}, "[LOW, HIGH]"),
        ({"bands": {"small": [0, 1], "large": [1, "x"]}}, "[LOW, HIGH]"),
        ({"bands": {"small": [5, 1], "large": [1, None]}}, "LOW must be from 0"),
        ({"bands": {"small": [0, 1], "large": [1, None]}, "fad": 1}, "unknown parameter 'fad'"),
        ({"bands": {"small": [0, 1], "large": [1, None]}, "margin": 5}, "allowed: 0.01 to 1"),
    ],
)
def test_bad_detectors_are_told(data, words):
    with raises(UserError, words):
        detector_from_json(data, "mos")


def test_no_detector_and_a_good_one():
    assert detector_from_json({}, "mos") is None
    found = detector_from_json({"bands": {"s": [0, 1e6], "l": [1e6, None]}, "patience": 2}, "mos")
    assert found is not None
    assert found[1].patience == 2
    assert found[0] == bands_from_json({"s": [0, 1e6], "l": [1e6, None]}, "")
