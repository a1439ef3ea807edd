"""`hotbed pm` on the command line: its output, and its answers to mistakes."""

from __future__ import annotations

import errno
import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
import yaml

from campaigns.papers.prioritymeister import traces
from schemas.errors import UserError
from tests.errors import raises
from tests.hotbed.pm_commands import PROFILE, run, topology, write_trace


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
    with raises(UserError, "nothing is overwritten"):
        run("trace", "convert", str(source), str(out))
    with raises(UserError, "cannot be read"):
        run("trace", "convert", str(tmp_path / "none"), str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()


def test_stand_ins_are_written_once(tmp_path: Path) -> None:
    out = tmp_path / "g.csv.gz"
    made = run("trace", "standin", "G", str(out), "--seconds", "60")
    assert made["storage_load"] == pytest.approx(0.25, rel=0.05)
    assert made["network_load"] == pytest.approx(0.05, rel=0.02)
    assert made["scv"] == pytest.approx(20, rel=0.02)
    with raises(UserError, "exists"):
        run("trace", "standin", "G", str(out))


@pytest.mark.parametrize("process", ["poisson", "hyperexponential", "interrupted", "copy"])
def test_traces_of_every_process_are_made(tmp_path: Path, process: str) -> None:
    out = tmp_path / "made.csv"
    made = run("trace", "generate", process, str(out), "--count", "3000", "--rate", "30")
    assert made["requests"] == 3000
    assert made["seconds"] == pytest.approx(100, rel=0.5)
    assert made["mean_bytes"] == 4096
    with raises(UserError, "exists"):
        run("trace", "generate", process, str(out))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["fractal"], "known are poisson"),
        (["poisson", "--rate", "0"], "must be above 0"),
        (["poisson", "--seed", "-1"], "--seed -1"),
        (["poisson", "--size", "7"], "a multiple of 512"),
        (["poisson", "--size", "7 acres"], "is not a size"),
        (["poisson", "--read-share", "2"], "0 to 1"),
        (["hyperexponential", "--c2", "0.5"], "at least 1"),
        (["poisson", "--rate", "1e-9", "--count", "50"], "4e"),
        (["copy", "--rate", "1e-9", "--count", "50"], "4e"),
    ],
)
def test_traces_that_cannot_be_are_told(tmp_path: Path, options: list[str], reason: str) -> None:
    process, *rest = options
    with raises(UserError, reason):
        run("trace", "generate", process, str(tmp_path / "t.csv"), *rest)


def test_a_folder_that_is_not_there_is_told_before_anything_is_made(traced: Path) -> None:
    out = str(traced / "none" / "t.csv")
    for command in (
        ["trace", "generate", "poisson", out],
        ["trace", "standin", "F", out, "--seconds", "20"],
        ["trace", "convert", str(traced / "t.csv"), out],
        ["profile", str(traced / "t.csv"), "--out", out],
    ):
        with raises(UserError, "t.csv", "none"):
            run(*command)


def test_a_file_that_cannot_be_written_is_told_and_nothing_of_it_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(blocks: object, path: Path) -> int:
        path.write_text("1,0x1000,DiskRead")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(traces, "save", full)
    with raises(UserError, "t.csv"):
        run("trace", "generate", "poisson", str(tmp_path / "t.csv"), "--count", "9")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--stage", "disk"], "allowed: network-in"),
        (["--stage", "storage"], "give --profile"),
        (["--stage", "network-in", "--rates", "1,x"], "'x' is not a rate"),
        (["--stage", "network-in", "--rates", "-1"], "'-1' is not a rate"),
        (["--stage", "network-in", "--rates", ""], "--rates is empty"),
        (["--stage", "network-in", "--format", "xml"], "allowed: plain"),
    ],
)
def test_mistakes_of_curve(traced: Path, arguments: list[str], reason: str) -> None:
    with raises(UserError, reason):
        run("curve", str(traced / "t.csv"), *arguments)


def test_a_trace_without_a_request_says_what_was_left_out(tmp_path: Path) -> None:
    path = tmp_path / "msr.csv"
    path.write_text("128166372010810581,mds,0,Write,2654453760,4096,54086\n")
    with raises(UserError, "msr.csv"):
        run("curve", str(path), "--stage", "network-in", "--disk", "5")
    path.write_text("5,0x1000,DiskRead,\n" * 2)
    reason = "holds no request: 2 malformed rows left out; the first is line 1: offset '' is not a"
    for command in (["curve", "--stage", "network-in"], ["trace", "stats"]):
        with raises(UserError, reason):
            run(*command, str(path))


def test_a_device_that_no_host_has_and_a_depth_that_none_can_have_are_told(tmp_path: Path) -> None:
    document = topology(tmp_path)
    path = tmp_path / "topology.yaml"
    path.write_text(yaml.safe_dump(document))
    with raises(UserError, "depth -3", "65536"):
        run("parameters", str(path), "--policy", "none", "--depth", "-3")
    del document["workloads"][2]["server"]
    document["workloads"][2]["device"] = "sdd"
    path.write_text(yaml.safe_dump(document))
    with raises(UserError, "w2", "'sdd'"):
        run("place", str(path))


def test_a_profile_is_not_measured_on_what_is_no_device(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        run("profile", str(tmp_path), "--out", str(tmp_path / "p.json"))
    small = tmp_path / "small"
    small.write_bytes(b"x")
    with raises(UserError, "too few to profile"):
        run("profile", str(small), "--out", str(tmp_path / "p.json"))
