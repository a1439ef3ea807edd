"""Servers of a testbed and their way to nodes: key pair, security group, image, network, floating
IP, host keys, the first contact by ssh, disks, names, root's key.

All servers are requested in parallel and watched by one request for all of them. The admin node is
reached at its floating IP, the other nodes through the admin node. Host keys are ours, handed over
by cloud-init and known before the first contact, or learned at it if the spec says so.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from schemas.errors import RemoteError, UserError
from testbed.agent.contract import IOWAIT_CPUS
from testbed.reach import target_of
from testbed.sites import keys
from testbed.sites.chameleon import node_setup
from testbed.sites.chameleon.cloud import (
    PASSING_S,
    CallFault,
    CloudError,
    NovaServer,
    Reservation,
    explain,
    fault_of,
)
from testbed.sites.chameleon.options import DeviceOptions, osd_paths
from testbed.sites.chameleon.work import AT_ONCE, POLL_S, Work, belongs
from testbed.sites.contract import Node, SiteError, Testbed
from testbed.sites.inventory.contact import Contact, ask
from testbed.spec.quantities import format_s, moment

GONE_S = 600.0
"""Longest time in seconds for servers to be gone."""
TRIES = 2
"""Number of times that a server is made: machines fail to deploy now and then."""
STOPPED = frozenset(
    {"SHUTOFF", "PAUSED", "SUSPENDED", "STOPPED", "RESCUE", "SHELVED", "SHELVED_OFFLOADED"}
)
"""Statuses that a server does not leave by itself."""
SETUP_S = 300.0
CONTACT_S = 20.0


# -- before servers -----------------------------------------------------------------------------


def make_base(work: Work) -> dict[str, Any]:
    """Look up the image and the network; make the key pair and the security group. Return the
    fields that the servers' requests share. UserError: there is no such image or network, or more
    than one. SiteError: the cloud refused."""
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
    base: dict[str, Any] = {"image_id": image, "networks": [{"uuid": network}]}
    base |= {"key_name": work.base, "config_drive": True}
    if work.options.virtual:
        # Whole machines have no security groups on Chameleon (its documentation, Basic networking).
        # By its id, because Neutron allows several groups of one name.
        base["security_groups"] = [{"name": _make_security_group(work)}]
    return base


def _one(work: Work, kind: str, name: str, look: Callable[[str], Sequence[Any]]) -> str:
    found = work.ask(f"looking for {kind} {name}", partial(look, name))
    if len(found) != 1:
        ids = f" ({', '.join(sorted(each.id for each in found))})" if found else ""
        raise UserError(
            f"there are {len(found)} of {kind} {name!r}{ids}",
            where=work.options.site,
            do=f"give site.options.{kind} a name that exactly one has",
        )
    return str(found[0].id)


def _make_security_group(work: Work) -> str:
    """Let in ssh from anywhere and everything from the testbed's own nodes; return the id."""
    cloud, doing = work.cloud, "making a rule of the security group"
    group: str = work.ensure(
        "security group",
        work.base,
        lambda: next((e for e in cloud.security_groups() if e.name == work.base), None),
        lambda: cloud.create_security_group(work.base),
        lambda made: str(made.id),
    ).id
    ssh = {"protocol": "tcp", "port_range_min": 22, "port_range_max": 22}
    work.ask(doing, lambda: cloud.add_rule(group, remote_ip_prefix="0.0.0.0/0", **ssh))
    work.ask(doing, lambda: cloud.add_rule(group, remote_group_id=group))
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
    work: Work, base: Mapping[str, Any], served: Mapping[str, Reservation]
) -> dict[str, dict[str, Any]]:
    """Return the request for every node's server by the server's name, in the spec's order.
    SiteError: a reservation's flavor does not exist (yet)."""
    host_keys = own_host_keys(work)
    flavors = work.ask("looking for flavors", work.cloud.flavors)
    wanted = {}
    for group in work.spec.groups:
        reservation = served[group.name].id
        # Virtual machines are reserved as a flavor of their own, whole machines by a hint.
        name = f"reservation:{reservation}" if work.options.virtual else "baremetal"
        flavor = next((each.id for each in flavors if name in (each.name, each.id)), None)
        if flavor is None:
            raise work.failed(f"there is no flavor {name!r}", PASSING_S)
        for node in group.node_names():
            body = {**base, "name": work.server_name(node), "flavor_id": flavor}
            body["user_data"] = cloud_config(node, host_keys.get(node))
            if not work.options.virtual:
                body["scheduler_hints"] = {"reservation": reservation}
            wanted[body["name"]] = body
    return wanted


