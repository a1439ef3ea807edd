"""Faults of a cloud, on a real control plane: nothing leaks, nothing is leased twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from testbed.sites.contract import SiteError, State
from tests.errors import raises
from tests.openstack import belongings
from tests.openstack.config import REGIONS
from tests.openstack.plane import ControlPlane
from tests.openstack.proxy import DROPPED, Call, Reply, Rule, error
from tests.openstack.rest import Refused, Rest
from tests.openstack.seed import OTHER
from tests.openstack.users_site import a_site, a_spec

pytestmark = [pytest.mark.openstack, pytest.mark.timeout(400)]

MAKING = {
    "a key pair": ("compute", "/os-keypairs"),
    "a lease": ("reservation", "/leases"),
    "a server": ("compute", "/servers$"),
    "a floating ip": ("network", "/floatingips"),
}
"""Calls that create something, as (service, end of the path)."""


def lease(user: Rest, **reservation: object) -> None:
    """Lease machines for another user, from now on for five hours."""
    body = {
        "name": "theirs",
        "start_date": "now",
        "end_date": (datetime.now(UTC) + timedelta(hours=5)).strftime("%Y-%m-%d %H:%M"),
        "reservations": [reservation],
        "events": [],
    }
    user.post("reservation", "/leases", body)


@pytest.fixture
def neighbour(plane: ControlPlane) -> Iterator[Rest]:
    """Return another user; the user's project is emptied afterwards."""
    user = plane.user(*OTHER)
    yield user
    belongings.wipe(user)


def test_no_host_free(plane: ControlPlane, student: Rest, neighbour: Rest, tmp_path: Path) -> None:
    site = a_site(tmp_path)
    properties = '["==", "$node_type", "compute_cascadelake"]'
    hosts = {"resource_properties": properties, "hypervisor_properties": "", "min": 2, "max": 2}
    lease(neighbour, resource_type="physical:host", **hosts)
    theirs = belongings.belongings(neighbour)
    with raises(SiteError, "free") as refused:
        site.provision(a_spec(node_type="compute_cascadelake"))
    assert refused.value.retry_after_s is not None and refused.value.retry_after_s > 3600
    assert belongings.leases(student) == []
    site.release("it")

    later = a_spec(node_type="compute_cascadelake", lease={"hours": 2, "start": "next-free"})
    for _ in range(2):
        with raises(SiteError, "starts at"):
            site.provision(later)
    assert len(belongings.leases(student)) == 1
    status = site.status("it")
    assert status.state is State.PENDING
    assert status.ends_at_s is not None and status.ends_at_s > time.time() + 5 * 3600
    site.release("it")
    assert not belongings.belongings(student)
    assert belongings.belongings(neighbour) == theirs


