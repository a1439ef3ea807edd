"""Contract of the fake site, and its own features."""

from __future__ import annotations

import pytest

from schemas.errors import UserError
from testbed.sites.contract import SiteError, State
from testbed.sites.fake import FakeSite
from testbed.spec import TestbedSpec
from tests.errors import raises
from tests.testbed.sites.conformance import SiteConformance

SPEC = TestbedSpec.model_validate(
    {
        "name": "small",
        "store": None,
        "groups": [
            {"name": "admin", "roles": ["admin", "client"]},
            {"name": "osd", "count": 2, "roles": ["osd"], "disk": {}},
        ],
    }
)


class TestFakeSite(SiteConformance):
    @pytest.fixture
    def site(self) -> FakeSite:
        return FakeSite()

    @pytest.fixture
    def spec(self) -> TestbedSpec:
        return SPEC


def test_a_broken_provision_is_resumed() -> None:
    site = FakeSite(fail_after=1)
    with pytest.raises(SiteError) as broken:
        site.provision(SPEC)
    assert broken.value.retry_after_s == 0.0
    assert site.status("small").state is State.BUILDING
    assert site.find("small") is None
    assert len(site.provision(SPEC).nodes) == 3


def test_a_lease_ends_by_the_clock_and_can_be_extended() -> None:
    now = [1000.0]
    site = FakeSite(clock=lambda: now[0], lease_s=3600.0)
    assert site.plan(SPEC).node_hours == pytest.approx(3.0)
    assert site.plan(SPEC).hours == pytest.approx(1.0)
    site.provision(SPEC)
    assert site.status("small").ends_at_s == 4600.0
    now[0] = 4600.0
    assert site.status("small").state is State.FAILED
    assert site.find("small") is None
    assert site.extend("small", 60.0).state is State.READY


def test_a_snapshot_brings_contents_back() -> None:
    site = FakeSite()
    site.provision(SPEC)
    site.contents("small", "osd0")["file"] = "old"
    site.snapshot("small", "s")
    site.contents("small", "osd0")["file"] = "new"
    site.restore("small", "s")
    assert site.contents("small", "osd0") == {"file": "old"}


def test_too_many_nodes_are_refused() -> None:
    with raises(UserError, "3 nodes; this site has 2"):
        FakeSite(capacity=2).provision(SPEC)


def test_a_node_without_a_disk_has_no_disk_faults() -> None:
    site = FakeSite()
    site.provision(SPEC)
    with raises(UserError, "no disk"):
        site.disk_fault("small", "admin", slow=2.0)
