"""Machines played in memory and in a folder. ssh is faked. Programs are real; they run on a file
tree with files in place of devices.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from schemas.errors import RemoteError
from testbed.sites.inventory import hostside
from testbed.sites.inventory.contact import Contact
from testbed.ssh import Shell, SshTarget
from tests.testbed.sites.fake_shells import PlayedShell

CONNECT = "connect"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{:0>43}"
SIGNATURE = b"SIGNATURE:"


@dataclass
class FakeHost:
    """Played machine. `root_login` is sshd's answer about root for a connection. `unreachable`
    lists nodes, or ``node:port``, that the machine cannot reach."""

    root: Path
    address: str
    user: str = "root"
    sudo: bool = True
    up: bool = True
    python: str = "3.11"
    host_key: str = ""
    clock_offset_s: float = 0.0
    wipefs: bool = True
    partition_table: str = ""
    container: str = "none"
    units: list[str] = field(default_factory=list)
    root_login: Callable[[str], str] = lambda asked_of: "prohibit-password"
    unreachable: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        texts = {
            "etc/os-release": 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12"\n',
            "etc/machine-id": self.address + "\n",
            "etc/hosts": "127.0.0.1 localhost\n",
            "proc/stat": "cpu  100 0 50 800 20 0 0 10 0 0\ncpu0 50 0\ncpu1 50 0\n",
            "proc/meminfo": "MemTotal:        4194304 kB\n",
            "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            **{f"sys/module/{name}/refcnt": "1" for name in hostside.MODULES},
            "proc/pressure/io": "some avg10=0.00\n",
            "proc/net/tcp": "sl local\n 0: 00000000:0016 00000000:0000 0A 0\n",
            "proc/sys/kernel/random/boot_id": self.address + "\n",
            "run/systemd/system/x": "",
        }
        for name, text in texts.items():
            self.write(name, text)
        (self.root / "root").mkdir(exist_ok=True)

    def write(self, name: str, text: str | bytes) -> None:
        path = self.root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)

    def read(self, name: str) -> str:
        path = self.root / name.lstrip("/")
        return path.read_text() if path.exists() else ""

    def disk(self, name: str, size: int = 2**30, holds: str = "") -> None:
        """Add a device of `size` bytes (a sparse file) with a file system's signature: its type, or
        type and UUID (``ext4:0f8f``)."""
        self.write(name, SIGNATURE + holds.encode() + b"\n" if holds else b"")
        os.truncate(self.root / name.lstrip("/"), size)

    def link(self, name: str, device: str) -> None:
        """Let udev's name lead to this device alone."""
        path = self.root / "dev/disk" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for other in path.parent.iterdir():
            other.unlink()
        path.symlink_to(self.root / device.lstrip("/"))

    def files(self) -> dict[str, bytes]:
        """Return all files in the tree except devices."""
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and path.relative_to(self.root).parts[0] != "dev"
        }

    def command(self, argv: Sequence[str]) -> str:
        """Replace the programs that hostside runs."""
        if argv[:2] == ["wipefs", "--version"]:
            return "wipefs from util-linux 2.38.1\n" if self.wipefs else ""
        if argv[0] == "wipefs" and argv[1] == "--json":
            with Path(argv[2]).open("rb") as file:
                head = file.read(100)
            if not head.startswith(SIGNATURE):
                return ""
            kind, _, uuid = head[len(SIGNATURE) :].split(b"\n")[0].decode().partition(":")
            return json.dumps({"signatures": [{"type": kind, "label": None, "uuid": uuid or None}]})
        if argv == ["modprobe", "--version"]:
            return "kmod version 30"
        if argv[0] == "systemd-detect-virt":
            return self.container + "\n"
        if argv[:2] == ["systemctl", "list-units"]:
            return "".join(f"{unit} loaded active running x\n" for unit in self.units)
        if argv[0] == "blkid":
            return self.partition_table
        if argv[0] == "sshd":
            return f"permitrootlogin {self.root_login(argv[-1])}\n"
        return "apt 2.6\n" if argv[0] == "apt-get" else ""

    def do(self, request: Mapping[str, object]) -> dict[str, object]:
        """Return the real program's answer."""
        if request["do"] == CONNECT:
            targets = request["targets"]
            assert isinstance(targets, dict)
            return {"ok": True, "result": {name: self._reach(name) for name in targets}}
        return hostside.answer(dict(request), hostside.HostMachine(self.root, self.command))

    def _reach(self, target: str) -> str | None:
        """Return the error of a connection; only sshd listens."""
        node, port = target.split(":")
        if {node, target} & self.unreachable:
            return "timed out"
        return None if port == "22" else "refused"


