"""Attribution of load: a cluster's containers are in control groups of their container engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.sites.inventory import usage
from tests.testbed.sites.fake_hosts import FakeHost, play

FSID = "0f8fad5b-d9cb-469f-a165-70867728950e"
OTHER = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
V2, V1 = ("sys/fs/cgroup", "cpu.stat"), ("sys/fs/cgroup/cpuacct", "cpuacct.usage")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    return play(tmp_path, 1, monkeypatch).hosts["192.0.2.1"]


def used(host: FakeHost, tree: tuple[str, str], group: str, seconds: float) -> None:
    """Add `seconds` of used time to a control group."""
    folder, file = tree
    text = f"usage_usec {seconds * 1e6:.0f}\n" if tree == V2 else f"{seconds * 1e9:.0f}\n"
    host.write(f"{folder}/{group}/{file}", text)


def runs(host: FakeHost, tree: tuple[str, str], group: str, pid: int, *folders: str) -> None:
    """Add a process to a group, with these folders mounted."""
    host.write(f"{tree[0]}/{group}/cgroup.procs", f"{pid}\n{pid + 1}\n")
    mounts = "".join(f"9 8 8:1 {folder} /x rw - ext4 /dev/sda1 rw\n" for folder in folders)
    host.write(f"proc/{pid}/mountinfo", mounts)


def asked(host: FakeHost) -> dict[str, Any]:
    found = host.do({"do": "usage", "fsid": FSID})
    assert found["ok"], found
    result = found["result"]
    assert isinstance(result, dict)
    return result


@pytest.mark.parametrize("tree", [V2, V1])
@pytest.mark.parametrize(
    ("group", "inner"),
    [
        ("system.slice/docker-aa.scope", ""),
        ("docker/aa", ""),
        ("machine.slice/libpod-aa.scope", "/container"),
    ],
)
def test_containers_of_our_cluster_are_ours(
    host: FakeHost, tree: tuple[str, str], group: str, inner: str
) -> None:
    used(host, tree, "system.slice", 20.0)
    used(host, tree, "system.slice/hotbed-agent.service", 2.0)
    used(host, tree, group, 5.0)
    runs(host, tree, group + inner, 100, "/lib/docker/x", f"/lib/ceph/{FSID}/osd.0")
    found = asked(host)
    assert found["ours"] == pytest.approx(2.0)
    assert found["containers"] == {group: pytest.approx(5.0)}


def test_other_containers_are_not(host: FakeHost) -> None:
    """Cases are another cluster's container, one without Ceph, and one that has ended."""
    used(host, V2, "system.slice", 20.0)
    for number, folder in enumerate((f"/lib/ceph/{OTHER}/osd.0", f"/lib/{FSID}x", "/"), 1):
        group = f"system.slice/docker-{number}.scope"
        used(host, V2, group, 5.0)
        runs(host, V2, group, 100 * number, folder)
    used(host, V2, "system.slice/docker-4.scope", 5.0)
    assert asked(host)["containers"] == {}


def test_units_of_another_cluster_of_cephadms_are_not_ours(host: FakeHost) -> None:
    used(host, V2, "system.slice", 20.0)
    for fsid, seconds in ((FSID, 3.0), (OTHER, 7.0)):
        escaped = fsid.replace("-", "\\x2d")
        used(host, V2, f"system.slice/system-ceph\\x2d{escaped}.slice", seconds)
    used(host, V2, "system.slice/system-ceph\\x2dosd.slice", 1.0)
    assert asked(host)["ours"] == pytest.approx(4.0)


def test_load_in_containers_is_counted_by_container() -> None:
    """A restarted daemon has a new container that begins at 0."""
    answer = dict.fromkeys(("all", "busy", "steal", "kernel", "ours"), 0.0)
    first = {**answer, "containers": {"docker/aa": 900.0, "docker/bb": 100.0}}
    then = {"all": 20.0, "busy": 10.0, "ours": 1.0, "steal": 0.0, "kernel": 0.0}
    last = {**then, "containers": {"docker/bb": 104.0, "docker/cc": 3.0}}
    before, after = usage.counters({"osd0": first}, 0.0), usage.counters({"osd0": last}, 10.0)
    assert usage.between(before, after).outside_cores == pytest.approx(0.2)
