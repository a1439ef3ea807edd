"""Chameleon's OpenStack: the site's requests, their answers and errors, and the credentials.

`open_cloud` opens a session by python-chi; `Cloud` uses its clients of Blazar and openstacksdk.
Each call is one request and does not wait for what it starts. Deleting a missing thing is no error.
Flavors, images, networks, security groups and floating IPs are openstacksdk's objects. Times are
seconds since the epoch.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

from schemas.errors import HotbedError, UserError
from testbed.sites.contract import SiteError

T = TypeVar("T")

LIVE = frozenset({"PENDING", "CREATING", "STARTING", "ACTIVE", "UPDATING"})
"""Statuses of a lease that has or will have machines. A lease in ERROR never serves again."""
PASSING_S = 60.0
"""Time in seconds after which to retry a fault that may pass."""
TIMEOUT_S = 60.0
"""Time-out of one request in seconds."""


# -- errors -------------------------------------------------------------------------------------


class CallFault(StrEnum):
    """Kind of a failed call."""

    PASSING = "passing"  # 5xx, a time-out, a lost connection: it may have taken effect or not
    REFUSED = "refused"  # 4xx: it had no effect, and a retry does not help
    CREDENTIALS = "credentials"  # 401 after a new token was tried, or a missing variable
    QUOTA = "quota"
    FULL = "full"  # no hosts or flavors free in that time


class CloudError(HotbedError):
    """A failed call with the service's own words."""

    def __init__(self, message: str, fault: CallFault, *, status: int | None = None) -> None:
        super().__init__(message)
        self.fault, self.status = fault, status


class NoCredentials(UserError):
    """The environment holds no credentials."""


_WORDS = (
    # Blazar: "Not enough hosts available", "not enough resources available with query ..." (500).
    (re.compile(r"not enough .*available", re.IGNORECASE), CallFault.FULL),
    # Nova and Neutron: "Quota exceeded for ...", "Quota exceeded for resources: ['floatingip']".
    (re.compile(r"quota.{0,40}exceed|exceed.{0,40}quota", re.IGNORECASE), CallFault.QUOTA),
)
_PASSING = frozenset({None, 408, 425, 429, 500, 502, 503, 504})


@contextmanager
def translated() -> Iterator[None]:
    """Raise CloudError for every error of OpenStack's libraries; also a decorator."""
    from blazarclient.exception import BlazarClientException
    from keystoneauth1.exceptions import (
        AuthPluginException,
        ClientException,
        ConnectFailure,
        HttpError,
    )
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
    except AuthPluginException as error:  # a variable is missing
        raise CloudError(str(error), CallFault.CREDENTIALS) from error
    except (ClientException, SDKException, RequestException) as error:
        lost = (ConnectFailure, RequestException)
        cause = error if isinstance(error, lost) else error.__cause__ or error.__context__
        fault = CallFault.PASSING if isinstance(cause, lost) else CallFault.REFUSED
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CloudError(line, fault) from error


def _answered(said: str, status: int | None) -> CloudError:
    """Classify by the service's words first: Blazar also answers 500 to a full site."""
    said = re.sub(r"^ERROR:\s*", "", " ".join(said.split()))
    fault = CallFault.PASSING if status in _PASSING else CallFault.REFUSED
    fault = fault_of(said) or (CallFault.CREDENTIALS if status == 401 else fault)
    return CloudError(said or f"status {status}", fault, status=status)


def fault_of(said: str) -> CallFault | None:
    """Return the fault that a service's words name, None if they name none."""
    return next((fault for words, fault in _WORDS if words.search(said)), None)


def explain(error: CloudError, doing: str, site: str) -> HotbedError:
    """Return the user's error for a call that failed while `doing` (such as "making a lease")."""
    said, where = " ".join(str(error).split()).rstrip("."), f"{site}: {doing}"
    if error.fault is CallFault.CREDENTIALS:
        return UserError(
            f"Keystone cannot use the credentials ({said})",
            where=where,
            do=f"load a fresh openrc file of {site} (OS_* variables), or open the JupyterHub "
            "session anew",
        )
    if error.fault is CallFault.QUOTA:
        said = (
            f"the project's quota is used up ({said}): free something of it, or ask Chameleon's "
            "help desk for more"
        )
    if error.fault is CallFault.FULL:
        said = f"not enough is free ({said})"
    again = error.fault in (CallFault.FULL, CallFault.PASSING)
    return SiteError(f"{where}: {said}", retry_after_s=PASSING_S if again else None)


