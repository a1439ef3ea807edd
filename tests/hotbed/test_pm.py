"""`hotbed pm` on the command line: its output, bad topologies, and its answers to mistakes."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from campaigns.papers.prioritymeister import traces
from campaigns.papers.prioritymeister.apply import Applied
from hotbed.exit_codes import EXIT_MISSED
from schemas.errors import UserError
from testbed.sites.contract import Testbed
from tests.errors import raises
from tests.hotbed.pm_commands import PROFILE, plan, run, topology, write_trace
from tests.hotbed.runner import Runner


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    (tmp_path / "ssd.json").write_text(json.dumps(PROFILE))
    write_trace(tmp_path / "t.csv")
    return tmp_path


def test_curve_prints_corners_and_asked_bursts(traced: Path) -> None:
    base = ["curve", str(traced / "t.csv"), "--stage", "storage"]
    base += ["--profile", str(traced / "ssd.json")]
    corners = run(*base)
    assert set(corners) == {"rates", "bursts"}
    assert corners["rates"] == sorted(corners["rates"])
    asked = [0.0, 0.05, corners["rates"][3], 2.0]
    bursts = run(*base, "--rates", ",".join(map(repr, asked)))
    assert bursts["rates"] == asked
    expected = np.interp(asked, corners["rates"], corners["bursts"])
    np.testing.assert_allclose(bursts["bursts"], expected, rtol=1e-9)


def test_any_trace_is_written_as_the_replayer_reads_it(tmp_path: Path) -> None:
    source = tmp_path / "msr.csv"
    source.write_text(
        "128166372010810581,mds,0,Write,2654453760,4096,54086\n"
        "garbage\n"
        "128166372011594132,mds,0,Read,3154132992,4096,51785\n"
    )
    out = tmp_path / "plain.csv.gz"
    made = run("trace", "convert", str(source), str(out))
    assert (made["requests"], made["malformed"]) == (2, 1)
    lines = gzip.decompress(out.read_bytes()).decode().splitlines()
    assert lines == [
        "0,0x00001000,DiskWrite,0x9e37c000",
        "78355100,0x00001000,DiskRead,0xbc004000",
    ]
    with raises(UserError, "nothing is overwritten"):
        run("trace", "convert", str(source), str(out))
    with raises(UserError, "cannot be read"):
        run("trace", "convert", str(tmp_path / "none"), str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("process", ["poisson", "hyperexponential", "interrupted", "copy"])
def test_traces_of_every_process_and_stand_ins_are_made_once(tmp_path: Path, process: str) -> None:
    out = tmp_path / "made.csv"
    made = run("trace", "generate", process, str(out), "--count", "3000", "--rate", "30")
    assert (made["requests"], made["mean_bytes"]) == (3000, 4096)
    assert made["seconds"] == pytest.approx(100, rel=0.5)
    for words in (["generate", process, str(out)], ["standin", "G", str(out)]):
        with raises(UserError, "exists"):
            run("trace", *words)
    if process == "copy":
        made = run("trace", "standin", "G", str(tmp_path / "g.csv.gz"), "--seconds", "60")
        assert made["storage_load"] == pytest.approx(0.25, rel=0.05)
        assert made["network_load"] == pytest.approx(0.05, rel=0.02)
        assert made["scv"] == pytest.approx(20, rel=0.02)


def test_impossible_places_are_refused_before_anything_is_made(traced: Path) -> None:
    out = str(traced / "none" / "t.csv")
    for command in (
        ["trace", "generate", "poisson", out],
        ["trace", "standin", "F", out, "--seconds", "20"],
        ["trace", "convert", str(traced / "t.csv"), out],
        ["profile", str(traced / "t.csv"), "--out", out],
    ):
        with raises(UserError, "t.csv", "none"):
            run(*command)
    (traced / "small").write_bytes(b"x")
    for device, said in ((traced, ""), (traced / "small", "too few to profile")):
        with raises(UserError, said):
            run("profile", str(device), "--out", str(traced / "p.json"))


def test_a_file_that_cannot_be_written_is_reported_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(blocks: object, path: Path) -> int:
        path.write_text("1,0x1000,DiskRead")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(traces, "save", full)
    with raises(UserError, "t.csv"):
        run("trace", "generate", "poisson", str(tmp_path / "t.csv"), "--count", "9")
    assert not list(tmp_path.iterdir())


def test_plan_prints_priorities_pairs_bounds_and_slos(tmp_path: Path) -> None:
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
    shown = Runner().run(["pm", "plan", str(tmp_path / "topology.yaml")]).stdout
    cells = [cell.strip() for cell in re.split(r"  +|;", shown)]
    bare = [cell for cell in cells if re.fullmatch(r"[\d.e+-]+(, [\d.e+-]+)*", cell)]
    assert set(bare) <= {str(number) for number in range(8)}  # priorities and levels
    assert "kB/s, " in shown and " %, " in shown and "200 ms" in shown


def test_a_missed_slo_is_an_exit_code(tmp_path: Path) -> None:
    document = topology(tmp_path)
    document["workloads"][0]["slo"] = {"latency": "10us"}  # shorter than one request takes
    path = tmp_path / "t.yaml"
    path.write_text(yaml.safe_dump(document))
    ended = Runner().run(["pm", "plan", str(path), "--json"])
    assert json.loads(ended.stdout)["met"] is False
    assert ended.exit_code == EXIT_MISSED


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
    (("workloads", 1, "server", "c0"), "workload w1"),
    (("workloads", 2, "device", "hdd"), "'hdd'"),
    (("workloads", 2, "slo", None), "workload w2: has no SLO"),
    (("workloads", 2, "slo", NOTHING), "workload w2: has no SLO"),
    (("workloads", 2, "slo", {}), "either latency or"),
    (("workloads", 2, "slo", "50ms"), "w2.slo"),
    (("workloads", {"w0": {}}), "workloads"),
    (("hosts", "c0", 5), "hosts.c0"),
    (("workloads", 2, "slo", {"latency": float("inf")}), "workload w2.slo.latency"),
    (("workloads", 2, "slo", {"latency": "5 parsec"}), "workload w2.slo.latency"),
    (("workloads", 2, "slo", {"latency": -1}), "workload w2.slo.latency"),
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
    (("trunks", [{"between": ["switch", "switch"], "link": "1Gbit"}]), "joins a switch to itself"),
    (("workloads", None), "workloads: is missing"),
]


@pytest.mark.parametrize(("change", "reason"), BAD)
def test_a_bad_topology_is_refused_in_one_sentence(
    tmp_path: Path, change: tuple[Any, ...], reason: str
) -> None:
    with raises(UserError, reason) as report:
        plan(tmp_path, changed(topology(tmp_path), *change))
    assert "\n" not in str(report.value)


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
    # A workload that fits is admitted with the others, and one that does not is refused.
    document = topology(tmp_path)
    del document["workloads"][2]["server"]
    path.write_text(yaml.safe_dump(document))
    admitted = {"workload": "w2", "server": "s0", "device": "ssd", "given": False}
    assert run("place", str(path))["places"][2] == admitted
    document["workloads"][2]["slo"] = {"latency": "1us"}
    path.write_text(yaml.safe_dump(document))
    done = Runner().run(["pm", "place", str(path), "--json"])
    report = json.loads(done.stdout)
    assert (done.exit_code, report["places"][2]["server"]) == (EXIT_MISSED, None)
    assert report["plan"]["met"]