def hold_servers(work: Work, wanted: Mapping[str, Mapping[str, Any]]) -> dict[str, NovaServer]:
    """Return every wanted server by name, active and with an address.

    A failed server is made again once, after it is gone: a reservation has no spare machine.
    SiteError: a server failed again, somebody stopped one, or they took too long.
    """
    patience = work.options.patience.servers_s
    removed: set[str] = set()  # ids
    made = dict.fromkeys(wanted, 0)
    late = dict.fromkeys(wanted, "absent")
    for waited in work.polls(patience):
        there, states = _look(work, removed), dict.fromkeys(wanted, "absent")
        for name, server in there.items():
            states[name] = server.status
            if server.status == "ERROR" and server.id not in removed:
                removed.add(server.id)
                _remove_failed(work, server, made.get(name, 0))
            if server.id in removed:
                states[name] = "failed, and not gone yet"
            elif server.status in STOPPED:
                raise work.failed(
                    f"server {name} is {server.status}: start it (`openstack server start "
                    f"{name}`), or delete it, and `hotbed up` resumes"
                )
        if missing := [name for name in wanted if states[name] == "absent"]:
            _create(work, {name: wanted[name] for name in missing}, made)
        late = {name: "without an address" for name in there if not there[name].addresses}
        late |= {name: state for name, state in states.items() if state != "ACTIVE"}
        if not late:
            return there
        up = len(wanted) - len(late)
        share = max(up / len(wanted), min(waited / patience, 0.9))
        work.progress(f"{up} of {len(wanted)} servers are up", 0.2 + 0.5 * share)
    listed = ", ".join(f"{name}: {late[name]}" for name in sorted(late)[:3])
    raise work.failed(
        f"{len(late)} of {len(wanted)} servers did not come up within {format_s(patience)} "
        f"({listed}): `hotbed up` again resumes waiting",
        PASSING_S,
    )


def _look(work: Work, removed: set[str]) -> dict[str, NovaServer]:
    """Return our servers by name, the best of each; remove doubles of a lost answer."""
    best = {"ACTIVE": 0, "BUILD": 1}
    there: dict[str, NovaServer] = {}
    for server in sorted(
        own_servers(work), key=lambda each: (each.id in removed, best.get(each.status, 2), each.id)
    ):
        if there.setdefault(server.name, server) is not server and server.id not in removed:
            removed.add(server.id)
            work.ask("removing a double", partial(work.cloud.delete_server, server.id))
    return there


def _remove_failed(work: Work, server: NovaServer, made: int) -> None:
    """Remove a failed server; raise if it failed too often."""
    said = " ".join(server.fault.split()).rstrip(".") or "Nova gives no reason"
    work.journal("failed", what="server", name=server.name, id=server.id, reason=said)
    work.ask("removing a failed server", lambda: work.cloud.delete_server(server.id))
    if fault_of(said) is CallFault.QUOTA:
        # Of servers requested in parallel Nova may accept one too many and count it later.
        error = CloudError(said, CallFault.QUOTA)
        raise explain(error, f"starting server {server.name}", work.options.site)
    if made >= TRIES:
        raise work.failed(f"server {server.name} could not be started: {said}", PASSING_S)


def _create(work: Work, missing: Mapping[str, Mapping[str, Any]], made: dict[str, int]) -> None:
    """Request all of them in parallel. A lost answer is settled by the next look."""
    calls = {name: partial(work.cloud.create_server, body) for name, body in missing.items()}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {
            name: pool.submit(work.make, "server", name, call) for name, call in calls.items()
        }
    problem: CloudError | None = None
    for name, future in futures.items():
        made[name] += 1
        try:
            future.result()
        except CloudError as error:
            if error.fault is not CallFault.PASSING or made[name] > TRIES:
                problem = error
    if problem is not None:
        raise explain(problem, "making servers", work.options.site) from problem


def hold_floating_ip(work: Work, server: NovaServer) -> str:
    """Return the admin node's public address, attached."""
    name = f"{work.base}-admin"
    made = work.ensure(
        "floating ip",
        name,
        lambda: next((e for e in work.cloud.floating_ips() if e.description == name), None),
        lambda: work.cloud.create_floating_ip(name),
        lambda made: str(made.id),
    )
    # Repeating it changes nothing; an address of an earlier server moves.
    work.ask(
        "giving the admin node its address",
        lambda: work.cloud.attach_floating_ip(made.id, server.id),
    )
    return str(made.floating_ip_address)


def own_servers(work: Work) -> list[NovaServer]:
    """Return servers with the testbed's name that are not gone."""
    found = work.ask("looking for servers", lambda: work.cloud.servers(work.base))
    gone = ("DELETED", "SOFT_DELETED")
    return [each for each in found if belongs(each.name, work.base) and each.status not in gone]