class FakeShell(PlayedShell):
    """Shell on a played machine."""

    def __init__(self, hosts: FakeHosts, target: SshTarget) -> None:
        self.node, self._hosts, self._target = target.node, hosts, target

    def answer(self, argv: list[str], input: bytes | None) -> str:
        host = self._hosts.login(self._target)
        if argv[:2] == ["sh", "-c"] and "uid=" in argv[2]:
            root = self._target.user == "root"
            text = f"uid={0 if root else 1000}\n"
            text += "sudo=yes\n" if host.sudo or root else ""
            text += f"python={host.python}\n" if host.python else ""
            return f"{text}connection=192.0.2.250 40000 {host.address} {self._target.port}\n"
        if argv[:2] == ["sh", "-c"] and "date" in argv[2]:
            return f"{self._hosts.now() + host.clock_offset_s:.6f}\n"
        words = argv[2:] if argv[:2] == ["sudo", "-n"] else argv
        if words[:2] == ["python3", "-"]:
            self._hosts.count()
            done = host.do(json.loads(words[2]))
            self._hosts.count()
            return json.dumps(done)
        assert words == ["true"], f"a fake machine does not know {words}"
        return ""


class Killed(BaseException):
    """End of the process at this point."""


@dataclass
class FakeHosts(Contact):
    """See `testbed.sites.inventory.contact.Contact`: machines by address."""

    hosts: dict[str, FakeHost] = field(default_factory=dict)
    now: Callable[[], float] = lambda: 1_700_000_000.0
    kill_at: int | None = None
    counted: int = 0

    def count(self) -> None:
        """Count the start or end of a call; die at the chosen count."""
        self.counted += 1
        if self.kill_at is not None and self.counted >= self.kill_at:
            raise Killed

    def login(self, target: SshTarget) -> FakeHost:
        """Return the machine if it admits `target`."""
        host = self.hosts.get(target.address)
        if host is None or not host.up:
            raise RemoteError(
                f"node {target.node} ({target.address}) cannot be reached by ssh: time-out",
                retry=True,
            )
        if target.jump is not None:
            self.login(target.jump)
        pinned = target.known_hosts.read_text().splitlines()
        names = {line.split()[0] for line in pinned if line.endswith(host.host_key)}
        field = target.address if target.port == 22 else f"[{target.address}]:{target.port}"
        if field not in names:
            raise RemoteError(f"node {target.node}: Host key verification failed.", retry=True)
        if target.key is not None and target.key.name == "id_ed25519":
            public = target.key.with_suffix(".pub").read_text().strip()
            if public not in host.read("root/.ssh/authorized_keys").splitlines():
                raise RemoteError(f"node {target.node}: Permission denied (publickey).", retry=True)
        elif target.user != host.user:
            raise RemoteError(f"node {target.node}: Permission denied (publickey).", retry=True)
        return host

    def host_keys(self, target: SshTarget) -> Sequence[str]:
        host = self.hosts.get(target.address)
        if host is None or not host.up:
            raise RemoteError(f"{target.node} ({target.address}) shows no host key", retry=True)
        return [host.host_key]

    def hang_up(self, control_dir: Path) -> None:
        assert control_dir.is_dir()

    def shell(self, target: SshTarget) -> Shell:
        return FakeShell(self, target)


def play(tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch, **more: object) -> FakeHosts:
    """Play `count` machines 192.0.2.1, .2, ... with two devices, /dev/sdb1 and /dev/sdb2, each."""
    monkeypatch.setattr(hostside, "is_block", lambda status: status.st_size >= 2**20)
    monkeypatch.setattr(hostside, "HEAD", 4096)
    monkeypatch.setattr(hostside, "ZEROED_HEAD", 8192)
    monkeypatch.setattr(hostside, "ZEROED_TAIL", 4096)
    found = FakeHosts()
    for number in range(1, count + 1):
        address = f"192.0.2.{number}"
        host = FakeHost(tmp_path / "machines" / str(number), address, **more)  # type: ignore[arg-type]
        host.host_key = KEY.format(number)
        host.disk("/dev/sdb1", 2 * 2**30)
        host.disk("/dev/sdb2", 16 * 2**30)
        found.hosts[address] = host
    return found
