"""Spec with an NFS store, and the roles' parameters from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.errors import UserError
from testbed.deploy import nfs_variables
from testbed.deploy.inventory import agent_config, build_inventory
from testbed.deploy.nfs_variables import profile_of
from testbed.sites.fake import FakeSite
from testbed.spec import CephSpec, DiskSpec, NfsSpec, TestbedSpec, load_spec
from tests.errors import raises

DISK = {"size": "2GiB", "scratch": 0}
SPEC: dict[str, Any] = {
    "name": "t",
    "network": {"priority_levels": 7},
    "groups": [
        {"name": "admin", "roles": ["admin"]},
        {"name": "server", "roles": ["nfs"], "disk": DISK},
        {"name": "client", "count": 2, "roles": ["client"]},
    ],
    "store": {"kind": "nfs"},
}


def changed(tmp_path: Path, **changes: object) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump({**SPEC, **changes}))
    return path


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nfsproxy", "replay"):
        (tmp_path / name).touch()
    monkeypatch.setattr(nfs_variables, "BINARIES", tmp_path)


def test_the_spec_of_the_paper_is_good(root: Path) -> None:
    spec = load_spec(root / "testbed/specs/pm.yaml")
    assert isinstance(spec.store, NfsSpec)
    assert spec.network is not None
    assert spec.network.priority_levels == 7
    assert spec == TestbedSpec.model_validate_json(spec.model_dump_json())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"store": {"kind": "nfs4"}}, "store"),
        ({"store": {"kind": "nfs", "pools": []}}, "store.pools"),
        ({"store": {"kind": "nfs", "export": "/a b"}}, "store"),
        ({"store": {"kind": "nfs", "export": "/../etc"}}, "store"),
        ({"store": {"kind": "nfs", "port": 111, "mount_port": 111}}, "mount_port"),
        ({"store": {"kind": "nfs", "port": 0}}, "store.port"),
        ({"store": {"kind": "nfs", "policy": "fair"}}, "store.policy"),
        ({"store": {"kind": "nfs", "profile": "no.json"}}, "profile"),
        ({"network": {"priority_levels": 8}}, "network.priority_levels"),
        ({"groups": SPEC["groups"][:2]}, "store nfs needs a node"),
        ({"groups": [SPEC["groups"][0], SPEC["groups"][2]]}, "needs a node with the role"),
        ({"groups": [*SPEC["groups"][:1], {"name": "s", "roles": ["nfs"]}]}, "'s'"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    with raises(UserError, said) as caught:
        load_spec(changed(tmp_path, **changes))
    assert str(caught.value).count("\n") == 0


def test_a_profile_is_read_beside_the_spec(tmp_path: Path) -> None:
    profile = {"type": "storageConstant", "base": 0.01, "readBandwidth": 1, "writeBandwidth": 1}
    (tmp_path / "disk.json").write_text(json.dumps(profile))
    spec = load_spec(changed(tmp_path, store={"kind": "nfs", "profile": "disk.json"}))
    assert isinstance(spec.store, NfsSpec)
    assert spec.store.profile == profile
    (tmp_path / "disk.json").write_text("{")
    with raises(UserError, "disk.json is not JSON"):
        load_spec(changed(tmp_path, store={"kind": "nfs", "profile": "disk.json"}))


def test_a_spec_that_says_nothing_of_it_has_a_ceph_and_the_digest_of_before(root: Path) -> None:
    spec = load_spec(root / "testbed/specs/dlr.yaml")
    assert isinstance(spec.store, CephSpec)
    # Results are stored under the digest, so new spec options must not change it.
    assert spec.digest().startswith("ce7916a58dfbdeb4")


@pytest.mark.usefixtures("built")
def test_the_inventory_has_servers_clients_and_no_ceph() -> None:
    spec = TestbedSpec.model_validate(SPEC)
    testbed = FakeSite().provision(spec)
    inventory = build_inventory(testbed, spec)["all"]
    hosts = {group: sorted(body["hosts"]) for group, body in inventory["children"].items()}
    assert {name for name, nodes in hosts.items() if nodes} == {
        *("admins", "clients", "servers", "nfs"),
    }
    assert hosts["servers"] == ["server"]
    assert hosts["nfs"] == ["admin", "client0", "client1", "server"]
    assert not [name for name in inventory["vars"] if name.startswith("ceph_")]
    assert inventory["vars"]["hotbed_store"] == "nfs"
    server = inventory["hosts"]["server"]
    assert server["hotbed_scratch_device"] == testbed.node("server").osd_devices[0]
    assert server["validate_scratch_min_bytes"] > 1.7 * 2**30
    assert server["nfsproxy_parameters"] == {
        "policy": "none",
        "depth": 8,
        "unknown": "refuse",
        "workloads": [
            {"name": name, "clients": [testbed.node(name).address]}
            for name in ("client0", "client1")
        ],
    }
    assert agent_config(testbed, spec).store == "nfs"


def test_what_needs_a_ceph_is_told_that_there_is_none() -> None:
    with pytest.raises(UserError):
        TestbedSpec.model_validate(SPEC).ceph()
    assert TestbedSpec.model_validate({**SPEC, "store": None}).store is None


def test_programs_that_are_not_built_are_named(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(nfs_variables, "BINARIES", tmp_path)
    spec = TestbedSpec.model_validate(SPEC)
    with raises(UserError, "nfsproxy is missing"):
        build_inventory(FakeSite().provision(spec), spec)


def test_the_profile_of_a_queue_disk_is_its_model() -> None:
    from controllers.prioritymeister.profiles import parse_profile

    disk = DiskSpec(size=2**34, scratch=0, positioning=0.0127, bandwidth=150e6)
    parse_profile(profile_of(disk))  # the planner accepts it
    read = profile_of(disk)["read"]
    assert read["base"][0] == read["base"][1] == read["base"][0][::-1]
    by_distance = dict(zip(read["distances"], read["base"][0], strict=True))
    assert by_distance[0.0] == pytest.approx(0.4 * 0.0127)
    assert by_distance[float(2**34)] == pytest.approx(1.525 * 0.0127)
    assert by_distance[2**34 / 4] == pytest.approx((0.4 + 1.125 / 2) * 0.0127)
