"""MOS on machines that carry less than all resources, in the loop, and the drift of section 9.
test_mos_transcribed.py holds it to the listing."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.journal import read_journal
from controllers.microstores.detect_map import (
    DetectSettings,
    detector_from_json,
    step,
)
from controllers.microstores.performance import SMALL_BELOW
from controllers.registry import create, find
from controllers.replay import replay
from schemas.errors import UserError
from testbed.stores.contract import Observation
from testbed.stores.microstores import (
    NOTHING,
    AssignableMachine,
    AssignMachine,
    MapTenant,
    Microstore,
    Microstores,
    Resources,
    Tenant,
)
from tests.controllers.clusters import python_3_12
from tests.controllers.mos_stores import TOTAL, FakeMicrostores
from tests.controllers.virtual import run_loop
from tests.errors import raises


def policy(name="mos", **parameters):
    return create(find(name), parameters, 1)


@pytest.mark.parametrize("holds", [Resources(0.2, 0.2, 12.5e6), Resources(0.2, 0, 12.5e6)])
def test_what_no_machine_carries_keeps_none_of_them(holds):
    """Swift's machines are proxies. Disks, and storage cores fixed by the spec, stay with a
    microstore whoever holds the machines."""
    machines = tuple(AssignableMachine(f"proxy{i}", holds, "a") for i in range(3))
    seen = Microstores((Microstore("a", NOTHING, {"proxy_cpu": 0.1}),), (), machines=machines)
    made = policy("mos-at-once")
    state, actions = made.decide(made.initial(), Observation(0, 10, microstores=seen))
    assert list(actions) == [AssignMachine("proxy0", "")]
    last = Microstores(seen.stores, (), machines=machines[:1])
    assert made.decide(state, Observation(10, 10, microstores=last))[1] == []


def small_large(number):
    return {"web": 40 if number < 12 else 1, "video": 6}


def test_it_runs_in_the_loop_and_its_journal_replays(tmp_path):
    machine = Resources(0.1, 0.1, 6e6, 1, 1)
    machines = {f"m{i}": (machine, ["small", "large", ""][i % 3]) for i in range(12)}
    tenths = dict.fromkeys(range(21, 31), 9)  # as floats, they add to less than 1 in Python 3.11
    stores = {"small": NOTHING, "large": NOTHING}
    store = FakeMicrostores(small_large, stores, machines=machines, sizes=tenths)
    detect = {"bands": {"small": [0, 1e6], "large": [1e6, None]}, "margin": 1}
    outcome, journal = run_loop(tmp_path, store, policy(detect=detect), steps=20)
    assert outcome.code == 0
    assert any(step["actions"] for step in journal.steps)
    with python_3_12():
        found = replay(read_journal(tmp_path / "journal.jsonl"))
    assert found.equal
    assert found.decisions == 20


def test_a_tenant_that_drifts_is_mapped():
    bands = {"small": [0, 1e6], "large": [1e6, None]}
    made = policy(detect={"bands": bands, "patience": 1})
    assert "tenants" in made.needs.acts
    stores = (Microstore("small", NOTHING), Microstore("large", NOTHING))
    seen = Microstores(stores, (Tenant("web", "small", 9, 9e6, sizes={23: 90}),), TOTAL)
    _, actions = made.decide(made.initial(), Observation(0, 10, microstores=seen))
    assert list(actions) == [MapTenant("web", "large")]
    assert policy().needs.acts == {"machines"}


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"util_low": 0.9}, "util_low"),
        ({"detect": "no JSON"}, "'detect': is no JSON"),
    ],
)
def test_bad_parameters_are_reported(parameters, words):
    with raises(UserError, words):
        policy(**parameters)


# Detect and map (section 9): the policy follows drift, and no tenant moves endlessly.


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


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"bands": {"small": [0, 1]}}, "two microstores or more"),
        ({"bands": {"small": [0, 1], "large": [1, "x"]}}, "[LOW, HIGH]"),
        ({"bands": {"small": [5, 1], "large": [1, None]}}, "LOW must be from 0"),
        ({"bands": {"small": [0, 1], "large": [1, None]}, "fad": 1}, "no parameter 'fad'"),
    ],
)
def test_bad_detectors_are_reported(data, words):
    with raises(UserError, words):
        detector_from_json(data, "mos")
