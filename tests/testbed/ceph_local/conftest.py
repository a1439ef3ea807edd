"""Three nodes with one Ceph and then another, for all files here in their order: `deployed`'s is
removed by the last test of `test_deployed_local`, `varied`'s by `test_undeployed_local`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.deploy import deploy, remove, save_spec
from testbed.sites.contract import Testbed
from testbed.sites.local import LocalSite
from testbed.sites.local.names import Places
from tests.testbed.ceph_beds import SPEC, VARIANT, killed_at, run


@pytest.fixture(scope="package")
def site() -> Iterator[LocalSite]:
    found = LocalSite(
        places=Places(Path("/var/lib/hotbed-tests-deploy"), Places.of_environment().cache)
    )
    found.release(SPEC.name)
    yield found
    found.release(SPEC.name)


@pytest.fixture(scope="package")
def bare(site: LocalSite) -> Testbed:
    testbed = site.provision(SPEC)
    save_spec(testbed, SPEC)
    return testbed


@pytest.fixture(scope="package")
def deployed(site: LocalSite, bare: Testbed) -> Testbed:
    changed = deploy(bare, SPEC, site=site)
    assert all(changed[node.name] > 0 for node in bare.nodes)
    return bare


@pytest.fixture(scope="package")
def varied(site: LocalSite, deployed: Testbed) -> Testbed:
    """The other store on the same machines: its deployment was killed again and again on its way,
    and the next call took up where the killed one was."""
    if run(deployed, "admin", "ls -d /etc/hotbed 2>/dev/null || true"):
        remove(deployed, SPEC)
    roles = {name: group.roles for group in VARIANT.groups for name in group.node_names()}
    nodes = tuple(dataclasses.replace(n, roles=frozenset(roles[n.name])) for n in deployed.nodes)
    found = dataclasses.replace(deployed, nodes=nodes)
    for task in ("base: ", "ceph: Make the OSDs' stores", "agent: "):
        killed_at(found, VARIANT, task)
    deploy(found, VARIANT, site=site)
    return found
