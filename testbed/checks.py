"""Doctor's checks: one function for each thing that a testbed needs of this machine.

The checks ask only an `EngineMachine`, so that a test can replace the machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from platform import system as system_name

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


Check = Callable[[EngineMachine, Need], CheckResult]


def platform(machine: EngineMachine, need: Need) -> CheckResult:
    system = machine.system()
    return CheckResult(
        "platform",
        "Linux",
        system == "Linux",
        system,
        "run Hotbed on Debian 12 or newer, in a virtual machine if need be",
    )


def root(machine: EngineMachine, need: Need) -> CheckResult:
    is_root, sudo = machine.is_root(), machine.which("sudo") is not None
    found = "root" if is_root else "sudo" if sudo else "neither"
    how = "become root (su -), or install sudo and add yourself to its group"
    return CheckResult("root", "root, or sudo", is_root or sudo, found, how)


def _package(name: str, what: str, programs: tuple[str, ...], package: str) -> Check:
    def check(machine: EngineMachine, need: Need) -> CheckResult:
        missing = [program for program in programs if machine.which(program) is None]
        found = f"missing: {', '.join(missing)}" if missing else "installed"
        return CheckResult(
            name, what, not missing, found, f"make setup, or apt-get install {package}"
        )

    return check


def fuse(machine: EngineMachine, need: Need) -> CheckResult:
    ok = machine.is_there("/dev/fuse")
    how = "modprobe fuse; in a container, pass the device /dev/fuse"
    return CheckResult("fuse", "FUSE (the queue disk)", ok, _present(ok, "/dev/fuse"), how)


def loop(machine: EngineMachine, need: Need) -> CheckResult:
    ok = machine.is_there("/dev/loop-control")
    how = "modprobe loop; in a container, run it privileged with /dev"
    return CheckResult("loop", "loop devices", ok, _present(ok, "/dev/loop-control"), how)


def cgroup(machine: EngineMachine, need: Need) -> CheckResult:
    controllers, version = _controllers(machine)
    missing = {"cpu", "memory"} - controllers
    found = f"{version}: {', '.join(sorted(controllers)) or 'no controllers'}"
    how = (
        f"enable the {' and '.join(sorted(missing)) or 'cpu and memory'} controller "
        "(kernel command line without cgroup_disable; in a container, a writable cgroup tree)"
    )
    return CheckResult("cgroup", "cgroup controllers cpu, memory", not missing, found, how)


def pressure(machine: EngineMachine, need: Need) -> CheckResult:
    psi = machine.is_there("/proc/pressure/io")
    tree = any(kind == "cgroup2" for kind, _ in _cgroup_mounts(machine))
    found = f"{_present(psi, '/proc/pressure/io')}, {_present(tree, 'cgroup v2 tree')}"
    how = (
        "boot with psi=1"
        if not psi
        else "mount -t cgroup2 none /sys/fs/cgroup/unified (a tree without controllers will do)"
    )
    return CheckResult("pressure", "I/O pressure of a cgroup", psi and tree, found, how)


def overlay(machine: EngineMachine, need: Need) -> CheckResult:
    ok = "overlay" in machine.read("/proc/filesystems").split() or (
        machine.succeeds("modprobe", "--dry-run", "overlay")
    )
    how = "modprobe overlay; a kernel built without overlayfs cannot run the local site"
    return CheckResult("overlay", "overlay file system", ok, _present(ok, "overlayfs"), how)


def network(machine: EngineMachine, need: Need) -> CheckResult:
    return _tried_in_namespace(
        machine,
        "network",
        "namespaces, bridge, veth",
        "ip link add b0 type bridge && ip link add v0 type veth peer name v1",
        "modprobe bridge veth; in a container, run it privileged",
    )


def shaping(machine: EngineMachine, need: Need) -> CheckResult:
    return _tried_in_namespace(
        machine,
        "shaping",
        "tc with tbf (link rates)",
        "tc qdisc add dev lo root tbf rate 1mbit burst 32kbit latency 50ms",
        "make setup, or apt-get install iproute2; then modprobe sch_tbf",
    )


def _tried_in_namespace(
    machine: EngineMachine, name: str, what: str, script: str, how: str
) -> CheckResult:
    """Try `script` for real in a network namespace that ends with the command."""
    if not machine.is_root():
        ok = machine.which(script.split()[0]) is not None
        found = "not tried: needs root" if ok else f"missing: {script.split()[0]}"
        return CheckResult(name, what, ok, found, how)
    ok = machine.succeeds("unshare", "--net", "sh", "-c", script)
    return CheckResult(name, what, ok, "works" if ok else "refused by this kernel", how)


def queuedisk(machine: EngineMachine, need: Need) -> CheckResult:
    ok = machine.is_executable(QUEUEDISK)
    found = _present(ok, "dataplane/bin/queuedisk")
    return CheckResult("queuedisk", "the queue disk, built", ok, found, "make setup")


CHI_LIBRARIES = ("chi", "blazarclient", "openstack", "keystoneauth1")


def chi(machine: EngineMachine, need: Need) -> CheckResult:
    missing = [name for name in CHI_LIBRARIES if not machine.has_module(name)]
    found = f"missing: {', '.join(missing)}" if missing else "installed"
    how = "make setup, or pip install python-chi python-blazarclient python-zunclient openstacksdk"
    return CheckResult("chi", "python-chi and its clients (Chameleon)", not missing, found, how)


def disk(machine: EngineMachine, need: Need) -> CheckResult:
    free, wanted = machine.free_bytes(need.state), need.disk_bytes
    how = (
        f"free {max(wanted - free, 0) / GIB:.0f} GiB more there, "
        "or make the spec's disks and roots (root_size) smaller or fewer"
    )
    return CheckResult(
        "disk",
        f"{wanted / GIB:.0f} GiB of disk",
        free >= wanted,
        f"{free / GIB:.0f} GiB free under {need.state}",
        how,
        needed=free < wanted / MARGIN,
    )


def memory(machine: EngineMachine, need: Need) -> CheckResult:
    available = _available_memory(machine)
    ok = available >= need.memory_bytes
    how = "stop other programs, or lower the nodes' memory or their number in the spec"
    return CheckResult(
        "memory",
        f"{need.memory_bytes / GIB:.0f} GiB of memory",
        ok,
        f"{available / GIB:.0f} GiB available",
        how,
        needed=available < need.memory_bytes / MARGIN,
    )


def cores(machine: EngineMachine, need: Need) -> CheckResult:
    count = machine.cores()
    how = f"give this machine {MIN_CORES} processors"
    return CheckResult("cores", f"{MIN_CORES} processors", count >= MIN_CORES, str(count), how)


def _present(ok: bool, thing: str) -> str:
    return thing if ok else f"no {thing}"


def _available_memory(machine: EngineMachine) -> int:
    for line in machine.read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _cgroup_mounts(machine: EngineMachine) -> list[tuple[str, str]]:
    """Return (``cgroup`` or ``cgroup2``, mount point + super options) of every cgroup mount."""
    mounts = []
    for line in machine.read("/proc/self/mountinfo").splitlines():
        fields, separator, tail = line.partition(" - ")
        if separator and tail.split()[0] in {"cgroup", "cgroup2"}:
            mounts.append((tail.split()[0], f"{fields.split()[4]} {tail.split()[-1]}"))
    return mounts


def _controllers(machine: EngineMachine) -> tuple[set[str], str]:
    """Return the usable controllers and the cgroup versions that provide them."""
    known = {
        line.split()[0]
        for line in machine.read("/proc/cgroups").splitlines()
        if line and not line.startswith("#")
    }
    found: set[str] = set()
    versions = set()
    for kind, where in _cgroup_mounts(machine):
        point, options = where.split()
        if kind == "cgroup2":
            found |= set(machine.read(f"{point}/cgroup.controllers").split())
            versions.add("v2")
        else:
            found |= set(options.split(",")) & known
            versions.add("v1")
    return found, " + ".join(sorted(versions)) or "none mounted"


CHECKS: dict[str, Check] = {
    "platform": platform,
    "root": root,
    "nspawn": _package("nspawn", "systemd-nspawn", ("systemd-nspawn",), "systemd-container"),
    "debootstrap": _package("debootstrap", "debootstrap", ("debootstrap",), "debootstrap"),
    "tools": _package(
        "tools",
        "disk and network tools",
        ("losetup", "partx", "setpriv", "unshare", "sfdisk", "mkfs.ext4", "ip", "tc"),
        "util-linux fdisk e2fsprogs iproute2",
    ),
    "fuse": fuse,
    "loop": loop,
    "cgroup": cgroup,
    "pressure": pressure,
    "overlay": overlay,
    "network": network,
    "shaping": shaping,
    "ssh": _package("ssh", "ssh client", ("ssh", "ssh-keygen"), "openssh-client"),
    "queuedisk": queuedisk,
    "chi": chi,
    "disk": disk,
    "memory": memory,
    "cores": cores,
}
