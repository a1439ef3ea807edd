"""`Cloud` by python-chi: its sessions and its clients of Blazar and openstacksdk.

python-chi's classes (`Lease`, `Server`, `Node`) are not used, for they lose what we must know: what
Blazar says of an error, statuses of ERROR, what an idempotent call found; and each look at a status
is a request.
"""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from schemas.errors import UserError
from testbed.sites.chameleon import credentials
from testbed.sites.chameleon.chi_errors import translated
from testbed.sites.chameleon.chi_reading import (
    body_of,
    floating_ip_of,
    host_of,
    lease_of,
    rules_of,
    seconds_of,
    server_of,
    text_of,
)
from testbed.sites.chameleon.cloud import (
    Booking,
    CloudError,
    Fault,
    Flavor,
    FloatingIp,
    Host,
    Identity,
    Lease,
    Named,
    NewServer,
    Rule,
    Server,
    Wanted,
)
from testbed.sites.chameleon.errors import PASSING_S, explain
from testbed.sites.chameleon.trusts import access_of, require_trusts
from testbed.sites.contract import SiteError

T = TypeVar("T")

TIMEOUT_S = 60.0
"""Of one request."""
PUBLIC_NETWORK = "public"
_OPENING = threading.Lock()
"""python-chi's context is one for the whole process."""
_SITES: dict[str, Any] = {}
"""Chameleon's sites, once they are known: python-chi forgets them whenever its context is reset."""
MIB, GIB = 2**20, 2**30


def open_cloud(site: str, project: str | None) -> ChiCloud:
    """The cloud of `site`, with the credentials of the environment.

    Raises:
        NoCredentials: there are none.
        UserError: they are refused, of a kind, or for a site, that cannot work; or a library is
            missing.
        SiteError: Keystone, or Chameleon's list of sites, does not answer.
    """
    try:
        with _OPENING:
            return _opened(site, project)
    except CloudError as error:
        raise explain(error, "opening a session", site) from error


def _opened(site: str, project: str | None) -> ChiCloud:
    plan = credentials.plan(site, project)
    try:
        from chi import clients, context
    except ImportError as error:
        raise credentials.missing_libraries(error) from error
    context.reset()
    if plan.look_up_site:
        _use_site(context, site)
    else:
        context.set("region_name", site)
    if project is not None and not plan.scoped:
        context.set("project_name", project)  # `use_project` prints it too
        context.set("project_id", None)  # OS_PROJECT_ID, which would be taken before the name
        if not (os.environ.get("OS_PROJECT_DOMAIN_NAME") or os.environ.get("OS_PROJECT_DOMAIN_ID")):
            context.set("project_domain_name", context.DEFAULT_PROJECT_DOMAIN_NAME)
    context.set("timeout", int(TIMEOUT_S))
    with translated("opening a session"):
        session = context.session()
        cloud = ChiCloud(session, clients.connection(session), clients.blazar(session))
    if plan.scoped:
        require_trusts(session)
    if project is not None:
        credentials.require_project(project, cloud.identity())
    return cloud


def _use_site(context: Any, site: str) -> None:
    """As python-chi's `use_site`, which asks Chameleon for the site's address each time, prints it,
    and has no error but a print."""
    try:
        if not _SITES:
            with translated("asking Chameleon for its sites"):
                _SITES.update(_in_time(context.list_sites))
    except CloudError as error:
        raise SiteError(
            f"Chameleon does not say where {site} is ({error}): try again, or load an openrc file "
            "of the site, which has its address",
            retry_after_s=PASSING_S,
        ) from error
    if site not in _SITES:
        raise UserError(f"there is no site {site!r}; Chameleon has: {', '.join(_SITES)}.")
    context.set("project_domain_name", context.DEFAULT_PROJECT_DOMAIN_NAME)
    context.set("auth_url", f"{_SITES[site]['web']}:5000/v3")
    context.set("region_name", site)


