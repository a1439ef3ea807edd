"""The program that Hotbed runs on a machine: survey it, hold it, wipe a device, let it go.

It runs as root as ``python3 - REQUEST`` with this file on standard input. REQUEST is a JSON object
with ``do`` (a key of `ACTIONS`). The answer is a JSON object on standard output:
``{"ok": true, "result": ...}`` or ``{"ok": false, "error": ...}``, where the error completes a
sentence that begins with the machine. Standard library only, Python 3.10 or newer.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

MARK = "etc/hotbed-site.json"  # names the holder; outside of what a deployment removes
KEYS, HOSTS = "root/.ssh/authorized_keys", "etc/hosts"
BEGIN, END = "# BEGIN hotbed-site", "# END hotbed-site"
BOOT = "proc/sys/kernel/random/boot_id"
HEAD, ZEROED_HEAD, ZEROED_TAIL = 1 << 20, 8 << 20, 1 << 20
UNKNOWN = "data of a kind that is not known"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LOOPBACK = ("0100007F", "00000000000000000000000001000000")
REFUSED = "refused"
CONNECT_S = 2.0
CONNECTIONS = 256  # at once
MODULES = ("dm_mod", "xfs", "nf_tables", "sch_htb", "sch_tbf", "cls_u32")
"""Kernel modules that a store or deployer needs."""
UNITS = ("ceph-*", "hotbed-*", "system-ceph*", "system-hotbed*")
SCOPES = ("system.slice/docker-*", "docker/*", "machine.slice/libpod-*", "libpod_parent/libpod-*")
"""Control groups of Docker's and Podman's containers, made by systemd or by the engine itself."""


class HostRefused(Exception):
    """Refusal, with one sentence on what cannot be done."""


def output(argv: Sequence[str]) -> str:
    """Return the output of a command, empty if it fails or is missing."""
    path = os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"
    try:
        return subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
            env=dict(os.environ, LC_ALL="C", PATH=path),
            timeout=60,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


class HostMachine:
    """The machine under `root` (/ except in tests) and its commands."""

    def __init__(self, root: Path = Path("/"), run: Callable[[Sequence[str]], str] = output):
        self.root, self.run = root, run

    def path(self, name: str) -> Path:
        """Return where `name` is."""
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str:
        """Return a file's text, empty if it cannot be read."""
        try:
            return self.path(name).read_text(errors="replace")
        except OSError:
            return ""

    def find(self, pattern: str, name: str) -> str | None:
        """Return the first group of a pattern in a file's text."""
        found = re.search(pattern, self.text(name), re.MULTILINE)
        return found.group(1).strip() if found else None


# -- files -----------------------------------------------------------------------------------------


def read_mark(machine: HostMachine, name: str = MARK) -> dict[str, Any] | None:
    """Return the mark that names the machine's holder; None if nobody holds the machine."""
    text = machine.text(name)
    if not text.strip():
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"testbed": "?", "id": "?"}


