"""What is said to OpenStack over HTTP, and how its answers are read: python-chi, Blazar's client
and openstacksdk for real, the services' answers written by hand after their documentation.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from requests_mock import Mocker

from schemas.errors import HotbedError, UserError
from testbed.sites.chameleon import chi_cloud
from testbed.sites.chameleon.chi_cloud import ChiCloud, open_cloud
from testbed.sites.chameleon.cloud import FLAVOR, HOST, CloudError, Fault, NewServer, Rule, Wanted
from testbed.sites.contract import SiteError

KEYSTONE, BLAZAR = "http://keystone.test:5000/v3", "http://blazar.test/v1"
NOVA, NEUTRON, GLANCE = "http://nova.test/v2.1", "http://neutron.test", "http://glance.test"
REGION = "CHI@UC"

pytestmark = pytest.mark.slow  # python-chi alone takes two seconds to load
LEASE = {
    "id": "lease-1",
    "name": "mine",
    "status": "PENDING",
    "start_date": "2026-12-01T08:00:00.000000",
    "end_date": "2026-12-02T08:00:00.000000",
    "user_id": "user",
    "project_id": "project",
    "reservations": [
        {
            "id": "reservation-1",
            "resource_type": "physical:host",
            "resource_properties": '["==", "$node_type", "storage"]',
            "min": 8,
            "max": 8,
            "status": "pending",
        },
        {
            "id": "reservation-2",
            "resource_type": "flavor:instance",
            "resource_properties": '{"id": "3", "name": "m1.medium"}',
            "flavor_id": "reservation-2",
            "amount": 2,
            "status": "pending",
        },
    ],
    "events": [],
}
START_S = 1796112000.0  # 2026-12-01 08:00 UTC


@pytest.fixture
def http() -> Iterator[Mocker]:
    with Mocker() as mock:
        yield mock


def let_in(http: Mocker, **more: Any) -> Any:
    """Keystone's token, its catalog, and what openstacksdk asks services before it uses them."""
    services = {"reservation": BLAZAR, "compute": NOVA, "network": NEUTRON, "image": GLANCE}
    catalog = [
        {
            "type": kind,
            "name": kind,
            "id": kind,
            "endpoints": [{"id": kind, "interface": "public", "region": REGION, "url": url}],
        }
        for kind, url in services.items()
    ]
    token = {
        "methods": ["password"],
        "user": {"id": "user", "name": "student", "domain": {"id": "d", "name": "chameleon"}},
        "project": {"id": "project", "name": "CHI-1", "domain": {"id": "d", "name": "chameleon"}},
        "roles": [{"id": "r", "name": "member"}],
        "issued_at": "2026-12-01T08:00:00.000000Z",
        "expires_at": "2099-12-01T08:00:00.000000Z",
        "catalog": catalog,
        **more,
    }
    version = {"id": "v3.14", "status": "stable", "links": [{"rel": "self", "href": KEYSTONE}]}
    http.get(KEYSTONE, json={"version": version})
    nova = {"id": "v2.1", "status": "CURRENT", "version": "2.90", "min_version": "2.1"}
    http.get(NOVA, json={"version": nova | {"links": [{"rel": "self", "href": NOVA}]}})
    http.get(f"{NOVA}/", json={"version": nova | {"links": [{"rel": "self", "href": NOVA}]}})
    link = [{"rel": "self", "href": f"{NEUTRON}/v2.0"}]
    versions = {"versions": [{"id": "v2.0", "status": "CURRENT", "links": link}]}
    http.get(NEUTRON, json=versions)
    http.get(f"{NEUTRON}/", json=versions)
    return http.post(
        f"{KEYSTONE}/auth/tokens", json={"token": token}, headers={"X-Subject-Token": "a-token"}
    )


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chi_cloud, "_SITES", {})
    for name in list(os.environ):
        if name.startswith(("OS_", "JUPYTERHUB_")):
            monkeypatch.delenv(name)
    for name, value in {
        "OS_AUTH_TYPE": "v3password",
        "OS_AUTH_URL": KEYSTONE,
        "OS_USERNAME": "student",
        "OS_PASSWORD": "very-secret",
        "OS_USER_DOMAIN_NAME": "chameleon",
        "OS_PROJECT_NAME": "CHI-1",
        "OS_PROJECT_DOMAIN_NAME": "chameleon",
        "OS_REGION_NAME": REGION,
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def cloud(http: Mocker, environ: None) -> ChiCloud:
    let_in(http)
    return open_cloud(REGION, None)


def test_who_we_are_and_the_clouds_clock(http: Mocker, cloud: ChiCloud) -> None:
    http.get(f"{BLAZAR}/", status_code=404, headers={"Date": "Tue, 01 Dec 2026 08:00:00 GMT"})
    assert cloud.identity().user_id == "user"
    assert cloud.identity().project_id == "project"
    assert cloud.now() == START_S


def test_a_lease_is_asked_for_and_read(http: Mocker, cloud: ChiCloud) -> None:
    asked = http.post(f"{BLAZAR}/leases", json={"lease": LEASE}, status_code=201)
    wanted = [Wanted(HOST, 8, '["==", "$node_type", "storage"]'), Wanted(FLAVOR, 2, "", "3")]
    lease = cloud.create_lease("mine", None, START_S + 86400, wanted)
    body = asked.last_request.json()
    assert (body["start_date"], body["end_date"]) == ("now", "2026-12-02 08:00")
    host, flavor = body["reservations"]
    assert (host["resource_type"], host["min"], host["max"]) == ("physical:host", 8, 8)
    assert flavor == {
        "resource_type": "flavor:instance",
        "flavor_id": "3",
        "amount": 2,
        "affinity": None,
    }
    assert (lease.start_s, lease.end_s) == (START_S, START_S + 86400)
    assert [each.wanted for each in lease.reservations] == wanted


def test_a_lease_is_prolonged_by_its_end(http: Mocker, cloud: ChiCloud) -> None:
    http.get(f"{BLAZAR}/leases/lease-1", json={"lease": LEASE})
    asked = http.put(f"{BLAZAR}/leases/lease-1", json={"lease": LEASE})
    cloud.prolong_lease("lease-1", START_S + 90000)
    assert asked.last_request.json() == {"end_date": "2026-12-02 09:00"}


def test_a_lease_in_error_gives_its_reason(http: Mocker, cloud: ChiCloud) -> None:
    event = {"event_type": "start_lease", "time": "2026-12-01T08:00:00.000000", "status": "ERROR"}
    http.get(
        f"{BLAZAR}/leases/lease-1", json={"lease": {**LEASE, "status": "ERROR", "events": [event]}}
    )
    lease = cloud.lease("lease-1")
    assert lease is not None
    assert lease.status == "ERROR"
    assert "start_lease" in lease.reason


def test_what_is_not_there_is_no_error(http: Mocker, cloud: ChiCloud) -> None:
    missing = {"error_code": 404, "error_message": "Object not found"}
    http.get(f"{BLAZAR}/leases/gone", status_code=404, json=missing)
    http.delete(f"{BLAZAR}/leases/gone", status_code=404, json=missing)
    http.delete(f"{NOVA}/servers/gone", status_code=404, json={"itemNotFound": {"message": "no"}})
    assert cloud.lease("gone") is None
    cloud.delete_lease("gone")
    cloud.delete_server("gone")


FAULTS = {
    "too few hosts, which Blazar says with 500": (
        500,
        {"error_code": 500, "error_message": "Not enough hosts available"},
        Fault.FULL,
    ),
    "a fault of Blazar's": (
        500,
        {"error_code": 500, "error_message": "Internal Server Error"},
        Fault.PASSING,
    ),
    "a name that is taken": (
        409,
        {"error_code": 409, "error_message": "The lease with name: mine already exists"},
        Fault.REFUSED,
    ),
    "a gateway": (504, None, Fault.PASSING),
}


@pytest.mark.parametrize("case", FAULTS)
def test_blazars_words_are_kept_and_told_apart(http: Mocker, cloud: ChiCloud, case: str) -> None:
    status, body, fault = FAULTS[case]
    http.post(f"{BLAZAR}/leases", status_code=status, text=json.dumps(body) if body else "")
    with pytest.raises(CloudError) as error:
        cloud.create_lease("mine", None, START_S, [Wanted(HOST, 1, "")])
    assert error.value.fault is fault
    assert error.value.status == status
    if body:
        assert body["error_message"] in str(error.value)


def test_a_time_out_is_passing(http: Mocker, cloud: ChiCloud) -> None:
    http.get(f"{BLAZAR}/leases", exc=requests.exceptions.ConnectTimeout)
    with pytest.raises(CloudError) as error:
        cloud.leases()
    assert error.value.fault is Fault.PASSING


def test_a_token_that_expired_is_renewed_once(http: Mocker, cloud: ChiCloud) -> None:
    tokens = let_in(http)
    cloud.identity()
    before = tokens.call_count
    http.get(
        f"{BLAZAR}/leases",
        [{"status_code": 401, "json": {}}, {"json": {"leases": [LEASE]}}],
    )
    assert [lease.id for lease in cloud.leases()] == ["lease-1"]
    assert tokens.call_count == before + 1


def test_credentials_that_stay_refused(http: Mocker, cloud: ChiCloud) -> None:
    http.get(f"{BLAZAR}/leases", status_code=401, json={"error_message": "no"})
    with pytest.raises(CloudError) as error:
        cloud.leases()
    assert error.value.fault is Fault.CREDENTIALS


def test_hosts_and_their_bookings(http: Mocker, cloud: ChiCloud) -> None:
    host = {
        "id": "1",
        "uid": "abc-1",
        "hypervisor_hostname": "abc-1",
        "node_type": "storage",
        "architecture.smt_size": "40",
        "reservable": True,
        "created_at": "2020-01-01 00:00:00",
    }
    http.get(f"{BLAZAR}/os-hosts", json={"hosts": [host]})
    times = {"start_date": LEASE["start_date"], "end_date": LEASE["end_date"]}
    allocation = {"resource_id": "1", "reservations": [{"id": "r", "lease_id": "l", **times}]}
    http.get(f"{BLAZAR}/os-hosts/allocations", json={"allocations": [allocation]})
    (found,) = cloud.hosts()
    assert (found.name, found.node_type) == ("abc-1", "storage")
    assert found.properties["architecture.smt_size"] == "40"
    (booking,) = cloud.bookings()
    assert (booking.host_id, booking.start_s) == ("1", START_S)


def test_a_server_is_asked_for(http: Mocker, cloud: ChiCloud) -> None:
    asked = http.post(f"{NOVA}/servers", json={"server": {"id": "s1"}}, status_code=202)
    made = cloud.create_server(
        NewServer("node", "bm", "image", "net", "key", "#cloud-config\n", reservation_id="r1")
    )
    body = asked.last_request.json()
    assert made.id == "s1"
    hints = body.get("os:scheduler_hints") or body.get("OS-SCH-HNT:scheduler_hints")
    assert hints == {"reservation": "r1"}
    assert body["server"]["networks"] == [{"uuid": "net"}]
    assert body["server"]["key_name"] == "key"
    assert body["server"]["config_drive"] is True


def test_quota(http: Mocker, cloud: ChiCloud) -> None:
    words = "Quota exceeded for instances: Requested 1, but already used 10 of 10 instances"
    http.post(f"{NOVA}/servers", status_code=403, json={"forbidden": {"message": words}})
    with pytest.raises(CloudError, match="Quota exceeded for instances") as error:
        cloud.create_server(NewServer("node", "bm", "image", "net", "key", ""))
    assert error.value.fault is Fault.QUOTA


def test_servers_are_listed_with_one_request(http: Mocker, cloud: ChiCloud) -> None:
    address = {"addr": "10.1.0.2", "version": 4, "OS-EXT-IPS:type": "fixed"}
    floating = {"addr": "192.0.2.9", "version": 4, "OS-EXT-IPS:type": "floating"}
    up = {"id": "s1", "name": "hotbed-a-1-admin", "status": "ACTIVE"}
    down = {"id": "s2", "name": "hotbed-a-1-osd0", "status": "ERROR", "addresses": {}}
    asked = http.get(
        f"{NOVA}/servers/detail",
        json={
            "servers": [
                {
                    **up,
                    "addresses": {"sharednet1": [address, floating]},
                    "OS-EXT-SRV-ATTR:hypervisor_hostname": "abc-1",
                },
                {**down, "fault": {"message": "No valid host was found.", "code": 500}},
            ]
        },
    )
    one, two = cloud.servers("hotbed-a-1")
    assert asked.call_count == 1
    assert (one.addresses, one.host) == (("10.1.0.2",), "abc-1")
    assert (two.status, two.fault) == ("ERROR", "No valid host was found.")


def test_security_group_rules(http: Mocker, cloud: ChiCloud) -> None:
    rule = {"direction": "ingress", "ethertype": "IPv4", "security_group_id": "g"}
    nothing = dict.fromkeys(("protocol", "port_range_min", "port_range_max", "remote_ip_prefix"))
    ssh = {"protocol": "tcp", "port_range_min": 22, "port_range_max": 22, "remote_group_id": None}
    told = [{**rule, **nothing, "remote_group_id": "g"}, {**rule, **nothing, **ssh}]
    http.get(f"{NEUTRON}/v2.0/security-group-rules", json={"security_group_rules": told})
    assert set(cloud.rules("g")) == {Rule(None), Rule(22)}
    asked = http.post(
        f"{NEUTRON}/v2.0/security-group-rules", json={"security_group_rule": rule}, status_code=201
    )
    cloud.add_rule("g", Rule(22))
    body = asked.last_request.json()["security_group_rule"]
    assert (body["protocol"], body["port_range_min"], body["ethertype"]) == ("tcp", 22, "IPv4")


@pytest.fixture
def by_application_credential(environ: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OS_USERNAME", "OS_PASSWORD", "OS_PROJECT_NAME"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("OS_AUTH_TYPE", "v3applicationcredential")
    monkeypatch.setenv("OS_APPLICATION_CREDENTIAL_ID", "id")
    monkeypatch.setenv("OS_APPLICATION_CREDENTIAL_SECRET", "very-secret")


def keystone_lets_in(http: Mocker, *, restricted: bool, trusts: dict[str, Any]) -> Any:
    """With an application credential; `trusts`: the answer to who asks for the own trusts."""
    credential = {"id": "id", "name": "n", "restricted": restricted}
    let_in(http, methods=["application_credential"], application_credential=credential)
    return http.get(f"{KEYSTONE}/OS-TRUST/trusts", **trusts)


TRUSTS: dict[str, Any] = {"json": {"trusts": [], "links": {"next": None}}}
NOT_ALLOWED = "You are not authorized to perform the requested action: "


def forbidden(words: str) -> dict[str, Any]:
    """Keystone's answer of that name."""
    error = {"code": 403, "message": f"{NOT_ALLOWED}{words}.", "title": "Forbidden"}
    return {"status_code": 403, "json": {"error": error}}


def test_a_restricted_application_credential_is_refused_at_once(
    http: Mocker, by_application_credential: None
) -> None:
    keystone_lets_in(http, restricted=True, trusts=TRUSTS)
    with pytest.raises(UserError, match=r"restricted one.*'unrestricted' ticked") as error:
        open_cloud(REGION, None)
    assert "very-secret" not in str(error.value)


@pytest.mark.parametrize("restricted", [False, True], ids=["unrestricted", "restricted"])
@pytest.mark.parametrize(
    "words",
    [
        "Delegated tokens cannot manage trusts",  # keystone 30
        "Using method 'application_credential' is not allowed for managing trusts",  # 27 to 29
    ],
    ids=["delegated", "method"],
)
def test_a_keystone_that_lets_no_application_credential_make_trusts_is_told(
    http: Mocker, by_application_credential: None, words: str, restricted: bool
) -> None:
    """Blazar would answer a lease with 500 and no reason, whatever box is ticked."""
    asked = keystone_lets_in(http, restricted=restricted, trusts=forbidden(words))
    with pytest.raises(UserError, match=r"no application credential.*CLI password") as error:
        open_cloud(REGION, None)
    assert words in str(error.value) and "ticked" not in str(error.value)
    assert asked.last_request.qs == {"trustor_user_id": ["user"]}
    assert asked.last_request.headers["X-Auth-Token"] == "a-token"


@pytest.mark.parametrize(
    "trusts",
    [
        TRUSTS,
        # Keystones where nobody may list trusts, or that have no such list: that says nothing.
        forbidden("identity:list_trusts_for_trustor"),
        {"status_code": 404, "json": {"error": {"message": "Not found.", "code": 404}}},
        {"status_code": 403, "text": "<html>a proxy's own page</html>"},
    ],
    ids=["allowed", "policy", "none", "no-json"],
)
def test_an_unrestricted_application_credential_is_taken(
    http: Mocker, by_application_credential: None, trusts: dict[str, Any]
) -> None:
    asked = keystone_lets_in(http, restricted=False, trusts=trusts)
    assert open_cloud(REGION, None).identity().user_id == "user"
    assert asked.call_count == 1


def test_the_trusts_are_asked_for_under_v3(
    http: Mocker, by_application_credential: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OS_AUTH_URL may lack the version, which python-chi's library then adds."""
    keystone_lets_in(http, restricted=False, trusts=forbidden("Delegated tokens cannot"))
    monkeypatch.setenv("OS_AUTH_URL", KEYSTONE.removesuffix("v3"))
    with pytest.raises(UserError, match="no application credential"):
        open_cloud(REGION, None)


UNOPENED: dict[str, tuple[dict[str, Any], type[HotbedError], str]] = {
    "refused": ({"status_code": 401}, UserError, "Keystone refuses the credentials .*openrc"),
    "silent": ({"exc": requests.exceptions.ConnectTimeout}, SiteError, ""),
}


@pytest.mark.parametrize("case", UNOPENED)
def test_a_session_that_cannot_be_opened_says_what_to_do(
    http: Mocker, by_application_credential: None, case: str
) -> None:
    answer, kind, words = UNOPENED[case]
    let_in(http)
    http.post(f"{KEYSTONE}/auth/tokens", **answer)
    with pytest.raises(kind, match=f"CHI@UC: opening a session: {words}") as error:
        open_cloud(REGION, None)
    assert "very-secret" not in str(error.value)


SITES = {"items": [{"name": REGION, "site_class": "baremetal", "web": "http://keystone.test"}]}
SITES_URL = "https://api.chameleoncloud.org/sites.json"


def test_the_sites_address_is_looked_up_where_the_environment_has_none(
    http: Mocker, environ: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OS_AUTH_URL")
    let_in(http)
    keys = {"web": "w", "location": "l", "user_support_contact": "c"}
    asked = http.get(SITES_URL, json={"items": [keys | SITES["items"][0]]})
    for _ in range(2):
        assert open_cloud(REGION, "CHI-1").identity().user_id == "user"
    assert asked.call_count == 1
    with pytest.raises(UserError, match="no site 'CHI@MOON'; Chameleon has: CHI@UC"):
        open_cloud("CHI@MOON", "CHI-1")


def test_a_silent_chameleon_is_told(
    http: Mocker, environ: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OS_AUTH_URL")
    http.get(SITES_URL, exc=requests.exceptions.ConnectTimeout)
    with pytest.raises(SiteError, match="does not say where CHI@UC is") as error:
        open_cloud(REGION, "CHI-1")
    assert error.value.retry_after_s is not None


def test_a_chameleon_that_never_answers_is_told(
    http: Mocker, environ: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """python-chi asks for the sites without a time-out."""
    monkeypatch.delenv("OS_AUTH_URL")
    monkeypatch.setattr(chi_cloud, "TIMEOUT_S", 0.01)
    over = threading.Event()

    def hang() -> object:
        over.wait()
        return {}

    monkeypatch.setattr("chi.context.list_sites", hang)
    with pytest.raises(SiteError, match=r"CHI@UC is \(no answer within 0.01 s\)") as error:
        open_cloud(REGION, "CHI-1")
    assert error.value.retry_after_s is not None
    over.set()
