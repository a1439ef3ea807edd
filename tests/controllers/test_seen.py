"""Incremental encoding and reading of observations: the same result as from scratch."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.decide import InProcessDecider
from controllers.journal import JournalStep, JournalWriter, read_journal
from controllers.registry import create, find
from controllers.replay import replay
from controllers.seen import Each, Encoder, Reader
from testbed.stores.contract import (
    Activity,
    Observation,
    OpRates,
    Osd,
    Pg,
    observation_from_json,
    observation_to_json,
)

RECORDED = Path(__file__).resolve().parents[1] / "data" / "journals"
# The planner's libraries and loops take seconds to load.
JOURNALS = ("dlr-8", "dlr-pg-8", pytest.param("htoc-8", marks=pytest.mark.slow))


def by_asdict(observation):
    """Return the journal text of an observation, built with the standard library."""
    data = asdict(replace(observation, activity=None))
    data["pgs"] = [pg._asdict() for pg in observation.pgs]
    data["pressure"] = {str(osd): value for osd, value in observation.pressure.items()}
    data["hot"] = None if observation.hot is None else sorted(observation.hot)
    del data["activity"], data["microstores"]  # absent, so not journalled
    return json.dumps(data, separators=(",", ":"))


@pytest.mark.parametrize("name", JOURNALS)
def test_a_recorded_runs_lines_and_decisions_come_out_again(tmp_path, name):
    recorded = RECORDED / f"{name}.jsonl"
    journal = read_journal(recorded)
    assert replay(journal).equal
    header = journal.header
    policy = create(find(header["policy"]), header["parameters"], header["seed"])
    decider, encode, written = InProcessDecider(policy), Encoder(), tmp_path / "journal.jsonl"
    acted = 0
    with JournalWriter(written) as again:
        again.header(**{key: header[key] for key in header if key not in ("schema", "header")})
        for line in journal.steps:
            seen = encode(observation_from_json(line["observation"]))
            decision = decider.decide(line["state_before"], seen.data)
            assert (decision.state, decision.actions) == (line["state_after"], line["actions"])
            acted += len(decision.actions)
            kept = {key: value for key, value in line.items() if key != "schema"}
            again.step(JournalStep(**kept | {"observation": seen.text}))
    assert acted, "a recording in which nothing is decided shows nothing"
    lines = recorded.read_text().splitlines()
    assert written.read_text().splitlines() == lines[:-1]


changes = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1)), max_size=4), min_size=1, max_size=5
)


@given(changes, st.lists(st.integers(0, 6), min_size=1, max_size=5))
def test_a_series_of_observations_is_encoded_as_each_alone(steps, sizes):
    encode, read = Encoder(), Reader()
    osds = [Osd(number, f"node{number}") for number in range(6)]
    pgs = [Pg(f"1.{number:x}", (number, 0), (0,)) for number in range(6)]
    for step, size in zip(steps, sizes, strict=False):
        for place, value in step:
            osds[place] = replace(osds[place], primary_affinity=value)
            pgs[place] = pgs[place]._replace(bytes=int(value * 9), acting=(place,))
        seen = Observation(
            2.5, 1, "node", {1: 0.5}, tuple(osds[:size]), tuple(pgs), hot=frozenset({3})
        )
        made = encode(seen)
        assert made.text == by_asdict(seen)
        assert made.data == observation_to_json(seen)
        assert read(made.data) == observation_from_json(json.loads(made.text)) == seen


def test_rates_of_groups_are_encoded_too():
    activity = Activity({"1.0": OpRates(1.5, 2)}, {0: OpRates(3, 4)}, ("1.0",))
    seen = Observation(1, 1, pgs=(Pg("1.0", (0,), (0,)),), activity=activity)
    made = Encoder()(seen)
    assert json.loads(made.text) == json.loads(json.dumps(observation_to_json(seen)))
    assert observation_from_json(json.loads(made.text)) == Reader()(made.data) == seen


def test_only_what_is_another_object_is_made_again():
    asked = []

    def double(text):
        asked.append(text)
        if text == "bad":
            raise ValueError(text)
        return text * 2

    each = Each(double)
    assert each(["ab", "cd"]) == ["abab", "cdcd"]
    assert each(["ab", "ef", "gh"]) == ["abab", "efef", "ghgh"]
    assert asked == ["ab", "cd", "ef", "gh"]
    with pytest.raises(ValueError):
        each(["ij", "bad", "gh"])
    assert each(["ij"]) == ["ijij"]
    assert each([]) == []


def test_what_json_cannot_say_is_refused_and_the_next_observation_is_not():
    encode = Encoder()
    good = Observation(0, 1, osds=(Osd(0, "a"), Osd(1, "b")))
    assert encode(good).text == by_asdict(good)
    for bad in (
        replace(good, pressure={0: float("nan")}),
        replace(good, osds=(Osd(0, "a"), Osd(1, "b", reweight=float("inf")))),
    ):
        with pytest.raises(ValueError):
            encode(bad)
    assert encode(good).text == by_asdict(good)
