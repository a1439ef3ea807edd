"""The servers of a testbed and what they need: key pair, security group, image, network, a floating
IP for the admin node.

All servers are asked for at once and then looked at together, with one request for all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from schemas.errors import UserError
from testbed.sites import keys
from testbed.sites.chameleon.chi_errors import fault_of
from testbed.sites.chameleon.cloud import (
    CloudError,
    Fault,
    Flavor,
    FloatingIp,
    Named,
    NewServer,
    Reservation,
    Rule,
    Server,
)
from testbed.sites.chameleon.errors import PASSING_S, explain
from testbed.sites.chameleon.work import POLL_S, Work, belongs, left
from testbed.sites.contract import SiteError

SSH_PORT = 22
AT_ONCE = 16
"""Requests under way at the same time."""
GONE_S = 600.0
"""How long servers may take to be gone."""
TRIES = 2
"""How often a server is made before its failure is told: machines fail to deploy now and then."""
BARE_METAL = "baremetal"
STOPPED = frozenset(
    {"SHUTOFF", "PAUSED", "SUSPENDED", "STOPPED", "RESCUE", "SHELVED", "SHELVED_OFFLOADED"}
)
"""States that a server does not leave by itself."""
GONE = frozenset({"DELETED", "SOFT_DELETED"})


@dataclass(frozen=True)
class Base:
    """What all servers share."""

    keypair: str
    image: Named
    network: Named
    security_group: Named | None


def make_base(work: Work) -> Base:
    """Look up the image and the network, and see to the key pair and the security group.

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
        lambda: _registered(work, public),
        str,
    )
    # Whole machines have no security groups on Chameleon (its documentation, Basic networking).
    group = _security_group(work) if work.options.virtual else None
    return Base(work.base, image, network, group)


def _registered(work: Work, public: str) -> str:
    work.cloud.create_keypair(work.base, public)
    return work.base


def _one(work: Work, kind: str, name: str, look: Callable[[str], Sequence[Named]]) -> Named:
    found = work.ask(f"looking for {kind} {name}", partial(look, name))
    if not found:
        raise UserError(
            f"{work.options.site}: there is no {kind} {name!r}: give site.options.{kind} the name "
            "of one that is there."
        )
    if len(found) > 1:
        raise UserError(
            f"{work.options.site}: there are {len(found)} of {kind} {name!r} "
            f"({', '.join(sorted(each.id for each in found))}): give site.options.{kind} a name "
            "that only one has."
        )
    return found[0]


def _security_group(work: Work) -> Named:
    """Lets in ssh from anywhere, and everything from the testbed's own nodes."""
    group = work.ensure(
        "security group",
        work.base,
        lambda: next((e for e in work.cloud.security_groups() if e.name == work.base), None),
        lambda: work.cloud.create_security_group(work.base),
        lambda made: made.id,
    )
    there = work.ask("looking at the security group", lambda: work.cloud.rules(group.id))
    for rule in (Rule(SSH_PORT), Rule(None)):
        if rule not in there:
            work.ensure(
                "rule",
                f"{work.base} {rule.port or 'inside'}",
                partial(_rule, work, group.id, rule),
                partial(_ruled, work, group.id, rule),
                lambda made: str(made.port),
            )
    return group


def _rule(work: Work, group_id: str, rule: Rule) -> Rule | None:
    return rule if rule in work.cloud.rules(group_id) else None


def _ruled(work: Work, group_id: str, rule: Rule) -> Rule:
    work.cloud.add_rule(group_id, rule)
    return rule


def wanted_servers(
    work: Work,
    base: Base,
    served: Mapping[str, Reservation],
    flavors: Sequence[Flavor],
    user_data: Mapping[str, str],
) -> list[NewServer]:
    """A server for every node, in the spec's order.

    Raises:
        SiteError: the flavor of a reservation is not there (yet).
    """
    wanted = []
    for group in work.spec.groups:
        reservation = served[group.name]
        # Virtual machines are leased as a flavor of the lease's own, whole ones by a hint.
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
                user_data=user_data[node],
                reservation_id=None if work.options.virtual else reservation.id,
                security_group=base.security_group.id if base.security_group else None,
            )
            for node in group.node_names()
        ]
    return wanted


def cloud_config(node: str, host_key: tuple[str, str] | None) -> str:
    """cloud-init's part: the node's name, and its (private, public) host key where we choose it."""
    config: dict[str, object] = {"hostname": node, "preserve_hostname": False}
    if host_key is not None:
        config["ssh_deletekeys"] = True
        config["ssh_keys"] = {"ed25519_private": host_key[0], "ed25519_public": host_key[1]}
    return f"#cloud-config\n{json.dumps(config, indent=1)}\n"


