"""Keeping processors awake: times, processes, and clean-up. The control groups here are plain
folders; tests/testbed/sites/test_local_enforced.py has real ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from campaigns.engine.session import kept_awake as campaign_awake
from schemas.errors import UserError
from testbed.sites.local.awake import kept_awake, wanted
from testbed.sites.local.cgroups import Cgroups, Hierarchies
from testbed.sites.local.process import alive
from tests.errors import raises
from tests.testbed.fake_site import FakeSite
from tests.waiting import ends

VIRTUAL = "processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n"
BARE = "processor\t: 0\nmodel name\t: hypervisor 9000\nflags\t\t: fpu vme lahf_lm\n"


def plain(folder: Path) -> Cgroups:
    """Return control groups of version 1 made from plain folders."""
    trees = {name: folder / name for name in ("cpu", "cpuacct", "memory")}
    return Cgroups(Hierarchies(trees, None, None, frozenset()), "top")


@pytest.mark.parametrize(
    ("said", "cpuinfo", "expected"),
    [
        (None, VIRTUAL, True),
        (None, BARE, False),
        ("", VIRTUAL, True),
        ("auto", BARE, False),
        ("yes", BARE, True),
        ("no", VIRTUAL, False),
    ],
)
def test_virtual_machines_are_kept_awake_unless_set_otherwise(said, cpuinfo, expected):
    environment = {} if said is None else {"HOTBED_AWAKE": said}
    assert wanted(environment, cpuinfo) is expected
    with raises(UserError, "HOTBED_AWAKE"):
        wanted({"HOTBED_AWAKE": "maybe"})


def test_they_end_with_who_is_killed(tmp_path):
    code = (
        "import sys; from pathlib import Path; from testbed.sites.local.awake import kept_awake\n"
        "from tests.testbed.sites.test_local_awake import plain\n"
        "with kept_awake(plain(Path(sys.argv[1]))):\n    print('awake', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    with process.stdout, process.stdin:
        assert process.stdout.readline() == b"awake\n"
        pids = spinning(tmp_path)
        assert all(alive(pid) for pid in pids)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert all(ends(pid) for pid in pids)


def test_without_control_groups_nothing_is_started_and_nothing_fails(tmp_path):
    (tmp_path / "cpu").write_text("no folder")
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = set(children.read_text().split())
    with kept_awake(plain(tmp_path)) as done:
        assert not done
        assert set(children.read_text().split()) <= before


@pytest.mark.parametrize("idle", [True, False])
def test_who_keeps_awake_gives_way(tmp_path, idle):
    v1, v2 = tmp_path / "cpu" / "top", tmp_path / "all" / "top"
    for folder in (v1, v2):
        folder.mkdir(parents=True)
        if idle:
            (folder / "cpu.idle").write_text("0")
    plain(tmp_path).give_way()
    unified = Hierarchies({}, None, tmp_path / "all", frozenset({"cpu", "memory"}))
    Cgroups(unified, "top").give_way()
    files = ("cpu.idle", "cpu.idle") if idle else ("cpu.shares", "cpu.weight")
    written = [(v1 / files[0]).read_text(), (v2 / files[1]).read_text()]
    assert written == (["1", "1"] if idle else ["2", "1"])


def test_a_campaign_reports_and_records_it(tmp_path):
    said: list[str] = []
    with campaign_awake(None, said.append) as awake:
        assert awake is None
    for done in (True, False):
        site = FakeSite(tmp_path)
        site.kept_awake = lambda done=done: nullcontext(done)  # type: ignore[attr-defined]
        site.awake_s = lambda: 0.0  # type: ignore[attr-defined]
        with campaign_awake(site, said.append) as awake:
            assert awake is done
    assert len(said) == 1
    assert "HOTBED_AWAKE=no" in said[0]


def spinning(folder: Path) -> list[int]:
    """Return the process in the group; a plain file keeps only the last one written."""
    (procs,) = folder.glob("cpu/top/*/cgroup.procs")
    return [int(procs.read_text())]
