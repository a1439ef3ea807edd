"""Contract of the site `chameleon`, on an in-memory cloud with whole and virtual machines."""

from __future__ import annotations

import pytest

from testbed.sites.chameleon.site import ChameleonSite
from testbed.spec import TestbedSpec
from tests.testbed.sites.chameleon_world import BARE, VIRTUAL, World, spec_of, world
from tests.testbed.sites.conformance import SiteConformance

__all__ = ["world"]


class Conforming(SiteConformance):
    @pytest.fixture
    def site(self, world: World) -> ChameleonSite:
        return world.site()


class TestWholeMachines(Conforming):
    @pytest.fixture
    def spec(self) -> TestbedSpec:
        return spec_of(BARE)


class TestVirtualMachines(Conforming):
    @pytest.fixture
    def spec(self) -> TestbedSpec:
        return spec_of(VIRTUAL)
