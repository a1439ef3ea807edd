"""Deployer of a store as part of a run's identity, even if an option chose the deployer."""

from __future__ import annotations

from campaigns.engine.fingerprint import identifying_versions
from campaigns.engine.provenance import deployer
from tests.testbed.deployers.beds import spec_with


def test_runs_on_the_projects_own_store_keep_their_identity() -> None:
    assert deployer(spec_with("own")) == {}
    assert identifying_versions({"ceph": "16.2.15"} | deployer(spec_with())) == {"ceph": "16.2.15"}


def test_runs_on_another_ones_have_it_in_theirs() -> None:
    found = identifying_versions({"python3": "3.11"} | deployer(spec_with("ceph-ansible")))
    assert found == {"deployer": "ceph-ansible"}
