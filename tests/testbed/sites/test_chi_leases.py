"""Whose a lease is when Blazar's answer never came: over HTTP, with the real client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import requests
from requests_mock import Mocker

from testbed.sites.chameleon.asks import Ask
from testbed.sites.chameleon.chi_cloud import ChiCloud
from testbed.sites.chameleon.cloud import HOST, Wanted
from testbed.sites.chameleon.lease import find_lease, hold_lease
from testbed.sites.chameleon.options import read_options
from testbed.sites.chameleon.release import leases_to_end
from testbed.sites.chameleon.work import Work
from testbed.sites.contract import SiteError
from testbed.sites.records import Records
from tests.testbed.sites.chameleon_world import BARE, HOUR_S, spec_of
from tests.testbed.sites.chi_services import BLAZAR, LEASE, START_S, cloud, environ, http
from tests.testbed.sites.manual_clock import ManualClock

__all__ = ["cloud", "environ", "http"]

pytestmark = pytest.mark.slow  # python-chi alone takes two seconds to load

LEASES = f"{BLAZAR}/leases"
ASK = Ask(Wanted(HOST, 8, '["==", "$node_type", "storage"]'), ("osd",))


def listed(identity: str, made: str, **more: Any) -> dict[str, Any]:
    """A lease as Blazar lists it, made at `made` of 2026-12-01."""
    reservations = LEASE["reservations"][:1]
    created = f"2026-12-01 {made}"
    kept = {"id": identity, "status": "ACTIVE", "reservations": reservations}
    return {**LEASE, **kept, "created_at": created, **more}


@pytest.fixture
def work(tmp_path: Path, http: Mocker, cloud: ChiCloud) -> Work:
    """Of a testbed whose lease is called `mine`; it is 08:00."""
    clock = ManualClock()
    clock.sleep(START_S - clock.now())
    options = read_options({**BARE, "lease": {"name": "mine", "start": "now"}}, "options")
    with Records("chameleon", tmp_path).open("small") as record:
        record.data = {"tag": "0a1b2c3d"}
        http.get(f"{BLAZAR}/os-hosts", status_code=403)
        http.get(f"{BLAZAR}/os-hosts/allocations", status_code=403)
        return Work(record, spec_of(BARE), options, cloud, clock, pauses_s=())


def asked_without_answer(http: Mocker, work: Work) -> None:
    http.get(LEASES, json={"leases": []})
    http.post(LEASES, exc=requests.exceptions.ReadTimeout)
    with pytest.raises(SiteError):
        hold_lease(work, [ASK])


def outcomes(work: Work) -> list[str]:
    return [line["entry"] for line in work.record.entries() if line["what"] == "lease"]


def test_what_came_of_it_after_all_is_found_by_name_owner_and_time(
    http: Mocker, work: Work
) -> None:
    asked_without_answer(http, work)
    others = listed("another-user", "08:00:20", user_id="somebody")
    http.get(LEASES, json={"leases": [others, listed("ours", "08:00:30")]})
    lease = find_lease(work)
    assert lease is not None
    assert lease.id == "ours"
    assert outcomes(work) == ["ask", "made"]
    assert [each.id for each in leases_to_end(work)] == ["ours"]


def test_one_that_was_made_by_hand_an_hour_later_is_not_ours(http: Mocker, work: Work) -> None:
    asked_without_answer(http, work)
    work.clock.sleep(2 * HOUR_S)
    http.get(LEASES, json={"leases": [listed("by-hand", "09:00:00")]})
    assert leases_to_end(work) == []
    lease = find_lease(work)
    assert lease is not None
    assert lease.id == "by-hand"
    assert outcomes(work) == ["ask", "found", "refused"]
    assert leases_to_end(work) == []


def test_of_two_askings_that_both_came_through_the_later_lease_is_ended(
    http: Mocker, work: Work
) -> None:
    asked_without_answer(http, work)
    http.post(LEASES, json={"lease": listed("second", "08:01:00")}, status_code=201)
    http.get(
        LEASES,
        [
            {"json": {"leases": []}},
            {"json": {"leases": []}},
            {"json": {"leases": [listed("first", "08:00:30"), listed("second", "08:01:00")]}},
        ],
    )
    ended = http.delete(f"{LEASES}/first", status_code=204)
    assert hold_lease(work, [ASK]).id == "second"
    assert ended.call_count == 1
    assert outcomes(work) == ["ask", "ask", "made", "made"]
