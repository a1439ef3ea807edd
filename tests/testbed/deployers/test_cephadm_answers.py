"""Parsing of `ceph orch` and `ceph status` answers, made up from their documented fields; none was
recorded on a live cluster."""

from __future__ import annotations

import json

import pytest

from testbed.deploy import cephadm
from testbed.deploy.playbook import DeployError
from tests.errors import raises
from tests.testbed.deployers.fake_orchestrator import FSID, daemon


def test_daemons_have_their_state() -> None:
    text = json.dumps([daemon("mon", "admin", running=True), daemon("osd", "osd0", running=False)])
    first, second = cephadm.parse_daemons(text)
    assert (first.daemon_type, first.hostname, first.runs) == ("mon", "admin", True)
    assert not second.runs
    assert cephadm.parse_daemons("No daemons reported\n") == []


OCTOPUS = {
    "hostname": "osd0",
    "container_id": "0c1f2e3d4b5a",
    "container_image_id": "5f" * 32,
    "container_image_name": "example.org/ceph/ceph:v15",
    "daemon_id": "0",
    "daemon_type": "osd",
    "version": "15.2.0",
    "status": 1,
    "status_desc": "running",
    "last_refresh": "2026-01-02T03:04:05.678901",
    "created": "2026-01-01T03:04:05.678901",
    "started": "2026-01-01T03:04:06.678901",
    "is_active": False,
}
"""Row of `ceph orch ps --format json` with the fields of Ceph's version 15 tests."""
LATER = OCTOPUS | {
    "daemon_name": "osd.0",
    "service_name": "osd.hotbed-osd0",
    "container_image_digests": ["example.org/ceph/ceph@sha256:" + "5f" * 32],
    "version": "19.2.1",
    "memory_usage": 81788928,
    "memory_request": 4294967296,
    "cpu_percentage": "0.51%",
    "ports": [],
    "ip": "10.1.0.11",
    "systemd_unit": f"ceph-{FSID}@osd.0",
    "events": ["2026-01-02T03:04:05.678901Z daemon:osd.0 [INFO] \"Deployed osd.0 on host 'osd0'\""],
    "pending_daemon_config": False,
    "user_stopped": False,
}


@pytest.mark.parametrize("row", [OCTOPUS, LATER])
def test_daemons_of_every_release_are_read(row: dict[str, object]) -> None:
    (found,) = cephadm.parse_daemons(json.dumps([row]))
    assert (found.daemon_type, found.daemon_id, found.hostname) == ("osd", "0", "osd0")
    assert cephadm.lacking([found], {"osd": ["osd0"]}) is None


def test_what_is_not_known_yet_is_no_error() -> None:
    nothing = dict.fromkeys(("status", "status_desc", "version", "hostname"))
    (found,) = cephadm.parse_daemons(json.dumps([LATER | nothing]))
    assert not found.runs
    rows = [
        {"hostname": "a", "addr": None, "labels": None},
        {"addr": "10.1.0.11", "hostname": "b", "labels": ["_admin"], "status": "Offline"},
    ]
    hosts = cephadm.parse_hosts(json.dumps(rows))
    assert [(host.hostname, host.status) for host in hosts] == [("a", None), ("b", "Offline")]


def test_a_number_that_is_none_is_an_error_that_shows_it() -> None:
    with raises(DeployError, "ceph orch ps"):
        cephadm.parse_daemons(json.dumps([LATER | {"status": "running"}]))
    counts = {"num_osds": 3, "num_up_osds": None, "num_in_osds": 3}
    with raises(DeployError, "ceph status"):
        cephadm.parse_osds_up(json.dumps({"osdmap": counts}))


def test_what_does_not_run_is_named_with_what_it_says() -> None:
    rows = [daemon("mon", "a", running=True), daemon("mgr", "a", running=False)]
    daemons = cephadm.parse_daemons(json.dumps(rows))
    assert cephadm.lacking(daemons, {"mon": ["a"]}) is None
    assert cephadm.lacking(daemons, {"mon": ["a"], "mgr": ["a", "b"]}) == (
        "no mgr runs on a, b (mgr.a is in state starting)"
    )


@pytest.mark.parametrize("nested", [False, True])
def test_osds_are_counted_in_the_status_of_every_release(nested: bool) -> None:
    counts: dict[str, object] = {"num_osds": 3, "num_up_osds": 2, "num_in_osds": 3}
    text = json.dumps({"osdmap": {"osdmap": counts} if nested else counts})
    assert cephadm.parse_osds_up(text) == 2


@pytest.mark.parametrize("text", ["", "{", "{}", '{"osdmap": {}}', "[]", "[1]"])
def test_an_answer_that_is_none_is_an_error_that_shows_it(text: str) -> None:
    with raises(DeployError, "answered what is not known"):
        cephadm.parse_osds_up(text)
    if text != "[]":
        with raises(DeployError, "answered what is not known"):
            cephadm.parse_daemons(text)
