"""Doctor's checks: one function for each thing that a testbed needs of this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testbed.machine import Machine

GIB = 2**30

QUEUEDISK = str(Path(__file__).resolve().parents[1] / "dataplane" / "bin" / "queuedisk")

HOUSE_BYTES = 3 * GIB
"""Disk space in addition to the nodes: root image and its cache (0.7 GiB), results, reports."""

DISK_FLOOR = 0.5
"""Share of the disks' total size below which a start is pointless. Disks use only the space that
was written, but fio's files fill the scratch part and the benchmarks' objects much of the rest."""

MEMORY_FLOOR = 0.3
"""Share of their memory limits that nine Ceph nodes used after benchmarks: about 4 of 15 GiB (mon
and mgr 0.33 GiB, eight OSDs 0.35 to 0.45 GiB each). A testbed needs at least this share. Below the
sum of the limits it works as long as the nodes do not fill them."""

MIN_CORES = 2
"""Cores of the machine that the eight shaped disks and their store were measured on."""


@dataclass(frozen=True)
class Need:
    """Upper bound of what a testbed takes of this machine; zero if none is brought up."""

    disk_bytes: int = 0
    memory_bytes: int = 0
    state: str = "/var/lib/hotbed"  # folder of the disks and snapshots


@dataclass(frozen=True)
class Finding:
    """Result of one check. If `needed` is False, a failure is only a remark."""

    name: str
    what: str
    ok: bool
    found: str
    how: str
    needed: bool = True


Check = Callable[[Machine, Need], Finding]


def platform(machine: Machine, need: Need) -> Finding:
    system = machine.system()
    return Finding(
        "platform",
        "Linux",
        system == "Linux",
        system,
        "run Hotbed on Debian 12 or newer, in a virtual machine if need be",
    )


def root(machine: Machine, need: Need) -> Finding:
    is_root, sudo = machine.is_root(), machine.which("sudo") is not None
    found = "root" if is_root else "sudo" if sudo else "neither"
    how = "become root (su -), or install sudo and add yourself to its group"
    return Finding("root", "root, or sudo", is_root or sudo, found, how)


def _package(name: str, what: str, programs: tuple[str, ...], package: str) -> Check:
    def check(machine: Machine, need: Need) -> Finding:
        missing = [program for program in programs if machine.which(program) is None]
        found = f"missing: {', '.join(missing)}" if missing else "installed"
        return Finding(name, what, not missing, found, f"make setup, or apt-get install {package}")

    return check


def fuse(machine: Machine, need: Need) -> Finding:
    ok = machine.is_there("/dev/fuse")
    how = "modprobe fuse; in a container, pass the device /dev/fuse"
    return Finding("fuse", "FUSE (the queue disk)", ok, _present(ok, "/dev/fuse"), how)


def loop(machine: Machine, need: Need) -> Finding:
    ok = machine.is_there("/dev/loop-control")
    how = "modprobe loop; in a container, run it privileged with /dev"
    return Finding("loop", "loop devices", ok, _present(ok, "/dev/loop-control"), how)


def cgroup(machine: Machine, need: Need) -> Finding:
    controllers, version = _controllers(machine)
    missing = {"cpu", "memory"} - controllers
    found = f"{version}: {', '.join(sorted(controllers)) or 'no controllers'}"
    how = (
        f"enable the {' and '.join(sorted(missing)) or 'cpu and memory'} controller "
        "(kernel command line without cgroup_disable; in a container, a writable cgroup tree)"
    )
    return Finding("cgroup", "cgroup controllers cpu, memory", not missing, found, how)


def pressure(machine: Machine, need: Need) -> Finding:
    psi = machine.is_there("/proc/pressure/io")
    tree = any(kind == "cgroup2" for kind, _ in _cgroup_mounts(machine))
    found = f"{_present(psi, '/proc/pressure/io')}, {_present(tree, 'cgroup v2 tree')}"
    how = (
        "boot with psi=1"
        if not psi
        else "mount -t cgroup2 none /sys/fs/cgroup/unified (a tree without controllers will do)"
    )
    return Finding("pressure", "I/O pressure of a cgroup", psi and tree, found, how)


def overlay(machine: Machine, need: Need) -> Finding:
    ok = "overlay" in machine.read("/proc/filesystems").split() or (
        machine.succeeds("modprobe", "--dry-run", "overlay")
    )
    how = "modprobe overlay; a kernel built without overlayfs cannot run the local site"
    return Finding("overlay", "overlay file system", ok, _present(ok, "overlayfs"), how)


def network(machine: Machine, need: Need) -> Finding:
    return _tried_in_namespace(
        machine,
        "network",
        "namespaces, bridge, veth",
        "ip link add b0 type bridge && ip link add v0 type veth peer name v1",
        "modprobe bridge veth; in a container, run it privileged",
    )


def shaping(machine: Machine, need: Need) -> Finding:
    return _tried_in_namespace(
        machine,
        "shaping",
        "tc with tbf (link rates)",
        "tc qdisc add dev lo root tbf rate 1mbit burst 32kbit latency 50ms",
        "make setup, or apt-get install iproute2; then modprobe sch_tbf",
    )


def _tried_in_namespace(machine: Machine, name: str, what: str, script: str, how: str) -> Finding:
    """Try `script` for real in a network namespace that ends with the command."""
    if not machine.is_root():
        ok = machine.which(script.split()[0]) is not None
        found = "not tried: needs root" if ok else f"missing: {script.split()[0]}"
        return Finding(name, what, ok, found, how)
    ok = machine.succeeds("unshare", "--net", "sh", "-c", script)
    return Finding(name, what, ok, "works" if ok else "refused by this kernel", how)


def queuedisk(machine: Machine, need: Need) -> Finding:
    ok = machine.is_executable(QUEUEDISK)
    found = _present(ok, "dataplane/bin/queuedisk")
    return Finding("queuedisk", "the queue disk, built", ok, found, "make setup")


CHI_LIBRARIES = ("chi", "blazarclient", "openstack", "keystoneauth1")


def chi(machine: Machine, need: Need) -> Finding:
    missing = [name for name in CHI_LIBRARIES if not machine.has_module(name)]
    found = f"missing: {', '.join(missing)}" if missing else "installed"
    how = "make setup, or pip install python-chi python-blazarclient python-zunclient openstacksdk"
    return Finding("chi", "python-chi and its clients (Chameleon)", not missing, found, how)


def disk(machine: Machine, need: Need) -> Finding:
    free, wanted = machine.free_bytes(need.state), need.disk_bytes
    how = (
        f"free {max(wanted - free, 0) / GIB:.0f} GiB more there, "
        "or make the spec's disks and roots (root_size) smaller or fewer"
    )
    return Finding(
        "disk",
        f"{wanted / GIB:.0f} GiB of disk",
        free >= wanted,
        f"{free / GIB:.0f} GiB free under {need.state}",
        how,
        needed=free < DISK_FLOOR * wanted,
    )


def memory(machine: Machine, need: Need) -> Finding:
    available = _available_memory(machine)
    ok = available >= need.memory_bytes
    how = "stop other programs, or lower the nodes' memory or their number in the spec"
    return Finding(
        "memory",
        f"{need.memory_bytes / GIB:.0f} GiB of memory",
        ok,
        f"{available / GIB:.0f} GiB available",
        how,
        needed=available < MEMORY_FLOOR * need.memory_bytes,
    )


def cores(machine: Machine, need: Need) -> Finding:
    count = machine.cores()
    how = f"give this machine {MIN_CORES} processors"
    return Finding("cores", f"{MIN_CORES} processors", count >= MIN_CORES, str(count), how)


def _present(ok: bool, thing: str) -> str:
    return thing if ok else f"no {thing}"


def _available_memory(machine: Machine) -> int:
    for line in machine.read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _cgroup_mounts(machine: Machine) -> list[tuple[str, str]]:
    """Return (``cgroup`` or ``cgroup2``, mount point + super options) of every cgroup mount."""
    mounts = []
    for line in machine.read("/proc/self/mountinfo").splitlines():
        fields, separator, tail = line.partition(" - ")
        if separator and tail.split()[0] in {"cgroup", "cgroup2"}:
            mounts.append((tail.split()[0], f"{fields.split()[4]} {tail.split()[-1]}"))
    return mounts


def _controllers(machine: Machine) -> tuple[set[str], str]:
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
