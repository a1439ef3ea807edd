"""Holding machines for a testbed: take them, wipe what was allowed, let them go.

A held machine has a mark that names the holder, the testbed's key among root's authorized keys,
and the nodes' names in /etc/hosts. Every step is journalled before it is asked for and safe to
repeat. Only devices that were allowed by name are wiped, each once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from schemas.errors import HotbedError, RemoteError, UserError
from testbed import reach
from testbed.deploy import deployers
from testbed.sites import keys
from testbed.sites.clock import Clock
from testbed.sites.contract import Doomed, Node, Progress, SiteError, Testbed
from testbed.sites.inventory import fitness
from testbed.sites.inventory.assign import Member
from testbed.sites.inventory.contact import (
    RETRY_S,
    Contact,
    FirstLook,
    addresses_of,
    all_or_error,
    ask,
    everywhere,
    first_target,
    gateway_name,
    gateways_of,
    login_of,
    pin,
)
from testbed.sites.inventory.fitness import KIND
from testbed.sites.records import Record
from testbed.spec import TestbedSpec
from testbed.ssh import Shell

TakeAway = Callable[[Testbed, Progress], None]
"""Function that removes a deployed store from a testbed's nodes."""
_SEEN = ("bytes", "model", "holds", "identity", "uuids", "boot_id")
"""Fields that must be unchanged when a device is wiped; older records have the first three."""


# -- records ---------------------------------------------------------------------------------------


def judged(
    spec: TestbedSpec,
    members: Sequence[Member],
    found: FirstLook,
    *,
    signal: str | None,
    allowed: Collection[str],
    clock: Clock,
) -> dict[str, Any]:
    """Return the record of a new testbed on machines that were looked at. Changes nothing.

    Args:
        signal: the wanted signal; None: the best.
        allowed: devices that may be wiped, as `Doomed.name`.

    Raises:
        UserError, SiteError: the machines are not fit; one sentence says why.
    """
    found.require()
    surveys = found.surveys
    fitness.require(spec, members, surveys)
    addresses = addresses_of(members, found.logins)
    chosen = fitness.signal_of(signal, surveys)
    doomed = fitness.doomed_of(members, surveys)
    fitness.require_consent(doomed, allowed, members)
    return {
        "id": uuid.uuid4().hex,
        "since": datetime.fromtimestamp(clock.now(), UTC).isoformat(timespec="seconds"),
        "spec": spec.model_dump(mode="json"),
        "members": [member.to_json() for member in members],
        "addresses": addresses,
        "keys": [[address, port, listed] for (address, port), listed in found.keys.items()],
        "facts": {node: _facts_of(survey) for node, survey in surveys.items()},
        "signal": chosen,
        "doomed": [_remembered(one, surveys[one.node]) for one in doomed],
        "held": [],
        "ready": False,
    }


