"""Requests to OpenStack over HTTP, and parsing of its answers, with the real python-chi, Blazar
client and openstacksdk.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
import requests
from requests_mock import Mocker

from testbed.sites.chameleon.cloud import Cloud, CloudError, Fault, Reservation
from tests.testbed.sites.chi_services import (
    BLAZAR,
    LEASE,
    NEUTRON,
    NOVA,
    START_S,
    cloud,
    environ,
    http,
    let_in,
)

__all__ = ["cloud", "environ", "http"]

pytestmark = pytest.mark.slow  # python-chi alone takes two seconds to import


def test_a_lease_is_asked_for_prolonged_and_read(http: Mocker, cloud: Cloud) -> None:
    asked = http.post(f"{BLAZAR}/leases", json={"lease": LEASE}, status_code=201)
    wanted = [Reservation(8, '["==", "$node_type", "storage"]'), Reservation(2, flavor_id="3")]
    lease = cloud.create_lease("mine", None, START_S + 86400, wanted)
    body = asked.last_request.json()
    assert (body["start_date"], body["end_date"]) == ("now", "2026-12-02 08:00")
    host, flavor = body["reservations"]
    assert (host["resource_type"], host["min"], host["max"]) == ("physical:host", 8, 8)
    kind = {"resource_type": "flavor:instance", "flavor_id": "3", "affinity": None}
    assert flavor == kind | {"amount": 2}
    assert (lease.start_s, lease.end_s) == (START_S, START_S + 86400)
    assert [replace(each, id="") for each in lease.reservations] == wanted
    http.get(f"{BLAZAR}/leases/lease-1", json={"lease": LEASE})
    asked = http.put(f"{BLAZAR}/leases/lease-1", json={"lease": LEASE})
    cloud.prolong_lease("lease-1", START_S + 90000)
    assert asked.last_request.json() == {"end_date": "2026-12-02 09:00"}
    event = {"event_type": "start_lease", "time": "2026-12-01T08:00:00.000000", "status": "ERROR"}
    broken = {**LEASE, "status": "ERROR", "events": [event]}
    http.get(f"{BLAZAR}/leases/lease-1", json={"lease": broken})
    found = cloud.lease("lease-1")
    assert found is not None and found.status == "ERROR" and "start_lease" in found.reason


def test_what_is_not_there_is_no_error(http: Mocker, cloud: Cloud) -> None:
    missing = {"error_code": 404, "error_message": "Object not found"}
    http.get(f"{BLAZAR}/leases/gone", status_code=404, json=missing)
    http.delete(f"{BLAZAR}/leases/gone", status_code=404, json=missing)
    http.delete(f"{NOVA}/servers/gone", status_code=404, json={"itemNotFound": {"message": "no"}})
    assert cloud.lease("gone") is None
    cloud.delete_lease("gone")
    cloud.delete_server("gone")


def said(status: int, words: str) -> dict[str, Any]:
    """Return an answer of Blazar."""
    return {"status_code": status, "json": {"error_code": status, "error_message": words}}


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (said(500, "Not enough hosts available"), Fault.FULL),
        (said(500, "Internal Server Error"), Fault.PASSING),
        (said(409, "The lease with name: mine already exists"), Fault.REFUSED),
        ({"status_code": 504}, Fault.PASSING),
        ({"status_code": 401, "json": {"error_message": "no"}}, Fault.CREDENTIALS),
        ({"exc": requests.exceptions.ConnectTimeout}, Fault.PASSING),
    ],
)
def test_faults_have_blazars_words(
    http: Mocker, cloud: Cloud, answer: dict[str, Any], fault: Fault
) -> None:
    http.get(f"{BLAZAR}/leases", **answer)
    with pytest.raises(CloudError) as error:
        cloud.leases()
    assert error.value.fault is fault
    assert answer.get("json", {}).get("error_message", "") in str(error.value)


def test_a_token_that_expired_is_renewed_once(http: Mocker, cloud: Cloud) -> None:
    tokens = let_in(http)
    assert cloud.identity().user_id == "user"
    before = tokens.call_count
    answers = [{"status_code": 401, "json": {}}, {"json": {"leases": [LEASE]}}]
    http.get(f"{BLAZAR}/leases", answers)
    assert [lease.id for lease in cloud.leases()] == ["lease-1"]
    assert tokens.call_count == before + 1


def test_hosts_and_their_bookings(http: Mocker, cloud: Cloud) -> None:
    host = {"id": "1", "uid": "abc-1", "node_type": "storage", "reservable": True}
    http.get(f"{BLAZAR}/os-hosts", json={"hosts": [host]})
    times = {"start_date": LEASE["start_date"], "end_date": LEASE["end_date"]}
    allocation = {"resource_id": "1", "reservations": [{"id": "r", "lease_id": "l", **times}]}
    http.get(f"{BLAZAR}/os-hosts/allocations", json={"allocations": [allocation]})
    assert [dict(found) for found in cloud.hosts()] == [host]
    (booking,) = cloud.bookings()
    assert (booking.host_id, booking.start_s) == ("1", START_S)


SERVER = {
    "name": "node",
    "flavor_id": "bm",
    "image_id": "image",
    "networks": [{"uuid": "net"}],
    "key_name": "key",
    "config_drive": True,
    "user_data": "#cloud-config\n",
}


def test_a_server_is_asked_for_and_a_quota_refuses_it(http: Mocker, cloud: Cloud) -> None:
    asked = http.post(f"{NOVA}/servers", json={"server": {"id": "s1"}}, status_code=202)
    made = cloud.create_server(SERVER | {"scheduler_hints": {"reservation": "r1"}})
    body = asked.last_request.json()
    assert made == "s1"
    hints = body.get("os:scheduler_hints") or body.get("OS-SCH-HNT:scheduler_hints")
    assert hints == {"reservation": "r1"}
    user_data = body["server"].pop("user_data")
    assert base64.b64decode(user_data).decode() == SERVER["user_data"]
    for key in ("networks", "key_name", "config_drive"):
        assert body["server"][key] == SERVER[key]
    words = "Quota exceeded for instances: Requested 1, but already used 10 of 10 instances"
    http.post(f"{NOVA}/servers", status_code=403, json={"forbidden": {"message": words}})
    with pytest.raises(CloudError) as error:
        cloud.create_server(SERVER)
    assert (error.value.fault, words in str(error.value)) == (Fault.QUOTA, True)


def test_servers_are_listed_with_one_request(http: Mocker, cloud: Cloud) -> None:
    address = {"addr": "10.1.0.2", "version": 4, "OS-EXT-IPS:type": "fixed"}
    floating = {"addr": "192.0.2.9", "version": 4, "OS-EXT-IPS:type": "floating"}
    up = {"id": "s1", "name": "hotbed-a-1-admin", "status": "ACTIVE"}
    up["OS-EXT-SRV-ATTR:hypervisor_hostname"] = "abc-1"
    down = {"id": "s2", "name": "hotbed-a-1-osd0", "status": "ERROR", "addresses": {}}
    servers = [
        {**up, "addresses": {"sharednet1": [address, floating]}},
        {**down, "fault": {"message": "No valid host was found.", "code": 500}},
        {**up, "addresses": {}, "OS-EXT-STS:task_state": "deleting"},
    ]
    asked = http.get(f"{NOVA}/servers/detail", json={"servers": json.loads(json.dumps(servers))})
    one, two, three = cloud.servers("hotbed-a-1")
    assert asked.call_count == 1
    assert (one.addresses, one.host) == (("10.1.0.2",), "abc-1")
    assert (two.status, two.fault) == ("ERROR", "No valid host was found.")
    assert three.status == "DELETING"  # Nova reports it as active until it is gone


def test_a_rule_of_a_security_group_that_exists_stays(http: Mocker, cloud: Cloud) -> None:
    conflict = {"NeutronError": {"message": "Security group rule already exists.", "type": "x"}}
    asked = http.post(f"{NEUTRON}/v2.0/security-group-rules", json=conflict, status_code=409)
    cloud.add_rule("g", protocol="tcp", port_range_min=22, port_range_max=22)
    body = asked.last_request.json()["security_group_rule"]
    assert (body["protocol"], body["port_range_min"], body["ethertype"]) == ("tcp", 22, "IPv4")
    assert (body["security_group_id"], body["direction"]) == ("g", "ingress")
    full = {"NeutronError": {"message": "Quota exceeded for resources: ['security_group_rule']."}}
    http.post(f"{NEUTRON}/v2.0/security-group-rules", json=full, status_code=409)
    with pytest.raises(CloudError) as error:
        cloud.add_rule("g", protocol="tcp")
    assert error.value.fault is Fault.QUOTA
