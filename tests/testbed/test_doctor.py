"""Doctor's checks on machines that lack one thing at a time."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hotbed import cli
from schemas.errors import UserError
from testbed import doctor
from testbed.checks import CHECKS, CHI_LIBRARIES, DISK_FLOOR, GIB, Need, ThisMachine
from testbed.deploy.deployers import with_kind
from testbed.doctor import need_of
from testbed.sites.fake import FakeSite
from testbed.sites.local import record
from testbed.sites.requirements import LOCAL_SITE, requirements
from testbed.spec import TestbedSpec, load_spec
from tests.errors import raises

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


def test_complete_machine_lacks_nothing(spec: TestbedSpec) -> None:
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
def test_each_lack_is_found_alone(
    machine: Made, failing: str, hint: str, spec: TestbedSpec
) -> None:
    missing = doctor.lacking(doctor.diagnose(spec, machine))
    assert [finding.name for finding in missing] == [failing]
    assert hint in missing[0].how
    with pytest.raises(UserError) as told:
        doctor.require(spec=spec, machine=machine)
    assert missing[0].what in str(told.value) and hint in str(told.value)
    assert "\n" not in str(told.value)


def test_every_check_is_shown_to_fail() -> None:
    """The list above names every existing check."""
    mark = next(m for m in test_each_lack_is_found_alone.pytestmark if m.name == "parametrize")
    assert {case[1] for case in mark.args[1]} | {"chi"} == set(CHECKS)


@pytest.mark.parametrize("library", CHI_LIBRARIES)
def test_chameleons_libraries_are_missed(library: str) -> None:
    (finding,) = doctor.examine(["chi"], None, Made(lacks={library}))
    assert not finding.ok
    assert library in finding.found and "python-chi" in finding.how
    (finding,) = doctor.examine(["chi"], None, Made())
    assert finding.ok


def test_cgroup_v1_controllers_are_those_mounted() -> None:
    (finding,) = doctor.examine(["cgroup"], None, Made(files={"/proc/self/mountinfo": V1_MOUNTS}))
    assert finding.ok and finding.found == "v1 + v2: cpu, memory"
    without_memory = V1_MOUNTS.replace(V1_MOUNTS.splitlines()[1] + "\n", "")
    (finding,) = doctor.examine(
        ["cgroup"], None, Made(files={"/proc/self/mountinfo": without_memory})
    )
    assert not finding.ok and "memory" in finding.how


def test_pressure_needs_a_v2_tree() -> None:
    only_v1 = V1_MOUNTS.splitlines()[0] + "\n"
    (finding,) = doctor.examine(["pressure"], None, Made(files={"/proc/self/mountinfo": only_v1}))
    assert not finding.ok and "mount -t cgroup2" in finding.how


def test_memory_between_use_and_limits_is_a_remark(spec: TestbedSpec) -> None:
    need = need_of(spec)
    some = Made(files={"/proc/meminfo": f"MemAvailable: {need.memory_bytes // 2048} kB\n"})
    (finding,) = doctor.examine(["memory"], need, some)
    assert not finding.ok and not finding.needed
    doctor.require("memory", spec=spec, machine=some)


def test_disk_between_floor_and_full_is_a_remark(spec: TestbedSpec) -> None:
    wanted = need_of(spec).disk_bytes
    some = Made(free=int(wanted * (DISK_FLOOR + 0.1)))
    (finding,) = doctor.examine(["disk"], need_of(spec), some)
    assert not finding.ok and not finding.needed and "GiB more" in finding.how
    doctor.require("disk", spec=spec, machine=some)
    with raises(UserError, "GiB of disk"):
        doctor.require("disk", spec=spec, machine=Made(free=int(wanted * (DISK_FLOOR - 0.1))))


def test_room_is_asked_for_once(spec: TestbedSpec, tmp_path: Path) -> None:
    """An existing or partial testbed already has its room: resuming it needs no more."""
    record.save(tmp_path / "state" / "testbeds" / spec.name, record.LocalRecord(spec, 7))
    assert need_of(spec).disk_bytes == 0
    assert need_of(spec).state == str(tmp_path / "state")
    doctor.require(spec=spec, machine=Made(free=GIB))


def test_what_the_site_refuses_is_refused(spec: TestbedSpec) -> None:
    body = spec.model_dump()
    body["groups"][1]["count"] = 9000
    with raises(UserError, "nodes"):
        doctor.require(spec=TestbedSpec.model_validate(body), machine=Made())
    for kind in ("cephadm", "ceph-ansible"):
        with raises(UserError, kind):
            doctor.require(spec=with_kind(spec, kind), machine=Made())


def test_need_grows_with_the_spec(spec: TestbedSpec) -> None:
    disks = sum(g.count * g.disk.size for g in spec.groups if g.disk)
    assert need_of(spec).disk_bytes > disks
    assert need_of(spec).memory_bytes == sum(g.count * g.memory for g in spec.groups)
    body = spec.model_dump()
    body["groups"][1]["count"] *= 2
    twice = need_of(TestbedSpec.model_validate(body))
    assert twice.disk_bytes - need_of(spec).disk_bytes > disks
    body["groups"][1]["root_size"] += GIB
    larger = need_of(TestbedSpec.model_validate(body))
    assert larger.disk_bytes - twice.disk_bytes == body["groups"][1]["count"] * GIB


def test_not_root_does_not_try_in_namespaces() -> None:
    machine = Made(root=False, refuses={"bridge", "tbf"})
    findings = doctor.examine(["network", "shaping"], None, machine)
    assert all(finding.ok and "not tried" in finding.found for finding in findings)


def test_other_sites_need_ssh_and_their_libraries() -> None:
    assert requirements("inventory") == ("ssh",)
    assert requirements("chameleon") == ("ssh", "chi")
    assert {*LOCAL_SITE, "chi"} == set(CHECKS)


def test_require_names_only_what_was_asked_and_counts_the_rest() -> None:
    bare = Made(lacks={"systemd-nspawn", "debootstrap", "/dev/fuse"})
    doctor.require("ssh", "loop", machine=bare)
    with raises(UserError, "2 more missing", "hotbed doctor"):
        doctor.require(machine=bare)


def test_this_machine_answers_every_question(tmp_path: Path) -> None:
    machine = ThisMachine()
    assert machine.system() and machine.cores() >= 1
    assert machine.which("sh") and machine.which("no-such-program") is None
    assert machine.read(str(tmp_path / "none")) == ""
    assert machine.free_bytes(str(tmp_path / "not" / "yet")) > 0
    assert machine.succeeds("true") and not machine.succeeds("no-such-program")
    assert not machine.is_executable(str(tmp_path))
    assert len(doctor.examine(CHECKS, Need(state=str(tmp_path)), machine)) == len(CHECKS)


@pytest.mark.parametrize("lacks", [set(), {"/dev/fuse"}])
def test_the_verb_reports_and_exits(
    lacks: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "ThisMachine", lambda: Made(lacks=lacks))
    with pytest.raises(SystemExit) as stopped:
        cli.main(["doctor", "--json"])
    assert stopped.value.code == (1 if lacks else 0)
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["fuse"]["ok"] is not bool(lacks)
    assert set(rows["fuse"]) == {"name", "what", "ok", "found", "how", "needed"}
    with pytest.raises(SystemExit):
        cli.main(["doctor"])
    assert ("modprobe fuse" in capsys.readouterr().out) is bool(lacks)


def test_the_verb_refuses_a_bad_spec(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["doctor", "--spec", str(tmp_path / "none.yaml")])
    assert stopped.value.code == 2
    assert "none.yaml" in capsys.readouterr().err


def test_deployers_are_told_and_the_specs_own_is_needed(
    spec: TestbedSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "open_site", lambda *_: FakeSite())
    told = {finding.name: finding for finding in doctor.diagnose(None, Made())}
    assert told["deployer-own"].ok
    assert "pg-upmap-primary" in told["deployer-cephadm"].found
    assert not told["deployer-ceph-ansible"].needed
    found = doctor.diagnose(with_kind(spec, "ceph-ansible"), Made())
    assert (found[-1].name, found[-1].needed) == ("deployer-ceph-ansible", True)
