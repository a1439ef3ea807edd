"""Which leases of a testbed's name are its own, by its journal.

``found`` are leases that were there before we asked for one, ``ask`` is an asking, and what came of
it is ``made`` or ``refused``. Where the answer never came (a time-out, a killed process) the asking
is open: a lease of the name that Blazar made in the minutes after it is ours, one that it made
later is not. An asking that nothing came of in that time is closed when leases are next looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.sites.chameleon.cloud import Lease
from testbed.sites.chameleon.work import SKEW_S, Work

LATE_S = 600.0
"""After an asking without an answer a lease of it may still come to light. Blazar's API waits a
minute for its manager (``rpc_response_timeout``, as OpenStack sets it by default); ten for those
that set it higher and for what the manager has begun by then. No cloud's was measured."""


def lease_name(work: Work) -> str:
    """The name by which the lease is known."""
    return work.options.lease.name or work.base


def is_ours(work: Work, lease: Lease) -> bool:
    """Did we make this lease, of our name, or did somebody else?

    We ask for one only when none of the name is there. So one that came of an open asking is ours,
    unless it was found before.
    """
    if lease.name == work.base or lease.id in _ids(work, "made"):
        return True
    return lease.id not in _ids(work, "found") and any(
        _came_of(lease, asked_s) for asked_s in open_askings(work)
    )


def settle(work: Work, named: Sequence[Lease]) -> None:
    """Write down whose `named` are, which are all leases of our name that there are, dead ones too,
    and close the askings that nothing can come of any more.
    """
    known = _ids(work, "found") | _ids(work, "made")
    for lease in named:
        if lease.id in known:
            continue
        if is_ours(work, lease):
            claim(work, lease)
        else:
            work.record.journal("found", what="lease", name=lease.name, id=lease.id)
    askings = open_askings(work)
    if all(asked_s is None or asked_s + LATE_S < work.now() for asked_s in askings):
        for _ in askings:
            work.record.journal(
                "refused", what="lease", name=lease_name(work), why="no lease came of it"
            )


def claim(work: Work, lease: Lease) -> None:
    """Write down that this lease came of an asking without an answer."""
    if lease.id not in _ids(work, "made"):
        work.record.journal("made", what="lease", name=lease.name, id=lease.id, late=True)


def unanswered(work: Work) -> list[float]:
    """When leases were asked for, lately, that may still come to light although none does now.

    Of askings before one that had its answer they would have come already: Blazar takes them in
    turn, and leases were looked for since.
    """
    waiting: list[float] = []
    for line in work.record.entries():
        if line.get("what") != "lease":
            continue
        if line["entry"] == "ask":
            waiting.append(line.get("at_s") or 0.0)
        elif line["entry"] in ("made", "refused"):
            waiting = waiting[1:] if line.get("late") else []
    return [asked_s for asked_s in waiting if asked_s + LATE_S > work.now()]


def open_askings(work: Work) -> list[float | None]:
    """When leases were asked for of which it is not known what came of it, in seconds since the
    epoch by the cloud's clock, oldest first; None of askings that earlier versions wrote down.
    """
    askings: list[float | None] = []
    for line in work.record.entries():
        if line.get("what") != "lease":
            continue
        if line["entry"] == "ask":
            askings.append(line.get("at_s"))
        elif line["entry"] in ("made", "refused") and askings:
            askings.pop()  # an answer is of the asking right before it
    return askings


def _came_of(lease: Lease, asked_s: float | None) -> bool:
    if asked_s is None or lease.made_s is None:
        return True
    return asked_s - SKEW_S <= lease.made_s <= asked_s + LATE_S


def _ids(work: Work, entry: str) -> set[str]:
    return {str(line["id"]) for line in work.journalled(entry, "lease")}
