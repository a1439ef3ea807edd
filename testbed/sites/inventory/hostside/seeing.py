"""Looking at a machine. Nothing here changes anything."""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from testbed.sites.inventory.hostside.base import Machine, read_mark
from testbed.sites.inventory.hostside.devices import device
from testbed.sites.inventory.hostside.kernel import features

LISTEN = "0A"  # of /proc/net/tcp
LOOPBACK = ("0100007F", "00000000000000000000000001000000")
REFUSED = "refused"
CONNECT_S, CONNECTING_S = 2.0, 30.0  # one connection, all of them
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CONNECTIONS = 256  # at once


def survey(machine: Machine, request: dict[str, Any]) -> dict[str, Any]:
    """Everything that a plan and doctor want to know. Changes nothing.

    ``devices``: paths to look at; ``client``: the address that we come from. The answer's sizes
    are bytes.
    """
    release = {
        line.split("=", 1)[0]: line.split("=", 1)[1].strip().strip("\"'")
        for line in machine.text("etc/os-release").splitlines()
        if "=" in line
    }
    client = request.get("client") or "127.0.0.1"
    sshd = machine.run(["sshd", "-T", "-C", f"user=root,host={client},addr={client}"])
    root_login = re.search(r"^permitrootlogin (\S+)$", sshd, re.MULTILINE)
    return {
        "host_name": socket.gethostname(),
        "machine_id": machine.text("etc/machine-id").strip(),
        "boot_id": machine.text("proc/sys/kernel/random/boot_id").strip(),
        "distribution": release.get("ID", ""),
        "distribution_like": release.get("ID_LIKE", ""),
        "version": release.get("VERSION_ID", ""),
        "distribution_name": release.get("PRETTY_NAME", ""),
        "kernel": os.uname().release,
        "python": list(sys.version_info[:3]),
        "cpus": _cpus(machine),
        "cpu_model": _cpu_model(machine),
        "memory_bytes": _memory(machine),
        "systemd": machine.path("run/systemd/system").is_dir(),
        "apt": bool(machine.run(["apt-get", "--version"])),
        "pressure": machine.path("proc/pressure/io").exists(),
        "cgroups": _cgroups(machine),
        "features": features(machine),
        "listening": _listening(machine, loopback=False),
        "listening_loopback": _listening(machine, loopback=True),
        "root_login": root_login.group(1) if root_login else None,
        "free_bytes": _free(machine),
        "mark": read_mark(machine),
        "ceph": _ceph(machine),
        "time_kept": _time_kept(machine),
        "devices": {path: device(machine, path) for path in request.get("devices", ())},
    }


def _cpus(machine: Machine) -> int:
    return sum(
        bool(re.match(r"cpu\d", line)) for line in machine.text("proc/stat").splitlines()
    ) or (os.cpu_count() or 1)


def _cpu_model(machine: Machine) -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", machine.text("proc/cpuinfo"), re.MULTILINE)
    return found.group(1).strip() if found else os.uname().machine


def _memory(machine: Machine) -> int:
    found = re.search(r"^MemTotal:\s+(\d+) kB", machine.text("proc/meminfo"), re.MULTILINE)
    return int(found.group(1)) * 1024 if found else 0


def _cgroups(machine: Machine) -> str:
    kinds = set()
    for line in machine.text("proc/self/mountinfo").splitlines():
        tail = line.partition(" - ")[2].split()
        if tail and tail[0] in ("cgroup", "cgroup2"):
            kinds.add("v1" if tail[0] == "cgroup" else "v2")
    return "+".join(sorted(kinds))


def _listening(machine: Machine, loopback: bool) -> list[int]:
    """TCP ports that somebody listens on, at the loopback interface or elsewhere."""
    ports = set()
    for name in ("proc/net/tcp", "proc/net/tcp6"):
        for line in machine.text(name).splitlines()[1:]:
            fields = line.split()
            if len(fields) > 3 and fields[3] == LISTEN:
                address, port = fields[1].rsplit(":", 1)
                if loopback is (address in LOOPBACK):
                    ports.add(int(port, 16))
    return sorted(ports)


def _free(machine: Machine) -> int:
    found = os.statvfs(str(machine.root))
    return found.f_bavail * found.f_frsize


def _ceph(machine: Machine) -> dict[str, Any]:
    """What there is of Ceph: ``fsids`` by the file or folder that tells of a cluster ("": of one
    that is not named), and ``units`` that run.
    """
    fsids = {}
    conf = [
        re.split("[#;]", line)[0].strip()
        for line in machine.text("etc/ceph/ceph.conf").splitlines()
    ]
    if any(conf):
        named = (re.fullmatch(r"fsid\s*=\s*(\S*)", line) for line in conf)
        fsids["/etc/ceph/ceph.conf"] = next((found.group(1) for found in named if found), "")
    for folder in sorted(machine.path("var/lib/ceph").glob("*")):
        if UUID.fullmatch(folder.name):
            fsids["/var/lib/ceph/" + folder.name] = folder.name  # cephadm's
    for mark in sorted(machine.path("var/lib/ceph/osd").glob("*/ceph_fsid")):
        name = str(mark.parent.relative_to(machine.root))
        fsids["/" + name] = machine.text(name + "/ceph_fsid").strip()
    running = ["list-units", "--plain", "--no-legend", "--type=service", "--state=running"]
    units = machine.run(["systemctl", *running, "ceph-*@*"]).splitlines()
    return {"fsids": fsids, "units": [line.split()[0] for line in units if line.split()]}


def _time_kept(machine: Machine) -> bool:
    if machine.run(["systemd-detect-virt", "--container"]).strip() not in ("", "none"):
        return True  # its host's clock
    units = ["chrony.service", "chronyd.service", "systemd-timesyncd.service", "ntpsec.service"]
    return "active" in machine.run(["systemctl", "is-active", *units]).split()


def connect(machine: Machine, request: dict[str, Any]) -> dict[str, Any]:
    """Which of ``targets`` (name to [address, port]) a TCP connection reaches: None, `REFUSED`
    where the machine answers that nobody listens, or else why not.
    """
    targets = request["targets"]
    if not targets:
        return {}
    end = time.monotonic() + CONNECTING_S
    with ThreadPoolExecutor(min(len(targets), CONNECTIONS)) as pool:
        found = pool.map(lambda target: _connection(target, end), targets.values())
        return dict(zip(targets, found, strict=True))


def _connection(target: list[Any], end: float) -> str | None:
    if time.monotonic() > end:
        return "not tried, for too many others do not answer"
    try:
        socket.create_connection((target[0], target[1]), CONNECT_S).close()
    except ConnectionRefusedError:
        return REFUSED
    except OSError as error:
        return error.strerror or str(error)
    return None
