"""Requests of a real microstore cell's drivers, and the results that count."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mos_fakes import RATE, FakeBed, archive_of

from campaigns.papers.mos.live import drives as driving
from campaigns.papers.mos.live.drives import ProxyDriver, ProxyLogin, drives_of, script, workload_of
from campaigns.papers.mos.live.results import Sent, gather, held_of, numbers_of
from campaigns.papers.mos.loads import loads_of
from schemas.cells.mos import MOS
from schemas.errors import HotbedError
from workloads.cosbench.archive import Archive, Driver, Second
from workloads.cosbench.workload import to_xml

START = 1000.0
SMALL_CELL: dict[str, Any] = {"seconds": 4, "rampup_s": 1}


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "campaigns.papers.mos.live.drives.time.time", lambda: START - driving.LEAD_S
    )


def access(proxy: str = "proxy0") -> ProxyLogin:
    return ProxyLogin(proxy, "http://10.0.0.1:8080/auth/v1.0", "small:small", "k")


def test_a_load_is_cosbench_s_workload() -> None:
    (load, *_) = loads_of(MOS.of(experiment="setups", small_workers=3, **SMALL_CELL))
    xml = to_xml(workload_of(load.objects, access(), load), ("main",))
    for part in (
        'workers="3"',
        'runtime="4"',
        'rampup="1"',
        'ratio="90"',
        "sizes=u(1,128)KB",
        "cprefix=a-",
        "auth_url=http://10.0.0.1:8080/auth/v1.0",
    ):
        assert part in xml
    stored = to_xml(workload_of(load.objects, access()), ("init", "prepare"))
    assert "objects=r(1,50)" in stored
    (one,) = loads_of(MOS.of(experiment="sizes", object_kb=64, **SMALL_CELL))
    assert "sizes=c(64)KB" in to_xml(workload_of(one.objects, access()), ("prepare",))


def test_drivers_begin_together_at_their_times_and_one_that_fails_ends_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "cosdrive"
    program.write_text(
        '#!/bin/bash\nread -r line <&3\necho "$line" "$@"\n'
        '[ "$line" = fails ] && { echo "cosdrive: no store" >&2; exit 2; }\n'
        '[ "$line" = stays ] && exec sleep 100\nexit 0\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(driving, "FOLDER", str(tmp_path))
    monkeypatch.setattr(driving, "REMOTE_PROGRAM", str(program))
    (load, *_) = loads_of(MOS.of(experiment="setups", **SMALL_CELL))

    def run(**contents: str) -> subprocess.CompletedProcess[bytes]:
        for name, text in contents.items():
            (tmp_path / f"{name}.xml").write_text(text + "\n")
        ones = [ProxyDriver(name, load, access(), "client0") for name in contents]
        text = script(ones, 0.0, 5)
        # The shell would wait longer for the remaining process.
        return subprocess.run(["bash", "-c", text], capture_output=True, check=False, timeout=60)

    assert run(a="well", b="well").returncode == 0
    assert (tmp_path / "b.out").read_text() == ("well run /dev/fd/3 --archive b.archive --seed 6\n")
    assert not list(tmp_path.glob("*.xml"))
    assert run(a="stays", b="fails").returncode == 1
    assert (tmp_path / "b.err").read_text() == "cosdrive: no store\n"


def test_a_driver_that_fails_is_named(tmp_path: Path) -> None:
    bed = FakeBed(tmp_path / "site", START, 4)
    bed.agent.exit_code = 1
    loads = loads_of(MOS.of(experiment="setups", **SMALL_CELL))
    with pytest.raises(HotbedError, match="the driver of a on node client0 failed: the store ref"):
        driving.drive(
            bed.agent,
            bed.live.shell_to,
            drives_of(loads, bed.swift.access(), bed.swift.clients),
            seed=1,
            folder=tmp_path,
        )
    assert all(not shell.files for shell in bed.shells.values())


def test_what_ends_in_the_measured_time_counts(tmp_path: Path) -> None:
    (load, *_) = loads_of(MOS.of(experiment="setups", **SMALL_CELL))
    drive = ProxyDriver("a", load, access(), "client0")
    for file, text in archive_of("a", 8, START + 2.2).items():
        path = tmp_path / "a.archive" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    sent = gather([drive], tmp_path, START, 8.0)
    assert list(sent["A"].ops) == [0, 0, *[RATE["a"]] * 6]
    found = numbers_of(sent, 0.0, 4.0)
    assert found["A_qps"] == RATE["a"] / 2
    assert found["A_ops"] == 2 * RATE["a"]
    assert numbers_of(sent, 2.0, 8.0)["A_qps"] == RATE["a"]
    assert numbers_of({"A": Sent(4)}, 0.0, 4.0)["A_qps"] == 0.0
    assert "A_mean_s" not in numbers_of({"A": Sent(4)}, 0.0, 4.0)


def test_an_operation_counts_by_its_part_in_the_measured_time() -> None:
    """Eight workers that start together end together: by end times a second has all or nothing."""
    second = Second(4.0, "s1-main", "main", "read", "c", 8, 8_000_000, 0, 4.0, 4.0, True)
    later = replace(second, t_s=8.0)
    driver = Driver("finished", START, START + 9, 1, None, None)
    sent = Sent(6)
    sent.add(Archive(Path(), "w1", "c", (), driver=driver, seconds=(second, later)), START)
    assert list(sent.ops) == pytest.approx([1, 2, 2, 2, 2, 2])
    assert list(sent.ended) == [0, 0, 0, 0, 8, 0]
    found = numbers_of({"C": sent}, 2.0, 6.0)
    assert [found["C_qps"], found["C_mb_s"]] == pytest.approx([2.0, 2.0])
    assert [found["C_ops"], found["C_mean_s"]] == [8, 4.0]


def test_a_step_without_an_observation_tells_nothing_of_what_was_held() -> None:
    assert held_of([{"wall": 1.0, "observation": None, "actions": []}], 0.0) == []
