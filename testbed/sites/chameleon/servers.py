"""Servers of a testbed and their way to nodes: key pair, security group, image, network, floating
IP, host keys, the first contact by ssh, disks, names, root's key.

All servers are requested in parallel and watched by one request for all of them. The admin node is
reached at its floating IP, the other nodes through the admin node. Host keys are ours, handed over
by cloud-init and known before the first contact, or learned at it if the spec says so.
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
from functools import partial
from importlib.resources import files
from typing import Any, TypeVar

from schemas.errors import RemoteError, UserError
from testbed.agent.contract import IOWAIT_CPUS
from testbed.reach import target_of
from testbed.sites import keys
from testbed.sites.chameleon.cloud import (
    PASSING_S,
    CloudError,
    Fault,
    Flavor,
    FloatingIp,
    Named,
    NewServer,
    NovaServer,
    Reservation,
    Rule,
    explain,
    fault_of,
)
from testbed.sites.chameleon.options import DeviceOptions, osd_paths
from testbed.sites.chameleon.work import AT_ONCE, POLL_S, Work, belongs, left
from testbed.sites.contract import Node, SiteError, Testbed
from testbed.ssh import Shell, SshShell, SshTarget

SSH_PORT = 22
GONE_S = 600.0
"""Longest time in seconds for servers to be gone."""
TRIES = 2
"""Number of times that a server is made: machines fail to deploy now and then."""
BARE_METAL = "baremetal"
STOPPED = frozenset(
    {"SHUTOFF", "PAUSED", "SUSPENDED", "STOPPED", "RESCUE", "SHELVED", "SHELVED_OFFLOADED"}
)
"""Statuses that a server does not leave by itself."""
GONE = frozenset({"DELETED", "SOFT_DELETED"})
SETUP_S = 300.0
CONTACT_S = 20.0
SCAN_S = 10
KEY_FOLDER = "host_keys"
UNMARKED = frozenset({"/dev/disk/by-partlabel/hotbed-osd", "/dev/disk/by-partlabel/hotbed-scratch"})

T = TypeVar("T")
Shells = Callable[[SshTarget], Shell]
Scan = Callable[[str], str]


# -- before servers -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Base:
    """Things that all servers of a testbed share."""

    keypair: str
    image: Named
    network: Named
    security_group: Named | None


def make_base(work: Work) -> Base:
    """Look up the image and the network; make the key pair and the security group.

    Raises:
        UserError: there is no such image or network, or more than one.
        SiteError: the cloud refused.
    """
    image = _one(work, "image", work.options.image, work.cloud.images)
    network = _one(work, "network", work.options.network, work.cloud.networks)
    keys.make(work.record.folder / keys.LOGIN, work.base)
    public = keys.public(work.record.folder / keys.LOGIN)
    work.ensure(
        "keypair",
        work.base,
        lambda: work.base if work.base in work.cloud.keypairs() else None,
        lambda: work.cloud.create_keypair(work.base, public),
    )
    # Whole machines have no security groups on Chameleon (its documentation, Basic networking).
    group = _security_group(work) if work.options.virtual else None
    return Base(work.base, image, network, group)


def _one(work: Work, kind: str, name: str, look: Callable[[str], Sequence[Named]]) -> Named:
    found = work.ask(f"looking for {kind} {name}", partial(look, name))
    if not found:
        raise UserError(
            f"there is no {kind} {name!r}",
            where=work.options.site,
            do=f"give site.options.{kind} the name of one that is there",
        )
    if len(found) > 1:
        raise UserError(
            f"there are {len(found)} of {kind} {name!r} "
            f"({', '.join(sorted(each.id for each in found))})",
            where=work.options.site,
            do=f"give site.options.{kind} a name that only one has",
        )
    return found[0]


def _security_group(work: Work) -> Named:
    """Make a group that lets in ssh from anywhere and everything from the testbed's own nodes."""
    cloud = work.cloud
    group = work.ensure(
        "security group",
        work.base,
        lambda: next((e for e in cloud.security_groups() if e.name == work.base), None),
        lambda: cloud.create_security_group(work.base),
        lambda made: made.id,
    )

    def ensure(rule: Rule) -> None:
        work.ensure(
            "rule",
            f"{work.base} {rule.port or 'inside'}",
            lambda: rule if rule in cloud.rules(group.id) else None,
            lambda: cloud.add_rule(group.id, rule),
            lambda made: str(made.port),
        )

    ensure(Rule(SSH_PORT))
    ensure(Rule(None))
    return group


def cloud_config(node: str, host_key: tuple[str, str] | None) -> str:
    """Return cloud-init's user data: the node's name and, if we choose it, its host key as
    (private, public)."""
    config: dict[str, object] = {"hostname": node, "preserve_hostname": False}
    if host_key is not None:
        config["ssh_deletekeys"] = True
        config["ssh_keys"] = {"ed25519_private": host_key[0], "ed25519_public": host_key[1]}
    return f"#cloud-config\n{json.dumps(config, indent=1)}\n"


