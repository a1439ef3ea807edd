"""Taking machines: held by a mark, opened to our key, named to one another.

Every step is journalled before it is asked for and safe to repeat.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from schemas.errors import RemoteError, UserError
from testbed import reach
from testbed.sites import keys
from testbed.sites.clock import Clock
from testbed.sites.contract import Progress, Testbed
from testbed.sites.inventory import fitness, hostkeys
from testbed.sites.inventory.assign import Member
from testbed.sites.inventory.contact import Contact, all_or_error, ask, everywhere, login_of
from testbed.sites.inventory.described import facts_of, members_of, testbed_of
from testbed.sites.inventory.look import Look, addresses_of, first_target
from testbed.sites.inventory.wiping import remembered, shell_of, wipe_allowed
from testbed.sites.records import Record
from testbed.spec import TestbedSpec


def judged(
    spec: TestbedSpec,
    members: Sequence[Member],
    found: Look,
    *,
    signal: str | None,
    allowed: Collection[str],
    clock: Clock,
) -> dict[str, Any]:
    """The record of a new testbed on machines that were looked at; nothing was changed yet.

    Args:
        signal: the one that is asked for; None: the best.
        allowed: devices that may be wiped, as `Doomed.name`.

    Raises:
        UserError, SiteError: the machines will not do; one sentence says why.
    """
    found.require()
    identity = uuid.uuid4().hex
    fitness.require_unheld(spec.name, identity, found.surveys)
    fitness.require_spread(found.surveys)
    fitness.require_login(found.surveys)
    fitness.require_no_strange_ceph(spec, found.surveys)
    addresses = addresses_of(members, found.logins)
    chosen = fitness.signal_of(signal, found.surveys)
    problems = fitness.device_problems(spec, members, found.surveys)
    if problems:
        raise UserError(" ".join(problems))
    doomed = fitness.doomed_of(members, found.surveys)
    fitness.require_consent(doomed, allowed, members)
    return {
        "id": identity,
        "since": datetime.fromtimestamp(clock.now(), UTC).isoformat(timespec="seconds"),
        "spec": spec.model_dump(mode="json"),
        "members": [member.to_json() for member in members],
        "addresses": addresses,
        "keys": [[address, port, listed] for (address, port), listed in found.keys.items()],
        "facts": {node: facts_of(survey) for node, survey in found.surveys.items()},
        "signal": chosen,
        "doomed": [remembered(one, found.surveys[one.node]) for one in doomed],
        "held": [],
        "ready": False,
    }


def take(record: Record, contact: Contact, progress: Progress) -> Testbed:
    """Take the machines on record, or go on taking them.

    Raises:
        SiteError: a machine cannot be taken; says whether to try again.
    """
    known = record.data
    for left in ("releasing", "store_removed"):
        known.pop(left, None)
    members = members_of(known)
    keys.make(record.folder / keys.LOGIN, f"hotbed-{record.name}-{known['id'][:8]}")
    _pin(record, members)
    testbed = testbed_of(record.folder, known)
    _hold(record, members, contact, progress)
    wipe_allowed(record, contact, progress)
    if not known["ready"]:
        known["ready"] = True
        record.save()
    progress("ready", 1.0)
    return testbed


def as_root(contact: Contact, member: Member, testbed: Testbed, do: str, **request: Any) -> Any:
    """Ask a machine by the testbed's key, or as on the first time where that is not let in.

    Raises:
        RemoteError, UserError: it cannot be asked.
    """
    target = replace(reach.target_of(testbed, testbed.node(member.node)), control_dir=None)
    ours = contact.shell(target)
    try:
        ours.run(["true"], timeout_s=30.0)
    except RemoteError:
        shell = contact.shell(first_target(member.host, testbed.known_hosts))
        login = login_of(shell)
        if login.problem is not None:
            raise UserError(f"machine {member.host.name} {login.problem}.") from None
        return ask(shell, do, root=login.root, **request)
    return ask(ours, do, **request)


def _pin(record: Record, members: Sequence[Member]) -> None:
    """The host keys of machines under every name by which we or other nodes reach them."""
    listed: dict[tuple[str, int], Sequence[str]] = {
        (address, port): found for address, port, found in record.data["keys"]
    }
    for member in members:
        found = listed[member.host.address, member.host.port]
        for address in (record.data["addresses"][member.node], member.node):
            listed.setdefault((address, member.host.port), found)
    hostkeys.pin(record.folder / "known_hosts", listed)


def _hold(record: Record, members: Sequence[Member], contact: Contact, progress: Progress) -> None:
    known, testbed = record.data, testbed_of(record.folder, record.data)
    public = keys.public(record.folder / keys.LOGIN)
    names = {node.name: node.address for node in testbed.nodes}
    by_node: Mapping[str, Member] = {member.node: member for member in members}
    record.journal("ask", what="hold", nodes=list(by_node))
    known["held"] = list(by_node)  # release asks them all, whatever becomes of this
    record.save()

    def hold(node: str) -> None:
        mark = {"testbed": record.name, "id": known["id"], "node": node, "since": known["since"]}
        as_root(contact, by_node[node], testbed, "hold", mark=mark, key=public, names=names)
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