def read_whole(path: Path) -> str:
    """Return a file's text, empty if there is no file, so that `replace` keeps its every byte.
    OSError: the file exists and cannot be read."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""


def pending(path: Path) -> Path:
    """Return where `replace` writes first; a crash may leave this file."""
    real = Path(os.path.realpath(path))
    return real.with_name(real.name + ".hotbed-new")


def replace(path: Path, text: str, mode: int) -> None:
    """Write `path` atomically. A new file gets `mode`, an existing one keeps its owner and mode; a
    link stays a link.
    """
    new, path = pending(path), Path(os.path.realpath(path))
    data = text.encode("utf-8", "surrogateescape")
    handle = os.open(str(new), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.chmod(mode)
    if path.exists():
        shutil.copystat(str(path), str(new))
        os.chown(str(new), path.stat().st_uid, path.stat().st_gid)
    try:
        new.replace(path)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        # A mount of its own, as /etc/hosts is in some containers: it can only be written in place.
        path.write_bytes(data)
        new.unlink()


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


# -- block devices ---------------------------------------------------------------------------------


def device(machine: HostMachine, name: str) -> dict[str, Any]:
    """Describe a block device: its size (bytes), its users and its content.

    ``is`` is ``a device`` for block devices only. ``uses`` are ends of sentences that say why it
    may never be wiped; ``holds`` is what wiping destroys, and ``uuids`` the UUIDs of that;
    ``identity`` distinguishes it from another device of its size, whatever its name; ``osd`` is the
    folder of the OSD that stores on it, if any; ``real`` and ``parts`` are the path behind links
    and the paths of its partitions.
    """
    found: dict[str, Any] = {"path": name, "is": "nothing", "bytes": 0, "uses": [], "holds": []}
    found.update(uuids=[], identity=[], model=None, osd=None)
    path = machine.path(name)
    try:
        status = path.stat()
    except OSError:
        return found
    if not is_block(status):
        found["is"] = "a folder" if stat.S_ISDIR(status.st_mode) else "a file"
        return found
    found["is"] = "a device"
    number = _number_of(status)
    parts = _partitions(machine, number)
    found["real"] = str(path.resolve())
    found["osd"] = _osd(machine, found["real"])
    found["parts"] = [str(machine.path("dev/" + part).resolve()) for _, part in parts]
    found["uses"] = _uses(machine, name, [number] + [other for other, _ in parts])
    signatures, found["uuids"] = _signatures(machine, name)
    if table := machine.run(["blkid", "-p", "-s", "PTUUID", "-o", "value", str(path)]).strip():
        found["uuids"].append(f"partition table {table}")
    found["identity"] = _identity(machine, found["real"])
    if not signatures and not machine.run(["wipefs", "--version"]):
        found["uses"].append("cannot be judged (wipefs is missing)")
    found["holds"] = [f"a partition {part}" for _, part in parts] + signatures
    try:
        with path.open("rb", buffering=0) as file:
            head = file.read(HEAD)
            found["bytes"] = file.seek(0, os.SEEK_END)
    except OSError as error:
        found["uses"].append(f"cannot be read ({error.strerror})")
        return found
    if not found["holds"] and head.strip(b"\0"):
        found["holds"].append(UNKNOWN)
    found["read_only"] = machine.text(f"sys/dev/block/{number}/ro").strip() == "1"
    # A partition's model is its disk's, in the folder above.
    models = (
        machine.text(f"sys/dev/block/{number}/{up}device/model").strip() for up in ("", "../")
    )
    found["model"] = next(filter(None, models), None)
    return found


def is_block(status: os.stat_result) -> bool:
    """Return True if it is a block device."""
    return stat.S_ISBLK(status.st_mode)


def _number_of(status: os.stat_result) -> str:
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"


def _identity(machine: HostMachine, path: str) -> list[str]:
    """Return udev's names of the device at `path` that stay over a boot, when the path moves on:
    WWNs, serial numbers, UUIDs of volumes and partitions."""
    links = (machine.path("dev/disk").glob(pattern) for pattern in ("by-id/*", "by-partuuid/*"))
    names = (link.name for each in links for link in each if os.path.realpath(link) == path)
    # This one goes with the content.
    return sorted(name for name in names if not name.startswith("lvm-pv-uuid"))


def _osd(machine: HostMachine, path: str) -> str | None:
    """Return the folder of the OSD, running or not, that stores on the device at `path`."""
    links = sorted(machine.path("var/lib/ceph/osd").glob("*/block"))
    return next((str(link.parent) for link in links if os.path.realpath(link) == path), None)


def _pairs(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value.strip("\"'") for name, equals, value in pairs if equals}


def _partitions(machine: HostMachine, number: str) -> list[tuple[str, str]]:
    """Return number and kernel's name of each partition of a disk."""
    found = sorted(machine.path("sys/dev/block/" + number).glob("*/partition"))
    return [((part.parent / "dev").read_text().strip(), part.parent.name) for part in found]


def _uses(machine: HostMachine, name: str, numbers: Sequence[str]) -> list[str]:
    """Return what uses any of the devices with these numbers now."""
    mounts = (line.split() for line in machine.text("proc/self/mountinfo").splitlines())
    found = [f"is mounted at {m[4]}" for m in mounts if len(m) > 4 and m[2] in numbers]
    for number in numbers:
        holders = machine.path(f"sys/dev/block/{number}/holders")
        found += [f"is part of {entry.name}" for entry in sorted(holders.glob("*"))]
    if not found:
        try:
            # O_EXCL without O_CREAT: fails if the kernel itself (md, LVM, a mount, swap) holds it.
            os.close(os.open(str(machine.path(name)), os.O_RDONLY | os.O_EXCL))
        except OSError as error:
            found.append(f"is in use ({error.strerror})")
    return found


