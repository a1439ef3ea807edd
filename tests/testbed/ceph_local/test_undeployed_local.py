"""The other Ceph taken away again, and the machines in the middle of a deployment."""

from __future__ import annotations

import subprocess

import pytest

from testbed import reach
from testbed.sites.contract import Testbed
from testbed.sites.local import LocalSite
from tests.testbed.ceph_beds import SPEC, VARIANT, assert_removed, killed_at

pytestmark = [pytest.mark.local, pytest.mark.timeout(300)]


def test_the_other_one_is_removed_as_well(varied: Testbed) -> None:
    """Its gateway, and the keys of its tenants."""
    assert_removed(varied, VARIANT)


def test_killed_it_goes_with_the_testbed(site: LocalSite, deployed: Testbed) -> None:
    killed_at(deployed, SPEC, "ceph: ")
    marks = (deployed.directory, reach.control_dir(SPEC.name, deployed.directory))
    site.release(SPEC.name)
    for mark in marks:
        listing = ["pgrep", "-af", str(mark)]
        left = subprocess.run(listing, capture_output=True, text=True, check=False)
        assert left.stdout == ""
        assert not mark.exists()
    assert site.find(SPEC.name) is None
