"""`hotbed pm` from the command line: what it prints, and what a mistake is answered with."""

from __future__ import annotations

import errno
import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from campaigns.prioritymeister import tracework
from schemas.errors import UserError
from tests.hotbed.runner import Runner

PROFILE = {
    "type": "storageSSD",
    "bandwidthTable": [
        {"requestSize": 4096, "readBandwidth": 4e6, "writeBandwidth": 2e6},
        {"requestSize": 65536, "readBandwidth": 64e6, "writeBandwidth": 32e6},
    ],
}


def write_trace(path: Path, seed: int = 1, n: int = 400, rate: float = 50.0) -> None:
    """Poisson arrivals, 4 KiB and 64 KiB, mostly reads."""
    random = np.random.default_rng(seed)
    times = np.cumsum(random.exponential(1e9 / rate, n)).astype(np.int64)
    lines = [
        f"{t},0x{random.choice([4096, 65536]):08x},Disk{random.choice(['Read', 'Read', 'Write'])}\n"
        for t in times
    ]
    data = "".join(lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def topology(folder: Path) -> dict[str, Any]:
    (folder / "ssd.json").write_text(json.dumps(PROFILE))
    for k in range(3):
        write_trace(folder / f"t{k}.csv.gz", seed=k)
    return {
        "hosts": {
            "s0": {"link": "1Gbit", "devices": {"ssd": "ssd.json"}},
            **{f"c{k}": {"link": "1Gbit"} for k in range(3)},
        },
        "workloads": [
            {
                "name": f"w{k}",
                "client": f"c{k}",
                "server": "s0",
                "trace": f"t{k}.csv.gz",
                "slo": {"latency": f"{(k + 1) * 200}ms"},
            }
            for k in range(3)
        ],
    }


def run(*arguments: str) -> Any:
    """The JSON that a command prints; its UserError is raised."""
    done = Runner().run(["pm", *arguments, "--json"], catch_exceptions=True)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def plan(folder: Path, document: dict[str, Any]) -> Any:
    path = folder / "topology.yaml"
    path.write_text(yaml.safe_dump(document))
    return run("plan", str(path))


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


def test_network_curves_need_no_profile(traced: Path) -> None:
    text = (traced / "t.csv").read_text().splitlines()
    read = np.array(["Read" in line for line in text])
    size = np.array([int(line.split(",")[1], 16) for line in text])
    for stage, data in (("network-in", ~read), ("network-out", read)):
        work = 200 + np.where(data, 1.1, 0.025) * size
        found = run("curve", str(traced / "t.csv"), "--stage", stage)
        assert found["bursts"][0] == pytest.approx(work.sum())
        assert found["bursts"][-1] == pytest.approx(work.max())


def test_stats_are_the_columns_of_table_2(traced: Path) -> None:
    found = run("trace", "stats", str(traced / "t.csv"), "--profile", str(traced / "ssd.json"))
    times = np.array([int(line.split(",")[0]) for line in (traced / "t.csv").open()])
    gaps = np.diff(times)
    assert found["requests"] == 400
    assert found["scv"] == pytest.approx(gaps.var() / gaps.mean() ** 2)
    assert found["seconds"] == pytest.approx((times[-1] - times[0]) / 1e9)
    assert 0 < found["storage_load"] < 1
    assert found["network_load"] == max(found["network_in_load"], found["network_out_load"])
    several = run("trace", "stats", str(traced / "t.csv"), str(traced / "t.csv"))
    assert [row["storage_load"] for row in several] == [None, None]


def test_sizes_that_add_up_to_more_than_64_bits_have_a_mean(tmp_path: Path) -> None:
    path = tmp_path / "huge.csv"
    path.write_text("".join(f"{k},0x{1 << 61:x},DiskRead\n" for k in range(9)))
    assert run("trace", "stats", str(path))["mean_bytes"] == 1 << 61


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
    with pytest.raises(UserError, match="nothing is overwritten"):
        run("trace", "convert", str(source), str(out))
    with pytest.raises(UserError, match="cannot be read"):
        run("trace", "convert", str(tmp_path / "none"), str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()


def test_stand_ins_are_written_once(tmp_path: Path) -> None:
    out = tmp_path / "g.csv.gz"
    made = run("trace", "standin", "G", str(out), "--seconds", "60")
    assert made["storage_load"] == pytest.approx(0.25, rel=0.05)
    assert made["network_load"] == pytest.approx(0.05, rel=0.02)
    assert made["scv"] == pytest.approx(20, rel=0.02)
    with pytest.raises(UserError, match="exists"):
        run("trace", "standin", "G", str(out))


@pytest.mark.parametrize("process", ["poisson", "hyperexponential", "interrupted", "copy"])
def test_traces_of_every_process_are_made(tmp_path: Path, process: str) -> None:
    out = tmp_path / "made.csv"
    made = run("trace", "generate", process, str(out), "--count", "3000", "--rate", "30")
    assert made["requests"] == 3000
    assert made["seconds"] == pytest.approx(100, rel=0.5)
    assert made["mean_bytes"] == 4096
    with pytest.raises(UserError, match="exists"):
        run("trace", "generate", process, str(out))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["fractal"], "known are poisson, hyperexponential, interrupted, copy"),
        (["poisson", "--rate", "0"], "must be above 0"),
        (["poisson", "--size", "7"], "a multiple of 512"),
        (["poisson", "--size", "7 acres"], "is not a size"),
        (["poisson", "--read-share", "2"], "0 to 1"),
        (["hyperexponential", "--c2", "0.5"], "at least 1"),
        (["poisson", "--rate", "1e-9", "--count", "50"], "a trace lasts 4e\\+09 s at most"),
        (["copy", "--rate", "1e-9", "--count", "50"], "a trace lasts 4e\\+09 s at most"),
    ],
)
def test_traces_that_cannot_be_are_told(tmp_path: Path, options: list[str], reason: str) -> None:
    process, *rest = options
    with pytest.raises(UserError, match=reason):
        run("trace", "generate", process, str(tmp_path / "t.csv"), *rest)


