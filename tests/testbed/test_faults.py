"""Faults by hand: their record, and what undoes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schemas.errors import UserError
from testbed.faults import RECORD, Fault, in_force

CUT = Fault("link", "osd1", {"cut": True}, 1e9)


def test_a_testbed_without_a_record_has_no_fault(tmp_path: Path):
    assert in_force(tmp_path) == []
    assert in_force(tmp_path / "missing") == []


def test_the_record_is_read_back(tmp_path: Path):
    slow = Fault("disk", "osd0", {"slow": 4.0}, 1e9, 1e9 + 60)
    entries = [{"fault": one.as_json()} for one in (CUT, slow)]
    (tmp_path / RECORD).write_text(json.dumps({"faults": entries}))
    assert in_force(tmp_path) == [CUT, slow]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"faults": [{}]}', '{"faults": [{"fault": 1}]}'])
def test_a_record_that_cannot_be_read_is_named(tmp_path: Path, text: str):
    (tmp_path / RECORD).write_text(text)
    with pytest.raises(UserError) as caught:
        in_force(tmp_path)
    assert str(tmp_path / RECORD) in caught.value.where


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (CUT, "the link of node osd1 is cut"),
        (Fault("link", "a", {"rate": 1e7, "loss": 0.01}, 0), "rate of 10 Mbit/s and a loss"),
        (Fault("disk", "a", {"slow": 4.0, "error": True}, 0), "4 times as slow and fails every"),
        (Fault("osd", "a", {}, 0), "the OSD of node a is killed"),
        (Fault("mon", "a", {}, 0), "the monitor of node a is killed"),
        (Fault("node", "a", {}, 0), "node a is stopped"),
        (Fault("load", "a", {"load": "background", "share": 0.5}, 0), "background load of 50%"),
    ],
)
def test_a_fault_in_words(fault: Fault, words: str):
    assert words in fault.what()
    assert fault.what() in fault.sentence()


def test_an_overdue_fault_says_so():
    fault = Fault("osd", "a", {}, 1e9, 1e9 + 60)
    assert "overdue" not in fault.sentence(1e9 + 59)
    assert "overdue" in fault.sentence(1e9 + 61)