def remove_servers(work: Work, begun: float, done: float) -> None:
    """Remove all servers of the testbed, placed or not, and wait until they are gone. `begun`,
    `done`: shares of the whole, for the progress. SiteError: they do not go, or cannot be removed.
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
    raise work.failed(
        f"{len(there)} servers are still there, such as {there[0].name} ({there[0].status}): the "
        "same command resumes later",
        PASSING_S,
    )


# -- from servers to nodes ----------------------------------------------------------------------


def own_host_keys(work: Work) -> dict[str, tuple[str, str]]:
    """Return (private, public) host key of every node, made on first use; none if learned."""
    if work.options.host_keys != "given":
        return {}
    folder = work.record.folder / "host_keys"
    folder.mkdir(mode=0o700, exist_ok=True)
    made = {}
    for node in work.spec.node_names():
        keys.make(folder / node, node)
        made[node] = ((folder / node).read_text(), keys.public(folder / node))
    return made


def prepare_nodes(
    work: Work, draft: Testbed, servers: Mapping[str, NovaServer], contact: Contact
) -> dict[str, dict[str, Any]]:
    """Meet the nodes of a new testbed, set them up and let root in, the admin node first. Return
    each node's answer: a path for every use of its disks (``devices``), and ``facts``.

    In `draft` the nodes' user is the image's; `servers` are by node. SiteError: a node does not
    answer in time, or does not let us in. UserError: a disk that the spec names is not there.
    """
    host_keys: dict[str, dict[str, str]] = work.record.data.setdefault("host_keys", {})
    saving = threading.Lock()  # the record is written by one thread at a time

    def save() -> None:
        pinned: dict[keys.Place, list[str]] = {}
        for node in draft.nodes:
            if node.name in host_keys:
                names = ",".join(dict.fromkeys((node.reached_at, node.address, node.name)))
                pinned[names, 22] = [host_keys[node.name]["key"]]
        keys.pin(draft.known_hosts, pinned)
        work.record.save()

    def meet(node: Node) -> None:
        """Wait until the node answers by ssh; learn its host key if that is not known yet."""
        patience = work.options.patience.ssh_s
        lost: RemoteError | None = None
        for _ in work.polls(patience):
            target = target_of(draft, node)
            try:
                if node.name not in host_keys:
                    key = contact.host_keys(target)[0]
                    with saving:
                        host_keys[node.name] = {"server": servers[node.name].id, "key": key}
                        save()
                contact.shell(target).run(["true"], timeout_s=CONTACT_S)
                return
            except RemoteError as error:
                lost = error
            work.progress(f"waiting for ssh on {node.name}", 0.75)
        raise work.failed(
            f"node {node.name} did not let us in within {format_s(patience)}: {lost}", POLL_S
        ) from lost

    def set_up(node: Node) -> dict[str, Any]:
        meet(node)
        return _set_up(work, draft, node, servers[node.name], contact)

    # A host key belongs to a server, not to an address.
    for node, known in list(host_keys.items()):
        if known["server"] != servers[node].id:
            del host_keys[node]
    for node, (_, public) in own_host_keys(work).items():
        host_keys[node] = {"server": servers[node].id, "key": public}
    save()
    done = {draft.admin.name: set_up(draft.admin)}
    work.progress(f"node {draft.admin.name} is ready", 0.8)
    others = [node for node in draft.nodes if node.name != draft.admin.name]
    with ThreadPoolExecutor(max(len(others), 1)) as pool:
        futures = {node.name: pool.submit(set_up, node) for node in others}
    return done | {name: future.result() for name, future in futures.items()}


def _set_up(
    work: Work, draft: Testbed, node: Node, server: NovaServer, contact: Contact
) -> dict[str, Any]:
    """Let root in, set the node up and return the answer of `node_setup`."""
    shell, root = contact.shell(target_of(draft, node)), node.ssh_user == "root"
    final = replace(draft, nodes=tuple(replace(each, ssh_user="root") for each in draft.nodes))
    mark = {"testbed": draft.name, "id": work.tag, "node": node.name}
    mark["since"] = moment(work.record.data["made_at"])
    names = {each.name: each.address for each in draft.nodes}
    request = _request(work, draft, node, server)
    try:
        ask(shell, "hold", root=root, mark=mark, key=keys.public(draft.ssh_key), names=names)
        answer: dict[str, Any] = ask(
            shell, "set_up", root=root, program=node_setup, timeout_s=SETUP_S, **request
        )
        contact.shell(target_of(final, final.node(node.name))).run(["true"])
    except RemoteError as error:
        if not error.retry:
            raise UserError(error) from error
        raise SiteError(
            f"node {node.name} could not be set up: {error}", retry_after_s=POLL_S
        ) from error
    return answer


def _request(work: Work, draft: Testbed, node: Node, server: NovaServer) -> dict[str, Any]:
    """Return the input of `node_setup`."""
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
        "peers": [each.address for each in draft.nodes],
        "parts": parts,
        "disks": disks,
        "files": work.options.virtual,
        "media": work.options.media,
        "mark": re.sub(r"[^A-Za-z0-9]", "", server.id)[-12:],
    }


def signal_of(wanted: str, facts: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return (signal, pressure file) of a node: see `contract.Node`."""
    if wanted == "auto":
        few = int(facts.get("cpus", 1)) <= IOWAIT_CPUS
        wanted = "iowait" if few or not facts.get("pressure") else "io_pressure"
    return (wanted, "/proc/pressure/io" if wanted == "io_pressure" else None)
