"""Wiping devices of machines that a testbed holds: those that were allowed, each once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from schemas.errors import HotbedError, UserError
from testbed import reach
from testbed.sites.contract import Doomed, Progress, Testbed
from testbed.sites.inventory import fitness
from testbed.sites.inventory.contact import Contact, all_or_error, ask, everywhere
from testbed.sites.inventory.described import members_of, testbed_of
from testbed.sites.records import Record
from testbed.ssh import Shell

_SEEN = ("bytes", "model", "holds", "identity", "uuids", "boot_id")
"""What a device must still be when it is wiped; records of before have the first three."""


def remembered(one: Doomed, survey: Mapping[str, Any]) -> dict[str, Any]:
    """A device that may be wiped, with what tells it from others after its name has moved."""
    seen = survey["devices"][one.device]
    more = {"identity": seen["identity"], "uuids": seen["uuids"], "boot_id": survey["boot_id"]}
    return {**asdict(one), **more}


def shell_of(contact: Contact, testbed: Testbed, node: str) -> Shell:
    """A shell by the testbed's own key."""
    return contact.shell(reach.target_of(testbed, testbed.node(node)))


def wipe_allowed(record: Record, contact: Contact, progress: Progress) -> None:
    """Wipe what the record says may be wiped, each device once.

    Raises:
        SiteError: a machine did not answer, or something became another in between.
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


def surveys_of(
    contact: Contact, testbed: Testbed, progress: Progress
) -> Mapping[str, Mapping[str, Any]]:
    """Every node of a testbed that is up, with its devices.

    Raises:
        SiteError: one does not answer.
    """

    def see(node: str) -> dict[str, Any]:
        devices = sorted(testbed.node(node).devices.values())
        found: dict[str, Any] = ask(shell_of(contact, testbed, node), "survey", devices=devices)
        return found

    nodes = [node.name for node in testbed.nodes]
    answers = everywhere(nodes, see, progress, "looking at devices", (0.0, 0.5))
    return all_or_error(answers, "cannot look at the devices of node")


def leftovers(
    known: Mapping[str, Any], surveys: Mapping[str, Mapping[str, Any]]
) -> tuple[Doomed, ...]:
    """Devices that hold something, are in nobody's use and are no OSD's."""
    found = fitness.doomed_of(members_of(known), surveys)
    seen = {one.name: surveys[one.node]["devices"][one.device] for one in found}
    return tuple(one for one in found if not (seen[one.name]["uses"] or seen[one.name]["osd"]))


def wipe_named(
    record: Record, contact: Contact, names: Collection[str], progress: Progress
) -> None:
    """Wipe devices of a testbed that is up: these, and only as they are found now.

    Raises:
        UserError: a name is of no device of the testbed, or of one that is in use.
        SiteError: a machine did not answer, or something became another in between.
    """
    known = record.data
    members, testbed = members_of(known), testbed_of(record.folder, known)
    fitness.require_known(names, members)
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
    known["doomed"] = [remembered(one, surveys[one.node]) for one in doomed]
    record.save()
    try:
        wipe_allowed(record, contact, progress)
    except HotbedError:
        known["doomed"] = []  # allowed for this once; the next time is asked anew
        record.save()
        raise
