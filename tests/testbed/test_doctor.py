"""Doctor's checks on machines that lack one thing at a time."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from hotbed import cli
from hotbed.verbs.doctor import recorded
from schemas.errors import UserError
from testbed import doctor
from testbed.checks import CHI_LIBRARIES, GIB
from testbed.deploy.deployers import with_kind
from testbed.sites.requirements import LOCAL_SITE
from testbed.spec import TestbedSpec, load_spec
from tests.errors import raises
from tests.testbed.fake_site import FakeSite

V2_MOUNTS = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = """\
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
CGROUPS = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t1\t1\t1\nmemory\t4\t11\t1\n"


@dataclass
class Made:
    """Made-up machine that by default has everything."""

    name: str = "Linux"
    root: bool = True
    lacks: set[str] = field(default_factory=set)  # programs and paths
    refuses: set[str] = field(default_factory=set)  # words of failing commands
    free: int = 500 * GIB
    processors: int = 4
    files: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        complete = {
            "/proc/filesystems": "nodev\toverlay\n\text4\n",
            "/proc/self/mountinfo": V2_MOUNTS,
            "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
            "/proc/cgroups": CGROUPS,
            "/proc/meminfo": "MemTotal: 33554432 kB\nMemAvailable:   31457280 kB\n",
        }
        self.files = complete | self.files

    def system(self) -> str:
        return self.name

    def is_root(self) -> bool:
        return self.root

    def which(self, program: str) -> str | None:
        return None if program in self.lacks else f"/usr/bin/{program}"

    def has_module(self, name: str) -> bool:
        return name not in self.lacks

    def is_there(self, path: str) -> bool:
        return path not in self.lacks

    def is_executable(self, path: str) -> bool:
        return Path(path).name not in self.lacks

    def read(self, path: str) -> str:
        return self.files.get(path, "")

    def free_bytes(self, path: str) -> int:
        return self.free

    def cores(self) -> int:
        return self.processors

    def succeeds(self, *command: str) -> bool:
        return not self.refuses & set(" ".join(command).split())


