"""Journals and their replay."""

from __future__ import annotations

import json

import pytest
from virtual import run_loop

from controllers.journal import JournalWriter, read_journal
from controllers.registry import available, create, find
from controllers.replay import replay
from schemas.errors import UserError
from testbed.stores.fake import FakeStore
from tests.errors import raises


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


def test_the_first_difference_is_told(tmp_path):
    path = make(tmp_path, "dlr")

    def change(data):
        data["actions"][0]["value"] = 0.77

    edit(path, 1, change)
    found = replay(read_journal(path))
    assert not found.equal
    assert found.difference is not None
    assert (found.difference.step, found.difference.what) == (0, "actions")
    assert "0.77" in found.sentence()


def test_another_parameter_is_a_difference(tmp_path):
    path = make(tmp_path, "dlr")
    edit(path, 0, lambda header: header["parameters"].update(theta_h=99.0))
    assert not replay(read_journal(path)).equal


def test_a_changed_state_is_a_difference(tmp_path):
    path = make(tmp_path, "dlr-pg")
    edit(path, 4, lambda line: line["state_before"].update(stall_s=0.123))
    found = replay(read_journal(path))
    assert found.difference is not None
    assert (found.difference.step, found.difference.what) == (3, "states before")


def test_a_replay_may_be_limited(tmp_path):
    journal = read_journal(make(tmp_path, "dlr"))
    assert replay(journal, limit_s=-1.0).decisions == 1


def test_another_code_is_told(tmp_path):
    path = make(tmp_path, "dlr")
    edit(path, 0, lambda header: header.update(code_hash="f" * 64))
    found = replay(read_journal(path))
    assert found.equal
    assert "code differs" in found.sentence()


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


def test_a_missing_journal_is_refused(tmp_path):
    with raises(UserError, "cannot be read"):
        read_journal(tmp_path / "none.jsonl")


def test_a_journal_is_never_overwritten(tmp_path):
    path = make(tmp_path, "dlr")
    with raises(UserError, "never overwritten"):
        JournalWriter(path)
