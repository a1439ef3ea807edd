"""Doctor's checks: a row for each thing that a testbed needs of this machine.

The checks ask only an `EngineMachine`, so that a test can replace the machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from platform import system as system_name
from typing import NamedTuple

_SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"


class EngineMachine:
    """This machine: read-only questions that never raise."""

    def system(self) -> str:
        """Return the kernel's name, such as ``Linux`` or ``Darwin``."""
        return system_name()

    def is_root(self) -> bool:
        return os.geteuid() == 0

    def which(self, program: str) -> str | None:
        """Return the path of a program, with the system folders searched too; None if not found."""
        # A user's PATH often lacks sbin, where debootstrap and losetup live.
        return shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_FOLDERS}")

    def has_module(self, name: str) -> bool:
        """Return True if this Python can import the module."""
        return find_spec(name) is not None

    def is_there(self, path: str) -> bool:
        return Path(path).exists()

    def is_executable(self, path: str) -> bool:
        return os.access(path, os.X_OK) and Path(path).is_file()

    def read(self, path: str) -> str:
        """Return the text of a file; empty if it cannot be read."""
        try:
            return Path(path).read_text(errors="replace")
        except OSError:
            return ""

    def free_bytes(self, path: str) -> int:
        """Return the bytes that a user may still write on the (future) file system of `path`."""
        folder = Path(path)
        while not folder.exists():
            folder = folder.parent
        return shutil.disk_usage(folder).free

    def cores(self) -> int:
        """Return the number of processors that we may use."""
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1

    def succeeds(self, *command: str) -> bool:
        """Return True if a harmless command without lasting effects exits with 0."""
        quiet = subprocess.DEVNULL
        try:
            done = subprocess.run(
                command, stdin=quiet, stdout=quiet, stderr=quiet, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0


GIB = 2**30

QUEUEDISK = str(Path(__file__).resolve().parents[1] / "dataplane" / "bin" / "queuedisk")

HOUSE_BYTES = int(1.4 * GIB)
"""Disk space in addition to the nodes: root image (0.9 GiB trixie, 1.4 GiB bookworm), results."""

DISK_SHARE = 0.31
"""Share of the size of its disks and roots that a testbed of nine Ceph nodes has written in `make
reproduce`: 20 of 66 GiB, most of it fio's files and the benchmarks' objects."""

MEMORY_SHARE = 0.27
"""Share of the nodes' memory limits that nine Ceph nodes used at most, after long benchmarks: 4 of
15 GiB. In `make reproduce` it was 2.9 GiB, engine included."""

MARGIN = 1.2
"""Factor of what is asked for to what was used."""

MIN_CORES = 2
"""Cores of the machine that the eight shaped disks and their store were measured on."""


@dataclass(frozen=True)
class Need:
    """Space that a testbed takes of this machine, as measured, times `MARGIN`; zero if none is
    brought up."""

    disk_bytes: int = 0
    memory_bytes: int = 0
    state: str = "/var/lib/hotbed"  # folder of the disks and snapshots


@dataclass(frozen=True)
class CheckResult:
    """Result of one check. If `needed` is False, a failure is only a remark."""

    name: str
    what: str
    ok: bool
    found: str
    how: str
    needed: bool = True


class MachineCheck(NamedTuple):
    """A check of the machine alone. `look` returns True if the machine has `what`, and what was
    found; `how` is the way to get it."""

    what: str
    look: Callable[[EngineMachine], tuple[bool, str]]
    how: str


def check(name: str, machine: EngineMachine, need: Need) -> CheckResult:
    """Return the result of the check `name`. KeyError: there is no such check."""
    if name == "disk":
        return _disk(machine, need)
    if name == "memory":
        return _memory(machine, need)
    what, look, how = CHECKS[name]
    ok, found = look(machine)
    return CheckResult(name, what, ok, found, how)


def _disk(machine: EngineMachine, need: Need) -> CheckResult:
    free, wanted = machine.free_bytes(need.state), need.disk_bytes
    how = (
        f"free {max(wanted - free, 0) / GIB:.0f} GiB more there, "
        "or make the spec's disks and roots (root_size) smaller or fewer"
    )
    what, found = f"{wanted / GIB:.0f} GiB of disk", f"{free / GIB:.0f} GiB free under {need.state}"
    return CheckResult("disk", what, free >= wanted, found, how, needed=free < wanted / MARGIN)


def available_memory(machine: EngineMachine) -> int:
    """Return the available memory in bytes; 0 if unknown."""
    said = re.search(r"^MemAvailable: *(\d+)", machine.read("/proc/meminfo"), re.MULTILINE)
    return 1024 * int(said[1]) if said else 0


def _memory(machine: EngineMachine, need: Need) -> CheckResult:
    free, wanted = available_memory(machine), need.memory_bytes
    how = "stop other programs, or lower the nodes' memory or their number in the spec"
    what, found = f"{wanted / GIB:.0f} GiB of memory", f"{free / GIB:.0f} GiB available"
    return CheckResult("memory", what, free >= wanted, found, how, needed=free < wanted / MARGIN)


def _platform(machine: EngineMachine) -> tuple[bool, str]:
    return machine.system() == "Linux", machine.system()


def _root(machine: EngineMachine) -> tuple[bool, str]:
    found = "root" if machine.is_root() else "sudo" if machine.which("sudo") else "neither"
    return found != "neither", found


def _package(what: str, programs: str, package: str) -> MachineCheck:
    """Return the check for programs of the distribution."""

    def look(machine: EngineMachine) -> tuple[bool, str]:
        return _all_there(programs.split(), lambda name: machine.which(name) is not None)

    return MachineCheck(what, look, f"make setup, or apt-get install {package}")


def _all_there(names: Sequence[str], there: Callable[[str], bool]) -> tuple[bool, str]:
    missing = [name for name in names if not there(name)]
    return not missing, f"missing: {', '.join(missing)}" if missing else "installed"


def _device(what: str, path: str, how: str) -> MachineCheck:
    return MachineCheck(what, lambda machine: _present(machine.is_there(path), path), how)


def _present(ok: bool, thing: str) -> tuple[bool, str]:
    return ok, thing if ok else f"no {thing}"


def _in_namespace(what: str, script: str, how: str) -> MachineCheck:
    """Return the check that tries `script` in a network namespace that ends with the command."""

    def look(machine: EngineMachine) -> tuple[bool, str]:
        if not machine.is_root():
            program = script.split()[0]
            ok = machine.which(program) is not None
            return ok, "not tried: needs root" if ok else f"missing: {program}"
        ok = machine.succeeds("unshare", "--net", "sh", "-c", script)
        return ok, "works" if ok else "refused by this kernel"

    return MachineCheck(what, look, how)


def _overlay(machine: EngineMachine) -> tuple[bool, str]:
    known = "overlay" in machine.read("/proc/filesystems").split()
    return _present(known or machine.succeeds("modprobe", "--dry-run", "overlay"), "overlayfs")


def _cgroups(machine: EngineMachine) -> dict[str, set[str]]:
    """Return the usable controllers of each mounted version of control groups (v1, v2)."""
    lines = machine.read("/proc/cgroups").splitlines()
    known = {line.split()[0] for line in lines if line and line[0] != "#"}
    found: dict[str, set[str]] = {}
    for line in machine.read("/proc/self/mountinfo").splitlines():
        fields, _, tail = line.partition(" - ")
        kind, *_, options = tail.split()
        if kind == "cgroup2":
            controllers = machine.read(f"{fields.split()[4]}/cgroup.controllers").split()
            found.setdefault("v2", set()).update(controllers)
        elif kind == "cgroup":
            found.setdefault("v1", set()).update(known.intersection(options.split(",")))
    return found


def _cgroup(machine: EngineMachine) -> tuple[bool, str]:
    versions = _cgroups(machine)
    controllers = set[str]().union(*versions.values())
    found = " + ".join(sorted(versions)) or "none mounted"
    found = f"{found}: {', '.join(sorted(controllers)) or 'no controllers'}"
    return {"cpu", "memory"} <= controllers, found


def _pressure(machine: EngineMachine) -> tuple[bool, str]:
    psi, psi_found = _present(machine.is_there("/proc/pressure/io"), "/proc/pressure/io")
    tree, tree_found = _present("v2" in _cgroups(machine), "cgroup v2 tree")
    return psi and tree, f"{psi_found}, {tree_found}"


CHI_LIBRARIES = ("chi", "blazarclient", "openstack", "keystoneauth1")

CHECKS = {
    "platform": MachineCheck(
        "Linux", _platform, "run Hotbed on Debian 12 or newer, in a virtual machine if need be"
    ),
    "root": MachineCheck(
        "root, or sudo", _root, "become root (su -), or install sudo and add yourself to its group"
    ),
    "nspawn": _package("systemd-nspawn", "systemd-nspawn", "systemd-container"),
    "debootstrap": _package("debootstrap", "debootstrap", "debootstrap"),
    "tools": _package(
        "disk and network tools",
        "losetup partx setpriv unshare sfdisk mkfs.ext4 ip tc",
        "util-linux fdisk e2fsprogs iproute2",
    ),
    "fuse": _device(
        "FUSE (the queue disk)",
        "/dev/fuse",
        "modprobe fuse; in a container, pass the device /dev/fuse",
    ),
    "loop": _device(
        "loop devices",
        "/dev/loop-control",
        "modprobe loop; in a container, run it privileged with /dev",
    ),
    "cgroup": MachineCheck(
        "cgroup controllers cpu, memory",
        _cgroup,
        "enable the controllers cpu and memory (kernel command line without cgroup_disable; in a "
        "container, a writable cgroup tree)",
    ),
    "pressure": MachineCheck(
        "I/O pressure of a cgroup",
        _pressure,
        "boot with psi=1, and mount -t cgroup2 none /sys/fs/cgroup/unified (a tree without "
        "controllers will do)",
    ),
    "overlay": MachineCheck(
        "overlay file system",
        _overlay,
        "modprobe overlay; a kernel built without overlayfs cannot run the local site",
    ),
    "network": _in_namespace(
        "namespaces, bridge, veth",
        "ip link add b0 type bridge && ip link add v0 type veth peer name v1",
        "modprobe bridge veth; in a container, run it privileged",
    ),
    "shaping": _in_namespace(
        "tc with tbf (link rates)",
        "tc qdisc add dev lo root tbf rate 1mbit burst 32kbit latency 50ms",
        "make setup, or apt-get install iproute2; then modprobe sch_tbf",
    ),
    "ssh": _package("ssh client", "ssh ssh-keygen", "openssh-client"),
    "queuedisk": MachineCheck(
        "the queue disk, built",
        lambda machine: _present(machine.is_executable(QUEUEDISK), "dataplane/bin/queuedisk"),
        "make setup",
    ),
    "chi": MachineCheck(
        "python-chi and its clients (Chameleon)",
        lambda machine: _all_there(CHI_LIBRARIES, machine.has_module),
        "make setup, or pip install python-chi python-blazarclient python-zunclient openstacksdk",
    ),
    "cores": MachineCheck(
        f"{MIN_CORES} processors",
        lambda machine: (machine.cores() >= MIN_CORES, str(machine.cores())),
        f"give this machine {MIN_CORES} processors",
    ),
}
"""Checks of the machine alone, by name; `disk` and `memory` also depend on the testbed."""