@pytest.fixture(autouse=True)
def _no_testbeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the tests an empty state folder, whatever runs on this machine."""
    monkeypatch.setenv("HOTBED_STATE", str(tmp_path / "state"))


@pytest.fixture
def spec(root: Path) -> TestbedSpec:
    return load_spec(root / "testbed" / "specs" / "dlr.yaml")


def test_complete_machine_lacks_nothing(spec):
    findings = doctor.diagnose(spec, Made())
    assert [finding.name for finding in findings] == list(LOCAL_SITE)
    assert all(finding.ok for finding in findings)
    doctor.require(spec=spec, machine=Made())


@pytest.mark.parametrize(
    ("machine", "failing", "hint"),
    [
        (Made(name="Darwin"), "platform", "virtual machine"),
        (Made(root=False, lacks={"sudo"}), "root", "sudo"),
        (Made(lacks={"systemd-nspawn"}), "nspawn", "systemd-container"),
        (Made(lacks={"debootstrap"}), "debootstrap", "apt-get install debootstrap"),
        (Made(lacks={"sfdisk"}), "tools", "fdisk"),
        (Made(lacks={"/dev/fuse"}), "fuse", "modprobe fuse"),
        (Made(lacks={"/dev/loop-control"}), "loop", "modprobe loop"),
        (Made(files={"/sys/fs/cgroup/cgroup.controllers": "cpu io"}), "cgroup", "memory"),
        (Made(lacks={"/proc/pressure/io"}), "pressure", "psi=1"),
        (Made(files={"/proc/filesystems": "ext4"}, refuses={"overlay"}), "overlay", "modprobe"),
        (Made(refuses={"bridge"}), "network", "modprobe bridge veth"),
        (Made(refuses={"tbf"}), "shaping", "sch_tbf"),
        (Made(lacks={"ssh-keygen"}), "ssh", "openssh-client"),
        (Made(lacks={"queuedisk"}), "queuedisk", "make setup"),
        (Made(free=GIB), "disk", "GiB more"),
        (Made(files={"/proc/meminfo": "MemAvailable: 1048576 kB\n"}), "memory", "lower"),
        (Made(processors=1), "cores", "2 processors"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_lack_is_found_alone(machine, failing, hint, spec):
    missing = doctor.lacking(doctor.diagnose(spec, machine))
    assert [finding.name for finding in missing] == [failing]
    assert hint in missing[0].how
    with pytest.raises(UserError) as report:
        doctor.require(spec=spec, machine=machine)
    assert missing[0].what in str(report.value) and hint in str(report.value)
    assert "\n" not in str(report.value)


def test_a_fifth_more_than_was_used_is_asked_for_and_what_was_used_needed(spec):
    asked = doctor.need_of(spec).disk_bytes
    assert asked < sum(g.count * g.disk.size for g in spec.groups if g.disk)  # files are sparse
    verdicts = {asked: (True, False), asked * 10 // 11: (False, False), GIB: (False, True)}
    for free, verdict in verdicts.items():
        found = {each.name: each for each in doctor.diagnose(spec, Made(free=free))}
        assert (found["disk"].ok, found["disk"].needed) == verdict


@pytest.mark.parametrize("library", CHI_LIBRARIES)
def test_chameleons_libraries_are_missed(library):
    (finding,) = doctor.examine(["chi"], None, Made(lacks={library}))
    assert not finding.ok
    assert library in finding.found and "python-chi" in finding.how
    (finding,) = doctor.examine(["chi"], None, Made())
    assert finding.ok


def test_cgroup_v1_controllers_are_those_mounted_and_pressure_needs_v2():
    (finding,) = doctor.examine(["cgroup"], None, Made(files={"/proc/self/mountinfo": V1_MOUNTS}))
    assert finding.ok and finding.found == "v1 + v2: cpu, memory"
    without_memory = V1_MOUNTS.replace(V1_MOUNTS.splitlines()[1] + "\n", "")
    (finding,) = doctor.examine(
        ["cgroup"], None, Made(files={"/proc/self/mountinfo": without_memory})
    )
    assert not finding.ok and "memory" in finding.how
    only_v1 = V1_MOUNTS.splitlines()[0] + "\n"
    (finding,) = doctor.examine(["pressure"], None, Made(files={"/proc/self/mountinfo": only_v1}))
    assert not finding.ok and "mount -t cgroup2" in finding.how


def test_what_the_site_refuses_is_refused(spec):
    body = spec.model_dump()
    body["groups"][1]["count"] = 9000
    with raises(UserError, "nodes"):
        doctor.require(spec=TestbedSpec.model_validate(body), machine=Made())
    for kind in ("cephadm", "ceph-ansible"):
        with raises(UserError, kind):
            doctor.require(spec=with_kind(spec, kind), machine=Made())


@pytest.mark.parametrize("lacks", [set(), {"/dev/fuse"}])
def test_the_verb_reports_and_exits(lacks, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "EngineMachine", lambda: Made(lacks=lacks))
    with pytest.raises(SystemExit) as stopped:
        cli.main(["doctor", "--json"])
    assert stopped.value.code == (1 if lacks else 0)
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["fuse"]["ok"] is not bool(lacks)
    assert set(rows["fuse"]) == {"name", "what", "ok", "found", "how", "needed"}
    with pytest.raises(SystemExit):
        cli.main(["doctor"])
    assert ("modprobe fuse" in capsys.readouterr().out) is bool(lacks)


def test_suites_are_reported_with_their_recorded_runs(tmp_path):
    trixie = {"osd0": {"distribution": "Debian GNU/Linux 13 (trixie)"}}
    made = [
        {"hosts": trixie, "versions": {"ceph": "18.2.7", "fio": "3.39"}},
        {"hosts": {}, "versions": {}},  # simulated
    ]
    rows = [{"run_id": str(n), "provenance": json.dumps(each)} for n, each in enumerate(made)]
    for figure in ("6a", "6b"):  # fed by the same runs
        (tmp_path / "dlr" / figure).mkdir(parents=True)
        parquet.write_table(
            pyarrow.Table.from_pylist(rows), tmp_path / "dlr" / figure / "summary.parquet"
        )
    (found,) = recorded(tmp_path)
    assert found.what.endswith("(trixie)") and not found.needed
    assert found.found == f"1 runs in {tmp_path}, ceph 18.2.7, paper dlr"


def test_deployers_are_reported_and_the_specs_own_is_needed(spec, monkeypatch):
    monkeypatch.setattr(doctor, "open_site", lambda *_: FakeSite())
    report = {finding.name: finding for finding in doctor.diagnose(None, Made())}
    assert report["deployer-own"].ok
    assert "untested" in report["deployer-cephadm"].found
    assert not report["deployer-ceph-ansible"].needed
    found = doctor.diagnose(with_kind(spec, "ceph-ansible"), Made())
    assert (found[-1].name, found[-1].needed) == ("deployer-ceph-ansible", True)