def test_no_virtual_machine_free(
    plane: ControlPlane,
    student: Rest,
    neighbour: Rest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OS_REGION_NAME", REGIONS[1])
    site = a_site(tmp_path)
    options: dict[str, Any] = {"site": REGIONS[1], "flavor": "m1.medium"}
    flavors = neighbour.get("compute", "/flavors")["flavors"]
    flavor = next(each["id"] for each in flavors if each["name"] == "m1.medium")
    for amount in (128, 64, 32, 16, 8, 4, 2, 1):
        with suppress(Refused):  # fewer hosts are free by now
            kind = {"resource_type": "flavor:instance", "flavor_id": flavor, "affinity": None}
            lease(neighbour, amount=amount, **kind)
    with raises(SiteError, "next-free"):
        site.provision(a_spec(**options))
    assert belongings.leases(student) == []

    with raises(SiteError, "starts at") as refused:
        site.provision(a_spec(**options, lease={"hours": 2, "start": "next-free"}))

    assert refused.value.retry_after_s is not None
    assert 4 * 3600 < refused.value.retry_after_s < 6 * 3600
    assert len(belongings.leases(student)) == 1
    assert site.status("it").state is State.PENDING
    site.release("it")
    assert not belongings.belongings(student)


@pytest.mark.parametrize(
    ("service", "path", "quota"),
    [
        ("compute", "/os-quota-sets/{}", {"quota_set": {"instances": 1}}),
        ("network", "/v2.0/quotas/{}", {"quota": {"floatingip": 0}}),
    ],
    ids=["servers", "floating-ips"],
)
def test_a_quota_is_used_up(
    *,
    plane: ControlPlane,
    student: Rest,
    tmp_path: Path,
    service: str,
    path: str,
    quota: dict[str, Any],
) -> None:
    site = a_site(tmp_path)
    path = path.format(student.project_id)
    plane.admin(service, "PUT", path, quota)
    try:
        with raises(SiteError, "quota"):
            site.provision(a_spec())
        assert len(belongings.leases(student)) == 1
        site.release("it")
        assert not belongings.belongings(student)
    finally:
        plane.admin(service, "DELETE", path)


def test_a_lease_that_cannot_start(plane: ControlPlane, student: Rest, tmp_path: Path) -> None:
    site, spec = a_site(tmp_path), a_spec(node_type="compute_cascadelake")
    pools = plane.admin.get("compute", "/os-aggregates")["aggregates"]
    action = next(f"/os-aggregates/{p['id']}/action" for p in pools if p["name"] == "freepool")
    plane.admin.post("compute", action, {"remove_host": {"host": "cascade-1"}})
    try:
        with raises(SiteError, "(ERROR)") as refused:
            site.provision(spec)
        assert refused.value.retry_after_s is not None
        assert belongings.leases(student) == []
    finally:
        plane.admin.post("compute", action, {"add_host": {"host": "cascade-1"}})
    site.release("it")
    assert not belongings.belongings(student)
    assert belongings.free_hosts(plane.admin) == {host.name for host in plane.hosts}


def test_a_server_that_cannot_start(plane: ControlPlane, student: Rest, tmp_path: Path) -> None:
    site = a_site(tmp_path)
    spec = a_spec(node_type={"admin": "compute_skylake", "osd": "compute_broken"})
    with raises(SiteError, "could not be started") as refused:
        site.provision(spec)
    assert refused.value.retry_after_s is not None
    assert len(belongings.leases(student)) == 1
    assert len(plane.proxy.changing()) < 20
    site.release("it")
    assert not belongings.belongings(student)
    assert belongings.free_hosts(plane.admin) == {host.name for host in plane.hosts}


@pytest.mark.parametrize(
    ("reply", "after"),
    [(error(500, "Internal Server Error"), False), (DROPPED, True)],
    ids=["500", "answer-lost"],
)
def test_every_making_call_fails_once(
    plane: ControlPlane, student: Rest, tmp_path: Path, reply: Reply, after: bool
) -> None:
    site, spec = a_site(tmp_path), a_spec()
    rules = [
        plane.proxy.spoil(Rule(service, "POST", path, reply=reply, after=after))
        for service, path in MAKING.values()
    ]

    testbed = site.provision(spec)

    assert all(rule.hits >= 1 for rule in rules)
    made = belongings.belongings(student)
    assert len(made.leases) == len(made.keypairs) == len(made.floating_ips) == 1
    assert len(made.servers) == len(testbed.nodes)
    assert len(belongings.free_hosts(plane.admin)) == len(plane.hosts) - 2
    plane.proxy.clear()
    rules = [
        plane.proxy.spoil(Rule(service, "DELETE", reply=reply, after=after))
        for service in ("reservation", "compute", "network")
    ]
    site.release(spec.name)
    assert all(rule.hits >= 1 for rule in rules)
    assert not belongings.belongings(student)


def test_a_token_that_ends_on_the_way(plane: ControlPlane, student: Rest, tmp_path: Path) -> None:
    site, spec = a_site(tmp_path), a_spec()

    def revoke(call: Call) -> None:
        admin = plane.admin
        admin.log_in()
        admin("identity", "DELETE", "/auth/tokens", headers={"X-Subject-Token": call.token})

    ended = [
        plane.proxy.spoil(Rule(service, "POST", path, act=revoke))
        for service, path in (MAKING["a lease"], MAKING["a floating ip"])
    ]

    site.provision(spec)

    assert all(rule.hits == 2 for rule in ended)  # refused, and again with a new token
    assert len(belongings.leases(student)) == len(belongings.belongings(student).floating_ips) == 1
    site.release(spec.name)
    assert not belongings.belongings(student)
