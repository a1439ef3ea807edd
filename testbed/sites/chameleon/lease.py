"""The lease of a testbed: found or asked for, waited for, prolonged.

A lease is found by its name and its owner. python-chi's own `Lease` is not used: its `wait` returns
on ERROR, its `submit` drops Blazar's words and takes any lease of the name, and it cannot prolong.
Whose a lease is, `testbed.sites.chameleon.whose` knows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from schemas.errors import UserError
from testbed.sites.chameleon.asks import Ask, match_reservations
from testbed.sites.chameleon.cloud import LIVE, CloudError, Fault, Lease
from testbed.sites.chameleon.errors import PASSING_S, explain, when
from testbed.sites.chameleon.options import HOUR_S
from testbed.sites.chameleon.owner import belongs_to
from testbed.sites.chameleon.servers import remove_servers
from testbed.sites.chameleon.slots import Need, Slot, next_slot
from testbed.sites.chameleon.whose import is_ours, lease_name, open_askings, settle
from testbed.sites.chameleon.work import POLL_S, SKEW_S, Work, left
from testbed.sites.contract import SiteError

MINUTE_S = 60.0
GAP_S = MINUTE_S
"""Between two leases of a host: to Blazar one that starts as another ends overlaps it."""
ASKINGS, UNTOLD_ASKINGS = 12, 9
"""How many later times virtual machines are asked for at, besides the last end of a reservation."""
PROLONG_WINDOW_S = 48 * HOUR_S
"""A lease of whole machines can be prolonged within this time before its end (Chameleon's policy),
by up to `Options.longest_hours` from the moment of asking."""


def look_for_slot(work: Work, asks: Sequence[Ask]) -> Slot | None:
    """When the machines are free together; None where that is not told: of virtual machines, and
    on clouds that keep it to their operators.

    Raises:
        UserError: the site does not have that many such machines.
    """
    if work.options.virtual:
        return None
    options = work.options
    hosts = work.if_allowed("looking for free machines", work.cloud.hosts)
    bookings = work.if_allowed("looking for free machines", work.cloud.bookings)
    if hosts is None or bookings is None:
        return None
    bookings = [
        replace(each, start_s=each.start_s - GAP_S, end_s=each.end_s + GAP_S) for each in bookings
    ]
    filters = [options.filter_of(ask.groups[0]) for ask in asks]
    needs = [Need(each, ask.wanted.amount) for each, ask in zip(filters, asks, strict=True)]
    slot = next_slot(needs, hosts, bookings, now_s=work.now(), seconds=options.lease_s)
    if slot.start_s is None:
        for ask, fitting in zip(asks, slot.fitting, strict=True):
            if fitting < ask.wanted.amount:
                raise UserError(
                    f"{options.site} has {fitting} machines that fit {ask.wanted.properties}, and "
                    f"{' and '.join(ask.groups)} need {ask.wanted.amount}: take fewer, or another "
                    "node_type or filters."
                )
        raise UserError(
            f"{options.site} has not enough machines for all groups at once: they are wanted by "
            "several groups; take fewer, or other types."
        )
    return slot


def hold_lease(work: Work, asks: Sequence[Ask]) -> Lease:
    """The testbed's active lease: the one there is, or a new one.

    Raises:
        UserError: two leases of the name, or one that does not hold what is needed.
        SiteError: not enough is free, or it starts later, or Blazar could not start it.
    """
    lease, broken = _found(work)
    if lease is None and broken:
        raise _broken(work, broken)
    known = (work.record.data.get("lease") or {}).get("id")
    if (lease is None or lease.id != known) and work.journalled("ask", "server"):
        # Those of a lease that is over look alive until Blazar has removed them.
        remove_servers(work, 0.02, 0.05)
    if lease is None:
        lease = _new_lease(work, asks)
    match_reservations(lease, asks)
    remember(work, lease)
    lease = _wait(work, lease)
    if open_askings(work):
        find_lease(work)  # another may have come to light meanwhile, which this removes
    return lease


def find_lease(work: Work) -> Lease | None:
    """The lease of our name that serves or will, of this owner.

    Raises:
        UserError: there is more than one, and it is not known which was meant.
    """
    return _found(work)[0]


def _found(work: Work) -> tuple[Lease | None, list[Lease]]:
    """See `find_lease`; and leases in ERROR that are ours, which keep others from the machines."""
    identity = work.ask("asking who we are", work.cloud.identity)
    named = [
        lease
        for lease in work.ask("looking for the lease", work.cloud.leases)
        if lease.name == lease_name(work) and belongs_to(lease, identity)
    ]
    settle(work, named)
    leases = [each for each in named if each.status in LIVE and each.end_s > work.now()]
    broken = [each for each in named if each.status == "ERROR" and is_ours(work, each)]
    known = (work.record.data.get("lease") or {}).get("id")
    if all(is_ours(work, lease) for lease in leases):
        # More than one are of answers that came too late.
        leases.sort(key=lambda lease: (lease.id != known, lease.start_s, lease.id))
        for extra in leases[1:]:
            _delete(work, extra.id)
        return (leases[0] if leases else None), broken
    chosen = [lease for lease in leases if lease.id == known] or leases
    if len(chosen) > 1:
        raise UserError(
            f"{work.options.site}: you have {len(chosen)} leases called {lease_name(work)!r} "
            f"({', '.join(sorted(lease.id for lease in chosen))}): delete one or give lease.name "
            "another name."
        )
    return (chosen[0] if chosen else None), broken


def _delete(work: Work, lease_id: str) -> None:
    work.ask("removing a lease", lambda: work.cloud.delete_lease(lease_id))


def remember(work: Work, lease: Lease) -> None:
    """Keep what is known of the lease."""
    work.record.data["lease"] = {
        "id": lease.id,
        "name": lease.name,
        "status": lease.status,
        "start_s": lease.start_s,
        "end_s": lease.end_s,
        "ours": is_ours(work, lease),
    }
    work.record.save()


def _new_lease(work: Work, asks: Sequence[Ask]) -> Lease:
    if work.options.virtual and work.options.lease.start == "next-free":
        return _next_free(work, asks)
    return _ask(work, asks, _start(work, look_for_slot(work, asks)))


def _next_free(work: Work, asks: Sequence[Ask]) -> Lease:
    """Of virtual machines nobody is told how many are free, but Blazar says at once when they are
    too few, and keeps no lease of such an asking: it is asked for one time after the other."""
    try:
        return _ask(work, asks, None)
    except SiteError as error:
        if not _is_full(error):
            raise
        refused = error
    starts = _later_starts(work)
    for start in starts:
        try:
            return _ask(work, asks, start)
        except SiteError as error:
            if not _is_full(error):
                raise
    if not starts:
        raise refused
    raise SiteError(
        f"{refused}; nor is enough free at {len(starts)} later times, the last of them "
        f"{when(starts[-1])}: take fewer or smaller machines, fewer lease.hours, or give a time as "
        "lease.start",
        retry_after_s=PASSING_S,
    ) from refused


def _later_starts(work: Work) -> list[float]:
    """When to ask for virtual machines: as reservations end, which is when some become free. All of
    the first ends, then fewer and fewer, and the last; where ends are not told, 1, 2, 4 ... hours
    from now."""
    now = work.now()
    bookings = work.if_allowed("looking for free machines", work.cloud.bookings)
    if bookings is None:
        return [_ceil_minute(now + 2**place * HOUR_S) for place in range(UNTOLD_ASKINGS)]
    ends = sorted({_ceil_minute(each.end_s + GAP_S) for each in bookings if each.end_s > now})
    places: list[int] = []
    place = 0
    while place < len(ends) and len(places) < ASKINGS:
        places.append(place)
        place += max(1, place // 2)
    return [ends[each] for each in sorted({*places, len(ends) - 1} if ends else ())]


def _ask(work: Work, asks: Sequence[Ask], start: float | None) -> Lease:
    """A lease from `start` on; None: from now on."""
    first = work.now() if start is None else start
    # Blazar counts from the beginning of the minute by its own clock.
    latest = _floor_minute(first - SKEW_S) + work.options.longest_hours * HOUR_S
    end = min(_ceil_minute(first + work.options.lease_s), latest)
    wanted = [ask.wanted for ask in asks]
    try:
        return work.ensure(
            "lease",
            lease_name(work),
            lambda: find_lease(work),
            lambda: work.cloud.create_lease(lease_name(work), start, end, wanted),
            lambda lease: lease.id,
        )
    except SiteError as error:
        cause = error.__cause__
        if isinstance(cause, CloudError) and _is_full(error):
            raise _full(work, asks, cause) from cause
        raise


def _is_full(error: SiteError) -> bool:
    """Did Blazar have too few machines?"""
    cause = error.__cause__
    return isinstance(cause, CloudError) and cause.fault is Fault.FULL


def _start(work: Work, slot: Slot | None) -> float | None:
    """When to let the lease start; None: now."""
    asked = work.options.lease.start_s
    if asked is not None:
        if asked + work.options.lease_s <= work.now():
            raise UserError(
                f"site.options.lease.start: {when(asked)} and the {work.options.lease.hours:g} h "
                "of the lease after it are over: give a later time, or `now`."
            )
        return asked if asked > work.now() + MINUTE_S else None
    if slot is None or slot.start_s is None or slot.start_s <= work.now():
        return None
    if work.options.lease.start == "next-free":
        return _ceil_minute(slot.start_s)
    raise SiteError(
        f"{work.options.site}: not enough machines are free now ({_counts(slot)}); all that are "
        f"needed are free for {work.options.lease.hours:g} h from {when(slot.start_s)}: wait, or "
        "say lease.start: next-free to lease them from then on",
        retry_after_s=slot.start_s - work.now(),
    )


def _counts(slot: Slot) -> str:
    pairs = zip(slot.free_now, slot.fitting, strict=True)
    return ", ".join(f"{free} of {all_of}" for free, all_of in pairs)


def _full(work: Work, asks: Sequence[Ask], cause: CloudError) -> SiteError:
    """Blazar found too few although some seemed free: say when there are more, if we can."""
    said = " ".join(str(cause).split()).rstrip(".")
    slot = look_for_slot(work, asks)
    later = slot is not None and slot.start_s is not None and slot.start_s > work.now()
    if slot is None or slot.start_s is None or not later:
        hint = ""
        if work.options.virtual and work.options.lease.start == "now":
            hint = "; lease.start: next-free takes the first later time at which it is free"
        return SiteError(
            f"{work.options.site}: Blazar could not reserve it: {said}{hint}",
            retry_after_s=PASSING_S,
        )
    return SiteError(
        f"{work.options.site}: Blazar could not reserve it: {said}; all machines are free from "
        f"{when(slot.start_s)}",
        retry_after_s=slot.start_s - work.now(),
    )


def _wait(work: Work, lease: Lease) -> Lease:
    """Until it is active."""
    patience = work.options.patience.lease_s
    begun = work.clock.monotonic()
    while lease.status != "ACTIVE":
        if lease.status == "ERROR":
            raise _broken(work, [lease])
        to_start = lease.start_s - work.now()
        if to_start > patience:
            raise SiteError(
                f"{work.options.site}: lease {lease.name!r} starts at {when(lease.start_s)}, in "
                f"{left(to_start)}: `hotbed up` again then goes on",
                retry_after_s=to_start,
            )
        waited = work.clock.monotonic() - begun
        if waited > patience:
            raise SiteError(
                f"{work.options.site}: lease {lease.name!r} is still {lease.status} after "
                f"{left(waited)}: `hotbed up` again goes on waiting",
                retry_after_s=PASSING_S,
            )
        hint = f", starts in {left(to_start)}" if to_start > 0 else ""
        work.progress(f"lease is {lease.status.lower()}{hint}", 0.05 + 0.1 * waited / patience)
        work.clock.sleep(POLL_S)
        lease = _look(work, lease)
    remember(work, lease)
    return lease


def _look(work: Work, lease: Lease) -> Lease:
    now = work.ask("waiting for the lease", lambda: work.cloud.lease(lease.id))
    if now is None:
        raise SiteError(
            f"{work.options.site}: lease {lease.name!r} ({lease.id}) was deleted by somebody",
            retry_after_s=PASSING_S,
        )
    return now


def _broken(work: Work, leases: Sequence[Lease]) -> SiteError:
    """Remove leases in ERROR that are ours, so that the next try makes a new one."""
    said = "; ".join(broken_words(work, lease) for lease in leases)
    for lease in leases:
        if is_ours(work, lease):
            _delete(work, lease.id)
            work.record.data.pop("lease", None)
            work.record.save()
    return SiteError(f"{work.options.site}: {said}", retry_after_s=PASSING_S)


def broken_words(work: Work, lease: Lease) -> str:
    """What became of a lease in ERROR, in Blazar's words: prolonging may break one that ran."""
    known = work.record.data.get("lease") or {}
    ran = known.get("id") == lease.id and known.get("status") == "ACTIVE"
    which, said = f"lease {lease.name!r} ({lease.id})", lease.reason or "it gives no reason"
    if ran and "start_lease" not in said:
        return f"{which} had started, and Blazar broke it off (ERROR): {said}"
    return f"Blazar could not start {which}: {said}"


def prolong(work: Work, lease: Lease, seconds: float) -> Lease:
    """Move the lease's end by `seconds`, as far as the policy and the spec let it.

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
                f"{options.lease.prolong.upto_hours:g}, so it ends at {when(upto)} at the latest."
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
            f"lease {lease.name!r}: {options.site} lets it end at {when(latest)} at the latest, "
            f"{options.longest_hours:g} h from now; asked for was {when(end)}."
        )
    work.record.journal("ask", what="prolonging", name=lease.name, end_s=end)
    try:
        prolonged = work.cloud.prolong_lease(lease.id, end)
    except CloudError as error:
        prolonged = _after_lost_answer(work, lease, end, error)
    remember(work, prolonged)
    return prolonged


def _after_lost_answer(work: Work, lease: Lease, end: float, error: CloudError) -> Lease:
    """An answer that got lost may have been a yes."""
    if error.fault is Fault.PASSING:
        now = work.ask("looking for the lease", lambda: work.cloud.lease(lease.id))
        if now is not None and now.status == "ERROR":
            raise SiteError(
                f"{work.options.site}: {broken_words(work, now)}: `hotbed up` removes it"
            ) from error
        if now is not None and now.end_s >= end - MINUTE_S:
            return now
    if error.fault is Fault.FULL:
        # Whoever has the machines then keeps them: no use in trying the same again.
        said = " ".join(str(error).split()).rstrip(".")
        raise SiteError(
            f"{work.options.site}: prolonging the lease: not enough is free until {when(end)} "
            f"({said}): ask for less"
        ) from error
    raise explain(error, "prolonging the lease", work.options.site) from error


def _ceil_minute(seconds: float) -> float:
    return math.ceil(seconds / MINUTE_S) * MINUTE_S


def _floor_minute(seconds: float) -> float:
    return math.floor(seconds / MINUTE_S) * MINUTE_S