def _signatures(machine: HostMachine, name: str) -> tuple[list[str], list[str]]:
    """Return what libblkid recognises, such as ``ext4 'data'``, and UUIDs, ``ext4 0f8f...``."""
    try:
        printed = machine.run(["wipefs", "--json", str(machine.path(name))])
        rows = json.loads(printed)["signatures"]
    except (ValueError, KeyError):
        rows = []
    found, uuids = {}, {}  # each once, in their order
    for row in rows:
        label = " '{}'".format(row["label"]) if row.get("label") else ""
        found["{}{}".format(row.get("type"), label)] = True
        if row.get("uuid"):
            uuids["{} {}".format(row.get("type"), row["uuid"])] = True
    return list(found), list(uuids)


# -- surveying: changes nothing --------------------------------------------------------------------


def survey(machine: HostMachine, request: dict[str, Any]) -> dict[str, Any]:
    """Return everything that a plan and doctor need to know of the machine; sizes are bytes.

    ``devices``: paths to look at; ``client``: the address that the engine's ssh comes from.
    """
    release = _pairs(machine.text("etc/os-release"))
    client = request.get("client") or "127.0.0.1"
    sshd = machine.run(["sshd", "-T", "-C", f"user=root,host={client},addr={client}"])
    root_login = re.search(r"^permitrootlogin (\S+)$", sshd, re.MULTILINE)
    memory = machine.find(r"^MemTotal:\s+(\d+) kB", "proc/meminfo")
    cpus = re.findall(r"^cpu\d", machine.text("proc/stat"), re.MULTILINE)
    container = machine.run(["systemd-detect-virt", "--container"]).strip()
    container = "" if container == "none" else container
    groups = re.findall(r" - (cgroup2?) ", machine.text("proc/self/mountinfo"))
    room = os.statvfs(str(machine.root))
    elsewhere, loopback = _listening(machine)
    return {
        "host_name": socket.gethostname(),
        "machine_id": machine.text("etc/machine-id").strip(),
        "boot_id": machine.text(BOOT).strip(),
        "distribution": release.get("ID", ""),
        "distribution_like": release.get("ID_LIKE", ""),
        "version": release.get("VERSION_ID", ""),
        "distribution_name": release.get("PRETTY_NAME", ""),
        "kernel": os.uname().release,
        "python": list(sys.version_info[:3]),
        "cpus": len(cpus) or os.cpu_count() or 1,
        "cpu_model": machine.find(r"^model name\s*:(.+)$", "proc/cpuinfo") or os.uname().machine,
        "memory_bytes": int(memory or 0) * 1024,
        "systemd": machine.path("run/systemd/system").is_dir(),
        "apt": bool(machine.run(["apt-get", "--version"])),
        "pressure": machine.path("proc/pressure/io").exists(),
        "cgroups": sorted(set(groups)),
        "container": container,
        "modules": {name: _has_module(machine, name) for name in MODULES},
        "listening": elsewhere,
        "listening_loopback": loopback,
        "root_login": root_login.group(1) if root_login else None,
        "free_bytes": room.f_bavail * room.f_frsize,
        "mark": read_mark(machine),
        "ceph": _ceph(machine),
        "time_kept": bool(container) or _keeps_time(machine),  # a container has its host's clock
        "devices": {path: device(machine, path) for path in request.get("devices", ())},
    }


def _has_module(machine: HostMachine, name: str) -> bool | None:
    """Return True if the kernel has a module or can load it, None if unknown. Loads nothing."""
    if machine.path(f"sys/module/{name}").exists():
        return True
    if machine.run(["modprobe", "--show-depends", name]).strip():  # also of the kernel itself
        return True
    # A container does not show the modules of its host.
    listed = machine.text(f"lib/modules/{os.uname().release}/modules.dep")
    return False if listed and machine.run(["modprobe", "--version"]) else None


def _listening(machine: HostMachine) -> tuple[list[int], list[int]]:
    """Return TCP ports with a listener that others reach, and ports of loopback listeners."""
    text = machine.text("proc/net/tcp") + machine.text("proc/net/tcp6")
    found = re.findall(r"^ *\d+: (\w+):(\w+) \S+ 0A\b", text, re.MULTILINE)
    ports = {(address in LOOPBACK, int(port, 16)) for address, port in found}
    elsewhere, loopback = ([p for own, p in sorted(ports) if own is here] for here in (False, True))
    return elsewhere, loopback


