"""When enough hosts are free together: the next free time slot of a whole testbed.

python-chi tells it of one node (`Node.next_free_timeslot`), and with Blazar's own client not at
all, for it asks for a call of Chameleon's fork. A testbed needs several hosts at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.sites.chameleon.cloud import Booking, Host
from testbed.sites.chameleon.filters import Filter, holds


@dataclass(frozen=True)
class Need:
    """`amount` hosts that pass `filter`."""

    filter: Filter
    amount: int


@dataclass(frozen=True)
class Slot:
    """From when on all needed hosts are free for the whole time; None: never. `fitting` are hosts
    that pass, of each need, free or not."""

    start_s: float | None
    fitting: tuple[int, ...]
    free_now: tuple[int, ...]


def next_slot(
    needs: Sequence[Need],
    hosts: Sequence[Host],
    bookings: Sequence[Booking],
    *,
    now_s: float,
    seconds: float,
) -> Slot:
    """The first time from `now_s` on at which every need has its hosts for `seconds`.

    A host that passes the filters of several needs is counted for one of them only (augmenting
    paths of a bipartite matching), and hosts that cannot be reserved for none.
    """
    usable = [host for host in hosts if host.reservable]
    busy: dict[str, list[Booking]] = {host.id: [] for host in usable}
    for booking in bookings:
        if booking.host_id in busy:
            busy[booking.host_id].append(booking)
    passing = [
        [host.id for host in usable if holds(need.filter, host.properties)] for need in needs
    ]
    fitting = tuple(len(ids) for ids in passing)
    now_free = _free(busy, now_s, seconds)
    free_now = tuple(sum(each in now_free for each in ids) for ids in passing)
    # Hosts become free at ends of bookings, and at no other time.
    starts = sorted({now_s, *(b.end_s for many in busy.values() for b in many if b.end_s > now_s)})
    for start in starts:
        free = _free(busy, start, seconds)
        if _enough(needs, [[each for each in ids if each in free] for ids in passing]):
            return Slot(start, fitting, free_now)
    return Slot(None, fitting, free_now)


def _free(busy: Mapping[str, Sequence[Booking]], start_s: float, seconds: float) -> set[str]:
    end_s = start_s + seconds
    return {
        host
        for host, bookings in busy.items()
        if all(booking.end_s <= start_s or booking.start_s >= end_s for booking in bookings)
    }


def _enough(needs: Sequence[Need], free: Sequence[Sequence[str]]) -> bool:
    """Can every need be given its hosts, no host twice?"""
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
