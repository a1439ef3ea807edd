"""Operator's initial set-up: accounts, endpoints, flavors, images, networks, leasable hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.openstack.config import REGION, REGIONS, SECRET, Host
from tests.openstack.rest import Refused, Rest

DOMAIN = "chameleon"
USER = "student"
PROJECT = "CHI-123456"
OTHER = ("neighbour", "CHI-654321")
"""Foreign account and project, which must never be touched."""

ACCOUNTS = {
    "placement": "placement",
    "glance": "image",
    "neutron": "network",
    "nova": "compute",
    "blazar": "reservation",
}
PATHS = {"identity": "/v3", "compute": "/v2.1", "reservation": "/v1"}
IMAGES = ("CC-Ubuntu22.04", "CC-Ubuntu24.04")
FLAVORS = {
    # All processors of a SmallFakeDriver: one server per host, as on bare metal.
    "baremetal": {"ram": 64, "vcpus": 2, "disk": 1},
}
VIRTUAL = {
    "m1.small": {"ram": 2048, "vcpus": 1, "disk": 20},
    "m1.medium": {"ram": 4096, "vcpus": 2, "disk": 40},
    "m1.large": {"ram": 8192, "vcpus": 4, "disk": 40},
}
TRAIT = "CUSTOM_HOTBED_VIRTUAL"
"""Trait of hosts for virtual machines, so that no virtual machine is reserved elsewhere."""
FIXED = "10.140.80.0/24"
FLOATING = "198.51.100.0/24"


def identities(admin: Rest, urls: Mapping[str, Mapping[str, str]]) -> None:
    """Create accounts of services and users, and the catalogue. `urls`: interface -> service type
    -> address, with its path."""
    roles = {role["name"]: role["id"] for role in admin.get("identity", "/roles")["roles"]}
    service = _project(admin, "service", "default")
    for region in REGIONS[1:]:
        admin.post("identity", "/regions", {"region": {"id": region}})
    for name, kind in ACCOUNTS.items():
        user = _user(admin, name, "default", service)
        for role in ("admin", "service"):
            _grant(admin, service, user, roles[role])
        body = {"service": {"name": name, "type": kind}}
        made = admin.post("identity", "/services", body)["service"]["id"]
        _endpoints(admin, made, {name: each[kind] for name, each in urls.items()}, REGIONS)
    keystone = admin.get("identity", "/services?type=identity")["services"][0]["id"]
    more = [region for region in REGIONS if region != REGION]
    _endpoints(admin, keystone, {name: each["identity"] for name, each in urls.items()}, more)
    domain = admin.post("identity", "/domains", {"domain": {"name": DOMAIN}})["domain"]["id"]
    for name, called in ((USER, PROJECT), OTHER):
        project = _project(admin, called, domain)
        user = _user(admin, name, domain, project)
        for role in ("member", "reader"):
            _grant(admin, project, user, roles[role])
    admin.log_in()


def resources(admin: Rest) -> None:
    """Create flavors, images and networks."""
    for name, size in FLAVORS.items():
        admin.post("compute", "/flavors", {"flavor": {"name": name, **size}})
    for name, size in VIRTUAL.items():
        made = admin.post("compute", "/flavors", {"flavor": {"name": name, **size}})["flavor"]
        required = {"extra_specs": {f"trait:{TRAIT}": "required"}}
        admin.post("compute", f"/flavors/{made['id']}/os-extra_specs", required)
    for name in IMAGES:
        made = admin.post(
            "image",
            "/v2/images",
            {
                "name": name,
                "disk_format": "raw",
                "container_format": "bare",
                "visibility": "public",
            },
        )
        stream = {"Content-Type": "application/octet-stream"}
        path = f"/v2/images/{made['id']}/file"
        admin("image", "PUT", path, data=b"x" * 1024, headers=stream)
    shared = _network(admin, {"name": "sharednet1", "shared": True, **_flat("physnet1")})
    inside = _subnet(admin, {"name": "sharednet1-subnet", "network_id": shared, "cidr": FIXED})
    public = _network(admin, {"name": "public", "router:external": True, **_flat("public")})
    outside = {"name": "public-subnet", "network_id": public, "cidr": FLOATING}
    pool = [{"start": "198.51.100.100", "end": "198.51.100.149"}]
    _subnet(admin, {**outside, "enable_dhcp": False, "allocation_pools": pool})
    router = {"name": "sharednet1-router", "external_gateway_info": {"network_id": public}}
    made = admin.post("network", "/v2.0/routers", {"router": router})["router"]["id"]
    admin("network", "PUT", f"/v2.0/routers/{made}/add_router_interface", {"subnet_id": inside})
    freepool = {"aggregate": {"name": "freepool"}}
    admin.post("compute", "/os-aggregates", freepool)


def leasable(admin: Rest, hosts: Sequence[Host]) -> None:
    """Give hosts to blazar; nova must know the hosts by now."""
    version = {"OpenStack-API-Version": "placement 1.30"}
    admin("placement", "PUT", f"/traits/{TRAIT}", headers=version)
    for host in hosts:
        if host.virtual:
            path = f"/resource_providers?name={host.name}"
            provider = admin("placement", "GET", path, headers=version)["resource_providers"][0]
            path = f"/resource_providers/{provider['uuid']}/traits"
            body = admin("placement", "GET", path, headers=version)
            body["traits"].append(TRAIT)
            admin("placement", "PUT", path, body, headers=version)
    # Each call takes Blazar seconds; the first creates the properties and must run alone.
    first, *others = enumerate(hosts, start=1)
    _lease_out(admin, *first)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda numbered: _lease_out(admin, *numbered), others))
    for number in range(150, 160):
        body = {
            "floating_network_id": _id_of(admin, "public"),
            "floating_ip_address": f"198.51.100.{number}",
        }
        admin.post("reservation", "/floatingips", body)


def _lease_out(admin: Rest, number: int, host: Host) -> None:
    body = {
        "name": host.name,
        "node_type": host.node_type,
        "node_name": f"nc{number:02d}",
        "uid": f"{number:08d}-0000-4000-8000-000000000000",
    }
    admin.post("reservation", "/os-hosts", body)


def awake(admin: Rest, since: str) -> set[str]:
    """Return nova's workers that have reported after `since` (UTC, ISO 8601): computes by host, the
    others by type.
    """
    try:
        services = admin.get("compute", "/os-services")["services"]
    except Refused:
        return set()
    reported = [each for each in services if (each["updated_at"] or "") >= since]
    names = {each["binary"] for each in reported}
    return names | {each["host"] for each in reported if each["binary"] == "nova-compute"}


def _endpoints(admin: Rest, service: str, urls: Mapping[str, str], regions: Iterable[str]) -> None:
    for region in regions:
        for interface, url in urls.items():
            place = {"service_id": service, "region_id": region}
            body = {"endpoint": {**place, "interface": interface, "url": url}}
            admin.post("identity", "/endpoints", body)


def _project(admin: Rest, name: str, domain: str) -> str:
    body = {"project": {"name": name, "domain_id": domain}}
    return str(admin.post("identity", "/projects", body)["project"]["id"])


def _user(admin: Rest, name: str, domain: str, project: str) -> str:
    body = {
        "user": {
            "name": name,
            "password": SECRET,
            "domain_id": domain,
            "default_project_id": project,
        }
    }
    return str(admin.post("identity", "/users", body)["user"]["id"])


def _grant(admin: Rest, project: str, user: str, role: str) -> None:
    admin("identity", "PUT", f"/projects/{project}/users/{user}/roles/{role}")


def _flat(physical: str) -> dict[str, str]:
    return {"provider:network_type": "flat", "provider:physical_network": physical}


def _network(admin: Rest, body: Mapping[str, object]) -> str:
    return str(admin.post("network", "/v2.0/networks", {"network": body})["network"]["id"])


def _subnet(admin: Rest, body: Mapping[str, object]) -> str:
    made = admin.post("network", "/v2.0/subnets", {"subnet": {"ip_version": 4, **body}})
    return str(made["subnet"]["id"])


def _id_of(admin: Rest, network: str) -> str:
    found = admin.get("network", f"/v2.0/networks?name={network}")["networks"]
    return str(found[0]["id"])
