"""From servers to nodes: their host keys, the first contact by ssh, disks, names, root's key.

The admin node is reached at its floating IP, the others through it. Host keys are ours, handed over
by cloud-init and known before the first contact, or learned at it where the spec says so.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, TypeVar

from schemas.errors import RemoteError, UserError
from testbed.agent.contract import IOWAIT_CPUS
from testbed.reach import target_of
from testbed.sites import keys
from testbed.sites.chameleon.cloud import Server
from testbed.sites.chameleon.options import DeviceOptions, osd_paths
from testbed.sites.chameleon.work import POLL_S, Work, left
from testbed.sites.contract import Node, SiteError, Testbed
from testbed.spec import GroupSpec
from testbed.ssh import Shell, SshShell, SshTarget

SETUP_S = 300.0
CONTACT_S = 20.0
SCAN_S = 10
KEY_FOLDER = "host_keys"
UNMARKED = frozenset({"/dev/disk/by-partlabel/hotbed-osd", "/dev/disk/by-partlabel/hotbed-scratch"})

T = TypeVar("T")
Shells = Callable[[SshTarget], Shell]
Scan = Callable[[str], str]


@dataclass(frozen=True)
class Prepared:
    """What a node told of itself: a path for every use of its disks, and facts."""

    devices: Mapping[str, str]
    facts: Mapping[str, Any]


def own_host_keys(work: Work) -> dict[str, tuple[str, str]]:
    """(private, public) host key of every node, made on first use; empty where they are learned."""
    if work.options.host_keys != "given":
        return {}
    folder = work.record.folder / KEY_FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    made = {}
    for node in work.spec.node_names():
        keys.make(folder / node, node)
        made[node] = ((folder / node).read_text(), keys.public(folder / node))
    return made


def scan(address: str) -> str:
    """The ed25519 host key that a machine shows now, as ``type key``.

    Raises:
        RemoteError: it does not answer.
    """
    try:
        done = subprocess.run(
            ["ssh-keyscan", "-T", str(SCAN_S), "-t", "ed25519", address],
            capture_output=True,
            timeout=3 * SCAN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RemoteError(f"ssh-keyscan of {address} failed: {error}", retry=True) from error
    return _scanned(done.stdout.decode(errors="replace"), address)


def _scanned(text: str, address: str) -> str:
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 3 and words[1] == "ssh-ed25519":
            return " ".join(words[1:3])
    raise RemoteError(f"{address} shows no ed25519 host key (yet)", retry=True)


class Contact:
    """The first contact with the nodes of a testbed that is being made.

    Args:
        draft: the testbed, its nodes with the user of the image.
        servers: the server of each node.
        shells, see: how nodes are reached and keys looked at.
    """

    def __init__(
        self,
        work: Work,
        draft: Testbed,
        servers: Mapping[str, Server],
        shells: Shells = SshShell,
        see: Scan = scan,
    ) -> None:
        self._work, self._draft, self._servers = work, draft, servers
        self._shells, self._see = shells, see
        self._marks = {node.name: _mark(work, node.name, servers) for node in draft.nodes}
        self._keys = threading.Lock()  # the record is written by one thread at a time

    def prepare(self) -> dict[str, Prepared]:
        """Every node set up, and root let in on each.

        Raises:
            SiteError: a node does not answer in time, or does not let us in.
            UserError: a disk that the spec speaks of is not there.
        """
        admin = self._draft.admin
        others = [node for node in self._draft.nodes if node.name != admin.name]
        self._pin()
        self._meet(admin)
        done = {admin.name: self._set_up(admin)}
        self._work.progress(f"node {admin.name} is ready", 0.8)

        def one(node: Node) -> Prepared:
            self._meet(node)
            return self._set_up(node)

        done |= _in_parallel(others, one)
        self._work.progress("asking the nodes for root", 0.95)
        _in_parallel(self._draft.nodes, self._as_root)
        return done

    # -- host keys ------------------------------------------------------------------------------

    def _pin(self) -> None:
        """Write known_hosts of what is known now; a key is a server's, not an address's."""
        known = self._work.record.data.setdefault("host_keys", {})
        for node, (_, public) in own_host_keys(self._work).items():
            known[node] = {"server": self._servers[node].id, "key": public}
        for node in list(known):
            if known[node]["server"] != self._servers[node].id:
                del known[node]
        self._write()

    def _write(self) -> None:
        known = self._work.record.data["host_keys"]
        lines = {}
        for node in self._draft.nodes:
            if node.name in known:
                addresses = dict.fromkeys((node.reached_at, node.address))
                lines[node.name] = (",".join(addresses), known[node.name]["key"])
        keys.write_known_hosts(self._draft.known_hosts, lines)
        self._work.record.save()

    def _learn(self, node: Node) -> None:
        """The host key that the node shows at the first contact: to us, or to the admin node."""
        if node.via is None:
            key = self._see(node.reached_at)
        else:
            script = ["ssh-keyscan", "-T", str(SCAN_S), "-t", "ed25519", node.address]
            shell = self._shell(self._draft.node(node.via))
            key = _scanned(shell.run(script, timeout_s=3 * SCAN_S, check=False).text, node.address)
        with self._keys:
            self._work.record.data["host_keys"][node.name] = {
                "server": self._servers[node.name].id,
                "key": key,
            }
            self._write()

    # -- contact --------------------------------------------------------------------------------

    def _shell(self, node: Node) -> Shell:
        return self._shells(target_of(self._draft, node))

    def _meet(self, node: Node) -> None:
        """Wait until the node answers by ssh."""
        clock, patience = self._work.clock, self._work.options.patience.ssh_s
        end = clock.monotonic() + patience
        while True:
            try:
                if node.name not in self._work.record.data["host_keys"]:
                    self._learn(node)
                self._shell(node).run(["true"], timeout_s=CONTACT_S)
                return
            except RemoteError as error:
                if clock.monotonic() >= end:
                    raise SiteError(
                        f"{self._work.options.site}: node {node.name} did not let us in within "
                        f"{left(patience)}: {error}",
                        retry_after_s=POLL_S,
                    ) from error
            self._work.progress(f"waiting for ssh on {node.name}", 0.75)
            clock.sleep(POLL_S)

    def _set_up(self, node: Node) -> Prepared:
        told = wanted_of(self._work, self._draft, node) | {"mark": self._marks[node.name]}
        wanted = base64.b64encode(json.dumps(told).encode())
        script = files("testbed.sites.chameleon").joinpath("node_setup.py").read_bytes()
        sudo = [] if node.ssh_user == "root" else ["sudo", "-n"]
        try:
            done = self._shell(node).run(
                [*sudo, "python3", "-", wanted.decode()], input=script, timeout_s=SETUP_S
            )
            answer = json.loads(done.text)
        except RemoteError as error:
            raise SiteError(
                f"node {node.name} could not be set up: {error}", retry_after_s=POLL_S
            ) from error
        except ValueError as error:
            raise SiteError(
                f"node {node.name} could not be set up: it says {done.text[:200]!r}"
            ) from error
        if "error" in answer:
            raise UserError(f"node {node.name}: {answer['error']}")
        return Prepared(answer["devices"], answer["facts"])

    def _as_root(self, node: Node) -> None:
        nodes = tuple(replace(each, ssh_user="root") for each in self._draft.nodes)
        testbed = replace(self._draft, nodes=nodes)
        try:
            self._shells(target_of(testbed, testbed.node(node.name))).run(["true"], timeout_s=60.0)
        except RemoteError as error:
            raise SiteError(
                f"node {node.name} does not let root in, whose key is in place: {error}",
                retry_after_s=POLL_S,
            ) from error


def _in_parallel(nodes: Sequence[Node], call: Callable[[Node], T]) -> dict[str, T]:
    """`call` on all nodes at once; the first node's error, when there are several."""
    if not nodes:
        return {}
    with ThreadPoolExecutor(len(nodes)) as pool:
        futures = {node.name: pool.submit(call, node) for node in nodes}
    return {name: future.result() for name, future in futures.items()}