def test_a_folder_that_is_not_there_is_told_before_anything_is_made(traced: Path) -> None:
    out = str(traced / "none" / "t.csv")
    for command in (
        ["trace", "generate", "poisson", out],
        ["trace", "standin", "F", out, "--seconds", "20"],
        ["trace", "convert", str(traced / "t.csv"), out],
        ["profile", str(traced / "t.csv"), "--out", out],
    ):
        with pytest.raises(UserError, match=r"t\.csv: there is no folder .*none: make it"):
            run(*command)


def test_a_file_that_cannot_be_written_is_told_and_nothing_of_it_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(blocks: object, path: Path) -> int:
        path.write_text("1,0x1000,DiskRead")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tracework, "save", full)
    with pytest.raises(UserError, match=r"t\.csv: cannot be written \(No space left on device\)"):
        run("trace", "generate", "poisson", str(tmp_path / "t.csv"), "--count", "9")
    assert not list(tmp_path.iterdir())


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


def test_a_throughput_slo_counts_the_trace(tmp_path: Path) -> None:
    document = topology(tmp_path)
    document["workloads"][0]["slo"] = {"completion": "60s"}
    first = plan(tmp_path, document)["workloads"][0]
    assert (first["slo_kind"], first["slo"]) == ("throughput", 60.0)
    assert first["bound"] == pytest.approx(8, rel=0.3)  # 400 requests at 50 a second
    assert first["met"]


def test_a_faster_device_has_lower_bounds(tmp_path: Path) -> None:
    document = topology(tmp_path)
    slow = plan(tmp_path, document)["workloads"]
    document["hosts"]["s0"]["devices"]["ssd"] = {"profile": "ssd.json", "speed": 4}
    fast = plan(tmp_path, document)["workloads"]
    for before, after in zip(slow, fast, strict=True):
        assert after["stages"][1]["bound"] < before["stages"][1]["bound"] / 3