def _ceph(machine: HostMachine) -> dict[str, Any]:
    """Return traces of Ceph: ``fsids`` by the file or folder that names a cluster ("" for a cluster
    without a name), and ``units`` that run.
    """
    fsids = {}
    conf = re.sub("[ \t]*[#;].*", "", machine.text("etc/ceph/ceph.conf"))
    if conf.strip():
        named = re.search(r"^\s*fsid\s*=[ \t]*(\S*)\s*$", conf, re.MULTILINE)
        fsids["/etc/ceph/ceph.conf"] = named.group(1) if named else ""
    for folder in sorted(machine.path("var/lib/ceph").glob("*")):
        if UUID.fullmatch(folder.name):
            fsids["/var/lib/ceph/" + folder.name] = folder.name  # made by cephadm
    for mark_of_osd in sorted(machine.path("var/lib/ceph/osd").glob("*/ceph_fsid")):
        name = str(mark_of_osd.parent.relative_to(machine.root))
        fsids["/" + name] = machine.text(name + "/ceph_fsid").strip()
    running = ["list-units", "--plain", "--no-legend", "--type=service", "--state=running"]
    units = machine.run(["systemctl", *running, "ceph-*@*"]).splitlines()
    return {"fsids": fsids, "units": [line.split()[0] for line in units if line.split()]}


def _keeps_time(machine: HostMachine) -> bool:
    units = ["chrony.service", "chronyd.service", "systemd-timesyncd.service", "ntpsec.service"]
    return "active" in machine.run(["systemctl", "is-active", *units]).split()


def connect(machine: HostMachine, request: dict[str, Any]) -> dict[str, Any]:
    """Try TCP connections to ``targets`` (name to [address, port]). Returns, by name, None if
    connected, `REFUSED` if the machine answers that nobody listens, else the reason."""
    targets = request["targets"]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return dict(zip(targets, pool.map(_connection, targets.values()), strict=True))


def _connection(target: list[Any]) -> str | None:
    try:
        socket.create_connection((target[0], target[1]), CONNECT_S).close()
    except ConnectionRefusedError:
        return REFUSED
    except OSError as error:
        return error.strerror or str(error)
    return None


def usage(machine: HostMachine, request: dict[str, Any]) -> dict[str, Any]:
    """Return counters in seconds of all CPUs, busy, steal, the kernel's threads and the testbed.

    ``ours`` are the units of the store and of Hotbed and root's sessions, which Hotbed logs in as.
    ``containers`` are the containers of the cluster ``fsid``, by control group, because a new
    container begins at 0. Without CPU times of control groups everything counts as ``ours``.
    """
    tick = os.sysconf("SC_CLK_TCK")
    fields = machine.text("proc/stat").split("\n", 1)[0].split()[1:]
    times = [int(field) / tick for field in fields] + [0.0] * 8
    user, nice, system, idle, wait, irq, softirq, steal = times[:8]
    busy = user + nice + system + irq + softirq
    kernel = _kernel_threads(machine) / tick
    ours, containers = busy - kernel, {}
    fsid = str(request.get("fsid") or "")
    top = machine.path("sys/fs/cgroup")
    for tree, name, unit in ((top, "cpu.stat", 1e6), (top / "cpuacct", "cpuacct.usage", 1e9)):
        if (tree / "system.slice" / name).exists():
            ours = sum(_cpu_time(group / name) / unit for group in _groups(tree, fsid))
            containers = {
                str(group.relative_to(tree)): _cpu_time(group / name) / unit
                for group in _containers(machine, tree, fsid)
            }
            break
    all_s = busy + idle + wait + steal
    found = {"all": all_s, "busy": busy, "steal": steal, "kernel": kernel, "ours": ours}
    return {**found, "containers": containers}


def _groups(tree: Path, fsid: str) -> Iterator[Path]:
    """Yield control groups of the store, of Hotbed and of root, without other clusters' groups."""
    for pattern in UNITS:
        for group in (tree / "system.slice").glob(pattern):
            cluster = UUID.search(group.name.replace("\\x2d", "-"))
            if cluster is None or cluster.group() == fsid:
                yield group
    yield tree / "user.slice/user-0.slice"