# -- leases and servers -------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenIdentity:
    """User and project of a token; the names are for people."""

    user_id: str
    project_id: str
    user_name: str = ""
    project_name: str = ""


@dataclass(frozen=True)
class Booking:
    """Time in which a host is reserved by anyone."""

    host_id: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Reservation:
    """Machines of a lease: `amount` hosts that pass `properties` (Blazar's filter as JSON), or
    `amount` virtual machines of the flavor `flavor_id`.

    `id` is empty before the lease is made, `groups` are the spec's groups that use the machines.
    """

    amount: int
    properties: str = ""
    flavor_id: str = ""
    id: str = ""
    groups: tuple[str, ...] = ()


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
class NovaServer:
    """A server. `addresses` are fixed IPv4 addresses; `host` is the machine under it, if known;
    `fault` is Nova's text of an error."""

    id: str
    name: str
    status: str
    addresses: tuple[str, ...] = ()
    fault: str = ""
    host: str = ""


def _seconds(text: str) -> float:
    """Parse Blazar's times, ``2026-12-01T08:00:00.000000``, which are UTC without an offset."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _minutes(seconds: float) -> str:
    """Return a time for Blazar: whole minutes, UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _lease(answer: Mapping[str, Any]) -> BlazarLease:
    return BlazarLease(
        id=answer["id"],
        name=answer["name"],
        status=str(answer["status"]).upper(),
        start_s=_seconds(answer["start_date"]),
        end_s=_seconds(answer["end_date"]),
        user_id=answer["user_id"],
        project_id=answer["project_id"],
        reservations=tuple(
            _reservation(each)
            for each in answer.get("reservations") or ()
            if each.get("resource_type") in ("physical:host", "flavor:instance")
        ),
        reason=_reason(answer),
    )


def _reason(answer: Mapping[str, Any]) -> str:
    """Return Blazar's words for a lease in ERROR: the failed events."""
    words = [
        f"the event {event.get('event_type')} at {event.get('time')} ended in ERROR"
        for event in answer.get("events") or ()
        if event.get("status") == "ERROR"
    ]
    return "; ".join(words)


def _reservation(answer: Mapping[str, Any]) -> Reservation:
    properties = str(answer.get("resource_properties") or "")
    amount = int(answer.get("min") or answer.get("amount") or 0)
    if answer.get("resource_type") != "flavor:instance":
        return Reservation(amount, properties, id=answer["id"])
    # `flavor_id` is the reservation's own flavor; the properties hold the requested one.
    with suppress(ValueError, KeyError, TypeError):
        return Reservation(amount, flavor_id=str(json.loads(properties)["id"]), id=answer["id"])
    return Reservation(amount, flavor_id=str(answer.get("flavor_id")), id=answer["id"])


def _body(wanted: Reservation) -> dict[str, Any]:
    if wanted.flavor_id:
        amount = {"flavor_id": wanted.flavor_id, "amount": wanted.amount, "affinity": None}
        return {"resource_type": "flavor:instance", **amount}
    return {
        "resource_type": "physical:host",
        "resource_properties": wanted.properties,
        "hypervisor_properties": "",
        "min": wanted.amount,
        "max": wanted.amount,
    }


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


@contextmanager
def _if_it_exists() -> Iterator[None]:
    """Ignore Blazar's 404."""
    from blazarclient.exception import BlazarClientException

    try:
        yield
    except BlazarClientException as error:
        if error.kwargs.get("code") != 404:
            raise


# -- calls --------------------------------------------------------------------------------------


def _translating(kind: type[T]) -> type[T]:
    """Translate the errors of all public methods of a class."""
    for name, call in list(vars(kind).items()):
        if not name.startswith("_"):

            @functools.wraps(call)
            def wrapped(*given: Any, _call: Any = call, **more: Any) -> Any:
                with translated():
                    return _call(*given, **more)

            setattr(kind, name, wrapped)
    return kind


