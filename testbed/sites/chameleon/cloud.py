"""Chameleon's OpenStack: the calls that the site makes, their types, errors and credentials.

`open_cloud` opens a session by python-chi; `Cloud` uses its clients of Blazar and openstacksdk.
Each call is one request, which does not wait for what it starts. Deleting a missing thing is no
error. Times are seconds since the epoch by the cloud's clock.

Classes and waits of python-chi and openstacksdk are not used: `chi.lease.Lease` drops Blazar's
reason for an error and its `wait` returns on ERROR; `wait_for_server` sends one request a server
each time, stops at the first failure and sleeps outside `Clock`.
"""

from __future__ import annotations

import base64
import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, TypeVar

from schemas.errors import HotbedError, UserError
from testbed.sites.contract import SiteError

T = TypeVar("T")

HOST = "physical:host"
FLAVOR = "flavor:instance"
LIVE = frozenset({"PENDING", "CREATING", "STARTING", "ACTIVE", "UPDATING"})
"""Statuses of a lease that has or will have machines. A lease in ERROR never serves again."""
PASSING_S = 60.0
"""Time in seconds after which to retry a fault that may pass."""
TIMEOUT_S = 60.0
"""Time-out of one request in seconds."""
PUBLIC_NETWORK = "public"
MIB, GIB = 2**20, 2**30


# -- errors -------------------------------------------------------------------------------------


class Fault(StrEnum):
    """Kind of a failed call."""

    PASSING = "passing"  # 5xx, a time-out, a lost connection: it may have taken effect or not
    REFUSED = "refused"  # 4xx: it had no effect, and a retry does not help
    CREDENTIALS = "credentials"  # 401, after a new token was tried
    QUOTA = "quota"
    FULL = "full"  # no hosts or flavors free in that time
    MISSING = "missing"  # 404


class CloudError(HotbedError):
    """A failed call with the service's own words."""

    def __init__(self, message: str, fault: Fault, *, status: int | None = None) -> None:
        super().__init__(message)
        self.fault, self.status = fault, status


class NoCredentials(UserError):
    """The environment holds no credentials."""


_WORDS = (
    # Blazar: "Not enough hosts available", "not enough resources available with query ..." (500).
    (re.compile(r"not enough .*available", re.IGNORECASE), Fault.FULL),
    # Nova and Neutron: "Quota exceeded for ...", "Quota exceeded for resources: ['floatingip']".
    (re.compile(r"quota.{0,40}exceed|exceed.{0,40}quota", re.IGNORECASE), Fault.QUOTA),
)
_PASSING = frozenset({None, 408, 425, 429, 500, 502, 503, 504})


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Raise CloudError for every error of OpenStack's libraries; also a decorator."""
    from blazarclient.exception import BlazarClientException
    from keystoneauth1.exceptions import ClientException, ConnectFailure, HttpError
    from openstack.exceptions import HttpException, SDKException
    from requests.exceptions import RequestException

    try:
        yield
    except BlazarClientException as error:
        raise _answered(str(error), error.kwargs.get("code")) from error
    except HttpException as error:
        details = getattr(error, "details", None)  # the service's words without the SDK's frame
        raise _answered(str(details or error), error.status_code) from error
    except HttpError as error:
        raise _answered(str(error.details or error), error.http_status) from error
    except (ClientException, SDKException, RequestException) as error:
        lost = (ConnectFailure, RequestException)
        cause = error if isinstance(error, lost) else error.__cause__ or error.__context__
        fault = Fault.PASSING if isinstance(cause, lost) else Fault.REFUSED
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CloudError(f"{doing}: {line}", fault) from error


def _answered(said: str, status: int | None) -> CloudError:
    """Classify by the service's words first: Blazar also answers 500 to a full site."""
    said = re.sub(r"^ERROR:\s*", "", " ".join(said.split()))
    by_status = {401: Fault.CREDENTIALS, 404: Fault.MISSING} | dict.fromkeys(
        _PASSING, Fault.PASSING
    )
    fault = fault_of(said) or by_status.get(status, Fault.REFUSED)
    return CloudError(said or f"status {status}", fault, status=status)


