"""Enforcement of a node's spec: cores, memory, link, disk, and its own pressure."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from campaigns.grounds.cores import CoreShares
from campaigns.grounds.live import LoadMeter
from schemas.errors import HotbedError
from testbed.agent import facts
from testbed.sites.contract import Testbed
from testbed.sites.local import LocalSite
from testbed.sites.local.cgroups import CPU_PERIOD_US, Cgroups, detect
from testbed.spec import TestbedSpec
from tests.errors import raises
from tests.testbed.sites.local_support import local_site, shell, small_spec

pytestmark = [pytest.mark.local, pytest.mark.timeout(120)]

BURN = """
import os
for _ in range(3): os.fork()
while True: pass
"""

UNTIL_ENOUGH = """
"$@" & while [ ! -e /run/enough ]; do sleep 0.1; done; rm /run/enough; kill -9 0
"""

SINK = """
import socket
server = socket.create_server(("", 5001)); connection, _ = server.accept()
while connection.recv(1 << 18): pass
"""

BLAST = """
import socket, sys, time
for _ in range(300):
    try: connection = socket.create_connection((sys.argv[1], 5001)); break
    except OSError: time.sleep(0.1)
block = bytes(1 << 18)
while True: connection.sendall(block)
"""

RECEIVED = "sed -n 's/^ *eth0: *\\([0-9]*\\) .*/\\1/p' /proc/net/dev"
READ = """disk=/dev/hotbed/osd
read -r _ _ sectors _ < /sys/dev/block/$((0x$(stat -c %t $disk))):$((0x$(stat -c %T $disk)))/stat
echo $((512 * sectors))"""


@pytest.fixture(scope="module")
def site() -> Iterator[LocalSite]:
    yield local_site()


@pytest.fixture(scope="module")
def up(site: LocalSite) -> Iterator[Testbed]:
    yield site.provision(small_spec())
    site.release("small")


@pytest.fixture(scope="module")
def spec() -> TestbedSpec:
    return small_spec()


@contextmanager
def load_on(up: Testbed, node: str, argv: Sequence[str]) -> Iterator[None]:
    """Run `argv` and its children on the node until the end of the block."""
    on_node = shell(up, node)
    running = on_node.popen(["timeout", "110", "sh", "-c", UNTIL_ENOUGH, "sh", *argv])
    try:
        yield
    finally:
        on_node.run(["touch", "/run/enough"])
        running.communicate(timeout=30)


class Accounted(NamedTuple):
    """Kernel data of a node: configured share of a core, CPU seconds, periods, and periods in which
    it exceeded the share and was throttled."""

    share: float
    used_s: float
    periods: int
    held_back: int


def accounted(site: LocalSite, node: str) -> Accounted:
    groups, group = Cgroups(detect(), site.places.cgroup), f"small/{node}"
    trees = groups.hierarchies
    tree = trees.v2 if trees.unified else trees.v1["cpu"]
    assert tree is not None
    folder = tree / groups.top / group
    files = ["cpu.max"] if trees.unified else ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
    quota, period = " ".join((folder / name).read_text() for name in files).split()
    assert int(period) == CPU_PERIOD_US
    lines = (folder / "cpu.stat").read_text().splitlines()
    counts = {key: int(value) for key, value in (line.split() for line in lines)}
    share = int(quota) / CPU_PERIOD_US
    return Accounted(share, groups.usage_s(group), counts["nr_periods"], counts["nr_throttled"])


def test_cores(site: LocalSite, up: Testbed) -> None:
    """The kernel's own accounting holds even if a busy machine leaves little time."""
    with load_on(up, "osd0", ["python3", "-c", BURN]):
        before, first = site.usage_counters("small"), accounted(site, "osd0")
        end = time.monotonic() + 90
        while (last := accounted(site, "osd0")).held_back < first.held_back + 40:
            assert time.monotonic() < end, f"it is not held back: {first}, {last}"
            time.sleep(0.2)
        usage = site.usage_between(before, site.usage_counters("small"))
    assert first.share == 0.5
    assert accounted(site, "admin").share == 1.0
    used_s, in_full_s = last.used_s - first.used_s, 1e-6 * CPU_PERIOD_US * first.share
    # At most its share of each period, and all of the share in throttled periods.
    assert used_s < 1.1 * in_full_s * (last.periods - first.periods)
    assert used_s > 0.8 * in_full_s * (last.held_back - first.held_back)
    assert usage.node_cores["osd0"] * usage.interval_s >= used_s
    assert usage.node_cores["osd1"] < 0.1


