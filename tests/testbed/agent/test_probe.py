"""Parsers of the probe, on text as the kernel prints it."""

from __future__ import annotations

import os
from types import SimpleNamespace

from testbed.agent import probe

PROC_STAT = """cpu  63387 14104 43484 274728 2312 0 1642 440 0 0
cpu0 31000 7000 21000 137000 1100 0 800 220 0 0
cpu1 32387 7104 22484 137728 1212 0 842 220 0 0
intr 1 2 3
ctxt 99
"""
NET_DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo: 111 1 0 0 0 0 0 0 111 1 0 0 0 0 0 0
  eth0: 4515676097 9 0 0 0 0 0 0 8145767 7 0 0 0 0 0 0
  eth1:5 9 0 0 0 0 0 0 6 7 0 0 0 0 0 0
"""
PRESSURE = """some avg10=1.23 avg60=0.50 avg300=0.10 total=24675549
full avg10=0.00 avg60=0.00 avg300=0.00 total=99
"""


def test_what_the_kernel_prints_is_read():
    assert (probe.some_total(PRESSURE), probe.some_total("")) == (24675549, None)
    assert probe.cpu_ticks(PROC_STAT) == ([63387, 14104, 43484, 274728, 2312, 0, 1642, 440], 2)
    assert probe.net_bytes(NET_DEV, ["eth0"]) == [4515676097, 8145767]
    assert probe.net_bytes(NET_DEV, ["eth0", "eth1"]) == [4515676102, 8145773]
    stat = "  955216 11 19883722 44 345761 55 35063624 66 3 57292 627377 0 0 0 0 1 2\n"
    assert probe.disk_counters(stat) == [955216, 19883722, 345761, 35063624, 57292, 627377, 3]
    assert probe.interfaces_of("127.0.0.1") == ["lo"]
    assert "lo" not in probe.interfaces_of("203.0.113.9")
    assert probe.stat_files({"osd": "/dev/not-there", "scratch": "/dev/null"}) == []


def test_the_disk_is_found_by_number_and_counted_once(tmp_path, monkeypatch):
    """Loop devices get new numbers at each start: a noted name was another node's disk."""
    disk = tmp_path / "block" / "loop3"
    for folder in (disk, disk / "loop3p1", disk / "loop3p2"):
        folder.mkdir(parents=True)
        (folder / "stat").write_text("")
    for part in ("loop3p1", "loop3p2"):
        (disk / part / "partition").write_text("1")
    numbers = {"/dev/hotbed/scratch": 1, "/dev/hotbed/osd": 2, "/dev/hotbed/disk": 3}
    folders = {1: disk / "loop3p1", 2: disk / "loop3p2", 3: disk}
    stat = os.stat

    def numbered(path, **options):
        known = numbers.get(str(path))
        return SimpleNamespace(st_rdev=os.makedev(259, known)) if known else stat(path, **options)

    def folder_of(path):
        return str(folders[int(path.rpartition(":")[2])])

    monkeypatch.setattr(probe.os, "stat", numbered)
    monkeypatch.setattr(probe.os.path, "realpath", folder_of)
    found = probe.stat_files({path.rpartition("/")[2]: path for path in numbers})
    monkeypatch.undo()
    assert found == [f"{disk}/stat"]


def test_processes_are_counted_with_their_commands():
    commands: dict[str, str] = {}
    found = probe.process_counters(commands)
    (key,) = [key for key in found if key.startswith(f"{os.getpid()}.")]
    command, cpu_us, _, _ = found[key]
    assert "python" in command
    assert cpu_us > 0
    commands[key] = "kept"
    assert probe.process_counters(commands)[key][0] == "kept"


def test_an_osd_has_a_group_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "read", lambda path: "0::/\n")
    assert probe.own_pressure(4711) is None
    service = tmp_path / "system.slice" / "ceph-osd@3.service"
    service.mkdir(parents=True)
    (service / "io.pressure").write_text(PRESSURE)
    monkeypatch.setattr(probe, "CGROUP2_MOUNTS", (str(tmp_path),))
    monkeypatch.setattr(probe, "read", lambda path: "0::/system.slice/ceph-osd@3.service\n")
    assert probe.own_pressure(os.getpid()) == f"{service}/io.pressure"
