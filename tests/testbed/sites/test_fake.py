"""Contract of the fake site."""

from __future__ import annotations

import pytest

from testbed.spec import TestbedSpec
from tests.testbed.fake_site import FakeSite
from tests.testbed.plain_specs import plain_spec
from tests.testbed.sites.conformance import SiteConformance


class TestFakeSite(SiteConformance):
    @pytest.fixture
    def site(self) -> FakeSite:
        return FakeSite()

    @pytest.fixture
    def spec(self) -> TestbedSpec:
        return plain_spec()