def test_memory(up: Testbed) -> None:
    hog = "data = bytearray({size} << 20); print(len(data))"
    # ssh returns 255 when a signal ends its command, so the inner shell prints the code.
    line = "python3 -c '{}'; echo code $?"
    for node, size, code in (("osd0", 300, 0), ("osd0", 700, 137), ("osd1", 300, 0)):
        out = shell(up, node).run(["sh", "-c", line.format(hog.format(size=size))]).text
        assert out.split()[-2:] == ["code", str(code)]


class Counted(NamedTuple):
    """Bytes of a kernel counter before and after a moment (seconds)."""

    before: int
    at: float
    after: int


def counted(up: Testbed, node: str, command: str) -> Counted:
    printed = shell(up, node).run(["sh", "-c", f"{command}; date +%s.%N; {command}"]).text.split()
    before, at, after = printed
    return Counted(int(before), float(at), int(after))


def held_to(up: Testbed, node: str, command: str, rate: float, bucket: float) -> None:
    """Assert that a counter under full load never grows by more than the rate and a bucket. At
    least one window must reach nearly that growth, because a busy machine spoils windows.

    Args:
        rate, bucket: bytes per second, and bytes that may come at once."""
    end, best = time.monotonic() + 60, 0.0
    while best < 0.9:
        assert time.monotonic() < end, f"at most {best:.0%} of the rate in any window"
        first = counted(up, node, command)
        time.sleep(1.0)
        last = counted(up, node, command)
        grown, seconds = last.before - first.after, last.at - first.at
        assert grown < 1.02 * rate * seconds + bucket
        best = max(best, grown / (rate * seconds))


@pytest.mark.parametrize(("source", "sink"), [("osd0", "admin"), ("admin", "osd0")])
def test_link(up: Testbed, source: str, sink: str) -> None:
    blast = ["python3", "-c", BLAST, up.node(sink).address]
    with load_on(up, sink, ["python3", "-c", SINK]), load_on(up, source, blast):
        held_to(up, sink, RECEIVED, rate=200e6 / 8, bucket=96 * 1024)


def fio(name: str, *options: str, seconds: int = 5) -> list[str]:
    return [
        "fio", f"--name={name}", "--filename=/dev/hotbed/osd", "--direct=1", "--ioengine=libaio",
        "--time_based", f"--runtime={seconds}", "--output-format=json", *options,
    ]  # fmt: skip


def sequential(seconds: int = 100) -> list[str]:
    """Return fio for 512 KiB sequential requests by one reader: only the first positions. It uses a
    thread, because a job's process leaves the group that `load_on` ends."""
    return fio("seq", "--rw=read", "--bs=1M", "--iodepth=4", "--thread", seconds=seconds)


def test_disk_bandwidth(up: Testbed) -> None:
    with load_on(up, "osd0", sequential()):
        held_to(up, "osd0", READ, rate=40e6, bucket=4 * 2**20)


def test_random_reads_wait_for_positioning(up: Testbed) -> None:
    """The mean is 4 ms over the whole disk, and the partition is a part of the disk."""
    job = fio("rand", "--rw=randread", "--bs=4k", "--iodepth=1", seconds=2)
    for _ in range(10):
        result = json.loads(shell(up, "osd0").run(job, timeout_s=30).text)
        mean_s = result["jobs"][0]["read"]["clat_ns"]["mean"] / 1e9
        assert mean_s > 0.002
        if mean_s < 0.006:  # a busy machine adds to it
            return
    raise AssertionError(f"{mean_s} s")


def test_scratch_and_store_share_one_queue(up: Testbed) -> None:
    alone = _mean_latency(up)
    other = fio("other", "--rw=randread", "--bs=4k", "--iodepth=8", seconds=4)
    other[2] = "--filename=/dev/hotbed/scratch"
    disturbing = shell(up, "osd0").popen(other)
    time.sleep(1.0)
    disturbed = _mean_latency(up)
    disturbing.wait(timeout=20)
    assert disturbed > 4 * alone