@_translating
class Cloud:
    """The calls of the site. All of them raise CloudError; tests have a cloud in memory. `session`:
    keystoneauth's session or adapter, which renews an expired token once a call. `connection`:
    openstacksdk's connection. `blazar`: Blazar's client."""

    def __init__(self, session: Any, connection: Any, blazar: Any) -> None:
        self._session, self._sdk, self._blazar = session, connection, blazar

    def identity(self) -> TokenIdentity:
        """Return the user and the project of the token."""
        access = _access(self._session)
        names = (access.username or "", access.project_name or "")
        return TokenIdentity(access.user_id, access.project_id, *names)

    def hosts(self) -> list[Mapping[str, Any]]:
        """Return all hosts of Blazar with their properties."""
        return [{**each, "id": str(each["id"])} for each in self._blazar.host.list()]

    def bookings(self) -> list[Booking]:
        """Return all reservations of all hosts, also other people's."""
        return [
            Booking(str(each["resource_id"]), _seconds(r["start_date"]), _seconds(r["end_date"]))
            for each in self._blazar.allocation.list("os-hosts")
            for r in each["reservations"]
        ]

    def leases(self) -> list[BlazarLease]:
        """Return the project's leases; operators see leases of all projects."""
        return [_lease(each) for each in self._blazar.lease.list()]

    def lease(self, lease_id: str) -> BlazarLease | None:
        """Return one lease, None if it does not exist."""
        with _if_it_exists():
            return _lease(self._blazar.lease.get(lease_id))
        return None

    def create_lease(
        self, name: str, start_s: float | None, end_s: float, wanted: Sequence[Reservation]
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

    def prolong_lease(self, lease_id: str, end_s: float) -> BlazarLease:
        return _lease(self._blazar.lease.update(lease_id, end_date=_minutes(end_s)))

    def delete_lease(self, lease_id: str) -> None:
        with _if_it_exists():
            self._blazar.lease.delete(lease_id)

    def flavors(self) -> list[Any]:
        """Return the flavors that the project may use, including those of its reservations."""
        return list(self._sdk.compute.flavors())

    def images(self, name: str) -> list[Any]:
        """Return images of exactly this name."""
        return list(self._sdk.image.images(name=name, status="active"))

    def networks(self, name: str) -> list[Any]:
        """Return networks of exactly this name."""
        return list(self._sdk.network.networks(name=name))

    def keypairs(self) -> list[str]:
        return [each.name for each in self._sdk.compute.keypairs()]

    def create_keypair(self, name: str, public_key: str) -> str:
        """Register a public key and return its name."""
        self._sdk.compute.create_keypair(name=name, public_key=public_key)
        return name

    def delete_keypair(self, name: str) -> None:
        self._sdk.compute.delete_keypair(name, ignore_missing=True)

    def security_groups(self) -> list[Any]:
        return list(self._sdk.network.security_groups(project_id=self.identity().project_id))

    def create_security_group(self, name: str) -> Any:
        """Make a group, which lets nothing in."""
        about = "nodes of a testbed of Hotbed"
        return self._sdk.network.create_security_group(name=name, description=about)

    def add_rule(self, group_id: str, **rule: object) -> None:
        """Let traffic in over IPv4; an existing rule stays."""
        from openstack.exceptions import ConflictException

        try:
            self._sdk.network.create_security_group_rule(
                security_group_id=group_id, direction="ingress", ether_type="IPv4", **rule
            )
        except ConflictException as error:  # a used-up quota is a conflict, too
            if fault_of(str(error.details or error)) is CallFault.QUOTA:
                raise

    def delete_security_group(self, group_id: str) -> None:
        """Remove the group; refused while a server is in it."""
        self._sdk.network.delete_security_group(group_id, ignore_missing=True)

    def servers(self, prefix: str) -> list[NovaServer]:
        """Return the project's servers with this prefix, in one request."""
        found = self._sdk.compute.servers(details=True, name=f"^{prefix}")  # a regular expression
        return [_server(each) for each in found if each.name.startswith(prefix)]

    def create_server(self, body: Mapping[str, Any]) -> str:
        """Start a server and return its id; `user_data` is not encoded. Threads may call this."""
        user_data = base64.b64encode(body["user_data"].encode()).decode()
        return str(self._sdk.compute.create_server(**{**body, "user_data": user_data}).id)

    def delete_server(self, server_id: str) -> None:
        self._sdk.compute.delete_server(server_id, ignore_missing=True)

    def floating_ips(self) -> list[Any]:
        return list(self._sdk.network.ips(project_id=self.identity().project_id))

    def create_floating_ip(self, description: str) -> Any:
        """Make a floating IP of the public network."""
        network = self._sdk.network.find_network("public", ignore_missing=False)
        return self._sdk.network.create_ip(floating_network_id=network.id, description=description)

    def attach_floating_ip(self, floating_ip_id: str, server_id: str) -> None:
        """Attach the address to the server's first port."""
        port = next(iter(self._sdk.network.ports(device_id=server_id)), None)
        if port is None:
            raise CloudError(f"server {server_id} has no port yet", CallFault.PASSING)
        if self._sdk.network.get_ip(floating_ip_id).port_id != port.id:
            self._sdk.network.update_ip(floating_ip_id, port_id=port.id)

    def delete_floating_ip(self, floating_ip_id: str) -> None:
        self._sdk.network.delete_ip(floating_ip_id, ignore_missing=True)


# -- opening a session --------------------------------------------------------------------------

APPLICATION = "v3applicationcredential"
_ADVICE = (
    "download the openrc file of an application credential of the site (Identity, Application "
    "Credentials, with 'unrestricted' ticked) and `source` it, or work in Chameleon's JupyterHub"
)
_OPENING = threading.Lock()
"""Held while a session is opened: python-chi has one context per process."""


def check_login(site: str, project: str | None, env: Mapping[str, str]) -> None:
    """Check the OS_* variables, which are read by python-chi and written nowhere. NoCredentials: no
    method is set. UserError: the method is none of python-chi's, is for another site, or lacks a
    project."""
    method = env.get("OS_AUTH_TYPE") or env.get("OS_AUTH_METHOD") or ""
    if not method:
        raise NoCredentials(
            "there are no credentials for Chameleon: OS_AUTH_TYPE is not set, and python-chi does "
            "not read clouds.yaml",
            do=_ADVICE,
        )
    if not method.startswith("v3"):
        raise UserError(
            f"python-chi does not know {method}",
            where="OS_AUTH_TYPE",
            allowed=f"{APPLICATION}, v3password, v3token, v3oidcaccesstoken",
            do=_ADVICE,
        )
    if method == APPLICATION:
        region = env.get("OS_REGION_NAME") or site
        if region != site:
            raise UserError(
                f"the application credential is for {region} (OS_REGION_NAME), and the spec says "
                f"{site}",
                do=_ADVICE,
            )
    elif not (project or env.get("OS_PROJECT_NAME") or env.get("OS_PROJECT_ID")):
        raise UserError(
            "no project is chosen",
            do="give site.options.project, such as CHI-123456, or set OS_PROJECT_NAME",
        )


def open_cloud(site: str, project: str | None) -> Cloud:
    """Open the cloud of `site` with the environment's credentials. NoCredentials: there are none.
    UserError: they are refused, are for another site or project, or cannot make leases; or a
    library is missing. SiteError: Keystone, or Chameleon's list of sites, does not answer."""
    check_login(site, project, os.environ)
    try:
        with _OPENING:
            return _opened(site, project)
    except CloudError as error:
        raise explain(error, "opening a session", site) from error


def _opened(site: str, project: str | None) -> Cloud:
    try:
        from chi import clients, context
    except ImportError as error:
        raise UserError(
            "the site chameleon needs python-chi, python-blazarclient and openstacksdk, and "
            f"{error.name or error} is missing",
            do="`make setup`, or pip install '.[chameleon]' in Hotbed's folder",
        ) from error
    scoped = APPLICATION in (os.environ.get("OS_AUTH_TYPE"), os.environ.get("OS_AUTH_METHOD"))
    context.reset()
    if not os.environ.get("OS_AUTH_URL") or os.environ.get("OS_REGION_NAME") != site:
        context.set("auth_url", f"{_address_of(site)}:5000/v3")
        context.set("project_domain_name", context.DEFAULT_PROJECT_DOMAIN_NAME)
    context.set("region_name", site)
    if project is not None and not scoped:
        context.set("project_name", project)  # `use_project` prints it too
        context.set("project_id", None)  # OS_PROJECT_ID would take precedence over the name
        if not (os.environ.get("OS_PROJECT_DOMAIN_NAME") or os.environ.get("OS_PROJECT_DOMAIN_ID")):
            context.set("project_domain_name", context.DEFAULT_PROJECT_DOMAIN_NAME)
    context.set("timeout", int(TIMEOUT_S))
    with translated():
        session = context.session()
        cloud = Cloud(session, clients.connection(session), clients.blazar(session))
    if scoped:
        _require_trusts(session)
    if project is not None:
        found = cloud.identity()
        if project not in (found.project_name, found.project_id):
            raise UserError(
                f"these credentials are for project {found.project_name or found.project_id}, and "
                f"the spec says {project}",
                do=f"take credentials of {project}, or leave site.options.project out",
            )
    return cloud


def _address_of(site: str) -> str:
    """Return the site's address. python-chi's `use_site` asks for it each time, without a time-out,
    and prints its errors instead of raising them."""
    try:
        sites = _sites()
    except CloudError as error:
        raise SiteError(
            f"Chameleon does not say where {site} is ({error}): try again, or load an openrc file "
            "of the site, which has its address",
            retry_after_s=PASSING_S,
        ) from error
    if site not in sites:
        raise UserError(f"there is no site {site!r}", allowed=", ".join(sites))
    return sites[site]


@functools.cache
def _sites() -> dict[str, str]:
    """Return the addresses of Chameleon's sites; its list lacks one, as python-chi knows."""
    import requests
    from chi import context

    with translated():
        answer = requests.get(f"{context.RESOURCE_API_URL}/sites.json", timeout=TIMEOUT_S)
        answer.raise_for_status()
        listed = {each["name"]: each["web"] for each in answer.json()["items"]}
    return listed | {"KVM@TACC": "https://kvm.tacc.chameleoncloud.org"}


def _access(session: Any) -> Any:
    """Return Keystone's description of the session's token, a new one if none is valid."""
    inner = getattr(session, "session", session)  # of an adapter
    with translated():
        return inner.auth.get_access(inner)


def _require_trusts(session: Any) -> None:
    """Raise UserError for an application credential that cannot make the trust that Blazar needs
    for a lease: Blazar would answer 500 without a reason.

    Since the corrections of CVE-2026-43000 Keystone lets no application credential make trusts,
    unless the site allows it (``allow_insecure_application_credential_trust_escalation``). Before,
    unrestricted ones could. CloudError: Keystone gives no token.
    """
    access, inner = _access(session), getattr(session, "session", session)
    # Listing the user's own trusts changes nothing and passes the same check as making one.
    base = f"{inner.auth.auth_url.rstrip('/').removesuffix('/v3')}/v3/OS-TRUST/trusts"
    with translated():
        answer = inner.get(base, params={"trustor_user_id": access.user_id}, raise_exc=False)
    refusal = ""
    if answer.status_code == 403:
        with suppress(ValueError, KeyError, TypeError):
            refusal = str(answer.json()["error"]["message"]).rstrip(".")
    if refusal and "identity:" not in refusal:  # policy rules have that prefix
        raise UserError(
            "this site's Keystone lets no application credential make trusts, and Blazar needs "
            f"one for every lease ({refusal})",
            do="load the openrc file for a CLI password, or work in Chameleon's JupyterHub",
        )
    if (access._data["token"].get("application_credential") or {}).get("restricted"):
        raise UserError(
            "the application credential is a restricted one, with which Blazar cannot make leases",
            do="make another with the box 'unrestricted' ticked, and load its openrc file",
        )