def _facts_of(survey: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a survey that is kept; `told` goes into the provenance of results."""
    disks = {
        f"disk {path}": f"{seen.get('model') or 'no model'}, {seen['bytes']} bytes"
        for path, seen in survey["devices"].items()
    }
    facts = {
        "distribution": survey["distribution_name"],
        "kernel": survey["kernel"],
        "cpus": str(survey["cpus"]),
        "cpu": survey["cpu_model"],
        "memory_bytes": str(survey["memory_bytes"]),
        **disks,
    }
    return {"cpus": survey["cpus"], "memory_bytes": survey["memory_bytes"], "told": facts}


def members_of(known: Mapping[str, Any]) -> tuple[Member, ...]:
    """Return the nodes and their machines in a record."""
    return tuple(Member.from_json(each) for each in known["members"])


def testbed_of(folder: Path, known: Mapping[str, Any]) -> Testbed:
    """Return the testbed with the record in `folder`."""
    members = members_of(known)
    return Testbed(
        name=folder.name,
        site=KIND,
        nodes=tuple(_node(member, known) for member in members),
        ssh_key=folder / keys.LOGIN,
        known_hosts=folder / "known_hosts",
        directory=folder,
        spec_hash=TestbedSpec.model_validate(known["spec"]).digest(),
        gateways=gateways_of(members),
    )


def _node(member: Member, known: Mapping[str, Any]) -> Node:
    address, facts = known["addresses"][member.node], known["facts"][member.node]
    host, signal = member.host, known["signal"]
    return Node(
        name=member.node,
        address=address,
        roles=frozenset(member.roles),
        group=member.group,
        ssh_port=host.port,
        devices=dict(member.devices),
        signal=signal,
        pressure_file=fitness.PSI_FILE if signal == "io_pressure" else None,
        cpus=float(facts["cpus"]),
        memory_bytes=min(member.memory_bytes, facts["memory_bytes"]),
        rack=member.rack,
        public_address=host.address if host.address != address else None,
        via=gateway_name(host.jump) if host.jump else None,
        facts=facts["told"],
    )


# -- taking ----------------------------------------------------------------------------------------


def take(record: Record, contact: Contact, progress: Progress) -> Testbed:
    """Take the machines on record, or resume taking them.

    Raises:
        SiteError: a machine cannot be taken; says if trying again may help.
    """
    known = record.data
    for left in ("releasing", "store_removed"):
        known.pop(left, None)
    members = members_of(known)
    keys.make(record.folder / keys.LOGIN, f"hotbed-{record.name}-{known['id'][:8]}")
    _pin(record, members)
    testbed = testbed_of(record.folder, known)
    _hold(record, members, testbed, contact, progress)
    _wipe_allowed(record, contact, progress)
    if not known["ready"]:
        known["ready"] = True
        record.save()
    progress("ready", 1.0)
    return testbed


def shell_of(contact: Contact, testbed: Testbed, node: str) -> Shell:
    """Return a shell by the testbed's own key."""
    return contact.shell(reach.target_of(testbed, testbed.node(node)))


def _as_root(contact: Contact, member: Member, testbed: Testbed, do: str, **request: Any) -> Any:
    """Ask a machine by the testbed's key, or by the user's if that key is not let in."""
    target = replace(reach.target_of(testbed, testbed.node(member.node)), control_dir=None)
    ours = contact.shell(target)
    try:
        ours.run(["true"], timeout_s=30.0)
    except RemoteError:
        shell = contact.shell(first_target(member.host, testbed.known_hosts))
        login = login_of(shell)
        if login.problem is not None:
            raise UserError(f"machine {member.host.name} {login.problem}") from None
        return ask(shell, do, root=login.root, **request)
    return ask(ours, do, **request)


def _pin(record: Record, members: Sequence[Member]) -> None:
    """Pin host keys under every name by which the engine or other nodes reach a machine."""
    listed: dict[tuple[str, int], Sequence[str]] = {
        (address, port): found for address, port, found in record.data["keys"]
    }
    for member in members:
        found = listed[member.host.address, member.host.port]
        for address in (record.data["addresses"][member.node], member.node):
            listed.setdefault((address, member.host.port), found)
    pin(record.folder / "known_hosts", listed)


def _hold(
    record: Record,
    members: Sequence[Member],
    testbed: Testbed,
    contact: Contact,
    progress: Progress,
) -> None:
    known = record.data
    public = keys.public(record.folder / keys.LOGIN)
    names = {node.name: node.address for node in testbed.nodes}
    by_node = {member.node: member for member in members}
    record.journal("ask", what="hold", nodes=list(by_node))
    known["held"] = list(by_node)  # release asks them all, also after a failure here
    record.save()

    def hold(node: str) -> None:
        mark = {"testbed": record.name, "id": known["id"], "node": node, "since": known["since"]}
        _as_root(contact, by_node[node], testbed, "hold", mark=mark, key=public, names=names)
        try:
            shell_of(contact, testbed, node).run(["true"], timeout_s=30.0)
        except RemoteError as error:
            raise RemoteError(
                "root cannot log in with the key just put into /root/.ssh/authorized_keys: "
                f"{error}",
                retry=error.retry,
            ) from error

    answers = everywhere(by_node, hold, progress, "holding machines", (0.5, 0.8))
    all_or_error(answers, "cannot take the machine of node")
    record.journal("made", what="hold", nodes=list(by_node))


# -- wiping ----------------------------------------------------------------------------------------


def _remembered(one: Doomed, survey: Mapping[str, Any]) -> dict[str, Any]:
    """Return a device that may be wiped, with what identifies it after its name has moved."""
    seen = survey["devices"][one.device]
    more = {"identity": seen["identity"], "uuids": seen["uuids"], "boot_id": survey["boot_id"]}
    return {**asdict(one), **more}


def _wipe_allowed(record: Record, contact: Contact, progress: Progress) -> None:
    """Wipe what the record allows to wipe, each device once.

    Raises:
        SiteError: a machine did not answer, or a device became another in between.
    """
    doomed: list[dict[str, Any]] = record.data["doomed"]
    if not doomed:
        return
    testbed = testbed_of(record.folder, record.data)
    by_node: dict[str, list[dict[str, Any]]] = {}
    for one in doomed:
        by_node.setdefault(one["node"], []).append(one)
    names = [f"{one['device']}@{one['node']}" for one in doomed]
    record.journal("ask", what="wipe", devices=names)

    def wipe(node: str) -> None:
        shell = shell_of(contact, testbed, node)
        for one in by_node[node]:
            seen = {name: one[name] for name in _SEEN if name in one}
            ask(shell, "wipe", device=one["device"], id=record.data["id"], seen=seen)

    answers = everywhere(by_node, wipe, progress, "wiping devices", (0.8, 0.95))
    record.data["doomed"] = [one for one in doomed if one["node"] in answers.lost]
    record.save()
    all_or_error(answers, "cannot wipe the devices of node")
    record.journal("made", what="wipe", devices=names)


def surveys_of(contact: Contact, testbed: Testbed, progress: Progress) -> fitness.Surveys:
    """Survey every node of a testbed that is up. SiteError if a node does not answer."""

    def see(node: str) -> dict[str, Any]:
        devices = sorted(testbed.node(node).devices.values())
        found: dict[str, Any] = ask(shell_of(contact, testbed, node), "survey", devices=devices)
        return found

    nodes = [node.name for node in testbed.nodes]
    answers = everywhere(nodes, see, progress, "looking at devices", (0.0, 0.5))
    return all_or_error(answers, "cannot look at the devices of node")


def leftovers(known: Mapping[str, Any], surveys: fitness.Surveys) -> tuple[Doomed, ...]:
    """Return devices that hold something, are unused and are no OSD's."""
    found = fitness.doomed_of(members_of(known), surveys)
    seen = {one.name: surveys[one.node]["devices"][one.device] for one in found}
    return tuple(one for one in found if not (seen[one.name]["uses"] or seen[one.name]["osd"]))


def wipe_named(
    record: Record, contact: Contact, names: Collection[str], progress: Progress
) -> None:
    """Wipe these devices of a testbed that is up, and only as they are found now.

    Raises:
        UserError: a name is of no device of the testbed, or of a device in use.
        SiteError: a machine did not answer, or a device became another in between.
    """
    known = record.data
    testbed = testbed_of(record.folder, known)
    fitness.require_known(names, members_of(known))
    surveys = surveys_of(contact, testbed, progress)
    for name in sorted(names):
        path, _, node = name.rpartition("@")
        seen = surveys[node]["devices"][path]
        problem = fitness.device_problem(node, "osd", seen, None)
        if problem is None and seen["osd"]:
            problem = (
                f"The device {path} of node {node} is the store of an OSD ({seen['osd']}): it is "
                "never wiped while that is there; remove it first (`hotbed deploy --remove`)."
            )
        if problem is not None:
            raise UserError(problem)
    doomed = [one for one in leftovers(known, surveys) if one.name in names]
    known["doomed"] = [_remembered(one, surveys[one.node]) for one in doomed]
    record.save()
    try:
        _wipe_allowed(record, contact, progress)
    except HotbedError:
        known["doomed"] = []  # allowed for this call only
        record.save()
        raise


# -- letting go: the store first, then mark, names and key; nothing else is touched ----------------


def let_go(record: Record, contact: Contact, take_away: TakeAway, progress: Progress) -> None:
    """Let every machine go that is still held.

    Raises:
        SiteError: some machines could not be cleaned and stay on record; it names them.
    """
    known, name = record.data, record.name
    known["ready"], known["releasing"] = False, True
    record.save()
    testbed = testbed_of(record.folder, known)
    kept = _without_store(record, testbed, take_away, progress) if known["held"] else {}
    public_key = record.folder / f"{keys.LOGIN}.pub"
    public = keys.public(record.folder / keys.LOGIN) if public_key.exists() else ""
    by_node = {member.node: member for member in members_of(known)}
    record.journal("ask", what="let go", nodes=known["held"])

    def one(node: str) -> None:
        _as_root(contact, by_node[node], testbed, "let_go", id=known["id"], key=public)

    able = [node for node in known["held"] if node not in kept]
    answers = everywhere(able, one, progress, "letting machines go", (0.7, 0.98))
    lost: dict[str, HotbedError] = {**kept, **answers.lost}
    known["held"] = list(lost)
    record.save()
    record.journal("made", what="let go", nodes=list(answers.found))
    if lost:
        reasons = "; ".join(f"{node}: {str(error).rstrip('.')}" for node, error in lost.items())
        raise SiteError(
            f"testbed {name}: what was made on these machines is still there, and kept on record "
            f"({reasons}); run `hotbed down {name}` again when they answer, or, if they never "
            f"will, delete {record.folder}.",
            retry_after_s=RETRY_S,
        )


def _without_store(
    record: Record, testbed: Testbed, take_away: TakeAway, progress: Progress
) -> dict[str, HotbedError]:
    """Remove a store that was deployed; return the held nodes on which that failed."""
    if not deployers.begun(testbed) or record.data.get("store_removed"):
        return {}
    record.journal("ask", what="remove store")
    held = record.data["held"]
    # Machines that were let go before do not let Hotbed in, and must not be changed.
    ours = replace(testbed, nodes=tuple(node for node in testbed.nodes if node.name in held))
    try:
        take_away(ours, lambda what, share: progress(what, 0.7 * share))
    except HotbedError as error:
        failed = {failure.node for failure in getattr(error, "failures", ())}
        # An error that names no machine may be any machine's.
        still = [node for node in held if node in failed] or held
        return dict.fromkeys(still, error)
    record.data["store_removed"] = True
    record.save()
    record.journal("made", what="remove store")
    return {}
