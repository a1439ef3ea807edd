"""Contract of the fake site."""

from __future__ import annotations

import pytest

from testbed.spec import TestbedSpec
from tests.testbed.fake_site import FakeSite
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
