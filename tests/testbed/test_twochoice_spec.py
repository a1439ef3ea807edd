"""Spec with the two-choice scheduler's agents, and the role's parameters from it."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.errors import UserError
from testbed.deploy import twochoice_variables
from testbed.deploy.inventory import agent_config, build_inventory
from testbed.sites.fake import FakeSite
from testbed.spec import CephSpec, TestbedSpec, load_spec
from tests.errors import raises

DISK = {"size": "2GiB", "scratch": "512MiB"}
FILES: dict[str, Any] = {
    "name": "t",
    "groups": [
        {"name": "admin", "roles": ["admin", "client"]},
        {"name": "store", "count": 3, "roles": ["object"], "disk": DISK},
        {"name": "client", "count": 2, "roles": ["client"]},
    ],
    "store": {"kind": "twochoice", "scheduler": "two-choice", "maintainer": {"off": True}},
}
CEPH: dict[str, Any] = {
    "name": "t",
    "groups": [
        {"name": "admin", "roles": ["admin", "mon", "mgr", "client"]},
        {
            "name": "osd",
            "count": 2,
            "roles": ["osd"],
            "disk": {"size": "2GiB", "scratch": 0},
            "disks": 2,
        },
    ],
    "store": {"pools": [], "twochoice": {}},
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSite:
    for name in ("twochoiced", "twochoicebench"):
        (tmp_path / name).touch()
    monkeypatch.setattr(twochoice_variables, "BINARIES", tmp_path)
    return FakeSite(tmp_path / "site")


def built(site: FakeSite, data: dict[str, Any]) -> dict[str, Any]:
    spec = TestbedSpec.model_validate(data)
    found: dict[str, Any] = build_inventory(site.provision(spec), spec)["all"]
    return found


def test_every_object_server_has_an_agent_and_every_client_the_load_generator(
    site: FakeSite,
) -> None:
    inventory = built(site, FILES)
    variables = inventory["vars"]
    assert variables["twochoice_backend"] == "file"
    addresses = [inventory["hosts"][f"store{place}"]["ansible_host"] for place in range(3)]
    assert variables["twochoice_peers"] == [f"{address}:7100" for address in addresses]
    assert variables["twochoice_settings"]["scheduler"]["scheduler"] == "two-choice"
    assert variables["twochoice_settings"]["maintainer"] == {"off": True}
    assert [inventory["hosts"][f"store{place}"]["twochoice_agents"] for place in range(3)] == [
        [0],
        [1],
        [2],
    ]
    assert inventory["hosts"]["client1"]["twochoice_client"] is True
    assert "hotbed_scratch_device" in inventory["hosts"]["store0"]
    children = inventory["children"]
    assert set(children["objects"]["hosts"]) == {"store0", "store1", "store2"}
    assert set(children["files"]["hosts"]) == set(inventory["hosts"])
    assert set(children["twochoice"]["hosts"]) == set(inventory["hosts"])


def test_every_osd_has_an_agent_with_its_number(site: FakeSite) -> None:
    inventory = built(site, CEPH)
    variables, hosts = inventory["vars"], inventory["hosts"]
    assert variables["twochoice_backend"] == "rados"
    assert hosts["osd0"]["twochoice_agents"] == [0, 1]
    assert hosts["osd1"]["twochoice_agents"] == [2, 3]
    first, second = hosts["osd0"]["ansible_host"], hosts["osd1"]["ansible_host"]
    assert variables["twochoice_peers"] == [
        f"{first}:7100",
        f"{first}:7101",
        f"{second}:7100",
        f"{second}:7101",
    ]
    assert not inventory["children"]["files"]["hosts"]
    without = built(site, CEPH | {"name": "u", "store": {"pools": []}})
    assert not any(name.startswith("twochoice") for name in without["vars"])
    assert not without["children"]["twochoice"]["hosts"]


def test_the_spec_on_rados_is_good(site: FakeSite, root: Path) -> None:
    spec = load_spec(root / "testbed/specs/twochoice-rados.yaml")
    hosts = build_inventory(site.provision(spec), spec)["all"]["hosts"]
    numbers = [hosts[f"osd{place}"]["twochoice_agents"] for place in range(8)]
    assert numbers == [[place] for place in range(8)]


def test_the_key_is_made_once_and_is_the_users_alone(site: FakeSite) -> None:
    testbed = site.provision(TestbedSpec.model_validate(FILES))
    path = twochoice_variables.key_of(testbed)
    secret = path.read_bytes()
    assert len(secret) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert twochoice_variables.key_of(testbed) == path
    assert path.read_bytes() == secret
    assert secret.hex() not in str(agent_config(testbed, TestbedSpec.model_validate(FILES)))


def test_specs_without_agents_keep_their_digest() -> None:
    plain = TestbedSpec.model_validate(CEPH | {"store": {"pools": []}})
    asked = TestbedSpec.model_validate(CEPH)
    assert isinstance(asked.store, CephSpec)
    assert plain.digest() != asked.digest()
    assert "twochoice" not in str(sorted(plain.model_dump(exclude_none=True)["store"]))


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ({"kind": "twochoice", "copies": 3}, "store.copies"),
        ({"kind": "twochoice", "scheduler": "oracle"}, "store.scheduler"),
        ({"kind": "twochoice", "port": 80}, "store.port"),
        ({"kind": "twochoice", "pools": []}, "store.pools"),
        ({"kind": "ceph"}, "store ceph needs a node"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(tmp_path: Path, store: dict[str, Any], said: str) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(FILES | {"store": store}))
    with raises(UserError, said):
        load_spec(path)


def test_programs_that_are_not_built_are_named(
    site: FakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(twochoice_variables, "BINARIES", tmp_path / "none")
    with raises(UserError, "twochoiced is missing"):
        built(site, FILES)