def hold_servers(work: Work, wanted: Sequence[NewServer]) -> dict[str, Server]:
    """Every wanted server, active and with an address, by name; those that fail are made anew once,
    when they are gone: a reservation has no machine to spare.

    Raises:
        SiteError: a server failed again, somebody stopped one, or they took too long.
    """
    begun = work.clock.monotonic()
    patience = work.options.patience.servers_s
    asked: dict[str, int] = {}
    removed: set[str] = set()
    failed: dict[str, list[str]] = {}
    failures = 0
    while True:
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
                    f"(`openstack server start {name}`), or delete it, and `hotbed up` goes on"
                )
        missing = [new for new in wanted if new.name not in there and new.name not in leaving]
        if missing:
            _create(work, missing, asked, last=failures >= TRIES)
            failures += 1
        active = [s for s in there.values() if s.status == "ACTIVE" and s.addresses]
        if len(active) == len(wanted):
            return there
        waited = work.clock.monotonic() - begun
        if waited > patience:
            up = {server.name for server in active}
            late = [
                f"{name}: {_state(name, there, leaving)}"
                for name in sorted(new.name for new in wanted)
                if name not in up
            ]
            raise SiteError(
                f"{work.options.site}: {len(late)} of {len(wanted)} servers did not come up within "
                f"{left(patience)} ({', '.join(late[:3])}): `hotbed up` again goes on waiting",
                retry_after_s=PASSING_S,
            )
        share = max(len(active) / len(wanted), min(waited / patience, 0.9))
        work.progress(f"{len(active)} of {len(wanted)} servers are up", 0.2 + 0.5 * share)
        work.clock.sleep(POLL_S)


def _state(name: str, there: Mapping[str, Server], leaving: set[str]) -> str:
    if name in there:
        return there[name].status
    return "failed, and not gone yet" if name in leaving else "absent"


def _look(work: Work, removed: set[str]) -> tuple[dict[str, Server], set[str]]:
    """Our servers by name, and names of those in `removed` that are not gone yet. Doubles of an
    answer that came too late are removed."""
    best = {"ACTIVE": 0, "BUILD": 1}
    found: dict[str, Server] = {}
    leaving: set[str] = set()
    servers = work.ask("looking at the servers", lambda: work.cloud.servers(work.base))
    for server in sorted(servers, key=lambda each: (best.get(each.status, 2), each.id)):
        if server.status in GONE:
            continue
        if server.id in removed:
            leaving.add(server.name)
        elif server.name in found:
            removed.add(server.id)
            work.ask("removing a double", partial(work.cloud.delete_server, server.id))
        else:
            found[server.name] = server
    return found, leaving


def _give_up_or_remove(work: Work, server: Server, tries: int, before: list[str]) -> None:
    """`before`: what Nova said of its earlier failures, to which this one's is added."""
    said = " ".join(server.fault.split()).rstrip(".") or "Nova gives no reason"
    work.record.journal("failed", what="server", name=server.name, id=server.id, reason=said)
    work.ask("removing a failed server", lambda: work.cloud.delete_server(server.id))
    if fault_of(said) is Fault.QUOTA:
        # Of servers that are asked for at the same time Nova may count one too many only later.
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
    """Ask for all of them at the same time."""
    for new in missing:
        work.record.journal("ask", what="server", name=new.name)
        asked[new.name] = asked.get(new.name, 0) + 1
    with ThreadPoolExecutor(min(AT_ONCE, len(missing))) as pool:
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


def hold_floating_ip(work: Work, server: Server) -> FloatingIp:
    """The admin node's public address."""
    name = f"{work.base}-admin"
    made = work.ensure(
        "floating ip",
        name,
        lambda: next((e for e in work.cloud.floating_ips() if e.description == name), None),
        lambda: work.cloud.create_floating_ip(name),
        lambda made: made.id,
    )
    # Repeating it changes nothing, and an address left over from an earlier server is moved.
    work.ask(
        "giving the admin node its address",
        lambda: work.cloud.attach_floating_ip(made.id, server.id),
    )
    return made


def remove_servers(work: Work, begun: float, done: float) -> None:
    """All servers of the testbed, also those that never were placed, until they are gone.

    Args:
        begun, done: shares of the whole, for the progress.

    Raises:
        SiteError: they do not go, or cannot be removed.
    """
    there = own_servers(work)
    total = len(there)
    remove_each(work, "removing servers", [s.id for s in there], work.cloud.delete_server)
    end = work.clock.monotonic() + GONE_S
    while there:
        if work.clock.monotonic() > end:
            raise SiteError(
                f"{work.options.site}: {len(there)} servers are still there, such as "
                f"{there[0].name} ({there[0].status}): the same command goes on later",
                retry_after_s=PASSING_S,
            )
        share = begun + (done - begun) * (1 - len(there) / total)
        work.progress(f"{len(there)} servers still there", share)
        work.clock.sleep(POLL_S)
        there = own_servers(work)


def own_servers(work: Work) -> list[Server]:
    """Servers that bear the testbed's name and are not gone."""
    found = work.ask("looking for servers", lambda: work.cloud.servers(work.base))
    return [s for s in found if belongs(s.name, work.base) and s.status not in GONE]


def remove_each(work: Work, doing: str, ids: Iterable[str], remove: Callable[[str], None]) -> None:
    """Remove all at once; the first error when all were tried."""
    doomed = sorted(ids)
    if not doomed:
        return
    with ThreadPoolExecutor(min(AT_ONCE, len(doomed))) as pool:
        futures = [pool.submit(work.ask, doing, partial(remove, each)) for each in doomed]
    for future in futures:
        future.result()
