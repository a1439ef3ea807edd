"""`hotbed control` on the command line: commands without a testbed, and its reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controllers.loop import EXIT_DIED
from controllers.registry import create, find
from tests.controllers.clusters import HOT
from tests.controllers.virtual import run_loop
from tests.hotbed.runner import run as hotbed
from tests.testbed.fake_store import FakeStore


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    run_loop(tmp_path, FakeStore(pressures=lambda _: HOT), create(find("dlr"), {}, 1))
    return tmp_path / "journal.jsonl"


def test_replay_reports_how_many_are_equal_and_fails_at_a_difference(capsys, journal):
    code, out, _ = hotbed(capsys, "control", "replay", str(journal))
    assert (code, "dlr: all 5 decisions are equal" in out) == (0, True)
    code, out, _ = hotbed(capsys, "control", "replay", str(journal), "--json")
    assert (code, json.loads(out)["decisions"]) == (0, 5)
    journal.write_text(journal.read_text().replace('"osd":3,"value"', '"osd":5,"value"', 1))
    code, out, _ = hotbed(capsys, "control", "replay", str(journal))
    assert (code, "step 0: the actions differ" in out) == (1, True)
    code, _, err = hotbed(capsys, "control", "replay", str(journal.parent / "none"))
    assert (code, len(err.strip().splitlines())) == (2, 1)


def test_list_shows_controllers_and_parameters(capsys):
    code, out, _ = hotbed(capsys, "control", "list", "--json")
    found = {row["name"]: row["parameters"] for row in json.loads(out)}
    assert (code, found["dlr"]) == (0, {"theta_h": 50, "theta_i": 0.2, "theta_l": 20})
    assert "theta_h=50.0" in hotbed(capsys, "control", "list")[1]


class FakeAgent:
    """Agent that answers like the admin node and records its requests."""

    def __init__(self, journal: str) -> None:
        self.journal = journal
        self.calls: list[tuple[str, dict]] = []

    def call(self, verb, payload=None, *, timeout_s=60.0):
        self.calls.append((verb, dict(payload or {})))
        last = {"step": 4, "actions": 2, "error": None}
        row = {"name": "dlr", "running": True, "last": last, "outcome": None, "leftover": False}
        row["steered"] = []
        end = {"was_running": True, "reason": "stopped", "healed": []}
        return {
            "control-start": {"name": (payload or {}).get("name"), "journal": "/j", "healed": []},
            "control-stop": {"name": "dlr"} | end,
            "control-status": {"running": "dlr", "controllers": [row]},
            "control-log": {
                "text": self.journal[(payload or {}).get("offset", 0) :],
                "offset": len(self.journal),
                "size": len(self.journal),
            },
        }[verb]


def test_a_controller_that_died_is_called_so(capsys, agent, monkeypatch):
    died = {"code": EXIT_DIED, "reason": "died (killed KILL)"}
    row = {"name": "dlr", "running": False, "last": None, "outcome": died}
    for leftover, steered in ((False, []), (True, ["osd.0=0.10"])):
        rows = [row | {"leftover": leftover, "steered": steered}]
        monkeypatch.setattr(agent, "call", lambda *_, rows=rows, **__: {"controllers": rows})
        code, out, _ = hotbed(capsys, "control", "status")
        assert code == 0
        assert "died" in out
        assert ("osd.0=0.10" in " ".join(out.split())) == leftover


@pytest.fixture
def agent(reach, journal):
    made = FakeAgent(journal.read_text())
    reach(made)
    return made


def test_start_sends_typed_parameters_also_from_a_file(capsys, agent, tmp_path):
    words = ["start", "dlr", "-p", "theta_i=0.3", "--interval", "3.5", "--seed", "7"]
    code, out, _ = hotbed(capsys, "control", *words)
    assert (code, out) == (0, "started: dlr\n")
    verb, payload = agent.calls[0]
    assert (verb, payload["parameters"]) == ("control-start", {"theta_i": 0.3})
    assert (payload["interval_s"], payload["seed"], payload["signal"]) == (3.5, 7, "node")
    path = tmp_path / "mos.yaml"
    path.write_text("util_low: 0.5\ndetect: {bands: {a: [0, 10], b: [10, null]}}\n")
    words = ["start", "mos", "--parameters", str(path), "-p", "util_low=0.6"]
    assert hotbed(capsys, "control", *words)[:2] == (0, "started: mos\n")
    bands = {"a": [0, 10], "b": [10, None]}
    assert agent.calls[1][1]["parameters"] == {"util_low": 0.6, "detect": {"bands": bands}}


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("[1, 2]", [], "a mapping"),
        ("util_low: 0.5\nutil_low: 0.6\n", [], "'util_low' of line 1 is there again in line 2"),
        (None, [], "no such file"),
        ("", ["-p", "theta_i"], "write NAME=VALUE"),
        ("", ["-p", "theta_i=9"], "allowed: 0 to 1"),
        ("", ["--signal", "mood"], "allowed: node, osd, op_r_latency"),
        ("", ["--interval", "0"], "allowed: 0.1 to 86400"),
    ],
)
def test_mistakes_are_reported_and_nothing_is_sent(*, capsys, agent, tmp_path, text, words, said):
    path = tmp_path / "mos.yaml"
    if text is not None:
        path.write_text(text)
    words = ["dlr", *words] if words else ["mos", "--parameters", str(path)]
    code, _, err = hotbed(capsys, "control", "start", *words)
    assert code == 2
    assert said in err
    assert agent.calls == []


@pytest.mark.parametrize("name", ["ursa", "nearest", "htoc"])
def test_what_moves_data_only_journals_without_act(capsys, agent, name):
    code, out, _ = hotbed(capsys, "control", "start", name, "-p", "capacity=24")
    assert code == 0
    assert "without --act" in out
    assert agent.calls[-1][1]["parameters"] == {"capacity": 24, "dry_run": True}
    _, out, _ = hotbed(capsys, "control", "start", name, "--act")
    assert "dry run" not in out
    assert agent.calls[-1][1]["parameters"] == {"dry_run": False}
    _, out, _ = hotbed(capsys, "control", "start", name, "-p", "dry_run=false", "--json")
    assert agent.calls[-1][1]["parameters"] == {"dry_run": False}
    assert json.loads(out)["dry_run"] is False


def test_a_step_names_the_most_pressed_osds_and_counts_the_others(capsys, agent, monkeypatch):
    out = " ".join(hotbed(capsys, "control", "log", "dlr")[1].split())
    assert "osd.0 (node0) 97" in out
    assert "4 more" in out
    lines = [json.loads(line) for line in agent.journal.splitlines()]
    pieces = [{"text": agent.journal, "offset": len(agent.journal)}]
    monkeypatch.setattr(agent, "stream", lambda verb, payload: iter(pieces), raising=False)
    code, out, _ = hotbed(capsys, "control", "log", "dlr", "--follow")
    first, *steps, last = out.splitlines()
    assert (code, len(steps)) == (0, len(lines) - 2)
    assert first == "dlr begins"
    assert steps[0].startswith("step 0, 20.0 s: osd.0 (node0) 97, ")
    assert last.startswith("ended: ")
    out = hotbed(capsys, "control", "log", "dlr", "--follow", "--json")[1]
    assert [json.loads(line) for line in out.splitlines()] == lines


def test_stop_status_and_log(capsys, agent, tmp_path, monkeypatch):
    assert "stopped: dlr (stopped)" in hotbed(capsys, "control", "stop")[1]
    assert "running" in hotbed(capsys, "control", "status")[1]
    out = hotbed(capsys, "control", "log", "dlr")[1]
    assert "osd.0=0.25" in " ".join(out.split()) or "osd.0=0.26" in out
    code, _, _ = hotbed(capsys, "control", "log", "dlr", "--out", str(tmp_path / "copy.jsonl"))
    assert code == 0
    assert (tmp_path / "copy.jsonl").read_text() == agent.journal
    both = ("--follow", "--out", str(tmp_path / "more.jsonl"))
    code, _, err = hotbed(capsys, "control", "log", "dlr", *both)
    assert code == 2 and "leave out --follow or --out" in err
    assert not (tmp_path / "more.jsonl").exists()
    reason = "stopped; the store stays as it is (restore_on_stop is false)"
    answer = {"name": "ursa", "was_running": True, "reason": reason, "healed": []}
    monkeypatch.setattr(agent, "call", lambda *_, **__: answer)
    out = hotbed(capsys, "control", "stop")[1]
    assert "stays as it is" in out
    assert "as it was found" not in out