# -- servers ------------------------------------------------------------------------------------


def wanted_servers(
    work: Work, base: Base, served: Mapping[str, Reservation], flavors: Sequence[Flavor]
) -> list[NewServer]:
    """Return a server for every node, in the spec's order.

    Raises:
        SiteError: a reservation's flavor does not exist (yet).
    """
    host_keys = own_host_keys(work)
    wanted = []
    for group in work.spec.groups:
        reservation = served[group.name]
        # Virtual machines are reserved as a flavor of their own, whole machines by a hint.
        name = f"reservation:{reservation.id}" if work.options.virtual else BARE_METAL
        flavor = next((e for e in flavors if name in (e.name, e.id)), None)
        if flavor is None:
            raise SiteError(
                f"{work.options.site}: there is no flavor {name!r}", retry_after_s=PASSING_S
            )
        wanted += [
            NewServer(
                name=work.server_name(node),
                flavor_id=flavor.id,
                image_id=base.image.id,
                network_id=base.network.id,
                keypair=base.keypair,
                user_data=cloud_config(node, host_keys.get(node)),
                reservation_id=None if work.options.virtual else reservation.id,
                security_group=base.security_group.id if base.security_group else None,
            )
            for node in group.node_names()
        ]
    return wanted


def hold_servers(work: Work, wanted: Sequence[NewServer]) -> dict[str, NovaServer]:
    """Return every wanted server by name, active and with an address.

    A failed server is made again once, after it is gone: a reservation has no spare machine.

    Raises:
        SiteError: a server failed again, somebody stopped one, or they took too long.
    """
    patience = work.options.patience.servers_s
    asked: dict[str, int] = {}
    removed: set[str] = set()
    failed: dict[str, list[str]] = {}
    creations = 0
    late = {new.name: "absent" for new in wanted}
    for waited in work.polls(patience):
        there, leaving = _look(work, removed)
        for name, server in list(there.items()):
            if server.status == "ERROR":
                removed.add(server.id)
                _give_up_or_remove(work, server, asked.get(name, 0), failed.setdefault(name, []))
                leaving.add(name)
                del there[name]
            elif server.status in STOPPED:
                raise SiteError(
                    f"{work.options.site}: server {name} is {server.status}: start it "
                    f"(`openstack server start {name}`), or delete it, and `hotbed up` resumes"
                )
        missing = [new for new in wanted if new.name not in there and new.name not in leaving]
        if missing:
            _create(work, missing, asked, last=creations >= TRIES)
            creations += 1
        late = {
            new.name: "failed, and not gone yet" if new.name in leaving else "absent"
            for new in wanted
        } | {name: server.status for name, server in there.items()}
        for name, server in there.items():
            if server.status == "ACTIVE" and server.addresses:
                del late[name]
        if not late:
            return there
        up = len(wanted) - len(late)
        share = max(up / len(wanted), min(waited / patience, 0.9))
        work.progress(f"{up} of {len(wanted)} servers are up", 0.2 + 0.5 * share)
    states = ", ".join(f"{name}: {late[name]}" for name in sorted(late)[:3])
    raise SiteError(
        f"{work.options.site}: {len(late)} of {len(wanted)} servers did not come up within "
        f"{left(patience)} ({states}): `hotbed up` again resumes waiting",
        retry_after_s=PASSING_S,
    )


def _look(work: Work, removed: set[str]) -> tuple[dict[str, NovaServer], set[str]]:
    """Return our servers by name, and names of those in `removed` that are not gone yet. Doubles of
    a lost answer are removed."""
    best = {"ACTIVE": 0, "BUILD": 1}
    found: dict[str, NovaServer] = {}
    leaving: set[str] = set()
    servers = own_servers(work)
    for server in sorted(servers, key=lambda each: (best.get(each.status, 2), each.id)):
        if server.id in removed:
            leaving.add(server.name)
        elif server.name in found:
            removed.add(server.id)
            work.ask("removing a double", partial(work.cloud.delete_server, server.id))
        else:
            found[server.name] = server
    return found, leaving


def _give_up_or_remove(work: Work, server: NovaServer, tries: int, before: list[str]) -> None:
    """Remove a failed server and add Nova's words to `before`; raise if it failed too often."""
    said = " ".join(server.fault.split()).rstrip(".") or "Nova gives no reason"
    work.record.journal("failed", what="server", name=server.name, id=server.id, reason=said)
    work.ask("removing a failed server", lambda: work.cloud.delete_server(server.id))
    if fault_of(said) is Fault.QUOTA:
        # Of servers requested in parallel Nova may accept one too many and count it later.
        error = CloudError(said, Fault.QUOTA)
        raise explain(error, f"starting server {server.name}", work.options.site)
    if tries >= TRIES:
        first = f" (at first: {'; '.join(before)})" if before and before != [said] else ""
        raise SiteError(
            f"{work.options.site}: server {server.name} could not be started: {said}{first}",
            retry_after_s=PASSING_S,
        )
    before.append(said)


