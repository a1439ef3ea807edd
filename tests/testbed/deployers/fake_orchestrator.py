"""Machines with a made-up cephadm and orchestrator: received commands and scripted answers.

Answers have the shapes of Ceph's orchestrator module (`DaemonDescription.to_json`,
`HostSpec.to_json`) and of `ceph status`; no answer was recorded on a live cluster.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import yaml

from schemas.errors import RemoteError
from testbed.deploy.cephadm import PROGRAM, CephadmCommand
from testbed.sites.contract import Node
from testbed.ssh import Completed

FSID = "5b8ac5f6-6d0e-5c43-9d0b-3a5c5e0f2f11"
KEY = "ssh-rsa AAAAB3NzaC1yc2E ceph-" + FSID


class FakeMachines:
    """Cluster that comes up as configured, after one look at it.

    `log` holds (node, what) in order. OSDs of the hosts in `broken` never start. `fails` maps a
    word to the error of commands with this word.
    """

    def __init__(self, cephadm: CephadmCommand) -> None:
        self._start = cephadm.command()
        self.log: list[tuple[str, str]] = []
        self.fails: dict[str, str] = {}
        self.broken: set[str] = set()
        self.away: set[str] = set()  # hosts unreachable by ssh
        self.programs: set[str] = set()
        self.waits = 0  # number of reads before a key exists
        self.folder = False
        self.marked = False  # like a cluster with a complete bootstrap
        self.serves = False
        self.files: dict[str, bytes] = {}  # on the first host, by path
        self.bootstrapped: list[str] = []  # the arguments of the last bootstrap
        self.keys: dict[str, list[str]] = {}
        self.hosts: list[dict[str, Any]] = []
        self.services: dict[str, dict[str, Any]] = {}
        self._looks = 0

    def run(
        self, node: Node, argv: Sequence[str], *, input: bytes = b"", timeout_s: float = 0.0
    ) -> Completed:
        """See `cephadm.Run`."""
        words = list(argv)
        what = self._name(words)
        self.log.append((node.name, what))
        if node.name in self.away:
            raise RemoteError(f"node {node.name} cannot be reached by ssh: timed out", retry=True)
        for word, reason in self.fails.items():
            if word in what:
                return Completed(tuple(argv), 1, b"", f"Traceback ...\nERROR: {reason}\n".encode())
        code, said = self._do(node, words, what, input)
        return Completed(tuple(argv), code, said.encode(), b"" if code == 0 else b"ERROR: no\n")

    def _name(self, words: list[str]) -> str:
        count = len(self._start)
        if words[:count] != self._start:
            return " ".join(words[:2])
        rest = words[count:]
        return " ".join(rest[4:]) if rest[0] == "shell" else rest[0]

    def _do(self, node: Node, words: list[str], what: str, input: bytes) -> tuple[int, str]:
        if what == "test -s":
            self.waits -= 1
        there = {
            "test -f": node.name in self.programs,
            "test -s": self.waits < 0,
            "test -d": self.folder,
            "test -e": self.marked,
        }
        if what in there:
            return int(not there[what]), ""
        if words[0] == "touch":
            self.marked = True
        elif what == "sh -c":
            self._script(node, words, input)
        elif what == "bootstrap":
            self.folder = self.serves = True
            self.bootstrapped = words
        elif what == "rm-cluster":
            self.folder = self.serves = self.marked = False
        else:
            return (0, self._ceph(what, input)) if self.serves else (1, "")
        return 0, ""

    def _script(self, node: Node, words: list[str], input: bytes) -> None:
        if PROGRAM in words:
            fetched = any(word.startswith("https://") for word in words)
            (self.programs.add if fetched else self.programs.discard)(node.name)
        elif b"ceph-" in input:
            self.keys.setdefault(node.name, []).append(input.decode().strip())
        else:
            self.files[words[-1]] = input

    def _ceph(self, what: str, input: bytes) -> str:
        if what == "ceph cephadm get-pub-key":
            return KEY + "\n"
        if what.startswith("ceph orch apply"):
            for spec in yaml.safe_load_all(input):
                if spec["service_type"] == "host":
                    self.hosts.append(spec)
                else:
                    self.services[f"{spec['service_type']}.{spec.get('service_id', '')}"] = spec
            return "Scheduled update...\n"
        if what == "ceph orch host ls --format json":
            lost = dict.fromkeys(self.broken, "Offline")
            return json.dumps([h | {"status": lost.get(h["hostname"], "")} for h in self.hosts])
        self._looks += 1
        if what == "ceph orch ps --format json":
            return self._ps()
        return self._status() if what == "ceph status --format json" else ""

    def _ps(self) -> str:
        rows = [
            daemon(kind.partition(".")[0], host, running=self._looks > 1)
            for kind, spec in self.services.items()
            for host in spec["placement"]["hosts"]
        ]
        return json.dumps(rows) if rows else "No daemons reported"

    def _status(self) -> str:
        made = [
            host
            for kind, spec in self.services.items()
            if kind.startswith("osd.")
            for host in spec["placement"]["hosts"]
            for _ in spec["spec"]["data_devices"]["paths"]
        ]
        up = [host for host in made if host not in self.broken and self._looks > 1]
        counts = {"epoch": 9, "num_osds": len(made), "num_up_osds": len(up), "osd_up_since": 0}
        body = {"fsid": FSID, "osdmap": counts | {"num_in_osds": len(up), "num_remapped_pgs": 0}}
        return json.dumps(body)


def daemon(kind: str, host: str, *, running: bool) -> dict[str, object]:
    """Return a row of `ceph orch ps`, without empty fields, as in the original."""
    row: dict[str, object] = {
        "daemon_type": kind,
        "daemon_id": host,
        "daemon_name": f"{kind}.{host}",
        "service_name": kind,
        "hostname": host,
        "status": 1 if running else 2,
        "status_desc": "running" if running else "starting",
        "is_active": False,
        "ports": [],
        "last_refresh": "2026-01-01T00:00:00.000000Z",
    }
    return row | ({"version": "20.2.0"} if running else {})