def wanted_of(work: Work, draft: Testbed, node: Node) -> dict[str, Any]:
    """What `node_setup` is told."""
    group = next(each for each in work.spec.groups if each.name == node.group)
    given = work.options.devices_of(group.name, node.name)
    return {
        "hostname": node.name,
        "keys": [keys.public(draft.ssh_key)],
        "peers": {each.name: each.address for each in draft.nodes},
        "parts": _parts(given) if isinstance(given, DeviceOptions) else {},
        "disks": _disks(group, () if given is None else osd_paths(given)),
        "files": work.options.virtual,
        "media": work.options.media,
    }


def _mark(work: Work, node: str, servers: Mapping[str, Server]) -> str:
    """What the names of a node's parts end with: its server's own. Earlier versions had no mark;
    such a server's parts, which may have a store on them, keep their names.
    """
    server = servers[node].id
    same = work.record.data.get("host_keys", {}).get(node, {}).get("server") == server
    before = [each for each in work.record.data.get("nodes") or () if each["name"] == node]
    if same and any(path in UNMARKED for each in before for path in each["devices"].values()):
        return ""
    return re.sub(r"[^A-Za-z0-9]", "", server)[-12:]


def _parts(given: DeviceOptions) -> dict[str, str]:
    parts = {f"osd{place or ''}": path for place, path in enumerate(osd_paths(given))}
    return parts | ({"scratch": given.scratch} if given.scratch else {})


def _disks(group: GroupSpec, paths: Sequence[str]) -> list[dict[str, Any]]:
    if group.disk is None:
        return []
    return [
        {
            "path": paths[place] if paths else None,
            "osd_bytes": group.disk.size - group.disk.scratch,
            "scratch_bytes": group.disk.scratch,
        }
        for place in range(group.disks)
    ]


def signal_of(wanted: str, facts: Mapping[str, Any]) -> tuple[str, str | None]:
    """(signal, pressure file) of a node: see `contract.Node`."""
    if wanted == "auto":
        few = int(facts.get("cpus", 1)) <= IOWAIT_CPUS
        wanted = "iowait" if few or not facts.get("pressure") else "io_pressure"
    return (wanted, "/proc/pressure/io" if wanted == "io_pressure" else None)
