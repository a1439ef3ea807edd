"""The shared Ceph after removal, and its variant on the same machines."""

from __future__ import annotations

import dataclasses

import pytest

from testbed.deploy.roles import deploy
from testbed.sites import open_site
from tests.testbed.ceph_beds import SPEC, VARIANT, assert_removed, killed_at


@pytest.fixture(scope="session")
def site(deployed):
    return open_site(deployed.site)


@pytest.fixture(scope="session")
def removed(deployed):
    """Return the machines without their store."""
    assert_removed(deployed, SPEC)
    return deployed


@pytest.fixture(scope="session")
def varied(site, removed):
    """Return the variant after a killed deployment, resumed by the next call."""
    roles = {name: group.roles for group in VARIANT.groups for name in group.node_names()}
    nodes = [dataclasses.replace(removed.node(n), roles=frozenset(r)) for n, r in roles.items()]
    found = dataclasses.replace(removed, nodes=tuple(nodes))
    killed_at(found, VARIANT, "ceph: Create the OSDs' stores")
    deploy(found, VARIANT, site=site)
    return found
