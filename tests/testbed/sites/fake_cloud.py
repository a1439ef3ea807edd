"""In-memory OpenStack on a clock moved by the test: the calls of `testbed.sites.chameleon`, with
faults and process deaths at any call.

Whole machines are leased as hosts, virtual machines as flavors. Leases and servers take time. Every
created object stays until its deletion or the end of its lease.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from testbed.sites.chameleon.cloud import (
    BlazarLease,
    Booking,
    CallFault,
    Cloud,
    CloudError,
    NovaServer,
    Reservation,
    TokenIdentity,
)
from testbed.sites.chameleon.options import holds, read_filter
from testbed.sites.clock import Clock

ME = TokenIdentity("user-me", "project-mine", "me", "CHI-1")
NO_HOST = "No valid host was found."
"""Nova's message for a server that was never placed."""
LONGEST_S = 7 * 24 * 3600.0  # of a lease
FAULT = "Deploying failed."
"""Nova's message for a server that failed on its machine."""
FLAVORS = tuple(
    SimpleNamespace(id=key, name=name, vcpus=cpus, ram=gib * 1024, disk=disk)
    for key, name, cpus, gib, disk in (
        ("bm", "baremetal", 1, 1, 1),
        ("2", "m1.small", 1, 2, 20),
        ("3", "m1.medium", 2, 4, 40),
        ("4", "m1.large", 4, 8, 40),
    )
)


class Died(BaseException):
    """Death of the process; nothing catches it."""


@dataclass
class _Server:
    server: NovaServer
    ready_s: float
    outcome: str
    reservation: str
    group: str | None
    gone_s: float | None = None

    @property
    def placed(self) -> bool:
        """True if the server has a machine, or had one when it failed."""
        return self.server.fault != NO_HOST


Trip = Callable[[int, str, str], None]
"""Function called with a call's number, its name, and ``before`` or ``after`` its effect."""


def _recorded(method: Callable[..., Any]) -> Callable[..., Any]:
    name = method.__name__

    @functools.wraps(method)
    def recorded(self: FakeCloud, *given: Any, **more: Any) -> Any:
        with self._lock:
            number = next(self._asked)
            self.calls.append(name)
            self.trip(number, name, "before")
            self._pass_time()
            found = method(self, *given, **more)
            self.trip(number, name, "after")
            return found

    return recorded


def recording(kind: type[FakeCloud]) -> type[FakeCloud]:
    """Record every call of the cloud, and let `trip` end it before or after its effect."""
    for name in (each for each in vars(Cloud) if not each.startswith("_")):
        setattr(kind, name, _recorded(getattr(kind, name)))
    return kind


