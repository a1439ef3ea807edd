"""The site `chameleon` on a real control plane: the contract, creation and removal."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.errors import UserError
from testbed.sites.chameleon import ChameleonSite
from testbed.spec import TestbedSpec
from tests.errors import raises
from tests.openstack import belongings
from tests.openstack.config import REGIONS
from tests.openstack.plane import ControlPlane
from tests.openstack.proxy import Rule
from tests.openstack.rest import Rest
from tests.openstack.seed import OTHER
from tests.openstack.users_site import a_site, a_spec
from tests.testbed.sites.conformance import SiteConformance

pytestmark = [pytest.mark.openstack, pytest.mark.timeout(400)]


class TestConformance(SiteConformance):
    """Contract of every site."""

    @pytest.fixture(scope="class")
    def site(
        self, plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[ChameleonSite]:
        found = a_site(tmp_path_factory.mktemp("conformance"))
        yield found
        for name in found.names():
            found.release(name)
        assert not belongings.belongings(plane.user())

    @pytest.fixture(scope="class")
    def spec(self) -> TestbedSpec:
        return a_spec()


def test_a_testbed_is_one_lease_with_all_of_it_and_goes_without_a_trace(
    plane: ControlPlane, student: Rest, tmp_path: Path
) -> None:
    neighbour = plane.user(*OTHER)
    neighbour.post("compute", "/os-keypairs", {"keypair": {"name": "hotbed-it-theirs"}})
    before = belongings.belongings(neighbour)
    site, spec = a_site(tmp_path), a_spec(osds=3)
    # All servers are requested in parallel: no request passes before all four arrive.
    everybody = threading.Barrier(4, timeout=60)
    plane.proxy.spoil(
        Rule("compute", "POST", "/servers$", times=4, act=lambda _: everybody.wait() and None)
    )

    testbed = site.provision(spec)

    made = belongings.belongings(student)
    assert len(made.leases) == len(made.floating_ips) == len(made.keypairs) == 1
    (lease,) = belongings.leases(student)
    assert lease["status"] == "ACTIVE"
    assert lease["reservations"][0]["min"] == lease["reservations"][0]["max"] == 4
    servers = belongings.servers(student)
    assert {each["status"] for each in servers} == {"ACTIVE"}
    assert len({each["hostId"] for each in servers}) == 4  # one machine each
    fixed = {each["addresses"]["sharednet1"][0]["addr"] for each in servers}
    assert {node.address for node in testbed.nodes} == fixed
    assert testbed.admin.public_address == made.floating_ips[0]
    assert all(node.via == "admin" for node in testbed.nodes if node is not testbed.admin)
    assert len(plane.admin.get("reservation", "/os-hosts")["hosts"]) == len(plane.hosts)
    assert len(belongings.free_hosts(plane.admin)) == len(plane.hosts) - 4

    site.release(spec.name)

    assert not belongings.belongings(student)
    assert belongings.belongings(neighbour) == before
    assert belongings.free_hosts(plane.admin) == {host.name for host in plane.hosts}
    belongings.wipe(neighbour)


def test_virtual_machines_are_leased_by_their_flavor(
    plane: ControlPlane, student: Rest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_REGION_NAME", REGIONS[1])
    site, spec = a_site(tmp_path), a_spec(site=REGIONS[1], flavor="m1.medium")

    testbed = site.provision(spec)

    (lease,) = belongings.leases(student)
    assert {each["resource_type"] for each in lease["reservations"]} == {"flavor:instance"}
    assert len(belongings.servers(student)) == len(testbed.nodes) == 2
    assert len(belongings.belongings(student).security_groups) == 1
    site.release(spec.name)
    assert not belongings.belongings(student)


def test_two_filters_and_a_type_fit_exactly_one_host(
    plane: ControlPlane, student: Rest, tmp_path: Path
) -> None:
    """Blazar accepts all three parts; the last part matches only one host."""
    hosts = plane.admin.get("reservation", "/os-hosts")["hosts"]
    wanted = [host for host in hosts if host["node_type"] == "compute_skylake"][-1]
    filters = {"node_name": "!=nobody", "uid": wanted["uid"]}
    site, two = a_site(tmp_path), a_spec(filters=filters)
    with raises(UserError, "1 machines fit"):
        site.provision(two)
    site.release(two.name)
    body = two.model_dump(mode="json")
    spec = TestbedSpec.model_validate(body | {"groups": body["groups"][:1]})

    site.provision(spec)

    (lease,) = belongings.leases(student)
    (reservation,) = lease["reservations"]
    assert len(json.loads(reservation["resource_properties"])) == 4  # `and`, and three parts
    taken = {host.name for host in plane.hosts} - belongings.free_hosts(plane.admin)
    assert taken == {wanted["hypervisor_hostname"]}
    site.release(spec.name)
    assert not belongings.belongings(student)


def by_application_credential(
    student: Rest, monkeypatch: pytest.MonkeyPatch, *, unrestricted: bool
) -> None:
    """Set an openrc file's environment with an application credential of the student."""
    body = {"name": f"of-{unrestricted}", "secret": "hush", "unrestricted": unrestricted}
    path = f"/users/{student.user_id}/application_credentials"
    made = student.post("identity", path, {"application_credential": body})
    for name in list(os.environ):
        if name.startswith(("OS_USER", "OS_PROJECT", "OS_PASSWORD")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OS_AUTH_TYPE", "v3applicationcredential")
    monkeypatch.setenv("OS_APPLICATION_CREDENTIAL_ID", made["application_credential"]["id"])
    monkeypatch.setenv("OS_APPLICATION_CREDENTIAL_SECRET", "hush")


@pytest.mark.parametrize("unrestricted", [True, False])
def test_an_application_credential_serves_only_if_it_is_unrestricted(
    *,
    plane: ControlPlane,
    student: Rest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unrestricted: bool,
) -> None:
    by_application_credential(student, monkeypatch, unrestricted=unrestricted)
    site, spec = a_site(tmp_path), a_spec()
    if unrestricted:
        assert len(site.provision(spec).nodes) == len(belongings.servers(student)) == 2
    else:
        with raises(UserError, "'unrestricted'"):
            site.provision(spec)
    site.release(spec.name)
    assert not belongings.belongings(student)