def changed(document: dict[str, Any], *path: Any) -> dict[str, Any]:
    """`document` with the value (last of `path`) at a place, or without it when that is None."""
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
    (("workloads", 0, "client", "nobody"), "workload w0: client: there is no host 'nobody'"),
    (("workloads", 1, "server", "nobody"), "workload w1: server: there is no host 'nobody'"),
    (("workloads", 1, "server", "c0"), "workload w1: server c0 has no device"),
    (("workloads", 2, "device", "hdd"), "there is no device 'hdd'; known are ssd"),
    (("workloads", 2, "slo", None), "workload w2 has no SLO"),
    (("workloads", 2, "slo", NOTHING), "workload w2 has no SLO"),
    (("workloads", 2, "slo", {}), "either latency or completion"),
    (("workloads", 2, "slo", "50ms"), r"workload w2.slo is '50ms': write slo: \{latency: 50ms\}"),
    (("workloads", 2, "slo", {"latency": float("inf")}), "workload w2.slo.latency: .* finite"),
    (("workloads", {"w0": {}}), r"workloads is \{'w0': \{\}\}; write a list"),
    (("hosts", "c0", 5), "hosts.c0 is 5; write a mapping"),
    (("workloads", 2, "slo", {"latency": "5 parsec"}), "workload w2.slo.latency"),
    (("workloads", 2, "slo", {"latency": -1}), "workload w2.slo.latency"),
    (("workloads", 0, "trace", None), "workload w0.trace is missing"),
    (("workloads", 0, "trase", "x"), "workload w0.trase is not known"),
    (("workloads", 0, "client", "s0"), "its path is cyclic, it leaves host s0"),
    (("workloads", 0, "route", ["switch", "switch"]), "passes switch switch twice"),
    (("workloads", 0, "route", ["other"]), "there is no switch 'other'"),
    (("workloads", 1, "name", "w0"), "two workloads are called w0"),
    (("workloads", 1, "trace", "none.csv"), "none.csv: cannot be read"),
    (("hosts", "s0", "link", "1 fathom"), "hosts.s0.link"),
    (("hosts", "s0", "devices", {"ssd": "none.json"}), "none.json: cannot be read"),
    (("hosts", "s0", "link", "10kbit"), "is loaded to [0-9.]+ % by the mean rates of w0, w1, w2"),
    (("hosts", "s0", "devices", {"a": "ssd.json", "b": "ssd.json"}), "several devices: choose"),
    (("hosts", "switch", {}), "host switch is called as a switch"),
    (("hosts", "c->d", {}), "'c->d' is no name"),
    (("hosts", "s0", "devices", {"a:b": "ssd.json"}), "host s0: 'a:b' is no name"),
    (("trunks", [{"between": ["switch", "switch"], "link": "1Gbit"}]), "joins a switch to itself"),
    (("workloads", None), "workloads is missing"),
]


@pytest.mark.parametrize(("change", "reason"), BAD)
def test_a_bad_topology_is_told_in_one_sentence(
    tmp_path: Path, change: tuple[Any, ...], reason: str
) -> None:
    with pytest.raises(UserError, match=reason) as told:
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
    with pytest.raises(UserError, match="must begin at the client's switch a and end at"):
        plan(tmp_path, document)
    document["trunks"].append({"between": ["b", "a"], "link": "2Gbit"})
    with pytest.raises(UserError, match="trunk b-a is there twice"):
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
    with pytest.raises(
        UserError, match="trunk b-cor: there is no switch 'cor'; known are a, b, core"
    ):
        plan(tmp_path, document)
    document["trunks"][2] = {"between": ["b", "x->y"], "link": "1Gbit"}
    with pytest.raises(UserError, match="trunks: 'x->y' is no name"):
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
    assert "1 malformed row left out; the first is line 401" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--stage", "disk"], "there are network-in, storage, network-out"),
        (["--stage", "storage"], "give --profile"),
        (["--stage", "network-in", "--rates", "1,x"], "'x' is not a rate"),
        (["--stage", "network-in", "--rates", "-1"], "'-1' is not a rate"),
        (["--stage", "network-in", "--rates", ""], "--rates is empty"),
        (["--stage", "network-in", "--format", "xml"], "known are plain"),
    ],
)
def test_mistakes_of_curve(traced: Path, arguments: list[str], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        run("curve", str(traced / "t.csv"), *arguments)


def test_place_is_first_fit_and_keeps_every_slo(tmp_path: Path) -> None:
    document = topology(tmp_path)
    both = document["workloads"][:2]
    alone = [plan(tmp_path, document | {"workloads": [w]})["workloads"][0]["bound"] for w in both]
    shared = [w["bound"] for w in plan(tmp_path, document | {"workloads": both})["workloads"]]
    slo = (max(alone) + max(shared)) / 2  # two on one device are too many
    document["hosts"]["s1"] = {"devices": {"ssd": "ssd.json"}}
    for workload in document["workloads"]:
        del workload["server"]
        workload["slo"] = {"latency": slo}
    path = tmp_path / "topology.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(UserError, match="workload w0 has no server"):
        run("plan", str(path))
    done = Runner().run(["pm", "place", str(path), "--json"])
    placed = json.loads(done.stdout)
    servers = [one["server"] for one in placed["places"]]
    assert servers[:2] == ["s0", "s1"]
    assert placed["placed"] == (None not in servers)
    assert done.exit_code == int(not placed["placed"])
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
    assert done.exit_code == 1
    assert json.loads(done.stdout)["places"][2]["server"] is None
    assert json.loads(done.stdout)["plan"]["met"]


def test_a_profile_is_not_measured_on_what_is_no_device(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="neither a block device nor a file"):
        run("profile", str(tmp_path), "--out", str(tmp_path / "p.json"))
    small = tmp_path / "small"
    small.write_bytes(b"x")
    with pytest.raises(UserError, match="too few to profile"):
        run("profile", str(small), "--out", str(tmp_path / "p.json"))
