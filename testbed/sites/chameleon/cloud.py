"""What the site asks of OpenStack, and nothing more, in types of our own.

`chi_cloud.ChiCloud` says it by python-chi, Blazar's client and openstacksdk; tests say it in
memory. Calls are single requests that do not wait for what they start. Times are seconds since the
epoch by the cloud's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from schemas.errors import HotbedError

HOST = "physical:host"
FLAVOR = "flavor:instance"

LIVE = frozenset({"PENDING", "CREATING", "STARTING", "ACTIVE", "UPDATING"})
"""Statuses of a lease that has or will have machines (Blazar's state machine). ERROR is not among
them: such a lease never serves, and only waits for its deletion."""


class Fault(StrEnum):
    """What kind of answer a failed call was."""

    PASSING = "passing"  # 5xx, a time-out, a lost connection: it may have been done or not
    REFUSED = "refused"  # 4xx: it was not done, and asking again won't help
    CREDENTIALS = "credentials"  # 401, after a new token was tried
    QUOTA = "quota"
    FULL = "full"  # no hosts or flavors free in that time
    MISSING = "missing"  # 404


class CloudError(HotbedError):
    """A call failed; the message is what the service said. `fault` tells what may help."""

    def __init__(self, message: str, fault: Fault, *, status: int | None = None) -> None:
        super().__init__(message)
        self.fault, self.status = fault, status


@dataclass(frozen=True)
class Identity:
    """Who asks; the names are for people."""

    user_id: str
    project_id: str
    user_name: str = ""
    project_name: str = ""


@dataclass(frozen=True)
class Host:
    """A machine that can be reserved. `name` is its uid; `properties` what filters speak about."""

    id: str
    name: str
    reservable: bool
    properties: Mapping[str, str]

    @property
    def node_type(self) -> str:
        """Such as ``compute_skylake``."""
        return self.properties.get("node_type", "")


@dataclass(frozen=True)
class Booking:
    """A time in which a host is reserved by somebody."""

    host_id: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Flavor:
    """A size of virtual machine."""

    id: str
    name: str
    cpus: int
    memory_bytes: int
    disk_bytes: int


@dataclass(frozen=True)
class Wanted:
    """A reservation to be: `amount` hosts that fit `properties` (JSON of Blazar's filter), or
    `amount` virtual machines of the flavor whose id is `flavor_id`."""

    kind: str
    amount: int
    properties: str = ""
    flavor_id: str = ""


@dataclass(frozen=True)
class Reservation:
    """A reservation of a lease."""

    id: str
    wanted: Wanted
    status: str


@dataclass(frozen=True)
class Lease:
    """A lease. `reason` is what Blazar says of an error, as far as it says anything; `made_s` when
    it came to be, by its clock, where that is told."""

    id: str
    name: str
    status: str
    start_s: float
    end_s: float
    user_id: str
    project_id: str
    reservations: tuple[Reservation, ...] = ()
    reason: str = ""
    made_s: float | None = None


@dataclass(frozen=True)
class NewServer:
    """A server to be. `reservation_id` is a scheduler hint (hosts); `user_data` is cloud-init's,
    not encoded."""

    name: str
    flavor_id: str
    image_id: str
    network_id: str
    keypair: str
    user_data: str
    reservation_id: str | None = None
    security_group: str | None = None


@dataclass(frozen=True)
class Server:
    """A server. `addresses` are its fixed IPv4 addresses; `host` the machine under it, where that
    is told; `fault` is Nova's text of an error."""

    id: str
    name: str
    status: str
    addresses: tuple[str, ...] = ()
    fault: str = ""
    host: str = ""


@dataclass(frozen=True)
class Rule:
    """What a security group lets in: TCP `port` from anywhere, or with `port` None everything
    from members of the group itself."""

    port: int | None


@dataclass(frozen=True)
class FloatingIp:
    """A public address. `port_id` is None while it leads nowhere."""

    id: str
    address: str
    description: str
    port_id: str | None = None


@dataclass(frozen=True)
class Named:
    """Something that has an id and a name (an image, a network, a security group)."""

    id: str
    name: str
    facts: Mapping[str, str] = field(default_factory=dict)


class Cloud(Protocol):
    """See the module. Every call raises CloudError; deleting what is not there is no error."""

    def identity(self) -> Identity:
        """Whose token it is."""

    def now(self) -> float:
        """The cloud's clock."""

    # -- hardware -------------------------------------------------------------------------------

    def hosts(self) -> Sequence[Host]:
        """Every host that Blazar knows."""

    def bookings(self) -> Sequence[Booking]:
        """Every reservation of every host, also other people's."""

    def flavors(self) -> Sequence[Flavor]:
        """Flavors that the project may use, those of its reservations included."""

    # -- leases ---------------------------------------------------------------------------------

    def leases(self) -> Sequence[Lease]:
        """The project's leases."""

    def lease(self, lease_id: str) -> Lease | None:
        """One lease; None when there is none."""

    def create_lease(
        self, name: str, start_s: float | None, end_s: float, wanted: Sequence[Wanted]
    ) -> Lease:
        """Ask for a lease; `start_s` None: from now on. Whole minutes only."""

    def prolong_lease(self, lease_id: str, end_s: float) -> Lease:
        """Move the lease's end."""

    def delete_lease(self, lease_id: str) -> None:
        """End it."""

    # -- what servers need ----------------------------------------------------------------------

    def images(self, name: str) -> Sequence[Named]:
        """Images of exactly this name."""

    def networks(self, name: str) -> Sequence[Named]:
        """Networks of exactly this name."""

    def keypairs(self) -> Sequence[str]:
        """Names of the user's key pairs."""

    def create_keypair(self, name: str, public_key: str) -> None:
        """Register a public key."""

    def delete_keypair(self, name: str) -> None:
        """Forget it."""

    def security_groups(self) -> Sequence[Named]:
        """The project's security groups."""

    def create_security_group(self, name: str) -> Named:
        """A new group, which lets nothing in."""

    def rules(self, group_id: str) -> Sequence[Rule]:
        """What the group lets in over IPv4 of what `Rule` can say."""

    def add_rule(self, group_id: str, rule: Rule) -> None:
        """Let something in, over IPv4."""

    def delete_security_group(self, group_id: str) -> None:
        """Remove it; refused while a server is in it."""

    # -- servers --------------------------------------------------------------------------------

    def servers(self, prefix: str) -> Sequence[Server]:
        """The project's servers whose names begin so, in one request."""

    def create_server(self, new: NewServer) -> Server:
        """Start one; may be called from several threads at once."""

    def delete_server(self, server_id: str) -> None:
        """Remove it."""

    # -- addresses ------------------------------------------------------------------------------

    def floating_ips(self) -> Sequence[FloatingIp]:
        """The project's floating IPs."""

    def create_floating_ip(self, description: str) -> FloatingIp:
        """A new one of the public network."""

    def attach_floating_ip(self, floating_ip_id: str, server_id: str) -> None:
        """Let it lead to the server's first port."""

    def delete_floating_ip(self, floating_ip_id: str) -> None:
        """Give it back."""
