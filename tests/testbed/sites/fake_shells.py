"""In-memory nodes with ssh: `node_setup`'s answers for a machine with one spare disk."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from testbed.sites.inventory.contact import Contact
from testbed.ssh import Completed, Shell, SshTarget

BY = "/dev/disk/by-partlabel"


def made_up_key(path: Path, comment: str) -> None:
    """Write a key pair as `testbed.sites.keys.make` does, without ssh-keygen."""
    path.write_text("")
    path.with_suffix(".pub").write_text(f"ssh-ed25519 AAAAC3Nz {comment}\n")


def ended(argv: Sequence[str], code: int = 0, out: str = "", err: str = "") -> Completed:
    """Return a command's end with this exit code and output."""
    return Completed(tuple(argv), code, out.encode(), err.encode())


class PlayedShell:
    """See `testbed.ssh.Shell`; only `answer` is played."""

    node: str

    def answer(self, argv: list[str], input: bytes | None) -> str | Completed:
        """Return what a command prints, or how it ends if that is not with 0."""
        raise NotImplementedError

    def run(self, argv: Sequence[str], *, input: bytes | None = None, **_: object) -> Completed:
        found = self.answer(list(argv), input)
        return found if isinstance(found, Completed) else ended(argv, out=found)

    def put(self, data: bytes, path: str, *, mode: int = 0o644) -> None:
        raise NotImplementedError

    def popen(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        raise NotImplementedError


class FakeShells(Contact):
    """See `Contact`; a machine's host key has its address in it."""

    def __init__(self) -> None:
        self.wanted: dict[str, dict[str, object]] = {}
        self.trouble = ""  # reason for which no node can be set up
        self.lock = threading.Lock()

    def host_keys(self, target: SshTarget) -> Sequence[str]:
        return [f"ssh-ed25519 KEY-OF-{target.address}"]

    def shell(self, target: SshTarget) -> Shell:
        return _FakeShell(target, self)


class _FakeShell(PlayedShell):
    def __init__(self, target: SshTarget, all_of: FakeShells) -> None:
        self.node, self._all = target.node, all_of

    def answer(self, argv: list[str], input: bytes | None) -> str:
        if "python3" not in argv:
            return ""
        request = json.loads(argv[-1])
        result: dict[str, object] = {}
        if request["do"] == "set_up" and self._all.trouble:
            return json.dumps({"ok": False, "error": self._all.trouble})
        if request["do"] == "set_up":
            result = self._set_up(request)
        elif request["do"] == "usage":
            result = {"containers": {}}
            result |= dict.fromkeys(("all", "busy", "steal", "kernel", "ours"), 1.0)
        return json.dumps({"ok": True, "result": result})

    def _set_up(self, wanted: dict[str, object]) -> dict[str, object]:
        with self._all.lock:
            self._all.wanted[self.node] = wanted
        devices = {}
        disks = wanted["disks"]
        assert isinstance(disks, list)
        for number, disk in enumerate(disks):
            mark = wanted["mark"]
            devices[f"osd{number or ''}"] = f"{BY}/hotbed-osd{number or ''}-{mark}"
            if disk["scratch_bytes"]:
                devices["scratch"] = f"{BY}/hotbed-scratch-{mark}"
        facts = {"cpus": 2, "memory_bytes": 2**34, "pressure": True, "product": "R740"}
        return {"devices": wanted["parts"] or devices, "facts": facts}
