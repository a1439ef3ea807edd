"""Verbs `fault` and `load` on the fake site."""

from __future__ import annotations

import json
from typing import Any

import pytest

from testbed.faults import RECORD
from testbed.spec import TestbedSpec

SPEC = {
    "name": "small",
    "store": None,
    "groups": [
        {"name": "admin", "roles": ["admin", "client"]},
        {"name": "osd", "count": 2, "roles": ["osd"], "disk": {}},
    ],
}


@pytest.fixture
def small(site) -> Any:
    return site.provision(TestbedSpec.model_validate(SPEC))


def test_faults_are_made_listed_and_cleared(site, small, ask):
    def report(*words: object) -> Any:
        return json.loads(ask(*words, "--json").out)

    assert "no faults" in ask("fault", "list").out
    assert "nothing to undo" in ask("fault", "clear").out
    (cut,) = report("fault", "link", "osd1", "--cut")
    assert (cut["kind"], cut["node"], cut["settings"]) == ("link", "osd1", {"cut": True})
    assert cut["until_s"] is None and "osd1" in cut["sentence"]
    assert site.status("small").nodes["osd1"] == "link down"
    slow = report("fault", "disk", "osd", "--slow", "4", "--for", "1h")
    assert [one["node"] for one in slow] == ["osd0", "osd1"]
    assert slow[0]["until_s"] - slow[0]["since_s"] == 3600
    assert "link of node osd1 is cut" in ask("fault", "list").out
    assert len(report("fault", "list")) == 3
    assert [one["node"] for one in report("fault", "clear", "osd0")] == ["osd0"]
    assert len(report("fault", "clear")) == 2
    assert report("fault", "list") == []
    assert json.loads((small.directory / RECORD).read_text())["watcher"] is None


def test_a_limit_has_its_units(small, ask):
    said = ask("fault", "link", "osd0", "--rate", "10Mbit", "--delay", "20ms", "--loss", "0.01")
    assert "10 Mbit/s, a delay of 20 ms, a loss of 1 %" in said.out


@pytest.mark.parametrize(
    "words",
    [
        ["link", "osd0"],
        ["link", "osd0", "--cut", "--rate", "1Mbit"],
        ["link", "osd0", "--rate", "0"],
        ["link", "osd9", "--cut"],
        ["disk", "osd0"],
        ["disk", "admin", "--slow", "2"],
        ["disk", "osd0", "--slow", "2", "--for", "0s"],
        ["mon", "osd0"],
        ["clear", "osd9"],
    ],
)
def test_a_mistake_changes_nothing(small, ask, words):
    ask("fault", *words, code=2)
    assert not (small.directory / RECORD).exists()


def test_up_and_down_leave_no_fault(site, small, ask, tmp_path):
    ask("fault", "link", "osd1", "--cut")
    assert "hotbed fault clear" in ask("snapshot", "save", "clean", code=2).err
    spec = tmp_path / "small.yaml"
    spec.write_text(json.dumps(SPEC | {"site": {"kind": "fake"}}))
    site._kept["small"].spec = TestbedSpec.model_validate(json.loads(spec.read_text()))
    ask("up", spec)
    assert json.loads(ask("fault", "list", "--json").out) == []
    ask("fault", "link", "osd1", "--cut", "--for", "1h")
    ask("down")
    assert not small.directory.exists()


def test_a_dry_run_names_the_fault_that_blocks_the_next_cell(small, ask):
    ask("fault", "link", "osd1", "--cut")
    said = ask("run", "dlr-quick", "--dry-run", "--testbed", "small", "--json").out
    notes = " ".join(json.loads(said)["notes"])
    assert "the link of node osd1 is cut" in notes and "fault clear --testbed small" in notes
    assert "not up" not in notes