def fault_of(said: str) -> Fault | None:
    """Return the fault that a service's words name, None if they name none."""
    return next((fault for words, fault in _WORDS if words.search(said)), None)


def plain(error: Exception) -> str:
    """Return the error's words on one line, without a full stop."""
    return " ".join(str(error).split()).rstrip(".")


def explain(error: CloudError, doing: str, site: str) -> HotbedError:
    """Return the user's error for a call that failed while `doing` (such as "making a lease")."""
    said, where = plain(error), f"{site}: {doing}"
    if error.fault is Fault.CREDENTIALS:
        return UserError(
            f"Keystone refuses the credentials ({said}): load a fresh openrc file of {site} "
            "(OS_* variables), or open the JupyterHub session anew",
            where=where,
        )
    if error.fault is Fault.QUOTA:
        return SiteError(
            f"{where}: the project's quota is used up ({said}): free something of it, or ask "
            "Chameleon's help desk for more"
        )
    if error.fault is Fault.FULL:
        return SiteError(f"{where}: not enough is free ({said})", retry_after_s=PASSING_S)
    if error.fault is Fault.PASSING:
        hint = ""
        if error.status == 500 and "lease" in doing:
            hint = (
                "; if it stays so with an application credential, Keystone may refuse it the trust "
                "that Blazar needs: make one with the box 'unrestricted' ticked, or log in with a "
                "CLI password"
            )
        return SiteError(f"{where}: {said}{hint}", retry_after_s=PASSING_S)
    return SiteError(f"{where}: {said}")


# -- types --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenIdentity:
    """User and project of a token; the names are for people."""

    user_id: str
    project_id: str
    user_name: str = ""
    project_name: str = ""


@dataclass(frozen=True)
class BlazarHost:
    """A machine that can be reserved: `name` is its uid, filters compare `properties`."""

    id: str
    name: str
    reservable: bool
    properties: Mapping[str, str]

    @property
    def node_type(self) -> str:
        """Type of the machine, such as ``compute_skylake``."""
        return self.properties.get("node_type", "")


@dataclass(frozen=True)
class Booking:
    """Time in which a host is reserved by anyone."""

    host_id: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Flavor:
    """Size of virtual machines."""

    id: str
    name: str
    cpus: int
    memory_bytes: int
    disk_bytes: int


@dataclass(frozen=True)
class WantedReservation:
    """A reservation to make: `amount` hosts that pass `properties` (Blazar's filter as JSON), or
    `amount` virtual machines of the flavor `flavor_id`."""

    kind: str
    amount: int
    properties: str = ""
    flavor_id: str = ""


@dataclass(frozen=True)
class Reservation:
    """A reservation of a lease."""

    id: str
    wanted: WantedReservation
    status: str