def _create(work: Work, missing: Sequence[NewServer], asked: dict[str, int], *, last: bool) -> None:
    """Request all of them in parallel."""
    for new in missing:
        work.record.journal("ask", what="server", name=new.name)
        asked[new.name] = asked.get(new.name, 0) + 1
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = [(new, pool.submit(work.cloud.create_server, new)) for new in missing]
    problem: CloudError | None = None
    for new, future in futures:
        try:
            work.made("server", new.name, future.result().id)
        except CloudError as error:
            if error.fault is not Fault.PASSING or last:
                problem = error
    if problem is not None:
        raise explain(problem, "making servers", work.options.site) from problem


def hold_floating_ip(work: Work, server: NovaServer) -> FloatingIp:
    """Return the admin node's public address, attached."""
    name = f"{work.base}-admin"
    made = work.ensure(
        "floating ip",
        name,
        lambda: next((e for e in work.cloud.floating_ips() if e.description == name), None),
        lambda: work.cloud.create_floating_ip(name),
        lambda made: made.id,
    )
    # Repeating it changes nothing; an address of an earlier server moves.
    work.ask(
        "giving the admin node its address",
        lambda: work.cloud.attach_floating_ip(made.id, server.id),
    )
    return made


def own_servers(work: Work) -> list[NovaServer]:
    """Return servers with the testbed's name that are not gone."""
    found = work.ask("looking for servers", lambda: work.cloud.servers(work.base))
    return [s for s in found if belongs(s.name, work.base) and s.status not in GONE]


def remove_servers(work: Work, begun: float, done: float) -> None:
    """Remove all servers of the testbed, placed or not, and wait until they are gone.

    Args:
        begun, done: shares of the whole, for the progress.

    Raises:
        SiteError: they do not go, or cannot be removed.
    """
    there = own_servers(work)
    total = len(there)
    work.remove_each("removing servers", [s.id for s in there], work.cloud.delete_server)
    for waited in work.polls(GONE_S):
        there = own_servers(work) if waited else there
        if not there:
            return
        share = begun + (done - begun) * (1 - len(there) / total)
        work.progress(f"{len(there)} servers still there", share)
    raise SiteError(
        f"{work.options.site}: {len(there)} servers are still there, such as "
        f"{there[0].name} ({there[0].status}): the same command resumes later",
        retry_after_s=PASSING_S,
    )


# -- from servers to nodes ----------------------------------------------------------------------


@dataclass(frozen=True)
class PreparedNode:
    """A node's answer to its setup: a path for every use of its disks, and facts."""

    devices: Mapping[str, str]
    facts: Mapping[str, Any]


