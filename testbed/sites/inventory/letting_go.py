"""Letting machines go: the store first, then our mark, names and key; nothing else is touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from schemas.errors import HotbedError
from testbed import deployers
from testbed.sites import keys
from testbed.sites.contract import Progress, SiteError, Testbed
from testbed.sites.inventory.contact import RETRY_S, Contact, everywhere
from testbed.sites.inventory.described import members_of, testbed_of
from testbed.sites.inventory.taking import as_root
from testbed.sites.records import Record

TakeAway = Callable[[Testbed, Progress], None]
"""Removes a deployed store from a testbed's nodes."""


def let_go(record: Record, contact: Contact, take_away: TakeAway, progress: Progress) -> None:
    """Let every machine go that is still held.

    Raises:
        SiteError: some could not be cleaned and stay on record; says which.
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
        as_root(contact, by_node[node], testbed, "let_go", id=known["id"], key=public)

    able = [node for node in known["held"] if node not in kept]
    answers = everywhere(able, one, progress, "letting machines go", (0.7, 0.98))
    lost: dict[str, HotbedError] = {**kept, **answers.lost}
    known["held"] = list(lost)
    record.save()
    record.journal("made", what="let go", nodes=list(answers.found))
    if lost:
        told = "; ".join(f"{node}: {str(error).rstrip('.')}" for node, error in lost.items())
        raise SiteError(
            f"testbed {name}: what was made on these machines is still there, and kept on record "
            f"({told}); run `hotbed down {name}` again when they answer, or, if they never will, "
            f"delete {record.folder}.",
            retry_after_s=RETRY_S,
        )


def _without_store(
    record: Record, testbed: Testbed, take_away: TakeAway, progress: Progress
) -> dict[str, HotbedError]:
    """Remove a store that was deployed; returns the held nodes on which that failed."""
    if not deployers.begun(testbed) or record.data.get("store_removed"):
        return {}
    record.journal("ask", what="remove store")
    held = record.data["held"]
    # Machines that were let go before do not let us in, and are not ours to change.
    ours = replace(testbed, nodes=tuple(node for node in testbed.nodes if node.name in held))
    try:
        take_away(ours, lambda what, share: progress(what, 0.7 * share))
    except HotbedError as error:
        failed = {failure.node for failure in getattr(error, "failures", ())}
        # One that names no machine may be any's.
        still = [node for node in held if node in failed] or held
        return dict.fromkeys(still, error)
    record.data["store_removed"] = True
    record.save()
    record.journal("made", what="remove store")
    return {}
