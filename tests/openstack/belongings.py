"""Objects of a user in the cloud, seen independently of the site under test, and their removal."""

from __future__ import annotations

import time
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta

from tests.openstack.rest import Refused, Rest

_GONE_S = 60.0
_ENDED_S = 240.0


@dataclass(frozen=True)
class Belongings:
    """Sorted names (of floating IPs: addresses) of all objects of a project."""

    leases: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    floating_ips: tuple[str, ...] = ()
    keypairs: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(astuple(self))


def belongings(user: Rest) -> Belongings:
    """Return the current objects of the user's project."""
    return Belongings(
        leases=_names(each["name"] for each in leases(user)),
        servers=_names(each["name"] for each in servers(user)),
        ports=_names(each["id"] for each in _of(user, "ports")),
        floating_ips=_names(each["floating_ip_address"] for each in _of(user, "floatingips")),
        keypairs=_names(_keypairs(user)),
        security_groups=_names(
            each["name"] for each in _of(user, "security-groups") if each["name"] != "default"
        ),
    )


def leases(user: Rest) -> list[dict]:
    """Return the project's leases as blazar reports them, in any state."""
    return list(user.get("reservation", "/leases")["leases"])


def servers(user: Rest) -> list[dict]:
    """Return the project's servers as nova reports them."""
    return list(user.get("compute", "/servers/detail")["servers"])


def wipe(user: Rest) -> None:
    """Remove everything of the user's project and wait until it is gone."""
    for each in servers(user):
        _remove(user, "compute", f"/servers/{each['id']}")
    for each in leases(user):
        _remove(user, "reservation", f"/leases/{each['id']}")
    for each in _of(user, "floatingips"):
        _remove(user, "network", f"/v2.0/floatingips/{each['id']}")
    for name in _keypairs(user):
        _remove(user, "compute", f"/os-keypairs/{name}")
    end = time.monotonic() + _GONE_S
    while servers(user) or leases(user):
        if time.monotonic() > end:
            raise TimeoutError(f"still there: {belongings(user)}")
        time.sleep(0.3)
        for each in leases(user):
            _remove(user, "reservation", f"/leases/{each['id']}")
    for each in _of(user, "security-groups"):
        if each["name"] != "default":
            _remove(user, "network", f"/v2.0/security-groups/{each['id']}")


def end_lease(user: Rest, within_s: float | None = None) -> str:
    """End the project's only lease, as its owner may, and return its id. `user`: the lease's owner.
    `within_s`: end at the last full minute within this time, because Blazar's dates have no
    seconds; None: at once, with Blazar's own keyword."""
    (lease,) = leases(user)
    end = "now"
    if within_s is not None:
        end = (datetime.now(UTC) + timedelta(seconds=within_s)).strftime("%Y-%m-%d %H:%M")
    user("reservation", "PUT", f"/leases/{lease['id']}", {"end_date": end})
    return str(lease["id"])


def wait_for_the_end(user: Rest) -> None:
    """Wait until blazar has ended the project's leases and removed their servers."""
    end = time.monotonic() + _ENDED_S
    while servers(user) or any(each["status"] != "TERMINATED" for each in leases(user)):
        if time.monotonic() > end:
            found = [(each["name"], each["status"], each["end_date"]) for each in leases(user)]
            raise TimeoutError(f"not over: {found}, {belongings(user)}")
        time.sleep(1.0)


def free_hosts(admin: Rest) -> set[str]:
    """Return the hosts that are in no reservation now."""
    pools = admin.get("compute", "/os-aggregates")["aggregates"]
    return {host for pool in pools if pool["name"] == "freepool" for host in pool["hosts"]}


def _of(user: Rest, kind: str) -> list[dict]:
    path = f"/v2.0/{kind}?project_id={user.project_id}"
    return list(user.get("network", path)[kind.replace("-", "_")])


def _keypairs(user: Rest) -> list[str]:
    return [each["keypair"]["name"] for each in user.get("compute", "/os-keypairs")["keypairs"]]


def _remove(user: Rest, service: str, path: str) -> None:
    try:
        user(service, "DELETE", path)
    except Refused as refused:
        # 404 and 409: the lease is gone or being removed. Blazar answers 500 for about a second
        # while it starts or ends the lease; the caller repeats until the lease is gone.
        busy = "Invalid lease status" in str(refused)
        if refused.status not in (404, 409) and not busy:
            raise


def _names(names: object) -> tuple[str, ...]:
    return tuple(sorted(names))  # type: ignore[call-overload]