def own_host_keys(work: Work) -> dict[str, tuple[str, str]]:
    """Return (private, public) host key of every node, made on first use; none if learned."""
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
    """Return the ed25519 host key that a machine shows now, as ``type key``.

    Raises:
        RemoteError: it does not answer.
    """
    try:
        done = subprocess.run(
            _keyscan(address), capture_output=True, timeout=3 * SCAN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RemoteError(f"ssh-keyscan of {address} failed: {error}", retry=True) from error
    return _scanned(done.stdout.decode(errors="replace"), address)


def _keyscan(address: str) -> list[str]:
    return ["ssh-keyscan", "-T", str(SCAN_S), "-t", "ed25519", address]


def _scanned(text: str, address: str) -> str:
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 3 and words[1] == "ssh-ed25519":
            return " ".join(words[1:3])
    raise RemoteError(f"{address} shows no ed25519 host key (yet)", retry=True)


class FirstContact:
    """The first contact with the nodes of a new testbed.

    Args:
        draft: the testbed; the user of its nodes is the image's.
        servers: server of each node.
        shells, see: ways to reach nodes and to look at host keys.
    """

    def __init__(
        self,
        work: Work,
        draft: Testbed,
        servers: Mapping[str, NovaServer],
        shells: Shells = SshShell,
        see: Scan = scan,
    ) -> None:
        self._work, self._draft, self._servers = work, draft, servers
        self._shells, self._see = shells, see
        self._marks = {node.name: self._mark(node.name) for node in draft.nodes}
        self._keys = threading.Lock()  # the record is written by one thread at a time

    def prepare(self) -> dict[str, PreparedNode]:
        """Set up every node and let root in.

        Raises:
            SiteError: a node does not answer in time, or does not let us in.
            UserError: a disk that the spec names is not there.
        """
        admin = self._draft.admin
        others = [node for node in self._draft.nodes if node.name != admin.name]
        self._pin()
        self._meet(admin)
        done = {admin.name: self._set_up(admin)}
        self._work.progress(f"node {admin.name} is ready", 0.8)

        def one(node: Node) -> PreparedNode:
            self._meet(node)
            return self._set_up(node)

        done |= _in_parallel(others, one)
        self._work.progress("asking the nodes for root", 0.95)
        _in_parallel(self._draft.nodes, self._as_root)
        return done

    def _pin(self) -> None:
        """Write known_hosts with the keys known now; a key belongs to a server, not an address."""
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
        """Learn the host key that the node shows at the first contact, to us or to the admin."""
        if node.via is None:
            key = self._see(node.reached_at)
        else:
            shell = self._shell(self._draft.node(node.via))
            done = shell.run(_keyscan(node.address), timeout_s=3 * SCAN_S, check=False)
            key = _scanned(done.text, node.address)
        with self._keys:
            server = self._servers[node.name].id
            self._work.record.data["host_keys"][node.name] = {"server": server, "key": key}
            self._write()

    def _shell(self, node: Node) -> Shell:
        return self._shells(target_of(self._draft, node))

    def _meet(self, node: Node) -> None:
        """Wait until the node answers by ssh."""
        patience = self._work.options.patience.ssh_s
        lost: RemoteError | None = None
        for _ in self._work.polls(patience):
            try:
                if node.name not in self._work.record.data["host_keys"]:
                    self._learn(node)
                self._shell(node).run(["true"], timeout_s=CONTACT_S)
                return
            except RemoteError as error:
                lost = error
            self._work.progress(f"waiting for ssh on {node.name}", 0.75)
        raise SiteError(
            f"{self._work.options.site}: node {node.name} did not let us in within "
            f"{left(patience)}: {lost}",
            retry_after_s=POLL_S,
        ) from lost

    def _set_up(self, node: Node) -> PreparedNode:
        wanted = base64.b64encode(json.dumps(self._wanted(node)).encode())
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
            raise UserError(answer["error"], where=f"node {node.name}")
        return PreparedNode(answer["devices"], answer["facts"])

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

    def _wanted(self, node: Node) -> dict[str, Any]:
        """Return the input of `node_setup`."""
        work, draft = self._work, self._draft
        group = next(each for each in work.spec.groups if each.name == node.group)
        given = work.options.devices_of(group.name, node.name)
        paths = () if given is None else osd_paths(given)
        parts, disks = {}, []
        if isinstance(given, DeviceOptions):
            parts = {f"osd{place or ''}": path for place, path in enumerate(paths)}
            parts |= {"scratch": given.scratch} if given.scratch else {}
        if group.disk is not None:
            osd_bytes, scratch_bytes = group.disk.size - group.disk.scratch, group.disk.scratch
            sizes = {"osd_bytes": osd_bytes, "scratch_bytes": scratch_bytes}
            disks = [{"path": path} | sizes for path in paths or [None] * group.disks]
        return {
            "hostname": node.name,
            "keys": [keys.public(draft.ssh_key)],
            "peers": {each.name: each.address for each in draft.nodes},
            "parts": parts,
            "disks": disks,
            "files": work.options.virtual,
            "media": work.options.media,
            "mark": self._marks[node.name],
        }

    def _mark(self, node: str) -> str:
        """Return the suffix of the names of a node's parts: its server's own digits.

        Earlier versions had none; parts of such a server, which may hold a store, keep their names.
        """
        data, server = self._work.record.data, self._servers[node].id
        same = data.get("host_keys", {}).get(node, {}).get("server") == server
        before = [each for each in data.get("nodes") or () if each["name"] == node]
        if same and any(path in UNMARKED for each in before for path in each["devices"].values()):
            return ""
        return re.sub(r"[^A-Za-z0-9]", "", server)[-12:]


def _in_parallel(nodes: Sequence[Node], call: Callable[[Node], T]) -> dict[str, T]:
    """Run `call` on all nodes in parallel; raise the first node's error."""
    with ThreadPoolExecutor(max(len(nodes), 1)) as pool:
        futures = {node.name: pool.submit(call, node) for node in nodes}
    return {name: future.result() for name, future in futures.items()}


def signal_of(wanted: str, facts: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return (signal, pressure file) of a node: see `contract.Node`."""
    if wanted == "auto":
        few = int(facts.get("cpus", 1)) <= IOWAIT_CPUS
        wanted = "iowait" if few or not facts.get("pressure") else "io_pressure"
    return (wanted, "/proc/pressure/io" if wanted == "io_pressure" else None)