def _mean_latency(up: Testbed) -> float:
    job = fio("probe", "--rw=randread", "--bs=4k", "--iodepth=1", seconds=2)
    result = json.loads(shell(up, "osd0").run(job, timeout_s=30).text)
    return float(result["jobs"][0]["read"]["clat_ns"]["mean"])


def test_pressure_is_the_nodes_own(up: Testbed) -> None:
    # With this many readers blocked in the kernel, several still wait while others wait for a busy
    # machine's processors.
    readers = ("--rw=randread", "--bs=4k", "--ioengine=psync", "--thread", "--numjobs=64")
    idle_us = _stalled_us(up, "osd0")
    with load_on(up, "osd0", fio("load", *readers, seconds=100)):
        end = time.monotonic() + 40
        while _stalled_us(up, "osd0") < idle_us + 500_000:
            assert time.monotonic() < end, "no reader waits"
            time.sleep(0.1)
        before = {node: _stalled_us(up, node) for node in ("osd0", "osd1")}
        start = time.monotonic()
        time.sleep(3.0)
        interval_us = 1e6 * (time.monotonic() - start)
        share = {node: (_stalled_us(up, node) - before[node]) / interval_us for node in before}
    assert share["osd0"] > 0.7
    assert share["osd1"] < 0.2


def _stalled_us(up: Testbed, node: str) -> int:
    path = up.node(node).pressure_file
    assert path is not None
    some = shell(up, node).run(["cat", path]).text.splitlines()[0]
    return int(some.rpartition("total=")[2])


def test_shaping_off_frees_disk_and_link(site: LocalSite, up: Testbed) -> None:
    site.shape("small", False)
    try:
        with load_on(up, "osd0", sequential()):
            # A busy machine may miss twice the rate in one window, but not in all windows.
            held_to(up, "osd0", READ, rate=80e6 / 0.9, bucket=math.inf)
        qdisc = _qdiscs(site, up)
    finally:
        site.shape("small", True)
    assert "tbf" not in qdisc
    assert "tbf" in _qdiscs(site, up)


