"""The lease of a testbed: its reservations, the search for free machines, waiting and prolonging.

A lease that Hotbed makes has the testbed's tag in its name, which no other lease has. A lease that
a person made under the name in ``lease.name`` is used and never deleted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from schemas.errors import UserError
from testbed.sites.chameleon.cloud import (
    FLAVOR,
    GIB,
    HOST,
    LIVE,
    PASSING_S,
    BlazarHost,
    BlazarLease,
    Booking,
    CloudError,
    Fault,
    Flavor,
    Reservation,
    WantedReservation,
    explain,
    plain,
)
from testbed.sites.chameleon.options import (
    HOUR_S,
    ChameleonOptions,
    Filter,
    holds,
    root_bytes,
    same,
    text_of,
)
from testbed.sites.chameleon.servers import remove_servers
from testbed.sites.chameleon.work import SKEW_S, Work, fault_under, left, when
from testbed.sites.contract import SiteError
from testbed.spec import GroupSpec, TestbedSpec

MINUTE_S = 60.0
GAP_S = MINUTE_S
"""Gap between two leases of a host: a lease that starts as another ends overlaps it in Blazar."""
NAME_LENGTH = 80
"""Longest name that Blazar keeps."""
TRIALS, BLIND_TRIALS = 12, 9
"""Largest numbers of later starts to try for virtual machines, with known and unknown bookings."""
PROLONG_WINDOW_S = 48 * HOUR_S
"""Time before the end in which a lease of whole machines can be prolonged (Chameleon's policy)."""
LATE_S = 600.0
"""Time after a lost answer in which its lease may still appear. Blazar's API waits a minute for its
manager (``rpc_response_timeout``); ten leave room for larger settings. Not measured on a cloud."""


# -- reservations -------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReservationRequest:
    """A reservation of the lease and the groups that use it."""

    wanted: WantedReservation
    groups: tuple[str, ...]


def asks_of(
    spec: TestbedSpec, options: ChameleonOptions, flavors: Mapping[str, Flavor] | None = None
) -> list[ReservationRequest]:
    """Return the reservations for a spec; groups with one kind of machine share a reservation.

    Args:
        flavors: flavor of each group on a site of virtual machines, None for whole machines.
    """
    kinds: dict[WantedReservation, list[GroupSpec]] = {}
    for group in spec.groups:
        if flavors is None:
            kind = WantedReservation(HOST, 0, text_of(options.filter_of(group.name)))
        else:
            kind = WantedReservation(FLAVOR, 0, "", flavors[group.name].id)
        kinds.setdefault(kind, []).append(group)
    return [
        ReservationRequest(
            replace(kind, amount=sum(g.count for g in groups)), tuple(g.name for g in groups)
        )
        for kind, groups in kinds.items()
    ]


def choose_flavors(
    spec: TestbedSpec, options: ChameleonOptions, flavors: Sequence[Flavor]
) -> dict[str, Flavor]:
    """Return each group's flavor: the named one, or the smallest that its nodes fit into.

    Raises:
        UserError: there is none, or the named one is too small.
    """
    known = [each for each in flavors if not each.name.startswith("reservation:")]
    return {group.name: _flavor(group, options, known) for group in spec.groups}


def _flavor(group: GroupSpec, options: ChameleonOptions, flavors: Sequence[Flavor]) -> Flavor:
    def size(flavor: Flavor) -> tuple[int, int, int]:
        return (flavor.cpus, flavor.memory_bytes, flavor.disk_bytes)

    need = (math.ceil(group.cpus), group.memory, root_bytes(group))
    name = options.flavor_of(group.name)
    named = [each for each in flavors if name is None or each.name == name]
    fitting = [e for e in named if all(a >= b for a, b in zip(size(e), need, strict=True))]
    if fitting:
        return min(fitting, key=size)
    needs = f"{need[0]} CPUs, {need[1] / GIB:.3g} GiB of memory and {need[2] / GIB:.3g} GiB of disk"
    if name is None:
        raise UserError(
            f"no flavor has {needs}, which group {group.name!r} needs",
            where=options.site,
            do="make its disk or memory smaller",
        )
    if not named:
        known = ", ".join(sorted(each.name for each in flavors)[:12])
        raise UserError(f"there is no flavor {name!r}", where=options.site, allowed=known)
    raise UserError(
        f"group {group.name!r} needs {needs}; flavor {name!r} is smaller ({named[0].cpus}, "
        f"{named[0].memory_bytes / GIB:.3g} and {named[0].disk_bytes / GIB:.3g})",
        where=options.site,
        do="name a larger one, or leave site.options.flavor out",
    )


def match_reservations(
    lease: BlazarLease, asks: Sequence[ReservationRequest]
) -> dict[str, Reservation]:
    """Return each group's reservation: the smallest that fits, each for one request only.

    Raises:
        UserError: the lease lacks one.
    """
    spare = sorted(lease.reservations, key=lambda each: each.wanted.amount)
    served: dict[str, Reservation] = {}
    for ask in sorted(asks, key=lambda each: each.wanted.amount):
        found = next((each for each in spare if _serves(each.wanted, ask.wanted)), None)
        if found is None:
            what = ask.wanted.properties or f"flavor {ask.wanted.flavor_id}"
            raise UserError(
                f"lease {lease.name!r} ({lease.id}) has no reservation of {ask.wanted.amount} "
                f"machines of {what}",
                do="change the spec, or lease.name",
            )
        spare.remove(found)
        served |= dict.fromkeys(ask.groups, found)
    return served


def _serves(there: WantedReservation, wanted: WantedReservation) -> bool:
    if there.kind != wanted.kind or there.amount < wanted.amount:
        return False
    if wanted.kind == FLAVOR:
        return there.flavor_id in ("", wanted.flavor_id)
    return same(there.properties, wanted.properties)


# -- free machines ------------------------------------------------------------------------------


@dataclass(frozen=True)
class HostsNeeded:
    """`amount` hosts that pass `filter`."""

    filter: Filter
    amount: int


@dataclass(frozen=True)
class Slot:
    """First time at which all needed hosts are free together, None if never. `fitting` counts the
    hosts that pass each need, `free_now` those of them that are free now."""

    start_s: float | None
    fitting: tuple[int, ...]
    free_now: tuple[int, ...]


def next_slot(
    needs: Sequence[HostsNeeded],
    hosts: Sequence[BlazarHost],
    bookings: Sequence[Booking],
    *,
    now_s: float,
    seconds: float,
) -> Slot:
    """Return the first time from `now_s` at which every need has its hosts for `seconds`.

    A host that passes several needs counts for one of them (augmenting paths of a bipartite
    matching); hosts that cannot be reserved do not count. python-chi only looks at one node
    (`Node.next_free_timeslot`), by a call that only Chameleon's fork of Blazar's client has.
    """
    usable = [host for host in hosts if host.reservable]
    busy: dict[str, list[Booking]] = {host.id: [] for host in usable}
    for booking in bookings:
        if booking.host_id in busy:
            busy[booking.host_id].append(booking)
    passing = [[h.id for h in usable if holds(need.filter, h.properties)] for need in needs]

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


def _enough(needs: Sequence[HostsNeeded], free: Sequence[Sequence[str]]) -> bool:
    """Return True if every need can have its hosts, no host twice."""
    if any(len(ids) < need.amount for need, ids in zip(needs, free, strict=True)):
        return False
    places = [ids for need, ids in zip(needs, free, strict=True) for _ in range(need.amount)]
    taken: dict[str, int] = {}

    def give(place: int, seen: set[str]) -> bool:
        for host in places[place]:
            if host in seen:
                continue
            seen.add(host)
            if host not in taken or give(taken[host], seen):
                taken[host] = place
                return True
        return False

    return all(give(place, set()) for place in range(len(places)))


def look_for_slot(work: Work, asks: Sequence[ReservationRequest]) -> Slot | None:
    """Return the first free slot of whole machines; None for virtual machines and for clouds that
    show bookings only to their operators.

    Raises:
        UserError: the site does not have that many such machines.
    """
    options = work.options
    if options.virtual:
        return None
    hosts = work.if_allowed("looking for free machines", work.cloud.hosts)
    bookings = work.if_allowed("looking for free machines", work.cloud.bookings)
    if hosts is None or bookings is None:
        return None
    bookings = [
        replace(each, start_s=each.start_s - GAP_S, end_s=each.end_s + GAP_S) for each in bookings
    ]
    needs = [HostsNeeded(options.filter_of(ask.groups[0]), ask.wanted.amount) for ask in asks]
    slot = next_slot(needs, hosts, bookings, now_s=work.now(), seconds=options.lease_s)
    if slot.start_s is not None:
        return slot
    for ask, fitting in zip(asks, slot.fitting, strict=True):
        if fitting < ask.wanted.amount:
            raise UserError(
                f"{options.site} has {fitting} machines that fit {ask.wanted.properties}, and "
                f"{' and '.join(ask.groups)} need {ask.wanted.amount}",
                do="take fewer, or another node_type or filters",
            )
    raise UserError(
        f"{options.site} has not enough machines for all groups at once: they are wanted by "
        "several groups",
        do="take fewer, or other types",
    )


# -- finding ------------------------------------------------------------------------------------


def lease_name(work: Work) -> str:
    """Return the name of the lease that Hotbed makes; the testbed's tag is in it."""
    name = work.options.lease.name
    return f"{name[: NAME_LENGTH - 1 - len(work.tag)]}-{work.tag}" if name else work.base


def my_leases(work: Work) -> tuple[list[BlazarLease], list[BlazarLease]]:
    """Return this user's leases in this project: those made for the testbed, by tag or journalled
    id, and those that a person made under the name in ``lease.name``.

    Raises:
        UserError: an earlier version of Hotbed, which gave leases no tag, may have made a lease.
    """
    who, made = work.identity(), work.made_ids("lease")
    ours, named = [], []
    for lease in work.ask("looking for the lease", work.cloud.leases):
        if (lease.user_id, lease.project_id) != (who.user_id, who.project_id):
            continue
        if lease.id in made:
            ours.append(lease)
        elif lease.name == lease_name(work):
            work.made("lease", lease.name, lease.id, late=True)  # its answer got lost
            ours.append(lease)
        elif lease.name == work.options.lease.name:
            named.append(lease)
    _refuse_unclear(work, named)
    return ours, named


def _refuse_unclear(work: Work, named: Sequence[BlazarLease]) -> None:
    lines = [line for line in work.lines("lease") if line.get("name") == work.options.lease.name]
    counts = {"ask": 1, "made": -1, "refused": -1}
    found = {line.get("id") for line in lines}
    unclear = [each for each in named if each.id not in found and each.status in LIVE]
    if unclear and sum(counts.get(line["entry"], 0) for line in lines) > 0:
        raise UserError(
            f"an earlier version of Hotbed asked for a lease {unclear[0].name!r} for testbed "
            f"{work.record.name!r} and got no answer, and lease {unclear[0].id} has this name",
            do="delete it if Hotbed made it, rename it if you made it, and repeat the command",
        )


def find_lease(work: Work) -> BlazarLease | None:
    """Return the lease that serves the testbed now or later; end doubles of lost answers.

    Raises:
        UserError: a person has several leases of the name; see also `my_leases`.
    """

    def serve(leases: Sequence[BlazarLease]) -> list[BlazarLease]:
        live = [each for each in leases if each.status in LIVE and each.end_s > work.now()]
        return sorted(live, key=lambda each: (each.id != known, each.start_s, each.id))

    known = (work.record.data.get("lease") or {}).get("id")
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

    def end(lease: BlazarLease) -> None:
        try:
            work.cloud.delete_lease(lease.id)
        except CloudError as error:
            # One that is over holds nothing, and some clouds refuse to delete it.
            if lease.status != "TERMINATED" or error.fault is Fault.PASSING:
                raise

    for lease in my_leases(work)[0]:
        work.ask("ending the lease", lambda lease=lease: end(lease))  # type: ignore[misc]


def unanswered(work: Work) -> list[float]:
    """Return the times of lost answers to which a lease may still appear.

    Blazar takes requests in turn, so an answered request settles all earlier ones.
    """
    waiting: list[float] = []
    for line in work.lines("lease"):
        if line["entry"] == "ask":
            waiting.append(line.get("at_s") or 0.0)
        elif line["entry"] in ("made", "refused"):
            waiting = waiting[1:] if line.get("late") else []
    return [asked_s for asked_s in waiting if asked_s + LATE_S > work.now()]


# -- making -------------------------------------------------------------------------------------


def hold_lease(work: Work, asks: Sequence[ReservationRequest]) -> BlazarLease:
    """Return the testbed's active lease: the existing one, or a new one.

    Raises:
        UserError: two leases have the name, or the lease lacks a reservation.
        SiteError: not enough is free, the lease starts later, or Blazar could not start it.
    """
    lease = find_lease(work)
    if lease is None:
        broken = [each for each in my_leases(work)[0] if each.status == "ERROR"]
        if broken:
            raise _broken(work, broken)
    known = (work.record.data.get("lease") or {}).get("id")
    if (lease is None or lease.id != known) and work.lines("server"):
        # Servers of an ended lease look alive until Blazar has removed them.
        remove_servers(work, 0.02, 0.05)
    if lease is None:
        lease = _new_lease(work, asks)
    match_reservations(lease, asks)
    remember(work, lease)
    lease = _wait(work, lease)
    find_lease(work)  # ends a double that appeared in the meantime
    return lease


def remember(work: Work, lease: BlazarLease) -> None:
    """Record the lease."""
    fields = {name: getattr(lease, name) for name in ("id", "name", "status", "start_s", "end_s")}
    work.record.data["lease"] = fields
    work.record.save()


def _new_lease(work: Work, asks: Sequence[ReservationRequest]) -> BlazarLease:
    if work.options.virtual and work.options.lease.start == "next-free":
        return _next_free(work, asks)
    return _ask(work, asks, _start(work, look_for_slot(work, asks)))


def _next_free(work: Work, asks: Sequence[ReservationRequest]) -> BlazarLease:
    """Try one start after another: Blazar does not show how many virtual machines are free, but
    refuses at once, and keeps no lease, if they are too few."""
    starts: list[float | None] = [None]
    refused: SiteError | None = None
    for start in starts:
        try:
            return _ask(work, asks, start)
        except SiteError as error:
            if fault_under(error) is not Fault.FULL:
                raise
            if refused is None:
                refused = error
                starts += _later_starts(work)
    assert refused is not None
    last = starts[-1]
    if last is None:
        raise refused
    raise SiteError(
        f"{refused}; nor is enough free at {len(starts) - 1} later times, the last of them "
        f"{when(last)}: take fewer or smaller machines, fewer lease.hours, or give a time as "
        "lease.start",
        retry_after_s=PASSING_S,
    ) from refused


def _later_starts(work: Work) -> list[float]:
    """Return starts to try for virtual machines: ends of bookings, first all, then ever fewer, and
    the last; if bookings are unknown, 1, 2, 4 ... hours from now."""
    now = work.now()
    bookings = work.if_allowed("looking for free machines", work.cloud.bookings)
    if bookings is None:
        return [_ceil_minute(now + 2**place * HOUR_S) for place in range(BLIND_TRIALS)]
    ends = sorted({_ceil_minute(each.end_s + GAP_S) for each in bookings if each.end_s > now})
    places: list[int] = []
    place = 0
    while place < len(ends) and len(places) < TRIALS:
        places.append(place)
        place += max(1, place // 2)
    return [ends[each] for each in sorted({*places, len(ends) - 1} if ends else ())]


def _ask(work: Work, asks: Sequence[ReservationRequest], start: float | None) -> BlazarLease:
    """Make a lease from `start`; None means now."""
    first = work.now() if start is None else start
    # Blazar counts from the beginning of the minute by its own clock.
    latest = _floor_minute(first - SKEW_S) + work.options.longest_hours * HOUR_S
    end = min(_ceil_minute(first + work.options.lease_s), latest)
    name, wanted = lease_name(work), [ask.wanted for ask in asks]
    try:
        return work.ensure(
            "lease",
            name,
            lambda: find_lease(work),
            lambda: work.cloud.create_lease(name, start, end, wanted),
            lambda lease: lease.id,
        )
    except SiteError as error:
        cause = error.__cause__
        if isinstance(cause, CloudError) and cause.fault is Fault.FULL:
            raise _full(work, asks, cause) from cause
        raise


def _start(work: Work, slot: Slot | None) -> float | None:
    """Return the start of the lease; None means now."""
    asked = work.options.lease.start_s
    if asked is not None:
        if asked + work.options.lease_s <= work.now():
            raise UserError(
                f"site.options.lease.start: {when(asked)} and the "
                f"{work.options.lease.hours:g} h of the lease after it are over",
                do="give a later time, or `now`",
            )
        return asked if asked > work.now() + MINUTE_S else None
    if slot is None or slot.start_s is None or slot.start_s <= work.now():
        return None
    if work.options.lease.start == "next-free":
        return _ceil_minute(slot.start_s)
    counts = zip(slot.free_now, slot.fitting, strict=True)
    raise SiteError(
        f"{work.options.site}: not enough machines are free now "
        f"({', '.join(f'{free} of {fitting}' for free, fitting in counts)}); all that are "
        f"needed are free for {work.options.lease.hours:g} h from {when(slot.start_s)}: wait, or "
        "say lease.start: next-free to lease them from then on",
        retry_after_s=slot.start_s - work.now(),
    )


def _full(work: Work, asks: Sequence[ReservationRequest], cause: CloudError) -> SiteError:
    """Return the error for machines that seemed free and that Blazar refuses to reserve."""
    refused = f"{work.options.site}: Blazar could not reserve it: {plain(cause)}"
    slot = look_for_slot(work, asks)
    if slot is not None and slot.start_s is not None and slot.start_s > work.now():
        return SiteError(
            f"{refused}; all machines are free from {when(slot.start_s)}",
            retry_after_s=slot.start_s - work.now(),
        )
    hint = ""
    if work.options.virtual and work.options.lease.start == "now":
        hint = "; lease.start: next-free takes the first later time at which it is free"
    return SiteError(f"{refused}{hint}", retry_after_s=PASSING_S)


def _wait(work: Work, lease: BlazarLease) -> BlazarLease:
    """Wait until the lease is active."""
    site, patience = work.options.site, work.options.patience.lease_s
    for waited in work.polls(patience):
        now = work.ask("waiting for the lease", lambda: work.cloud.lease(lease.id))
        if now is None:
            raise SiteError(
                f"{site}: lease {lease.name!r} ({lease.id}) was deleted by somebody",
                retry_after_s=PASSING_S,
            )
        if now.status == "ACTIVE":
            remember(work, now)
            return now
        if now.status == "ERROR":
            raise _broken(work, [now])
        to_start = now.start_s - work.now()
        if to_start > patience:
            raise SiteError(
                f"{site}: lease {lease.name!r} starts at {when(now.start_s)}, in "
                f"{left(to_start)}: `hotbed up` again then resumes",
                retry_after_s=to_start,
            )
        hint = f", starts in {left(to_start)}" if to_start > 0 else ""
        work.progress(f"lease is {now.status.lower()}{hint}", 0.05 + 0.1 * waited / patience)
    raise SiteError(
        f"{site}: lease {lease.name!r} is not active after {left(patience)}: `hotbed up` again "
        "resumes waiting",
        retry_after_s=PASSING_S,
    )


def _broken(work: Work, leases: Sequence[BlazarLease]) -> SiteError:
    """Delete leases in ERROR that Hotbed made, so that the next try makes a new one."""
    said = "; ".join(broken_words(work, lease) for lease in leases)
    made = work.made_ids("lease")
    for lease in leases:
        if lease.id in made:
            _delete(work, lease)
            work.record.data.pop("lease", None)
            work.record.save()
    return SiteError(f"{work.options.site}: {said}", retry_after_s=PASSING_S)


def broken_words(work: Work, lease: BlazarLease) -> str:
    """Explain a lease in ERROR in Blazar's words; prolonging may break a lease that ran."""
    known = work.record.data.get("lease") or {}
    ran = known.get("id") == lease.id and known.get("status") == "ACTIVE"
    which, said = f"lease {lease.name!r} ({lease.id})", lease.reason or "it gives no reason"
    if ran and "start_lease" not in said:
        return f"{which} had started, and Blazar broke it off (ERROR): {said}"
    return f"Blazar could not start {which}: {said}"


# -- prolonging ---------------------------------------------------------------------------------


def prolong(work: Work, lease: BlazarLease, seconds: float) -> BlazarLease:
    """Move the lease's end by `seconds`, within the policy and the spec's limit.

    Raises:
        UserError: the spec or the policy never allows it.
        SiteError: not yet, or somebody else has the machines then.
    """
    options, now = work.options, work.now()
    end = _ceil_minute(lease.end_s + seconds)
    if options.lease.prolong is not None:
        upto = lease.start_s + options.lease.prolong.upto_hours * HOUR_S
        if end > upto + MINUTE_S:
            raise UserError(
                f"lease {lease.name!r}: lease.prolong.upto_hours is "
                f"{options.lease.prolong.upto_hours:g}, so it ends at {when(upto)} at the "
                "latest"
            )
    if lease.status != "ACTIVE":
        raise SiteError(
            f"lease {lease.name!r} is {lease.status}: only an active one can be prolonged",
            retry_after_s=max(lease.start_s - now, PASSING_S),
        )
    opens = lease.end_s - PROLONG_WINDOW_S
    if not options.virtual and now < opens:
        raise SiteError(
            f"lease {lease.name!r} can be prolonged within 48 h of its end, from {when(opens)} on",
            retry_after_s=opens - now,
        )
    latest = now + options.longest_hours * HOUR_S
    if end > latest:
        raise UserError(
            f"lease {lease.name!r}: {options.site} lets it end at {when(latest)} at the "
            f"latest, {options.longest_hours:g} h from now; asked for was {when(end)}"
        )
    work.record.journal("ask", what="prolonging", name=lease.name, end_s=end)
    try:
        prolonged = work.cloud.prolong_lease(lease.id, end)
    except CloudError as error:
        prolonged = _after_failed_prolonging(work, lease, end, error)
    remember(work, prolonged)
    return prolonged


def _after_failed_prolonging(
    work: Work, lease: BlazarLease, end: float, error: CloudError
) -> BlazarLease:
    """Return the lease if only the answer got lost, else raise the error."""
    if error.fault is Fault.PASSING:
        now = work.ask("looking for the lease", lambda: work.cloud.lease(lease.id))
        if now is not None and now.status == "ERROR":
            raise SiteError(
                f"{work.options.site}: {broken_words(work, now)}: `hotbed up` removes it"
            ) from error
        if now is not None and now.end_s >= end - MINUTE_S:
            return now
    if error.fault is Fault.FULL:
        # No time to retry after: the other reservation stays.
        raise SiteError(
            f"{work.options.site}: prolonging the lease: not enough is free until {when(end)} "
            f"({plain(error)}): ask for less"
        ) from error
    raise explain(error, "prolonging the lease", work.options.site) from error


def _ceil_minute(seconds: float) -> float:
    return math.ceil(seconds / MINUTE_S) * MINUTE_S


def _floor_minute(seconds: float) -> float:
    return math.floor(seconds / MINUTE_S) * MINUTE_S
