"""Progress messages of a playbook, on real events of ansible-runner 2.4."""

from __future__ import annotations

import json
from typing import Any

import pytest

from testbed.deploy.playbook import (
    Tracker,
    explain,
    message_of,
    playbook_tasks,
)
from testbed.deploy.roles import PLAYBOOKS

Events = list[dict[str, Any]]


@pytest.fixture
def recorded(root):
    folder = root / "tests" / "data" / "ansible-events"
    return lambda name: [
        json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()
    ]


def follow(events: Events, tasks: list[str]) -> tuple[Tracker, list[tuple[str, float]]]:
    tracker = Tracker(tasks)
    return tracker, [(tracker.phase, tracker.share) for e in events if tracker.follow(e)]


def test_a_failed_command_is_reported_by_node_task_and_its_own_last_words(recorded):
    tracker, _ = follow(recorded("failing"), [])
    said = explain(tracker.failures)
    assert said == (
        '"ceph: Create the OSDs\' stores" failed on node admin and 2 more: '
        "ceph-osd --mkfs failed: (28) No space left on device."
    )
    assert {failure.node for failure in tracker.failures} == {"osd0", "osd1", "admin"}


def test_hidden_results_and_unreachable_nodes(recorded):
    tracker, _ = follow(recorded("secret"), [])
    said = explain(tracker.failures)
    assert "may hold secrets" in said
    assert "AQDsecret" not in said
    assert all("AQDsecret" not in json.dumps(event) for event in recorded("secret"))
    tracker, _ = follow(recorded("gone"), [])
    assert tracker.failures[0].unreachable
    said = explain(tracker.failures)
    assert said.startswith("node gone cannot be reached by ssh: ")
    assert "Connection refused" in said
    assert "\n" not in said


def test_an_ignored_failure_is_none_and_changes_are_counted(recorded):
    tracker, steps = follow(recorded("good"), ["Create the state directory", "Keep the clock"])
    assert tracker.failures == []
    assert tracker.changed == {"osd0": 1, "osd1": 1}
    assert [phase for phase, _ in steps] == ["Create the state directory", *["Keep the clock"] * 2]
    assert [share for _, share in steps] == [0, 0.5, 1]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"msg": "Disk is too small."}, "Disk is too small."),
        ({"msg": "non-zero return code", "stderr": "a\nlast words\n\n"}, "last words"),
        ({"msg": "non-zero return code", "stdout": "only this"}, "only this"),
        ({"msg": "MODULE FAILURE: x", "module_stderr": "KeyError: 'x'"}, "KeyError: 'x'"),
        ({}, "it gave no reason"),
        ({"msg": "two\n lines"}, "two lines"),
    ],
)
def test_the_line_that_says_why(result, said):
    assert message_of(result) == said


@pytest.mark.parametrize("playbook", ["site.yml", "remove.yml"])
def test_the_real_playbooks_tasks_are_known_before_they_run(playbook):
    tasks = playbook_tasks(PLAYBOOKS, playbook)
    assert tasks
    assert all(tasks)


def test_a_loop_reports_why_its_first_item_failed():
    items = [{"changed": False}, {"failed": True, "msg": "vg/lv doesn't exist"}, {"failed": True}]
    assert message_of({"msg": "One or more items failed", "results": items}) == (
        "vg/lv doesn't exist"
    )
    hidden = {"msg": "One or more items failed", "results": [{"failed": True, "censored": "x"}]}
    assert "hidden" in message_of(hidden)
    assert message_of({"msg": "no", "results": []}) == "no"