def _in_time(call: Callable[[], T]) -> T:
    """What `call` returns, whose request has no time-out of its own; one that hangs is left behind
    in a thread that keeps nobody from ending."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return future.result(TIMEOUT_S)
    except FutureTimeout:
        raise CloudError(f"no answer within {TIMEOUT_S:g} s", Fault.PASSING) from None


class ChiCloud:
    """See `Cloud`.

    Args:
        session: keystoneauth's session or adapter. It asks for a new token, once, when one has
            expired.
        connection: openstacksdk's.
        blazar: Blazar's client.
    """

    def __init__(self, session: Any, connection: Any, blazar: Any) -> None:
        self._session, self._sdk, self._blazar = session, connection, blazar
        self._region = getattr(session, "region_name", None)

    def identity(self) -> Identity:
        """See `Cloud.identity`."""
        access = access_of(self._session)
        return Identity(
            access.user_id, access.project_id, access.username or "", access.project_name or ""
        )

    def now(self) -> float:
        """See `Cloud.now`: the Date header of Blazar's answer, which knows whole seconds."""
        with translated("asking for the time"):
            answer = self._session.get(
                "/",
                endpoint_filter={"service_type": "reservation", "region_name": self._region},
                authenticated=True,
                raise_exc=False,
            )
            date = answer.headers.get("Date")
        if date is None:
            raise CloudError("Blazar's answer has no date", Fault.REFUSED)
        return parsedate_to_datetime(date).timestamp()

    # -- hardware -------------------------------------------------------------------------------

    def hosts(self) -> Sequence[Host]:
        """See `Cloud.hosts`."""
        with translated("listing hosts"):
            return [host_of(each) for each in self._blazar.host.list()]

    def bookings(self) -> Sequence[Booking]:
        """See `Cloud.bookings`."""
        with translated("listing allocations"):
            return [
                Booking(
                    str(each["resource_id"]),
                    seconds_of(reservation["start_date"]),
                    seconds_of(reservation["end_date"]),
                )
                for each in self._blazar.allocation.list("os-hosts")
                for reservation in each["reservations"]
            ]

    def flavors(self) -> Sequence[Flavor]:
        """See `Cloud.flavors`."""
        with translated("listing flavors"):
            return [
                Flavor(each.id, each.name, each.vcpus, each.ram * MIB, each.disk * GIB)
                for each in self._sdk.compute.flavors()
            ]

    # -- leases ---------------------------------------------------------------------------------

    def leases(self) -> Sequence[Lease]:
        """See `Cloud.leases`."""
        with translated("listing leases"):
            return [lease_of(each) for each in self._blazar.lease.list()]

    def lease(self, lease_id: str) -> Lease | None:
        """See `Cloud.lease`."""
        if not lease_id:
            return None
        return _or_none(lambda: lease_of(self._blazar.lease.get(lease_id)), "asking for the lease")

    def create_lease(
        self, name: str, start_s: float | None, end_s: float, wanted: Sequence[Wanted]
    ) -> Lease:
        """See `Cloud.create_lease`."""
        with translated("asking for a lease"):
            return lease_of(
                self._blazar.lease.create(
                    name=name,
                    start="now" if start_s is None else text_of(start_s),
                    end=text_of(end_s),
                    reservations=[body_of(each) for each in wanted],
                    events=[],
                )
            )

    def prolong_lease(self, lease_id: str, end_s: float) -> Lease:
        """See `Cloud.prolong_lease`."""
        with translated("prolonging the lease"):
            return lease_of(self._blazar.lease.update(lease_id, end_date=text_of(end_s)))

    def delete_lease(self, lease_id: str) -> None:
        """See `Cloud.delete_lease`."""
        _or_none(lambda: self._blazar.lease.delete(lease_id), "ending the lease")

    # -- what servers need ----------------------------------------------------------------------

    def images(self, name: str) -> Sequence[Named]:
        """See `Cloud.images`."""
        with translated("looking for the image"):
            return [
                Named(each.id, each.name)
                for each in self._sdk.image.images(name=name, status="active")
            ]

    def networks(self, name: str) -> Sequence[Named]:
        """See `Cloud.networks`."""
        with translated("looking for the network"):
            return [Named(each.id, each.name) for each in self._sdk.network.networks(name=name)]

    def keypairs(self) -> Sequence[str]:
        """See `Cloud.keypairs`."""
        with translated("listing key pairs"):
            return [each.name for each in self._sdk.compute.keypairs()]

    def create_keypair(self, name: str, public_key: str) -> None:
        """See `Cloud.create_keypair`."""
        with translated("registering the key pair"):
            self._sdk.compute.create_keypair(name=name, public_key=public_key)

    def delete_keypair(self, name: str) -> None:
        """See `Cloud.delete_keypair`."""
        with translated("removing the key pair"):
            self._sdk.compute.delete_keypair(name, ignore_missing=True)

    def security_groups(self) -> Sequence[Named]:
        """See `Cloud.security_groups`."""
        project = self.identity().project_id
        with translated("listing security groups"):
            groups = self._sdk.network.security_groups(project_id=project)
            return [Named(each.id, each.name) for each in groups]

    def create_security_group(self, name: str) -> Named:
        """See `Cloud.create_security_group`."""
        with translated("making the security group"):
            made = self._sdk.network.create_security_group(
                name=name, description="nodes of a testbed of Hotbed"
            )
            return Named(made.id, made.name)

    def rules(self, group_id: str) -> Sequence[Rule]:
        """See `Cloud.rules`."""
        with translated("looking at the security group"):
            rules = list(self._sdk.network.security_group_rules(security_group_id=group_id))
        return [rule for each in rules for rule in rules_of(each, group_id)]

    def add_rule(self, group_id: str, rule: Rule) -> None:
        """See `Cloud.add_rule`."""
        body: dict[str, Any] = {"remote_group_id": group_id}
        if rule.port is not None:
            body = {
                "protocol": "tcp",
                "port_range_min": rule.port,
                "port_range_max": rule.port,
                "remote_ip_prefix": "0.0.0.0/0",
            }
        with translated("making a rule of the security group"):
            self._sdk.network.create_security_group_rule(
                security_group_id=group_id, direction="ingress", ether_type="IPv4", **body
            )

    def delete_security_group(self, group_id: str) -> None:
        """See `Cloud.delete_security_group`."""
        with translated("removing the security group"):
            self._sdk.network.delete_security_group(group_id, ignore_missing=True)

    # -- servers --------------------------------------------------------------------------------

    def servers(self, prefix: str) -> Sequence[Server]:
        """See `Cloud.servers`; Nova takes the name for a regular expression."""
        with translated("listing servers"):
            return [
                server_of(each)
                for each in self._sdk.compute.servers(details=True, name=f"^{prefix}")
                if each.name.startswith(prefix)
            ]

    def create_server(self, new: NewServer) -> Server:
        """See `Cloud.create_server`."""
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
        with translated("making a server"):
            made = self._sdk.compute.create_server(**body)
            return Server(made.id, new.name, "BUILD")

    def delete_server(self, server_id: str) -> None:
        """See `Cloud.delete_server`."""
        with translated("removing a server"):
            self._sdk.compute.delete_server(server_id, ignore_missing=True)

    # -- addresses ------------------------------------------------------------------------------

    def floating_ips(self) -> Sequence[FloatingIp]:
        """See `Cloud.floating_ips`."""
        project = self.identity().project_id
        with translated("listing floating IPs"):
            return [floating_ip_of(each) for each in self._sdk.network.ips(project_id=project)]

    def create_floating_ip(self, description: str) -> FloatingIp:
        """See `Cloud.create_floating_ip`."""
        with translated("asking for a floating IP"):
            network = self._sdk.network.find_network(PUBLIC_NETWORK, ignore_missing=False)
            return floating_ip_of(
                self._sdk.network.create_ip(floating_network_id=network.id, description=description)
            )

    def attach_floating_ip(self, floating_ip_id: str, server_id: str) -> None:
        """See `Cloud.attach_floating_ip`."""
        with translated("giving a server its floating IP"):
            port = next(iter(self._sdk.network.ports(device_id=server_id)), None)
            if port is None:
                raise CloudError(f"server {server_id} has no port yet", Fault.PASSING)
            there = self._sdk.network.get_ip(floating_ip_id)
            if there.port_id != port.id:
                self._sdk.network.update_ip(floating_ip_id, port_id=port.id)

    def delete_floating_ip(self, floating_ip_id: str) -> None:
        """See `Cloud.delete_floating_ip`."""
        with translated("giving a floating IP back"):
            self._sdk.network.delete_ip(floating_ip_id, ignore_missing=True)


def _or_none(call: Callable[[], T], doing: str) -> T | None:
    """What `call` gives; None when it is about something that is not there."""
    try:
        with translated(doing):
            return call()
    except CloudError as error:
        if error.fault is Fault.MISSING:
            return None
        raise