def _qdiscs(site: LocalSite, up: Testbed) -> str:
    netns = site.places.netns("small", "osd0")
    command = ["tc", "-n", netns, "qdisc", "show", "dev", "eth0"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_what_was_set_by_hand_fails_a_measurement_and_up_sets_it_back(site, up):
    own, switch = site.places.netns("small", "osd0"), site.places.switch("small")
    bucket = ["root", "tbf", "burst", "96kb", "latency", "25ms", "rate"]
    groups = Cgroups(detect(), site.places.cgroup)

    def tc(netns: str, device: str, *words: str) -> None:
        subprocess.run(["tc", "-n", netns, "qdisc", "replace", "dev", device, *words], check=True)

    by_hand: dict[str, Callable[[], object]] = {
        "disk.positioning": lambda: on_disk(site, '{"op": "set", "positioning_us": 40000}'),
        "disk.slow": lambda: on_disk(site, '{"op": "fault", "slow": 2}'),
        "disk.shaping": lambda: on_disk(site, '{"op": "shape", "on": false}'),
        "network": lambda: tc(switch, site.places.port("osd0"), *bucket, "20mbit"),
        "network_sent": lambda: tc(own, "eth0", *bucket, "20mbit"),
        "memory": lambda: groups.create("small/osd0", cpus=0.5, memory=2**28),
        "cpus": lambda: groups.create("small/osd0", cpus=0.4, memory=2**29),
    }
    usage = LoadMeter(site, up)
    for name, change in by_hand.items():
        change()
        with raises(HotbedError, "of node osd0 is", name), usage.measured():
            raise AssertionError("the load ran")
        site.provision(small_spec())
    with raises(HotbedError, "disk.slow", "osd0"), usage.measured():
        by_hand["disk.slow"]()
    site.provision(small_spec())
    read = usage.require_settings()
    assert read["groups.osd.disk.positioning"] == pytest.approx(0.004)
    assert read["groups.osd.memory"] == 2**29
    assert read["groups.osd.network"] == pytest.approx(200e6)
    assert read["groups.osd.cpus"] == pytest.approx(0.5)


def test_cores_of_nodes_are_scaled_and_up_sets_them_back(site, up):
    groups = Cgroups(detect(), site.places.cgroup)
    inner = groups.share_folders("small/osd0").get("cpu")
    if inner is not None:  # cgroup v1: as Swift's groups inside a node
        inner = inner / "swift-proxy"
        inner.mkdir()
        (inner / "cpu.cfs_period_us").write_text("25000")
        (inner / "cpu.cfs_quota_us").write_text("10000")
    cores = CoreShares(0.7, {"cores.factor": 0.7})
    try:
        site.scale_cpus("small", 0.7)
        assert groups.limits("small/osd0")["cpus"] == pytest.approx(0.35)
        read = LoadMeter(site, up, cores=cores).require_settings()
        assert read["cores.effective.osd.cpus"] == pytest.approx(0.35)
        assert read["cores.effective.admin.cpus"] == pytest.approx(0.7)
        assert "groups.osd.cpus" not in read
        with raises(HotbedError, "cpus of node"):
            LoadMeter(site, up).require_settings()
        if inner is not None:
            assert int((inner / "cpu.cfs_quota_us").read_text()) == 8750
        site.scale_cpus("small", 1.6)
        assert groups.limits("small/osd0")["cpus"] == pytest.approx(0.8)
        site.provision(small_spec())
        assert groups.limits("small/osd0")["cpus"] == pytest.approx(0.5)
    finally:
        site.scale_cpus("small", 1.0)
        if inner is not None:
            inner.rmdir()


def on_disk(site: LocalSite, request: str) -> None:
    """Send a request to the first disk of osd0 through its control socket, as a person would."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(site.places.testbed("small") / "nodes/osd0/disk/control"))
        connection.sendall(request.encode() + b"\n")
        assert json.loads(connection.makefile().readline())["ok"]


def test_facts_of_a_node_are_its_own(up: Testbed) -> None:
    found = facts.parse(shell(up, "osd0").run(["sh", "-c", facts._SCRIPT]).text)
    assert found["mtu"] == "eth0=1500"
    assert found["congestion_control"] == "reno"
    assert found["memory_bytes"] == 2**29


def test_load_that_hides_between_the_kernels_ticks_is_seen(site: LocalSite, up: Testbed) -> None:
    """In /proc/stat, a process that sleeps at every tick used no time."""
    bursts = (
        "import time\nend = time.monotonic() + 4\nwhile time.monotonic() < end:\n"
        "    start = time.monotonic()\n    while time.monotonic() - start < 0.0015: pass\n"
        "    time.sleep(0.0015)\n"
    )
    outside = subprocess.Popen([sys.executable, "-c", bursts])
    time.sleep(0.5)
    before = site.usage_counters("small")
    time.sleep(3.0)
    usage = site.usage_between(before, site.usage_counters("small"))
    outside.wait()
    assert usage.outside_cores > 0.35
    assert sum(usage.node_cores.values()) < 0.5


def test_what_keeps_processors_awake_is_no_load_and_stays_no_longer(site, up, monkeypatch):
    """The processes get only idle time. A busy machine has little idle time."""
    monkeypatch.setenv("HOTBED_AWAKE", "yes")
    groups = Cgroups(detect(), site.places.awake_cgroup)
    end, spun = time.monotonic() + 20, 0.0
    with site.kept_awake() as awake:
        assert awake
        assert len(groups.pids()) == len(os.sched_getaffinity(0))
        while spun <= 1.0 and time.monotonic() < end:
            before = site.usage_counters("small")
            time.sleep(3.0)
            after = site.usage_counters("small")
            spun = after["ours awake:here"] - before["ours awake:here"]
        assert os.sched_getaffinity(0) <= processors_of(groups.pids())
    whole = site.usage_between(before, after)
    none = {"ours awake:here": 0.0}
    without = site.usage_between(before | none, after | none)
    assert spun > 0
    difference = without.outside_cores - whole.outside_cores
    assert difference == pytest.approx(spun / whole.interval_s, rel=0.3)
    assert not groups.pids()
    assert groups.usage_s() == 0.0


def processors_of(pids: set[int]) -> set[int]:
    """Return the processors that any of these processes may use."""
    return set().union(*(os.sched_getaffinity(pid) for pid in pids))