@dataclass(frozen=True)
class BlazarLease:
    """A lease; `reason` is Blazar's explanation of ERROR, as far as it gives one."""

    id: str
    name: str
    status: str
    start_s: float
    end_s: float
    user_id: str
    project_id: str
    reservations: tuple[Reservation, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class NewServer:
    """A server to make. `reservation_id` is a scheduler hint (whole machines); `user_data` is
    cloud-init's, not encoded."""

    name: str
    flavor_id: str
    image_id: str
    network_id: str
    keypair: str
    user_data: str
    reservation_id: str | None = None
    security_group: str | None = None


@dataclass(frozen=True)
class NovaServer:
    """A server. `addresses` are fixed IPv4 addresses; `host` is the machine under it, if known;
    `fault` is Nova's text of an error."""

    id: str
    name: str
    status: str
    addresses: tuple[str, ...] = ()
    fault: str = ""
    host: str = ""


@dataclass(frozen=True)
class Rule:
    """Traffic that a security group lets in: TCP `port` from anywhere, or for `port` None
    everything from members of the group."""

    port: int | None


@dataclass(frozen=True)
class FloatingIp:
    """A public address; `port_id` is None while it is not attached."""

    id: str
    address: str
    description: str
    port_id: str | None = None


@dataclass(frozen=True)
class Named:
    """An image, a network or a security group."""

    id: str
    name: str


# -- answers of OpenStack -----------------------------------------------------------------------

_HOST_OWN = frozenset({"id", "reservable", "trust_id", "created_at", "updated_at"})


def _seconds(text: str) -> float:
    """Parse Blazar's times, ``2026-12-01T08:00:00.000000``, which are UTC without an offset."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _minutes(seconds: float) -> str:
    """Return a time for Blazar: whole minutes, UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _host(answer: Mapping[str, Any]) -> BlazarHost:
    properties = {
        str(name): str(value)
        for name, value in answer.items()
        if name not in _HOST_OWN and value is not None
    }
    name = str(answer.get("uid") or answer.get("hypervisor_hostname") or answer["id"])
    return BlazarHost(str(answer["id"]), name, bool(answer.get("reservable", True)), properties)


def _lease(answer: Mapping[str, Any]) -> BlazarLease:
    return BlazarLease(
        id=answer["id"],
        name=answer["name"],
        status=str(answer["status"]).upper(),
        start_s=_seconds(answer["start_date"]),
        end_s=_seconds(answer["end_date"]),
        user_id=answer["user_id"],
        project_id=answer["project_id"],
        reservations=tuple(_reservation(each) for each in answer.get("reservations") or ()),
        reason=_reason(answer),
    )


def _reason(answer: Mapping[str, Any]) -> str:
    """Return Blazar's words for a lease in ERROR; usually only the failed events."""
    words = [str(answer[key]) for key in ("status_reason", "error_message") if answer.get(key)]
    words += [
        f"the event {event.get('event_type')} at {event.get('time')} ended in ERROR"
        for event in answer.get("events") or ()
        if event.get("status") == "ERROR"
    ]
    words += [
        f"its reservation {each.get('id')} of {each.get('resource_type')} is in ERROR"
        for each in answer.get("reservations") or ()
        if str(each.get("status")).upper() == "ERROR"
    ]
    return "; ".join(words)


def _reservation(answer: Mapping[str, Any]) -> Reservation:
    kind = str(answer.get("resource_type", ""))
    properties = str(answer.get("resource_properties") or "")
    if kind == FLAVOR:
        # `flavor_id` is the reservation's own flavor; the properties hold the requested one.
        try:
            source = str(json.loads(properties).get("id") or "")
        except (ValueError, AttributeError):
            source = ""
        wanted = WantedReservation(kind, int(answer.get("amount") or 0), "", source)
    else:
        wanted = WantedReservation(
            kind, int(answer.get("min") or answer.get("amount") or 0), properties
        )
    return Reservation(answer["id"], wanted, str(answer.get("status", "")))


def _body(wanted: WantedReservation) -> dict[str, Any]:
    if wanted.kind == FLAVOR:
        amount = {"flavor_id": wanted.flavor_id, "amount": wanted.amount, "affinity": None}
        return {"resource_type": FLAVOR, **amount}
    return {
        "resource_type": HOST,
        "resource_properties": wanted.properties,
        "hypervisor_properties": "",
        "min": wanted.amount,
        "max": wanted.amount,
    }


def _rules(answer: Any, group_id: str) -> Iterator[Rule]:
    """Yield the group's rule if `Rule` can express it."""
    if answer.direction != "ingress" or answer.ether_type != "IPv4":
        return
    if answer.remote_group_id == group_id and answer.protocol is None:
        yield Rule(None)
    everywhere = answer.remote_group_id is None and answer.remote_ip_prefix in (None, "0.0.0.0/0")
    if everywhere and answer.protocol == "tcp" and answer.port_range_min == answer.port_range_max:
        yield Rule(answer.port_range_min)


def _server(answer: Any) -> NovaServer:
    addresses = [
        str(each["addr"])
        for network in (answer.addresses or {}).values()
        for each in network
        if each.get("version", 4) == 4 and each.get("OS-EXT-IPS:type", "fixed") == "fixed"
    ]
    fault = (getattr(answer, "fault", None) or {}) if answer.status == "ERROR" else {}
    leaving = getattr(answer, "task_state", None) == "deleting"  # ACTIVE to Nova until it is gone
    return NovaServer(
        id=answer.id,
        name=answer.name,
        status="DELETING" if leaving else answer.status,
        addresses=tuple(addresses),
        fault=str(fault.get("message", "")),
        host=answer.hypervisor_hostname or "",
    )


def _floating_ip(answer: Any) -> FloatingIp:
    return FloatingIp(
        answer.id, answer.floating_ip_address, answer.description or "", answer.port_id
    )


def _named(answers: Sequence[Any]) -> list[Named]:
    return [Named(each.id, each.name) for each in answers]


# -- calls --------------------------------------------------------------------------------------


class Cloud:
    """The calls of the site. All of them raise CloudError; tests have a cloud in memory.

    Args:
        session: keystoneauth's session or adapter, which renews an expired token once a call.
        connection: openstacksdk's connection.
        blazar: Blazar's client.
    """

    def __init__(self, session: Any, connection: Any, blazar: Any) -> None:
        self._session, self._sdk, self._blazar = session, connection, blazar

    def identity(self) -> TokenIdentity:
        """Return the user and the project of the token."""
        access = _access(self._session)
        names = (access.username or "", access.project_name or "")
        return TokenIdentity(access.user_id, access.project_id, *names)

    @translated("asking for the time")
    def now(self) -> float:
        """Return the cloud's time: the Date header of Blazar's answer, in whole seconds."""
        region = getattr(self._session, "region_name", None)
        answer = self._session.get(
            "/",
            endpoint_filter={"service_type": "reservation", "region_name": region},
            authenticated=True,
            raise_exc=False,
        )
        if "Date" not in answer.headers:
            raise CloudError("Blazar's answer has no date", Fault.REFUSED)
        return parsedate_to_datetime(answer.headers["Date"]).timestamp()

    @translated("listing hosts")
    def hosts(self) -> Sequence[BlazarHost]:
        """Return all hosts of Blazar."""
        return [_host(each) for each in self._blazar.host.list()]

    @translated("listing allocations")
    def bookings(self) -> Sequence[Booking]:
        """Return all reservations of all hosts, also other people's."""
        return [
            Booking(str(each["resource_id"]), _seconds(r["start_date"]), _seconds(r["end_date"]))
            for each in self._blazar.allocation.list("os-hosts")
            for r in each["reservations"]
        ]

    @translated("listing flavors")
    def flavors(self) -> Sequence[Flavor]:
        """Return the flavors that the project may use, including those of its reservations."""
        return [
            Flavor(each.id, each.name, each.vcpus, each.ram * MIB, each.disk * GIB)
            for each in self._sdk.compute.flavors()
        ]

    @translated("listing leases")
    def leases(self) -> Sequence[BlazarLease]:
        """Return the project's leases; operators see leases of all projects."""
        return [_lease(each) for each in self._blazar.lease.list()]

    def lease(self, lease_id: str) -> BlazarLease | None:
        """Return one lease, None if it does not exist."""
        if not lease_id:
            return None
        return _or_none("asking for the lease", lambda: _lease(self._blazar.lease.get(lease_id)))

    @translated("asking for a lease")
    def create_lease(
        self, name: str, start_s: float | None, end_s: float, wanted: Sequence[WantedReservation]
    ) -> BlazarLease:
        """Request a lease in whole minutes; `start_s` None means now."""
        made = self._blazar.lease.create(
            name=name,
            start="now" if start_s is None else _minutes(start_s),
            end=_minutes(end_s),
            reservations=[_body(each) for each in wanted],
            events=[],
        )
        return _lease(made)

    @translated("prolonging the lease")
    def prolong_lease(self, lease_id: str, end_s: float) -> BlazarLease:
        """Move the lease's end."""
        return _lease(self._blazar.lease.update(lease_id, end_date=_minutes(end_s)))

    def delete_lease(self, lease_id: str) -> None:
        """End the lease."""
        _or_none("ending the lease", lambda: self._blazar.lease.delete(lease_id))

    @translated("looking for the image")
    def images(self, name: str) -> Sequence[Named]:
        """Return images of exactly this name."""
        return _named(self._sdk.image.images(name=name, status="active"))

    @translated("looking for the network")
    def networks(self, name: str) -> Sequence[Named]:
        """Return networks of exactly this name."""
        return _named(self._sdk.network.networks(name=name))

    @translated("listing key pairs")
    def keypairs(self) -> Sequence[str]:
        """Return names of the user's key pairs."""
        return [each.name for each in self._sdk.compute.keypairs()]

    @translated("registering the key pair")
    def create_keypair(self, name: str, public_key: str) -> str:
        """Register a public key and return its name."""
        self._sdk.compute.create_keypair(name=name, public_key=public_key)
        return name

    @translated("removing the key pair")
    def delete_keypair(self, name: str) -> None:
        """Remove a public key."""
        self._sdk.compute.delete_keypair(name, ignore_missing=True)

    @translated("listing security groups")
    def security_groups(self) -> Sequence[Named]:
        """Return the project's security groups."""
        return _named(self._sdk.network.security_groups(project_id=self.identity().project_id))

    @translated("making the security group")
    def create_security_group(self, name: str) -> Named:
        """Make a group, which lets nothing in."""
        about = "nodes of a testbed of Hotbed"
        made = self._sdk.network.create_security_group(name=name, description=about)
        return Named(made.id, made.name)

    @translated("looking at the security group")
    def rules(self, group_id: str) -> Sequence[Rule]:
        """Return the group's IPv4 rules that `Rule` can express."""
        rules = self._sdk.network.security_group_rules(security_group_id=group_id)
        return [rule for each in rules for rule in _rules(each, group_id)]

    @translated("making a rule of the security group")
    def add_rule(self, group_id: str, rule: Rule) -> Rule:
        """Let traffic in over IPv4 and return the rule."""
        body: dict[str, Any] = {"remote_group_id": group_id}
        if rule.port is not None:
            ports = {"port_range_min": rule.port, "port_range_max": rule.port}
            body = {"protocol": "tcp", "remote_ip_prefix": "0.0.0.0/0", **ports}
        self._sdk.network.create_security_group_rule(
            security_group_id=group_id, direction="ingress", ether_type="IPv4", **body
        )
        return rule

    @translated("removing the security group")
    def delete_security_group(self, group_id: str) -> None:
        """Remove the group; refused while a server is in it."""
        self._sdk.network.delete_security_group(group_id, ignore_missing=True)

    @translated("listing servers")
    def servers(self, prefix: str) -> Sequence[NovaServer]:
        """Return the project's servers with this prefix, in one request."""
        found = self._sdk.compute.servers(
            details=True, name=f"^{prefix}"
        )  # a regular expression to Nova
        return [_server(each) for each in found if each.name.startswith(prefix)]

    @translated("making a server")
    def create_server(self, new: NewServer) -> NovaServer:
        """Start a server; threads may call this at the same time."""
        body: dict[str, Any] = {
            "name": new.name,
            "flavor_id": new.flavor_id,
            "image_id": new.image_id,
            "networks": [{"uuid": new.network_id}],
            "key_name": new.keypair,
            "user_data": base64.b64encode(new.user_data.encode()).decode(),
            "config_drive": True,
        }
        if new.reservation_id is not None:
            body["scheduler_hints"] = {"reservation": new.reservation_id}
        if new.security_group is not None:
            body["security_groups"] = [{"name": new.security_group}]
        return NovaServer(self._sdk.compute.create_server(**body).id, new.name, "BUILD")

    @translated("removing a server")
    def delete_server(self, server_id: str) -> None:
        """Remove a server."""
        self._sdk.compute.delete_server(server_id, ignore_missing=True)

    @translated("listing floating IPs")
    def floating_ips(self) -> Sequence[FloatingIp]:
        """Return the project's floating IPs."""
        found = self._sdk.network.ips(project_id=self.identity().project_id)
        return [_floating_ip(each) for each in found]

    @translated("asking for a floating IP")
    def create_floating_ip(self, description: str) -> FloatingIp:
        """Make a floating IP of the public network."""
        network = self._sdk.network.find_network(PUBLIC_NETWORK, ignore_missing=False)
        made = self._sdk.network.create_ip(floating_network_id=network.id, description=description)
        return _floating_ip(made)

    @translated("giving a server its floating IP")
    def attach_floating_ip(self, floating_ip_id: str, server_id: str) -> None:
        """Attach the address to the server's first port."""
        port = next(iter(self._sdk.network.ports(device_id=server_id)), None)
        if port is None:
            raise CloudError(f"server {server_id} has no port yet", Fault.PASSING)
        if self._sdk.network.get_ip(floating_ip_id).port_id != port.id:
            self._sdk.network.update_ip(floating_ip_id, port_id=port.id)

    @translated("giving a floating IP back")
    def delete_floating_ip(self, floating_ip_id: str) -> None:
        """Give the address back."""
        self._sdk.network.delete_ip(floating_ip_id, ignore_missing=True)


def _or_none(doing: str, call: Callable[[], T]) -> T | None:
    """Return the answer of `call`, None if its subject does not exist."""
    try:
        with translated(doing):
            return call()
    except CloudError as error:
        if error.fault is Fault.MISSING:
            return None
        raise


# -- opening a session --------------------------------------------------------------------------

APPLICATION = "v3applicationcredential"
_NEEDS = {
    APPLICATION: (
        ("OS_APPLICATION_CREDENTIAL_ID", "OS_APPLICATION_CREDENTIAL_NAME"),
        ("OS_APPLICATION_CREDENTIAL_SECRET",),
    ),
    "v3password": (("OS_USERNAME", "OS_USER_ID"), ("OS_PASSWORD",)),
    "v3token": (("OS_TOKEN",),),
    "v3oidcaccesstoken": (("OS_ACCESS_TOKEN", "JUPYTERHUB_API_TOKEN"),),
}
"""Required variables of each login method: one of each row."""
_ADVICE = (
    "download the openrc file of an application credential of the site (Identity, Application "
    "Credentials, with 'unrestricted' ticked) and `source` it, or work in Chameleon's JupyterHub"
)
_POLICY_RULE = "identity:"
"""Prefix of policy rules in Keystone's refusals; refusals of a kind of credential lack it."""
_OPENING = threading.Lock()
"""Held while a session is opened: python-chi has one context per process."""
_SITES: dict[str, str] = {}
"""Addresses of Chameleon's sites, once known."""
UNLISTED = {"KVM@TACC": "https://kvm.tacc.chameleoncloud.org"}
"""Sites that Chameleon's list lacks; python-chi has the same one."""


@dataclass(frozen=True)
class CloudLogin:
    """Means of opening a session. `look_up_site` asks Chameleon for the site's address, which the
    environment lacks; `scoped` credentials are for one project."""

    look_up_site: bool
    scoped: bool


def login_of(
    site: str, project: str | None, environ: Mapping[str, str] | None = None
) -> CloudLogin:
    """Check the OS_* variables, which are read by python-chi and written nowhere.

    Raises:
        NoCredentials: nothing is set.
        UserError: something is missing, or is for another site or project.
    """
    env = os.environ if environ is None else environ
    method = env.get("OS_AUTH_TYPE") or env.get("OS_AUTH_METHOD") or _no_method(env)
    if not method.startswith("v3"):
        raise UserError(
            f"OS_AUTH_TYPE is {method}, which python-chi does not know; it knows "
            f"{', '.join(_NEEDS)}: {_ADVICE}"
        )
    for row in _NEEDS.get(method, ()):
        if not any(env.get(name) for name in row):
            raise UserError(f"OS_AUTH_TYPE is {method}, and {row[0]} is not set: {_ADVICE}")
    region, named = env.get("OS_REGION_NAME"), env.get("OS_PROJECT_NAME")
    scoped = method == APPLICATION
    if scoped and region and region != site:
        raise UserError(
            f"the application credential is for {region} (OS_REGION_NAME), and the spec says "
            f"{site}: {_ADVICE}"
        )
    if scoped and project and named and named != project:
        raise UserError(
            f"the application credential is for project {named} (OS_PROJECT_NAME), and the "
            f"spec says {project}",
            do=f"take one of {project}'s, or leave site.options.project out",
        )
    if not scoped and not (project or named or env.get("OS_PROJECT_ID")):
        raise UserError(
            "no project is chosen",
            do="give site.options.project, such as CHI-123456, or set OS_PROJECT_NAME",
        )
    return CloudLogin(look_up_site=not env.get("OS_AUTH_URL") or region != site, scoped=scoped)


def _no_method(env: Mapping[str, str]) -> str:
    """Raise the error for variables that name no login method."""
    if env.get("OS_APPLICATION_CREDENTIAL_SECRET"):
        raise UserError(
            "OS_APPLICATION_CREDENTIAL_SECRET is set and OS_AUTH_TYPE is not",
            do=f"set it to {APPLICATION}, as the openrc file does",
        )
    if env.get("OS_PASSWORD"):
        raise UserError(
            "OS_PASSWORD is set and OS_AUTH_TYPE is not",
            do="set it as the openrc file for a CLI password of the site does",
        )
    if env.get("OS_CLOUD"):
        raise NoCredentials(
            "OS_CLOUD names an entry of clouds.yaml, which python-chi does not read",
            do=f"set the OS_* variables themselves ({_ADVICE})",
        )
    raise NoCredentials(
        f"there are no credentials for Chameleon: no OS_* variables are set; {_ADVICE}"
    )


def open_cloud(site: str, project: str | None) -> Cloud:
    """Open the cloud of `site` with the environment's credentials.

    Raises:
        NoCredentials: there are none.
        UserError: they are refused, are for another site or project, or cannot make leases; or a
            library is missing.
        SiteError: Keystone, or Chameleon's list of sites, does not answer.
    """
    try:
        with _OPENING:
            return _opened(site, project)
    except CloudError as error:
        raise explain(error, "opening a session", site) from error


def _opened(site: str, project: str | None) -> Cloud:
    login = login_of(site, project)
    try:
        from chi import clients, context
    except ImportError as error:
        raise UserError(
            "the site chameleon needs python-chi, python-blazarclient and openstacksdk, and "
            f"{error.name or error} is missing",
            do=(
                "`make setup`, or pip install 'python-chi>=1.2.10,<1.3' python-blazarclient "
                "python-zunclient openstacksdk"
            ),
        ) from error
    context.reset()
    if login.look_up_site:
        _use_site(context, site)
    else:
        context.set("region_name", site)
    if project is not None and not login.scoped:
        context.set("project_name", project)  # `use_project` prints it too
        context.set("project_id", None)  # OS_PROJECT_ID would take precedence over the name
        if not (os.environ.get("OS_PROJECT_DOMAIN_NAME") or os.environ.get("OS_PROJECT_DOMAIN_ID")):
            context.set("project_domain_name", context.DEFAULT_PROJECT_DOMAIN_NAME)
    context.set("timeout", int(TIMEOUT_S))
    with translated("opening a session"):
        session = context.session()
        cloud = Cloud(session, clients.connection(session), clients.blazar(session))
    if login.scoped:
        _require_trusts(session)
    who = cloud.identity() if project is not None else None
    if who is not None and project not in (who.project_name, who.project_id):
        raise UserError(
            f"these credentials are for project {who.project_name or who.project_id}, and the "
            f"spec says {project}",
            do=f"take credentials of {project}'s, or leave site.options.project out",
        )
    return cloud


def _use_site(context: Any, site: str) -> None:
    """Set the site's address from Chameleon's list of sites. python-chi's `use_site` requests the
    list each time, without a time-out, and prints its errors instead of raising them."""
    import requests

    try:
        if not _SITES:
            with translated("asking Chameleon for its sites"):
                url = f"{context.RESOURCE_API_URL}/sites.json"
                answer = requests.get(url, timeout=TIMEOUT_S)
                answer.raise_for_status()
                _SITES.update({each["name"]: each["web"] for each in answer.json()["items"]})
                _SITES.update(UNLISTED)
    except CloudError as error:
        raise SiteError(
            f"Chameleon does not say where {site} is ({error}): try again, or load an openrc file "
            "of the site, which has its address",
            retry_after_s=PASSING_S,
        ) from error
    if site not in _SITES:
        raise UserError(f"there is no site {site!r}; Chameleon has: {', '.join(_SITES)}")
    context.set("project_domain_name", context.DEFAULT_PROJECT_DOMAIN_NAME)
    context.set("auth_url", f"{_SITES[site]}:5000/v3")
    context.set("region_name", site)


def _access(session: Any) -> Any:
    """Return Keystone's description of the session's token, a new one if none is valid."""
    inner = getattr(session, "session", session)  # of an adapter
    with translated("asking Keystone for a token"):
        return inner.auth.get_access(inner)


def _require_trusts(session: Any) -> None:
    """Refuse an application credential that cannot make the trust that Blazar needs for a lease:
    Blazar would answer 500 without a reason.

    Since the corrections of CVE-2026-43000 (in 27.0.2, 28.0.2, 29.0.2) Keystone lets no application
    credential make trusts, unless the site sets ``[security_compliance]
    allow_insecure_application_credential_trust_escalation``, which Chameleon's installer can
    (ChameleonCloud/chi-in-a-box, pull request 407). Before, unrestricted ones could.

    Raises:
        UserError: the credential is restricted, or Keystone lets none make trusts.
        CloudError: Keystone gives no token.
    """
    access = _access(session)
    with translated("asking Keystone for its trusts"):
        refusal = _trusts_refused(getattr(session, "session", session), access.user_id)
    if refusal:
        raise UserError(
            "this site's Keystone lets no application credential make trusts, one of which "
            f"Blazar needs for every lease ({refusal.rstrip('.')}): load the openrc file for "
            "a CLI password, or work in Chameleon's JupyterHub"
        )
    if (access._data["token"].get("application_credential") or {}).get("restricted"):
        raise UserError(
            "the application credential is a restricted one, with which Blazar cannot make leases",
            do="make another with the box 'unrestricted' ticked, and load its openrc file",
        )


def _trusts_refused(session: Any, user: str) -> str | None:
    """Return Keystone's reason for letting no such credential touch trusts, None if there is none.

    Listing the user's own trusts changes nothing and passes the same check as making one.
    """
    base = f"{session.auth.auth_url.rstrip('/').removesuffix('/v3')}/v3/OS-TRUST/trusts"
    answer = session.get(base, params={"trustor_user_id": user}, raise_exc=False)
    if answer.status_code != 403:
        return None
    try:
        said = str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return None
    return None if _POLICY_RULE in said else said