def _containers(machine: HostMachine, tree: Path, fsid: str) -> Iterator[Path]:
    """Yield containers that mount a folder of the cluster: Docker's are in no unit of the store."""
    for pattern in SCOPES if fsid else ():
        for group in tree.glob(pattern):
            # Podman puts what runs in a container into a group of its own.
            if any(_has_folder(machine, each, fsid) for each in (group, group / "container")):
                yield group


def _has_folder(machine: HostMachine, group: Path, fsid: str) -> bool:
    first = machine.text(str(group.relative_to(machine.root) / "cgroup.procs")).split("\n", 1)[0]
    mounts = machine.text(f"proc/{first}/mountinfo") if first else ""
    # The field is the folder that was mounted, such as /var/lib/ceph/FSID/osd.0.
    folders = (line.split()[3] for line in mounts.splitlines() if len(line.split()) > 3)
    return any(fsid in folder.split("/") for folder in folders)


def _cpu_time(path: Path) -> float:
    try:
        found = re.search(r"^(?:usage_usec )?(\d+)$", path.read_text(), re.MULTILINE)
    except OSError:
        return 0.0
    return float(found.group(1)) if found else 0.0


def _kernel_threads(machine: HostMachine) -> int:
    """Return clock ticks used by the kernel's own threads, which belong to nobody."""
    ticks = 0
    for entry in machine.path("proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields and fields[1] == "2":
            ticks += int(fields[11]) + int(fields[12])
    return ticks


# -- holding ---------------------------------------------------------------------------------------


def mark(machine: HostMachine, request: dict[str, Any]) -> dict[str, Any]:
    """Return the machine's mark."""
    return {"mark": read_mark(machine)}


def hold(machine: HostMachine, request: dict[str, Any]) -> None:
    """Mark the machine with ``mark``, let ``key`` in as root, name ``names`` (name: address).

    Refused if another testbed holds it; safe to repeat for the same testbed.
    """
    _mark(machine, request["mark"])
    machine.path(KEYS).parent.mkdir(mode=0o700, exist_ok=True)
    _write_key(machine, request["key"], let_in=True)
    names = [f"{address} {name}" for name, address in request["names"].items()]
    _write_names(machine, "\n".join([BEGIN, *names, END]) + "\n")


def _mark(machine: HostMachine, wanted: dict[str, Any]) -> None:
    path, new = machine.path(MARK), machine.path(_aside(wanted["id"]))
    replace(new, json.dumps(wanted) + "\n", 0o644)
    try:
        os.link(new, path)  # atomically, and only the first of two at once succeeds
    except FileExistsError:
        pass
    finally:
        new.unlink()
    found = read_mark(machine) or {}
    if found.get("id") != wanted["id"]:
        raise HostRefused(
            f"is held by the testbed {found.get('testbed')!r} ({found.get('since', '?')}): take "
            f"that one down first; if nobody has it any more, delete /{MARK} there"
        )
    if found.get("node") != wanted["node"]:
        raise HostRefused(f"is the same machine as that of node {found.get('node')}")


def _aside(identity: str) -> str:
    """Return where the mark is written before it counts."""
    return f"etc/.hotbed-site.json.{identity}"


def _write_key(machine: HostMachine, key: str, *, let_in: bool) -> None:
    """Add a key's line to root's authorized keys, or take it away. Cloud images list the same key
    with a command that sends people away, and sshd takes the first line that fits: it goes, too."""
    path = machine.path(KEYS)
    old = read_whole(path)
    if not key:
        return
    left = "\n".join(line for line in old.split("\n") if key.split()[1] not in line.split())
    new = _ended(left) + key + "\n" if let_in else left
    if new != old:
        replace(path, new, 0o600)
    if not new and not path.is_symlink():
        path.unlink(missing_ok=True)


def _write_names(machine: HostMachine, block: str) -> None:
    """Put `block` at the end of the hosts file, in place of an older block."""
    path = machine.path(HOSTS)
    old = read_whole(path)
    pattern = re.escape(BEGIN) + r"\n.*?" + re.escape(END) + r"\n?"
    left = re.sub(pattern, "", old, flags=re.DOTALL)
    text = _ended(left) + block if block else left
    if text != old:
        replace(path, text, 0o644)


def let_go(machine: HostMachine, request: dict[str, Any]) -> None:
    """Undo `hold` for the testbed with this ``id``; leave another's mark, and all else, alone.

    The key goes late: until then a repeated call can still log in with it. The mark goes last.
    """
    found = read_mark(machine) or {}
    ours = found.get("id") == request["id"]
    if not found or ours:
        _write_names(machine, "")
    aside, keys = machine.path(_aside(request["id"])), machine.path(KEYS)
    for changed in (aside, machine.path(HOSTS), keys):
        pending(changed).unlink(missing_ok=True)
    aside.unlink(missing_ok=True)
    _write_key(machine, request["key"], let_in=False)
    if keys.parent.is_dir() and not any(keys.parent.iterdir()):
        keys.parent.rmdir()
    if ours:
        machine.path(MARK).unlink()


# -- wiping ----------------------------------------------------------------------------------------


def wipe(machine: HostMachine, request: dict[str, Any]) -> None:
    """Forget what is on the device ``device``: signatures, partitions, first and last megabytes.

    Only while the testbed with ``id`` holds the machine, never a device in use, and only if the
    device is what was ``seen`` (see `device`; and the machine's ``boot_id``) when it was allowed:
    a name may be another device's after a reboot, and new data may be on it.
    """
    name = request["device"]
    holder = read_mark(machine)
    if holder is None or holder.get("id") != request["id"]:
        raise HostRefused("is not held by this testbed, and nothing on it is wiped")
    found = device(machine, name)
    if found["is"] != "a device":
        raise HostRefused(f"has no block device {name}")
    if found["uses"]:
        raise HostRefused("has the device {}, which {}".format(name, " and ".join(found["uses"])))
    other = _other(found, request["seen"], machine.text(BOOT).strip())
    if other is not None:
        raise HostRefused(
            f"has the device {name}, which {other}: nothing on it is wiped; take the testbed down "
            "and bring it up again, to be asked anew"
        )
    path = machine.path(name)
    number = _number_of(path.stat())
    for _, part in _partitions(machine, number):
        _zero(machine.path("dev/" + part))
    machine.run(["wipefs", "--all", "--force", str(path)])
    _zero(path)
    if _partitions(machine, number):
        machine.run(["blockdev", "--rereadpt", str(path)])
        machine.run(["udevadm", "settle", "--timeout=10"])
    after = device(machine, name)
    if after["holds"]:
        raise HostRefused("still has {} on {} after wiping".format(", ".join(after["holds"]), name))


def _other(found: dict[str, Any], seen: dict[str, Any], boot: str) -> str | None:
    """Return why a device is not what was seen; None if it is, or if it is what a wipe that was cut
    off left of that."""
    if any(found[name] != seen.get(name) for name in ("bytes", "model", "identity")):
        return "is another device now than the one that was allowed to be wiped"
    if not found["identity"] and seen.get("boot_id") != boot:
        return (
            "may be another one than was allowed to be wiped, for it has no serial number and the "
            "machine was started anew since"
        )
    new = [each for each in found["holds"] if each not in (*seen["holds"], UNKNOWN)]
    new += [each for each in found["uuids"] if each not in seen["uuids"]]
    return f"holds {', '.join(new)} now, which nobody allowed to be wiped" if new else None


def _zero(path: Path) -> None:
    handle = os.open(str(path), os.O_RDWR)
    try:
        size = os.lseek(handle, 0, os.SEEK_END)
        for start in range(0, min(ZEROED_HEAD, size), HEAD):
            os.pwrite(handle, bytes(min(HEAD, size - start)), start)
        tail = max(size - ZEROED_TAIL, 0)
        os.pwrite(handle, bytes(size - tail), tail)
        os.fsync(handle)
    finally:
        os.close(handle)


# -- the program -----------------------------------------------------------------------------------

ACTIONS: dict[str, Callable[[HostMachine, dict[str, Any]], Any]] = {
    action.__name__: action for action in (survey, connect, usage, mark, hold, let_go, wipe)
}


def answer(request: dict[str, Any], machine: HostMachine) -> dict[str, Any]:
    """Return the answer to a request."""
    try:
        return {"ok": True, "result": ACTIONS[request["do"]](machine, request)}
    except HostRefused as error:
        return {"ok": False, "error": str(error)}
    except OSError as error:
        return {"ok": False, "error": f"cannot do that: {error}"}


if __name__ == "__main__":
    json.dump(answer(json.loads(sys.argv[1]), HostMachine()), sys.stdout)
