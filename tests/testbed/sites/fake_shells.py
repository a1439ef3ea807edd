"""In-memory nodes with ssh: `node_setup`'s answers for a machine with one spare disk."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
from collections.abc import Sequence

from schemas.errors import RemoteError
from testbed.ssh import Completed, Shell, SshTarget

BY = "/dev/disk/by-partlabel"


class FakeShells:
    """`Shells` stand-in: called with a target, it returns the target's shell.

    Args:
        cpus: CPUs of every node.
        deaf: number of first commands of each node without an answer."""

    def __init__(self, *, cpus: int = 2, deaf: int = 0, error: str | None = None) -> None:
        self.cpus, self.deaf, self.error = cpus, deaf, error
        self.wanted: dict[str, dict[str, object]] = {}
        self.heard: dict[str, int] = {}
        self.targets: list[SshTarget] = []
        self.lock = threading.Lock()

    def __call__(self, target: SshTarget) -> Shell:
        with self.lock:
            self.targets.append(target)
        return _FakeShell(target, self)


class _FakeShell:
    def __init__(self, target: SshTarget, all_of: FakeShells) -> None:
        self.node, self._target, self._all = target.node, target, all_of

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes | None = None,
        timeout_s: float = 60.0,
        check: bool = True,
    ) -> Completed:
        with self._all.lock:
            heard = self._all.heard[self.node] = self._all.heard.get(self.node, 0) + 1
        if heard <= self._all.deaf:
            raise RemoteError(f"node {self.node} cannot be reached by ssh: refused", retry=True)
        out = ""
        if "ssh-keyscan" in argv:
            out = f"{argv[-1]} ssh-ed25519 KEY-OF-{argv[-1]}\n"
        elif argv[-1].startswith("{"):
            counters: dict[str, object] = {"containers": {}}
            counters |= dict.fromkeys(("all", "busy", "steal", "kernel", "ours"), 1.0)
            out = json.dumps({"ok": True, "result": counters})
        elif "python3" in argv:
            out = json.dumps(self._set_up(json.loads(base64.b64decode(argv[-1]))))
        return Completed(tuple(argv), 0, out.encode(), b"")

    def _set_up(self, wanted: dict[str, object]) -> dict[str, object]:
        with self._all.lock:
            self._all.wanted[self.node] = wanted
        if self._all.error is not None:
            return {"error": self._all.error}
        devices = {}
        disks = wanted["disks"]
        assert isinstance(disks, list)
        for number, disk in enumerate(disks):
            mark = wanted["mark"]
            devices[f"osd{number or ''}"] = f"{BY}/hotbed-osd{number or ''}-{mark}"
            if disk["scratch_bytes"]:
                devices["scratch"] = f"{BY}/hotbed-scratch-{mark}"
        facts = {"cpus": self._all.cpus, "memory_bytes": 2**34, "pressure": True, "product": "R740"}
        return {"devices": wanted["parts"] or devices, "facts": facts}

    def put(self, data: bytes, path: str, *, mode: int = 0o644) -> None:
        raise AssertionError("nothing is put")

    def popen(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        raise AssertionError("nothing is started")