def hosts(counts: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the given number of hosts of each node type."""
    return [
        {"id": f"{kind}-{number}", "uid": f"uid-{kind}-{number}", "node_type": kind}
        for kind, count in counts.items()
        for number in range(count)
    ]


@recording
@dataclass
class FakeCloud:
    """See `Cloud`, and the module."""

    clock: Clock
    machines: list[dict[str, Any]] = field(default_factory=lambda: hosts({"compute_skylake": 12}))
    lease_s: float = 20.0  # time until a lease that starts now is active
    build_s: float = 60.0  # time until a server is active
    delete_s: float = 10.0
    linger_s: float = 0.0  # servers of an ended lease look alive for this time
    virtual: int = 1000  # number of virtual machines that fit together
    me: TokenIdentity = ME
    trip: Trip = lambda number, name, when: None
    calls: list[str] = field(default_factory=list)
    outcomes: dict[str, list[str]] = field(default_factory=dict)  # node -> status of each attempt
    others: list[Booking] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._leases: dict[str, BlazarLease] = {}
        self._hosts_of: dict[str, list[str]] = {}
        self._servers: dict[str, _Server] = {}
        self._ips: dict[str, SimpleNamespace] = {}
        self._groups: dict[str, str] = {}
        self._keypairs: dict[tuple[str, str], str] = {}  # (user, name) -> public key
        self._projects: dict[str, str] = {}  # by id of the object
        self._asked = itertools.count(1)
        self.made: list[str] = []

    def _id(self, kind: str) -> str:
        made = f"{kind}-{next(self._numbers)}"
        self.made.append(made)
        self._projects[made] = self.me.project_id
        return made

    def _mine(self, made: str) -> bool:
        """Return True if this project sees the object; objects added by tests belong to all."""
        return self._projects.get(made, self.me.project_id) == self.me.project_id

    def _pass_time(self) -> None:
        now = self.clock.now()
        for lease_id, lease in list(self._leases.items()):
            if lease.status == "PENDING" and now >= lease.start_s + self.lease_s:
                self._leases[lease_id] = replace(lease, status="ACTIVE")
            if self._leases[lease_id].status == "ACTIVE" and now >= lease.end_s:
                self._leases[lease_id] = replace(lease, status="TERMINATED")
                self._end_servers(lease)
        for server_id, kept in list(self._servers.items()):
            if kept.gone_s is not None and now >= kept.gone_s:
                del self._servers[server_id]
            elif kept.server.status == "BUILD" and now >= kept.ready_s:
                fault = kept.server.fault or ("" if kept.outcome == "ACTIVE" else FAULT)
                kept.server = replace(kept.server, status=kept.outcome, fault=fault)

    def _end_servers(self, lease: BlazarLease) -> None:
        """Remove a lease's servers, as Blazar does; a server never placed is not on the lease."""
        reservations = {each.id for each in lease.reservations}
        for server_id, kept in list(self._servers.items()):
            if kept.reservation in reservations and kept.server.status != "ERROR":
                kept.gone_s = kept.gone_s or self.clock.now() + self.linger_s
                if kept.gone_s <= self.clock.now():
                    del self._servers[server_id]

    # -- for the tests --------------------------------------------------------------------------

    def left(self) -> list[str]:
        """Return all of our objects that still exist."""
        self._pass_time()
        live = ("PENDING", "ACTIVE", "ERROR")
        return [
            *(f"lease {each.name}" for each in self._leases.values() if each.status in live),
            *(f"server {each.server.name}" for each in self._servers.values()),
            *(f"ip {each.description}" for each in self._ips.values()),
            *(f"group {name}" for name in self._groups.values()),
            *(f"keypair {name}" for _, name in self._keypairs),
        ]

    def live_leases(self) -> list[BlazarLease]:
        return [e for e in self._leases.values() if e.status in ("PENDING", "ACTIVE")]

    def all_servers(self) -> list[NovaServer]:
        self._pass_time()
        return [kept.server for kept in self._servers.values()]

    def add_lease(self, lease: BlazarLease) -> None:
        """Add a lease made manually by somebody."""
        self._leases[lease.id] = lease

    def end_lease(self, lease_id: str) -> None:
        """End a lease as if its time were over."""
        lease = self._leases[lease_id]
        self._leases[lease_id] = replace(lease, end_s=self.clock.now())
        self._pass_time()

    def lose_server(self, name: str) -> None:
        """Remove a server as if somebody had deleted it."""
        for server_id, kept in list(self._servers.items()):
            if kept.server.name == name:
                del self._servers[server_id]

    # -- Cloud ----------------------------------------------------------------------------------

    def identity(self) -> TokenIdentity:
        return self.me

    def hosts(self) -> Sequence[dict[str, Any]]:
        return list(self.machines)

    def bookings(self) -> Sequence[Booking]:
        return self._bookings()

    def _bookings(self) -> list[Booking]:
        # For Blazar, a lease in ERROR keeps its hosts until the lease is deleted.
        mine = [
            Booking(host, lease.start_s, lease.end_s)
            for lease in self._leases.values()
            if lease.status in ("PENDING", "ACTIVE", "ERROR")
            for reservation in lease.reservations
            for host in self._hosts_of.get(reservation.id, ())
        ]
        return [*self.others, *mine]

    def flavors(self) -> Sequence[SimpleNamespace]:
        of_leases = [
            SimpleNamespace(id=reservation.id, name=f"reservation:{reservation.id}")
            for lease in self.live_leases()
            for reservation in lease.reservations
        ]
        return [*FLAVORS, *of_leases]

    def leases(self) -> Sequence[BlazarLease]:
        return [e for e in self._leases.values() if e.project_id == self.me.project_id]

    def lease(self, lease_id: str) -> BlazarLease | None:
        lease = self._leases.get(lease_id)
        return lease if lease and lease.project_id == self.me.project_id else None

    def create_lease(
        self, name: str, start_s: float | None, end_s: float, wanted: Sequence[Reservation]
    ) -> BlazarLease:
        start = self.clock.now() if start_s is None else start_s
        if end_s <= start:
            raise CloudError("End date must be later than start date.", CallFault.REFUSED)
        # As in Blazar, "now" is the start of the current minute.
        if end_s - start // 60 * 60 > LONGEST_S:
            raise CloudError("Lease duration exceeds the maximum", CallFault.REFUSED, status=403)
        reservations = []
        taken: set[str] = set()
        for each in wanted:
            reservation = replace(each, id=self._id("reservation"), groups=())
            reservations.append(reservation)
            if not each.flavor_id:
                free = self._pick(each, start, end_s, taken)
                if len(free) < each.amount:
                    raise CloudError("Not enough hosts available", CallFault.FULL, status=500)
                taken |= set(free)
                self._hosts_of[reservation.id] = free
            elif self._virtual_taken(start, end_s) + each.amount > self.virtual:
                raise CloudError("Not enough hosts available", CallFault.FULL, status=500)
        made = BlazarLease(
            self._id("lease"),
            name,
            "PENDING",
            start,
            end_s,
            self.me.user_id,
            self.me.project_id,
            tuple(reservations),
        )
        self._leases[made.id] = made
        return made

    def _virtual_taken(self, start: float, end: float) -> int:
        """Return the taken virtual machines; each foreign booking takes one."""
        mine = [
            each.amount
            for lease in self.live_leases()
            for each in lease.reservations
            if each.flavor_id and lease.start_s <= end and lease.end_s >= start
        ]
        return sum(mine) + sum(b.start_s <= end and b.end_s >= start for b in self.others)

    def _pick(self, wanted: Reservation, start: float, end: float, taken: set[str]) -> list[str]:
        # As in Blazar, a lease that starts at the end of another lease overlaps it.
        booked = [b for b in self._bookings() if b.start_s <= end and b.end_s >= start]
        busy = {b.host_id for b in booked} | taken
        wish = read_filter(wanted.properties or ())
        fitting = [h["id"] for h in self.machines if h["id"] not in busy and holds(wish, h)]
        return fitting[: wanted.amount]

    def prolong_lease(self, lease_id: str, end_s: float) -> BlazarLease:
        lease = self._leases[lease_id]
        hosts = {h for r in lease.reservations for h in self._hosts_of.get(r.id, ())}
        for booking in self.others:
            if booking.host_id in hosts and lease.end_s <= booking.start_s < end_s:
                raise CloudError("Not enough hosts available", CallFault.FULL, status=500)
        self._leases[lease_id] = replace(lease, end_s=end_s)
        return self._leases[lease_id]

    def delete_lease(self, lease_id: str) -> None:
        lease = self._leases.pop(lease_id, None)
        if lease is not None:
            self._end_servers(lease)

    def images(self, name: str) -> Sequence[SimpleNamespace]:
        return [SimpleNamespace(id="image-1")] if name.startswith("CC-") else []

    def networks(self, name: str) -> Sequence[SimpleNamespace]:
        return [SimpleNamespace(id="network-1")] if name == "sharednet1" else []

    def keypairs(self) -> Sequence[str]:
        return [name for user, name in self._keypairs if user == self.me.user_id]

    def create_keypair(self, name: str, public_key: str) -> str:
        if (self.me.user_id, name) in self._keypairs:
            raise CloudError(f"Key pair '{name}' already exists.", CallFault.REFUSED, status=409)
        self._keypairs[self.me.user_id, name] = public_key
        return name

    def delete_keypair(self, name: str) -> None:
        self._keypairs.pop((self.me.user_id, name), None)

    def security_groups(self) -> Sequence[SimpleNamespace]:
        mine = {each: name for each, name in self._groups.items() if self._mine(each)}
        return [SimpleNamespace(id=each, name=name) for each, name in mine.items()]

    def create_security_group(self, name: str) -> SimpleNamespace:
        made = self._id("group")
        self._groups[made] = name
        return SimpleNamespace(id=made, name=name)

    def add_rule(self, group_id: str, **rule: object) -> None:
        assert group_id in self._groups

    def delete_security_group(self, group_id: str) -> None:
        if any(kept.group == self._groups.get(group_id) for kept in self._servers.values()):
            raise CloudError("Security Group in use.", CallFault.REFUSED, status=409)
        self._groups.pop(group_id, None)

    def servers(self, prefix: str) -> Sequence[NovaServer]:
        mine = [kept.server for each, kept in self._servers.items() if self._mine(each)]
        return [server for server in mine if server.name.startswith(prefix)]

    def create_server(self, body: Mapping[str, Any]) -> str:
        made = self._id("server")
        number = int(made.rpartition("-")[2])
        hints = body.get("scheduler_hints", {"reservation": body["flavor_id"]})
        reservation = hints["reservation"]
        node = body["name"].rpartition("-")[2]
        tries = self.outcomes.get(node, [])
        server = NovaServer(
            made,
            body["name"],
            "BUILD",
            (f"10.140.{number // 250}.{number % 250 + 1}",),
            host=self._host_for(reservation),
        )
        outcome = tries.pop(0) if tries else "ACTIVE"
        if not self._has_room(reservation):
            outcome, server = "ERROR", replace(server, host="", fault=NO_HOST)
        (group,) = body.get("security_groups", ({"name": None},))
        self._servers[made] = _Server(
            server, self.clock.now() + self.build_s, outcome, reservation, group["name"]
        )
        return made

    def _has_room(self, reservation: str) -> bool:
        """Return True if the reservation has a free place; a server keeps its place until gone."""
        amounts = {
            each.id: each.amount for lease in self._leases.values() for each in lease.reservations
        }
        placed = [e for e in self._servers.values() if e.reservation == reservation and e.placed]
        return len(placed) < amounts[reservation]

    def _host_for(self, reservation: str) -> str:
        used = {e.server.host for e in self._servers.values() if e.reservation == reservation}
        names = {host["id"]: host["uid"] for host in self.machines}
        there = [names[each] for each in self._hosts_of.get(reservation, ())]
        return next((name for name in there if name not in used), "")

    def delete_server(self, server_id: str) -> None:
        kept = self._servers.get(server_id)
        if kept is not None and kept.gone_s is None:
            kept.gone_s = self.clock.now() + self.delete_s

    def floating_ips(self) -> Sequence[SimpleNamespace]:
        return [ip for ip in self._ips.values() if self._mine(ip.id)]

    def create_floating_ip(self, description: str) -> SimpleNamespace:
        made = self._id("ip")
        address = f"192.0.2.{int(made.rpartition('-')[2]) % 250 + 1}"
        ip = SimpleNamespace(id=made, floating_ip_address=address, description=description)
        self._ips[made] = ip
        return ip

    def attach_floating_ip(self, floating_ip_id: str, server_id: str) -> None:
        assert floating_ip_id in self._ips and server_id in self._servers

    def delete_floating_ip(self, floating_ip_id: str) -> None:
        self._ips.pop(floating_ip_id, None)
