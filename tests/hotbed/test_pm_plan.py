"""`hotbed pm plan` and `hotbed pm place`: output and bad topologies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from campaigns.papers.prioritymeister.apply import Applied
from hotbed.exit_codes import EXIT_MISSED
from schemas.errors import UserError
from testbed.sites.contract import Testbed
from tests.errors import raises
from tests.hotbed.pm_commands import plan, run, topology, write_trace
from tests.hotbed.runner import Runner


def test_plan_tells_priorities_pairs_bounds_and_slos(tmp_path: Path) -> None:
    found = plan(tmp_path, topology(tmp_path))
    assert found["met"]
    for workload in found["workloads"]:
        assert workload["met"] == (workload["bound"] <= workload["slo"])
        stages = [stage["stage"] for stage in workload["stages"]]
        assert stages == ["network-in", "storage", "network-out"]
        for stage in workload["stages"]:
            assert 1 <= len(stage["pairs"]) <= 8
            assert all(len(pair) == 2 for pair in stage["pairs"])
            assert stage["bound"] > 0
    storage = [w["stages"][1]["priority"] for w in found["workloads"]]
    assert sorted(storage) == [1, 2, 3]
    queues = {queue["queue"]: queue["load"] for queue in found["queues"]}
    assert {"s0:ssd", "c0->switch", "switch->s0", "s0->switch", "switch->c2"} <= set(queues)


def test_a_missed_slo_is_an_exit_code(tmp_path: Path) -> None:
    document = topology(tmp_path)
    document["workloads"][2]["slo"] = {"latency": "1us"}
    path = tmp_path / "topology.yaml"
    path.write_text(yaml.safe_dump(document))
    done = Runner().run(["pm", "plan", str(path), "--json"])
    assert not json.loads(done.stdout)["met"]
    assert done.exit_code == EXIT_MISSED


@pytest.mark.parametrize(("met", "code"), [(True, 0), (None, 0), (False, EXIT_MISSED)])
def test_an_applied_plan_that_misses_an_slo_is_an_exit_code(
    met: bool | None, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Testbed("t", "fake", (), tmp_path, tmp_path, tmp_path, "")
    monkeypatch.setattr("testbed.choose.choose_ready", lambda _: (None, found))
    monkeypatch.setattr("testbed.deploy.roles.spec_of", lambda _: None)
    made = Applied("t", "pm", met, {}, {}, ())
    monkeypatch.setattr("campaigns.papers.prioritymeister.apply.apply", lambda *_, **__: made)
    assert Runner().run(["pm", "apply", str(tmp_path / "t.yaml")]).exit_code == code


def test_a_throughput_slo_counts_the_trace(tmp_path: Path) -> None:
    document = topology(tmp_path)
    document["workloads"][0]["slo"] = {"completion": "60s"}
    first = plan(tmp_path, document)["workloads"][0]
    assert (first["slo_kind"], first["slo"]) == ("throughput", 60.0)
    assert first["bound"] == pytest.approx(8, rel=0.3)  # 400 requests at 50 per second
    assert first["met"]


def test_a_faster_device_has_lower_bounds(tmp_path: Path) -> None:
    document = topology(tmp_path)
    slow = plan(tmp_path, document)["workloads"]
    document["hosts"]["s0"]["devices"]["ssd"] = {"profile": "ssd.json", "speed": 4}
    fast = plan(tmp_path, document)["workloads"]
    for before, after in zip(slow, fast, strict=True):
        assert after["stages"][1]["bound"] < before["stages"][1]["bound"] / 3


def changed(document: dict[str, Any], *path: Any) -> dict[str, Any]:
    """Return `document` with the last of `path` as the value there; None removes the entry."""
    *steps, last, value = path
    place = document
    for step in steps:
        place = place[step]
    if value is None:
        del place[last]
    else:
        place[last] = None if value == NOTHING else value
    return document


NOTHING = "null, not absent"

BAD = [
    (("workloads", 0, "client", "nobody"), "workload w0: client"),
    (("workloads", 1, "server", "nobody"), "workload w1: server"),
    (("workloads", 1, "server", "c0"), "workload w1"),
    (("workloads", 2, "device", "hdd"), "'hdd'"),
    (("workloads", 2, "slo", None), "workload w2 has no SLO"),
    (("workloads", 2, "slo", NOTHING), "workload w2 has no SLO"),
    (("workloads", 2, "slo", {}), "either latency or"),
    (("workloads", 2, "slo", "50ms"), "w2.slo"),
    (("workloads", 2, "slo", {"latency": float("inf")}), "workload w2.slo.latency"),
    (("workloads", {"w0": {}}), "workloads"),
    (("hosts", "c0", 5), "hosts.c0"),
    (("workloads", 2, "slo", {"latency": "5 parsec"}), "workload w2.slo.latency"),
    (("workloads", 2, "slo", {"latency": -1}), "workload w2.slo.latency"),
    (("workloads", 0, "trace", None), "w0.trace"),
    (("workloads", 0, "trase", "x"), "w0.trase"),
    (("workloads", 0, "client", "s0"), "s0"),
    (("workloads", 0, "route", ["switch", "switch"]), "passes switch switch twice"),
    (("workloads", 0, "route", ["other"]), "'other'"),
    (("workloads", 1, "name", "w0"), "w0"),
    (("workloads", 1, "trace", "none.csv"), "none.csv: cannot be read"),
    (("hosts", "s0", "link", "1 fathom"), "hosts.s0.link"),
    (("hosts", "s0", "devices", {"ssd": "none.json"}), "none.json"),
    (("hosts", "s0", "link", "10kbit"), "w0"),
    (("hosts", "s0", "devices", {"a": "ssd.json", "b": "ssd.json"}), "several devices: choose"),
    (("hosts", "switch", {}), "host switch is called as a"),
    (("hosts", "c->d", {}), "'c->d' is no name"),
    (("hosts", "s0", "devices", {"a:b": "ssd.json"}), "host s0"),
    (("trunks", [{"between": ["switch", "switch"], "link": "1Gbit"}]), "joins a switch to itself"),
    (("workloads", None), "workloads is missing"),
]


@pytest.mark.parametrize(("change", "reason"), BAD)
def test_a_bad_topology_is_told_in_one_sentence(
    tmp_path: Path, change: tuple[Any, ...], reason: str
) -> None:
    with raises(UserError, reason) as told:
        plan(tmp_path, changed(topology(tmp_path), *change))
    assert "\n" not in str(told.value)


def test_routes_over_several_switches(tmp_path: Path) -> None:
    document = topology(tmp_path)
    for host in ("c0", "c1", "c2"):
        document["hosts"][host]["switch"] = "a"
    document["hosts"]["s0"]["switch"] = "b"
    document["trunks"] = [{"between": ["a", "b"], "link": "1Gbit"}]
    for workload in document["workloads"]:
        workload["route"] = ["a", "b"]
    found = plan(tmp_path, document)
    assert found["workloads"][0]["stages"][0]["queues"] == ["c0->a", "a->b", "b->s0"]
    assert found["workloads"][0]["stages"][2]["queues"] == ["s0->b", "b->a", "a->c0"]
    document["workloads"][0]["route"] = ["a"]
    with pytest.raises(UserError):
        plan(tmp_path, document)
    document["trunks"].append({"between": ["b", "a"], "link": "2Gbit"})
    with raises(UserError, "trunk b-a is there twice"):
        plan(tmp_path, document)


def test_a_switch_may_have_no_hosts_and_one_that_leads_nowhere_is_none(tmp_path: Path) -> None:
    document = topology(tmp_path)
    for host in ("c0", "c1", "c2"):
        document["hosts"][host]["switch"] = "a"
    document["hosts"]["s0"]["switch"] = "b"
    first, second = ({"between": [end, "core"], "link": "1Gbit"} for end in "ab")
    document["trunks"] = [first, second]
    for workload in document["workloads"]:
        workload["route"] = ["a", "core", "b"]
    found = plan(tmp_path, document)
    queues = ["c0->a", "a->core", "core->b", "b->s0"]
    assert found["workloads"][0]["stages"][0]["queues"] == queues
    document["trunks"].append({"between": ["b", "cor"], "link": "1Gbit"})
    with raises(UserError, "trunk b-cor", "'cor'"):
        plan(tmp_path, document)
    document["trunks"][2] = {"between": ["b", "x->y"], "link": "1Gbit"}
    with raises(UserError, "trunks", "'x->y'"):
        plan(tmp_path, document)


def test_malformed_rows_of_a_trace_are_told_and_planned_without(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    document = topology(tmp_path)
    write_trace(tmp_path / "bad.csv")
    with (tmp_path / "bad.csv").open("a") as file:
        file.write("junk\n")
    document["workloads"][0]["trace"] = "bad.csv"
    path = tmp_path / "topology.yaml"
    path.write_text(yaml.safe_dump(document))
    done = Runner().run(["pm", "plan", str(path), "--json"])
    assert done.exit_code == 0
    assert "the first is line 401" in done.stderr


def test_place_is_first_fit_and_keeps_every_slo(tmp_path: Path) -> None:
    document = topology(tmp_path)
    both = document["workloads"][:2]
    alone = [plan(tmp_path, document | {"workloads": [w]})["workloads"][0]["bound"] for w in both]
    shared = [w["bound"] for w in plan(tmp_path, document | {"workloads": both})["workloads"]]
    slo = (max(alone) + max(shared)) / 2  # two on one device exceed the SLO
    document["hosts"]["s1"] = {"devices": {"ssd": "ssd.json"}}
    for workload in document["workloads"]:
        del workload["server"]
        workload["slo"] = {"latency": slo}
    path = tmp_path / "topology.yaml"
    path.write_text(yaml.safe_dump(document))
    with raises(UserError, "w0"):
        run("plan", str(path))
    done = Runner().run(["pm", "place", str(path), "--json"])
    placed = json.loads(done.stdout)
    servers = [one["server"] for one in placed["places"]]
    assert servers[:2] == ["s0", "s1"]
    assert placed["placed"] == (None not in servers)
    assert done.exit_code == (0 if placed["placed"] else EXIT_MISSED)
    assert placed["plan"]["met"]
    assert len(placed["plan"]["workloads"]) == sum(server is not None for server in servers)


def test_place_admits_what_fits_and_refuses_what_does_not(tmp_path: Path) -> None:
    document = topology(tmp_path)
    del document["workloads"][2]["server"]
    path = tmp_path / "topology.yaml"
    path.write_text(yaml.safe_dump(document))
    admitted = run("place", str(path))
    assert admitted["places"][2] == {
        "workload": "w2",
        "server": "s0",
        "device": "ssd",
        "given": False,
    }
    document["workloads"][2]["slo"] = {"latency": "1us"}
    path.write_text(yaml.safe_dump(document))
    done = Runner().run(["pm", "place", str(path), "--json"])
    assert done.exit_code == EXIT_MISSED
    assert json.loads(done.stdout)["places"][2]["server"] is None
    assert json.loads(done.stdout)["plan"]["met"]
