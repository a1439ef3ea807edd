"""Journals, their replay, and the incremental encoding of observations."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.decide import InProcessDecider
from controllers.decider import ChildDecider
from controllers.journal import Journal, JournalStep, JournalWriter, read_journal
from controllers.registry import available, create, find
from controllers.replay import replay
from controllers.seen import Encoder, Reader
from schemas.errors import UserError
from testbed.stores.contract import (
    Observation,
    Osd,
    Pg,
    observation_from_json,
    observation_to_json,
)
from tests.controllers.virtual import run_loop
from tests.errors import raises
from tests.testbed.fake_store import FakeStore


def moving(number: int) -> dict[int, float]:
    return {osd: 97.0 - osd if (osd + number // 3) % 8 < 4 else 5.0 + osd for osd in range(8)}


def make(folder, name, **parameters):
    store = FakeStore(pressures=moving, hot=lambda n: frozenset({n % 8}))
    run_loop(folder, store, create(find(name), parameters, 1), steps=12)
    return folder / "journal.jsonl"


@pytest.mark.parametrize("name", sorted(available()))
def test_every_decision_comes_out_the_same(tmp_path, name):
    found = replay(read_journal(make(tmp_path, name)))
    assert found.equal
    assert found.decisions == 12
    assert f"{name}: all 12 decisions are equal" in found.sentence()


def edit(path, number, change):
    lines = path.read_text().splitlines()
    data = json.loads(lines[number])
    change(data)
    lines[number] = json.dumps(data)
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("name", "line", "change", "what"),
    [
        ("dlr", 1, lambda data: data["actions"][0].update(value=0.77), "actions"),
        ("dlr-pg", 4, lambda data: data["state_before"].update(stall_s=0.77), "states before"),
    ],
)
def test_the_first_difference_is_reported(tmp_path, name, line, change, what):
    path = make(tmp_path, name)
    edit(path, line, change)
    found = replay(read_journal(path))
    assert not found.equal
    assert found.difference is not None
    assert (found.difference.step, found.difference.what) == (line - 1, what)
    assert "0.77" in found.sentence()


def test_a_journal_with_failed_steps_replays(tmp_path):
    store = FakeStore(pressures=moving, fail_senses=frozenset({3}), fail_acts=frozenset({1}))
    run_loop(tmp_path, store, create(find("dlr-auto"), {}, 1), steps=10)
    found = replay(read_journal(tmp_path / "journal.jsonl"))
    assert found.equal
    assert found.decisions == 9


def test_a_torn_last_line_is_left_out(tmp_path):
    path = make(tmp_path, "dlr")
    text = path.read_text()
    end = text.rstrip("\n").rindex("\n")
    path.write_text(text[: end - 40])
    journal = read_journal(path)
    assert journal.torn
    assert len(journal.steps) == 11
    assert journal.footer is None
    assert replay(journal).equal


def test_a_line_is_read_when_its_step_is_asked_for(tmp_path):
    lines = iter(make(tmp_path, "dlr").read_text().splitlines(keepends=True))
    journal = Journal(lines, "test", lambda step: {"step": step["step"]})
    first = next(iter(journal))
    assert first["observation"]
    assert journal.steps == [{"step": 0}]
    assert len(list(lines)) == 12  # eleven steps and the footer


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no header"),
        ('{"schema":1,"step":0}\n', "no header"),
        ('{"schema":1,"header":true}\nnonsense\n', "line 2 is not JSON"),
        ('{"schema":2,"header":true}\n', "not of schema 1"),
    ],
)
def test_what_is_no_journal_is_refused(tmp_path, text, words):
    path = tmp_path / "j.jsonl"
    path.write_text(text)
    with raises(UserError, words):
        read_journal(path)


def test_a_journal_is_never_overwritten(tmp_path):
    path = make(tmp_path, "dlr")
    with raises(UserError, "never overwritten"):
        JournalWriter(path)


# The example of docs/controllers.md, as printed, from a folder outside the repository.


DOCS = Path(__file__).parents[2] / "docs" / "controllers.md"


def example(folder: Path) -> Path:
    code = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(code) == 1
    (folder / "half_on_hot").mkdir()
    (folder / "half_on_hot" / "policy.py").write_text(code[0])
    return folder


def test_it_runs_and_replays(tmp_path):
    dirs = [example(tmp_path)]
    decider = ChildDecider("half-on-hot", {"above": 70}, 1, dirs)
    affinities = []

    class Watching(FakeStore):
        def act(self, actions):
            effects = super().act(actions)
            affinities.append([osd.primary_affinity for osd in self.osds.values()])
            return effects

    store = Watching(pressures=lambda n: {osd: 80.0 if osd == n else 5.0 for osd in range(8)})
    outcome, journal = run_loop(
        tmp_path, store, decider=decider, child=find("half-on-hot", dirs), steps=3
    )
    assert outcome.code == 0
    # The first sense only starts the interval: step 0 sees osd.1 busy, step 1 sees osd.2.
    assert affinities[0] == [1, 0.5, 1, 1, 1, 1, 1, 1]
    assert affinities[1] == [1, 1, 0.5, 1, 1, 1, 1, 1]
    found = replay(read_journal(tmp_path / "journal.jsonl"), dirs)
    assert found.equal
    assert found.same_code
    assert found.decisions == len(journal.steps) == 3


# Incremental encoding and reading of observations: the same result as from scratch.


RECORDED = Path(__file__).resolve().parents[1] / "data" / "journals"
# The planner's libraries and loops take seconds to load.
JOURNALS = ("dlr-8", "dlr-pg-8", pytest.param("htoc-8", marks=pytest.mark.slow))


def by_asdict(observation):
    """Return the journal text of an observation, built with the standard library."""
    data = asdict(replace(observation, activity=None))
    data["pgs"] = [pg._asdict() for pg in observation.pgs]
    data["pressure"] = {str(osd): value for osd, value in observation.pressure.items()}
    data["hot"] = None if observation.hot is None else sorted(observation.hot)
    for absent in ("activity", "microstores", "latency", "read_balance"):
        del data[absent]  # not journalled
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
