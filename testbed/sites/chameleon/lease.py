"""The lease of a testbed: its reservations, the search for free machines, waiting and prolonging.

A lease that Hotbed makes has the testbed's tag in its name, which no other lease has. A lease that
a person made under the name in ``lease.name`` is used and never deleted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from schemas.errors import UserError
from testbed.sites.chameleon.cloud import (
    LIVE,
    PASSING_S,
    BlazarLease,
    Booking,
    CallFault,
    Reservation,
)
from testbed.sites.chameleon.options import (
    HOUR_S,
    ChameleonOptions,
    holds,
    read_filter,
    root_bytes,
    same,
    text_of,
)
from testbed.sites.chameleon.servers import remove_servers
from testbed.sites.chameleon.work import Work, fault_under
from testbed.sites.contract import SiteError
from testbed.spec import GroupSpec, TestbedSpec
from testbed.spec.quantities import format_s, moment

MINUTE_S = 60.0
GAP_S = MINUTE_S
"""Gap between two leases of a host: a lease that starts as another ends overlaps it in Blazar."""
NAME_LENGTH = 80
"""Longest name that Blazar keeps."""
TRIALS = 12
"""Largest number of later starts to try for machines that Blazar does not show."""
PROLONG_WINDOW_S = 48 * HOUR_S
"""Time before the end in which a lease of whole machines can be prolonged (Chameleon's policy)."""
LATE_S = 600.0
"""Time after a lost answer in which its lease may still appear. Blazar's API waits a minute for its
manager (``rpc_response_timeout``); ten leave room for larger settings. Not measured on a cloud."""
MIB, GIB = 2**20, 2**30


# -- reservations -------------------------------------------------------------------------------


def wanted_reservations(
    spec: TestbedSpec, options: ChameleonOptions, flavors: Mapping[str, Any] | None = None
) -> list[Reservation]:
    """Return the reservations for a spec; groups with one kind of machine share a reservation.
    `flavors`: flavor of each group on a site of virtual machines, None for whole machines."""
    kinds: dict[Reservation, list[GroupSpec]] = {}
    for group in spec.groups:
        if flavors is None:
            kind = Reservation(0, text_of(options.filter_of(group.name)))
        else:
            kind = Reservation(0, flavor_id=flavors[group.name].id)
        kinds.setdefault(kind, []).append(group)
    return [
        replace(
            kind,
            amount=sum(group.count for group in groups),
            groups=tuple(group.name for group in groups),
        )
        for kind, groups in kinds.items()
    ]


def choose_flavors(
    spec: TestbedSpec, options: ChameleonOptions, flavors: Sequence[Any]
) -> dict[str, Any]:
    """Return each group's flavor: the named one, or the smallest that its nodes fit into.
    UserError: there is none, or the named one is too small."""
    known = [each for each in flavors if not each.name.startswith("reservation:")]
    return {group.name: _flavor(group, options, known) for group in spec.groups}


def _flavor(group: GroupSpec, options: ChameleonOptions, flavors: Sequence[Any]) -> Any:
    def size(flavor: Any) -> tuple[int, int, int]:
        return (flavor.vcpus, flavor.ram * MIB, flavor.disk * GIB)

    need = (math.ceil(group.cpus), group.memory, root_bytes(group))
    name = options.flavor_of(group.name)
    named = [each for each in flavors if name is None or each.name == name]
    fitting = [e for e in named if all(a >= b for a, b in zip(size(e), need, strict=True))]
    if fitting:
        return min(fitting, key=size)
    known = ", ".join(sorted(each.name for each in flavors)[:12])
    if not named:
        raise UserError(f"there is no flavor {name!r}", where=options.site, allowed=known)
    raise UserError(
        f"{f'flavor {name!r}' if name else 'every flavor'} is smaller than group {group.name!r} "
        f"needs: {need[0]} CPUs, {need[1] / GIB:.3g} GiB of memory and {need[2] / GIB:.3g} GiB of "
        "disk",
        where=options.site,
        do="name a larger flavor, or make the group's disk or memory smaller",
    )


def match_reservations(lease: BlazarLease, wanted: Sequence[Reservation]) -> dict[str, Reservation]:
    """Return each group's reservation: the smallest that fits, each for one request only.
    UserError: the lease lacks one."""
    spare = sorted(lease.reservations, key=lambda each: each.amount)
    served: dict[str, Reservation] = {}
    for need in sorted(wanted, key=lambda each: each.amount):
        found = next((each for each in spare if _serves(each, need)), None)
        if found is None:
            raise UserError(
                f"lease {lease.name!r} ({lease.id}) has no reservation of {need.amount} machines "
                f"of {need.properties or f'flavor {need.flavor_id}'}",
                do="change the spec, or lease.name",
            )
        spare.remove(found)
        served |= dict.fromkeys(need.groups, found)
    return served


def _serves(there: Reservation, need: Reservation) -> bool:
    alike = there.flavor_id == need.flavor_id and same(there.properties, need.properties)
    return alike and there.amount >= need.amount


# -- free machines ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slot:
    """First time at which all needed hosts are free together, None if never. `fitting` counts the
    hosts that pass each need, `free_now` those of them that are free now."""

    start_s: float | None
    fitting: tuple[int, ...]
    free_now: tuple[int, ...]


def next_slot(
    needs: Sequence[Reservation],
    hosts: Sequence[Mapping[str, Any]],
    bookings: Sequence[Booking],
    *,
    now_s: float,
    seconds: float,
) -> Slot:
    """Return the first time from `now_s` at which every need has its hosts for `seconds`.

    A host that passes several needs counts for one of them; hosts that cannot be reserved do not
    count. python-chi only looks at one node (`Node.next_free_timeslot`), by a call that only
    Chameleon's fork of Blazar's client has.
    """
    usable = [host for host in hosts if host.get("reservable", True)]
    busy: dict[str, list[Booking]] = {host["id"]: [] for host in usable}
    for booking in bookings:
        if booking.host_id in busy:
            busy[booking.host_id].append(booking)
    filters = [read_filter(need.properties or ()) for need in needs]
    passing = [[host["id"] for host in usable if holds(each, host)] for each in filters]

    def free(start_s: float) -> list[list[str]]:
        idle = {
            host
            for host, booked in busy.items()
            if all(b.end_s <= start_s or b.start_s >= start_s + seconds for b in booked)
        }
        return [[each for each in ids if each in idle] for ids in passing]

    # Hosts become free only at ends of bookings.
    starts = sorted({now_s, *(b.end_s for many in busy.values() for b in many if b.end_s > now_s)})
    first = next((start for start in starts if _enough(needs, free(start))), None)
    return Slot(first, tuple(map(len, passing)), tuple(map(len, free(now_s))))


def _enough(needs: Sequence[Reservation], free: Sequence[Sequence[str]]) -> bool:
    """Return True if every need can have its hosts, no host twice."""
    if any(len(ids) < need.amount for need, ids in zip(needs, free, strict=True)):
        return False
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    hosts = sorted({host for ids in free for host in ids})
    places = [ids for need, ids in zip(needs, free, strict=True) for _ in range(need.amount)]
    fits = [[host in ids for host in hosts] for ids in places]
    return not places or min(maximum_bipartite_matching(csr_array(fits), "column")) >= 0


def listed_hosts(work: Work) -> list[Mapping[str, Any]] | None:
    """Return all hosts of the site; None if the site shows them to operators only."""
    try:
        return work.ask("looking for free machines", work.cloud.hosts)
    except SiteError as error:
        if fault_under(error) is not CallFault.REFUSED:
            raise
        return None


def look_for_slot(work: Work, wanted: Sequence[Reservation], now_s: float) -> Slot | None:
    """Return the first slot from `now_s` with free whole machines; None if the site hides them.
    UserError: the site does not have that many such machines."""
    options, hosts = work.options, listed_hosts(work)
    if hosts is None:
        return None
    bookings = [
        replace(each, start_s=each.start_s - GAP_S, end_s=each.end_s + GAP_S)
        for each in work.ask("looking for free machines", work.cloud.bookings)
    ]
    slot = next_slot(wanted, hosts, bookings, now_s=now_s, seconds=options.lease_s)
    if slot.start_s is None:
        counts = zip(wanted, slot.fitting, strict=True)
        few = next((each for each in counts if each[1] < each[0].amount), None)
        raise UserError(
            f"{few[1]} machines fit {few[0].properties}, and {' and '.join(few[0].groups)} need "
            f"{few[0].amount}"
            if few
            else "several groups need the same machines, and there are too few for all",
            where=options.site,
            do="take fewer, or another node_type or filters",
        )
    return slot


# -- finding ------------------------------------------------------------------------------------


def lease_name(work: Work) -> str:
    """Return the name of the lease that Hotbed makes; the testbed's tag is in it."""
    name = work.options.lease.name
    return f"{name[: NAME_LENGTH - 1 - len(work.tag)]}-{work.tag}" if name else work.base


def my_leases(work: Work) -> tuple[list[BlazarLease], list[BlazarLease]]:
    """Return this user's leases in this project: those made for the testbed, which have its tag or
    an id in its journal, and those that a person made under the name in ``lease.name``."""
    who, tagged = work.ask("asking who we are", work.cloud.identity), lease_name(work)
    mine = [
        lease
        for lease in work.ask("looking for the lease", work.cloud.leases)
        if (lease.user_id, lease.project_id) == (who.user_id, who.project_id)
    ]
    known = {line.get("id") for line in work.lines("lease")}
    made = {line["id"] for line in work.lines("lease") if line["entry"] == "made"}
    ours = [lease for lease in mine if lease.name == tagged or lease.id in made]
    for lease in ours:
        if lease.id not in known:  # its answer got lost
            work.journal("found", what="lease", name=tagged, id=lease.id)
    named = [lease for lease in mine if lease.name == work.options.lease.name]
    return ours, [lease for lease in named if lease not in ours]


def find_lease(work: Work) -> BlazarLease | None:
    """Return the lease that serves the testbed now or later; end doubles of lost answers.
    UserError: a person has several leases of the name."""
    known = (work.record.data.get("lease") or {}).get("id")

    def serve(leases: Sequence[BlazarLease]) -> list[BlazarLease]:
        now = work.clock.now()
        live = [each for each in leases if each.status in LIVE and each.end_s > now]
        return sorted(live, key=lambda each: (each.id != known, each.start_s, each.id))

    ours, named = map(serve, my_leases(work))
    for double in ours[1:]:
        _delete(work, double)
    chosen = [lease for lease in (*ours[:1], *named) if lease.id == known] or ours[:1] or named
    if len(chosen) > 1:
        raise UserError(
            f"you have {len(chosen)} leases called {work.options.lease.name!r} "
            f"({', '.join(sorted(lease.id for lease in chosen))})",
            where=work.options.site,
            do="delete one or give lease.name another name",
        )
    return chosen[0] if chosen else None


def _delete(work: Work, lease: BlazarLease) -> None:
    work.ask("removing a lease", lambda: work.cloud.delete_lease(lease.id))


def end_leases(work: Work) -> None:
    """End all leases that Hotbed made for the testbed."""
    for lease in my_leases(work)[0]:
        try:
            _delete(work, lease)
        except SiteError as error:
            # One that is over holds nothing, and some clouds refuse to delete it.
            if lease.status != "TERMINATED" or fault_under(error) is CallFault.PASSING:
                raise


def unanswered(work: Work) -> list[float]:
    """Return the times of lost answers to which a lease may still appear.

    Blazar takes requests in turn, so an answered request settles all earlier ones.
    """
    waiting: list[float] = []
    for line in work.lines("lease"):
        if line["entry"] == "ask":
            waiting.append(line.get("at_s", 0.0))
        else:
            waiting = waiting[1:] if line["entry"] == "found" else []
    return [asked_s for asked_s in waiting if asked_s + LATE_S > work.clock.now()]


# -- making -------------------------------------------------------------------------------------


def hold_lease(work: Work, wanted: Sequence[Reservation]) -> BlazarLease:
    """Return the testbed's active lease: the existing one, or a new one. UserError: two leases have
    the name, or the lease lacks a reservation. SiteError: not enough is free, the lease starts
    later, or Blazar could not start it."""
    lease = find_lease(work)
    if lease is None:
        for broken in my_leases(work)[0]:
            if broken.status == "ERROR":
                raise _broken(work, broken)
    known = (work.record.data.get("lease") or {}).get("id")
    if (lease is None or lease.id != known) and work.lines("server"):
        # Servers of an ended lease look alive until Blazar has removed them.
        remove_servers(work, 0.02, 0.05)
    if lease is None:
        lease = _new_lease(work, wanted)
    match_reservations(lease, wanted)
    _remember(work, lease)
    lease = _wait(work, lease)
    find_lease(work)  # ends a double that appeared in the meantime
    return lease


def _remember(work: Work, lease: BlazarLease) -> None:
    fields = {name: getattr(lease, name) for name in ("id", "name", "status", "start_s", "end_s")}
    work.record.data["lease"] = fields
    work.record.save()


def _new_lease(work: Work, wanted: Sequence[Reservation]) -> BlazarLease:
    """Try one start after another."""
    refusals: list[SiteError] = []
    for start in _starts(work, wanted):
        # Blazar counts the longest time from the beginning of the minute by its own clock.
        first = work.clock.now() if start is None else start
        latest = _floor_minute(first - MINUTE_S) + work.options.longest_hours * HOUR_S
        end = min(_ceil_minute(first + work.options.lease_s), latest)
        try:
            return work.ensure(
                "lease",
                lease_name(work),
                lambda: find_lease(work),
                partial(work.cloud.create_lease, lease_name(work), start, end, wanted),
                lambda lease: lease.id,
            )
        except SiteError as error:
            if fault_under(error) is not CallFault.FULL:
                raise
            refusals.append(error)
    later = f", nor at {len(refusals) - 1} later times" if len(refusals) > 1 else ""
    hint = ": take fewer or smaller machines, or fewer lease.hours"
    if work.options.lease.start == "now":
        hint += "; lease.start: next-free takes the first later time at which they are free"
    raise SiteError(f"{refusals[0]}{later}{hint}", retry_after_s=PASSING_S) from refusals[0]


def _starts(work: Work, wanted: Sequence[Reservation]) -> Iterator[float | None]:
    """Yield the starts to try; None means now.

    Blazar shows which hosts are free (except on sites that hide them), but not how many virtual
    machines; it refuses at once, and keeps no lease, if they are too few.
    """
    lease, now = work.options.lease, work.clock.now()
    if lease.start_s is not None:
        if lease.start_s + work.options.lease_s <= now:
            raise UserError(
                f"{moment(lease.start_s)} and the {lease.hours:g} h of the lease after it are over",
                where="site.options.lease.start",
                do="give a later time, or `now`",
            )
        yield lease.start_s if lease.start_s > now + MINUTE_S else None
        return
    slot = None if work.options.virtual else look_for_slot(work, wanted, now)
    if slot is None:
        yield None
        if lease.start == "next-free":
            yield from _later_starts(work)
        return
    assert slot.start_s is not None
    if slot.start_s <= now:
        yield None
    elif lease.start == "next-free":
        yield _ceil_minute(slot.start_s)
    else:
        counts = zip(slot.free_now, slot.fitting, strict=True)
        raise work.failed(
            "not enough machines are free now "
            f"({', '.join(f'{free} of {fitting}' for free, fitting in counts)}); all that are "
            f"needed are free for {lease.hours:g} h from {moment(slot.start_s)}: wait, or say "
            "lease.start: next-free to lease them from then on",
            slot.start_s - now,
        )


def _later_starts(work: Work) -> list[float]:
    """Return starts to try for machines that Blazar does not show: ends of bookings, first all,
    then ever fewer, and the last."""
    now = work.clock.now()
    bookings = work.ask("looking for free machines", work.cloud.bookings)
    ends = sorted({_ceil_minute(each.end_s + GAP_S) for each in bookings if each.end_s > now})
    places: list[int] = []
    place = 0
    while place < len(ends) and len(places) < TRIALS:
        places.append(place)
        place += max(1, place // 2)
    return [ends[each] for each in sorted({*places, len(ends) - 1} if ends else ())]


def _wait(work: Work, lease: BlazarLease) -> BlazarLease:
    """Wait until the lease is active."""
    patience = work.options.patience.lease_s
    for waited in work.polls(patience):
        now = work.ask("waiting for the lease", lambda: work.cloud.lease(lease.id))
        if now is None:
            gone = f"lease {lease.name!r} ({lease.id}) was deleted by somebody"
            raise work.failed(gone, PASSING_S)
        if now.status == "ACTIVE":
            _remember(work, now)
            return now
        if now.status == "ERROR":
            raise _broken(work, now)
        to_start = now.start_s - work.clock.now()
        if to_start > patience:
            raise work.failed(
                f"lease {lease.name!r} starts at {moment(now.start_s)}, in {format_s(to_start)}: "
                "`hotbed up` again then resumes",
                to_start,
            )
        hint = f", starts in {format_s(to_start)}" if to_start > 0 else ""
        work.progress(f"lease is {now.status.lower()}{hint}", 0.05 + 0.1 * waited / patience)
    raise work.failed(
        f"lease {lease.name!r} is not active after {format_s(patience)}: `hotbed up` again resumes "
        "waiting",
        PASSING_S,
    )


def _broken(work: Work, lease: BlazarLease) -> SiteError:
    """Delete a lease in ERROR that Hotbed made, so that the next try makes a new one."""
    if lease.name == lease_name(work):
        _delete(work, lease)
        work.record.data.pop("lease", None)
        work.record.save()
    return work.failed(broken_words(lease), PASSING_S)


def broken_words(lease: BlazarLease) -> str:
    """Explain a lease in ERROR in Blazar's words."""
    said = lease.reason or "Blazar gives no reason"
    return f"lease {lease.name!r} ({lease.id}) broke (ERROR): {said}"


# -- prolonging ---------------------------------------------------------------------------------


def prolong(work: Work, lease: BlazarLease, seconds: float) -> None:
    """Move the lease's end by `seconds`, within the policy and the spec's limit. UserError: the
    spec or the policy never allows it. SiteError: not yet, or somebody else has the machines then.
    """
    options, now = work.options, work.clock.now()
    end, where = _ceil_minute(lease.end_s + seconds), f"lease {lease.name!r}"
    if options.lease.prolong is not None:
        hours = options.lease.prolong.upto_hours
        upto = lease.start_s + hours * HOUR_S
        if end > upto + MINUTE_S:
            limit = (
                f"lease.prolong.upto_hours is {hours:g}, so it ends at {moment(upto)} at the latest"
            )
            raise UserError(limit, where=where)
    if lease.status != "ACTIVE":
        raise SiteError(
            f"{where} is {lease.status}: only an active one can be prolonged",
            retry_after_s=max(lease.start_s - now, PASSING_S),
        )
    opens = lease.end_s - PROLONG_WINDOW_S
    if not options.virtual and now < opens:
        raise SiteError(
            f"{where} can be prolonged within 48 h of its end, from {moment(opens)} on",
            retry_after_s=opens - now,
        )
    latest = now + options.longest_hours * HOUR_S
    if end > latest:
        raise UserError(
            f"{options.site} lets it end at {moment(latest)} at the latest, "
            f"{options.longest_hours:g} h from now; asked for was {moment(end)}",
            where=where,
        )

    def attempt() -> BlazarLease:
        there = work.cloud.lease(lease.id)
        if there is None or there.status == "ERROR":
            said = "it was deleted by somebody" if there is None else broken_words(there)
            raise work.failed(f"prolonging the lease: {said}: `hotbed up` again leases anew")
        if there.end_s >= end:
            return there  # an answer got lost
        return work.cloud.prolong_lease(lease.id, end)

    try:
        _remember(work, work.ask("prolonging the lease", attempt))
    except SiteError as error:
        if fault_under(error) is CallFault.FULL:
            error.retry_after_s = None  # the other reservation stays
        raise


def _ceil_minute(seconds: float) -> float:
    return math.ceil(seconds / MINUTE_S) * MINUTE_S


def _floor_minute(seconds: float) -> float:
    return math.floor(seconds / MINUTE_S) * MINUTE_S
