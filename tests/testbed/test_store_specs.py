"""Specs of NFS, object and Swift stores: the roles' parameters from them, and their secrets."""

from __future__ import annotations

import json
import stat
from typing import Any

import numpy as np
import pytest
import yaml

from controllers.prioritymeister.estimators import NetworkCost, parse_profile
from schemas.errors import UserError
from testbed.deploy import parts, swift_variables, twochoice_variables
from testbed.deploy.inventory import agent_config, build_inventory
from testbed.deploy.nfs_variables import profile_of
from testbed.spec import DiskSpec, TestbedSpec, load_spec
from testbed.stores.nfs.wire import FRAMING, HEADERS, network_of
from tests.errors import raises
from tests.testbed.fake_site import FakeSite

DISK = {"size": "2GiB", "scratch": 0}
NFS: dict[str, Any] = {
    "name": "t",
    "network": {"priority_levels": 7},
    "groups": [
        {"name": "admin", "roles": ["admin"]},
        {"name": "server", "roles": ["nfs"], "disk": DISK},
        {"name": "client", "count": 2, "roles": ["client"]},
    ],
    "store": {"kind": "nfs"},
}
FILES: dict[str, Any] = {
    "name": "t",
    "groups": [
        {"name": "admin", "roles": ["admin", "client"]},
        {
            "name": "store",
            "count": 3,
            "roles": ["object"],
            "disk": {"size": "2GiB", "scratch": "512MiB"},
        },
        {"name": "client", "count": 2, "roles": ["client"]},
    ],
    "store": {"kind": "twochoice", "scheduler": "two-choice", "maintainer": {"off": True}},
}
DISKS = {"count": 2, "disk": DISK, "disks": 3}
SWIFT_STORE: dict[str, Any] = {
    "kind": "swift",
    "microstores": [
        {"name": "small", "proxies": ["proxy0"], "storage": ["store"]},
        {"name": "large", "proxies": ["proxy1"], "storage": ["store"]},
    ],
    "tenants": [{"name": "a", "microstore": "small"}, {"name": "b", "microstore": "large"}],
}
PROXIES = {"name": "proxy", "count": 2, "roles": ["proxy"]}
SWIFT: dict[str, Any] = {
    "name": "t",
    "groups": [
        {"name": "admin", "roles": ["admin", "client"]},
        PROXIES,
        {"name": "store", "count": 2, "roles": ["storage"], "disk": DISK, "disks": 2},
    ],
    "store": SWIFT_STORE,
}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Return a site, with the data plane's programs built."""
    for name in ("nfsproxy", "replay", "twochoiced", "twochoicebench"):
        (tmp_path / name).touch()
    monkeypatch.setattr(parts, "BINARIES", tmp_path)
    return FakeSite(tmp_path / "site")


def built(site: FakeSite, data: dict[str, Any]) -> dict[str, Any]:
    spec = TestbedSpec.model_validate(data)
    found: dict[str, Any] = build_inventory(site.provision(spec), spec)["all"]
    return found


@pytest.mark.parametrize(("data", "program"), [(NFS, "nfsproxy"), (FILES, "twochoiced")])
def test_programs_that_are_not_built_are_named(site, tmp_path, data, program):
    (tmp_path / program).unlink()
    with raises(UserError, "missing", where=program):
        built(site, data)


# -- NFS -------------------------------------------------------------------------------------------


def test_a_profile_is_read_beside_the_spec(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(NFS | {"store": {"kind": "nfs", "profile": "disk.json"}}))
    profile = {"type": "storageConstant", "base": 0.01, "readBandwidth": 1, "writeBandwidth": 1}
    (tmp_path / "disk.json").write_text(json.dumps(profile))
    assert load_spec(path).store.profile == profile
    (tmp_path / "disk.json").write_text("{")
    with raises(UserError, "disk.json: is not JSON"):
        load_spec(path)


def test_the_profile_of_a_queue_disk_is_its_model():
    disk = DiskSpec(size=2**34, scratch=0, positioning=0.0127, bandwidth=150e6)
    parse_profile(profile_of(disk))  # the planner accepts it
    read = profile_of(disk)["read"]
    assert read["base"][0] == read["base"][1] == read["base"][0][::-1]
    by_distance = dict(zip(read["distances"], read["base"][0], strict=True))
    assert by_distance[0.0] == pytest.approx(0.4 * 0.0127)
    assert by_distance[float(2**34)] == pytest.approx(1.525 * 0.0127)
    assert by_distance[2**34 / 4] == pytest.approx((0.4 + 1.125 / 2) * 0.0127)


# -- the two-choice scheduler's agents -------------------------------------------------------------


def test_every_object_server_has_an_agent_and_every_client_the_load_generator(site):
    inventory = built(site, FILES)
    variables, hosts = inventory["vars"], inventory["hosts"]
    assert variables["twochoice_backend"] == "file"
    stores = ["store0", "store1", "store2"]
    assert variables["twochoice_peers"] == [
        f"{hosts[name]['ansible_host']}:7100" for name in stores
    ]
    assert variables["twochoice_settings"]["scheduler"]["scheduler"] == "two-choice"
    assert variables["twochoice_settings"]["maintainer"] == {"off": True}
    assert [hosts[name]["twochoice_agents"] for name in stores] == [[0], [1], [2]]
    assert hosts["client1"]["twochoice_client"] is True
    assert "hotbed_scratch_device" in hosts["store0"]
    children = inventory["children"]
    assert list(children["objects"]["hosts"]) == stores
    assert set(children["files"]["hosts"]) == set(children["twochoice"]["hosts"]) == set(hosts)


def test_every_disk_of_a_node_has_a_server_with_a_port_and_a_folder(site):
    groups = [FILES["groups"][0], FILES["groups"][1] | DISKS]
    inventory = built(site, FILES | {"groups": groups})
    first, second = (inventory["hosts"][f"store{place}"] for place in range(2))
    assert (first["twochoice_agents"], second["twochoice_agents"]) == ([0, 1, 2], [3, 4, 5])
    peers = inventory["vars"]["twochoice_peers"]
    assert len(set(peers)) == 6
    assert [peer.rpartition(":")[2] for peer in peers] == ["7100", "7101", "7102"] * 2
    disks = second["objectdisks_disks"]
    root = second["twochoice_root"]
    assert [(disk["number"], disk["path"]) for disk in disks] == [
        (number, f"{root}/{number}") for number in (3, 4, 5)
    ]
    assert len({disk["device"] for disk in disks}) == 3
    assert "hotbed_scratch_device" not in second
    # A path's unit joins its parts with dashes, so no part may contain a dash.
    assert not any("-" in disk["path"] for disk in disks)


def test_the_key_is_made_once_and_is_the_users_alone(site):
    testbed = site.provision(TestbedSpec.model_validate(FILES))
    path = twochoice_variables.key_of(testbed)
    secret = path.read_bytes()
    assert (len(secret), stat.S_IMODE(path.stat().st_mode)) == (32, 0o600)
    assert twochoice_variables.key_of(testbed) == path
    assert path.read_bytes() == secret
    assert secret.hex() not in str(agent_config(testbed, TestbedSpec.model_validate(FILES)))


# -- Swift -----------------------------------------------------------------------------------------


def swift(**changes: Any) -> Any:
    """Return Swift's part of a spec with these changes."""
    return TestbedSpec.model_validate(SWIFT | {"store": SWIFT_STORE | changes}).store


def test_keys_stay_when_a_tenant_comes(tmp_path):
    testbed = FakeSite(tmp_path).provision(TestbedSpec.model_validate(SWIFT))
    path = swift_variables.secrets_of(testbed, swift())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = json.loads(path.read_text())
    more = [*SWIFT_STORE["tenants"], {"name": "c", "microstore": "small"}]
    swift_variables.secrets_of(testbed, swift(tenants=more))
    after = json.loads(path.read_text())
    assert set(after["keys"]) == {"a", "b", "c"}
    assert after["keys"]["a"] == before["keys"]["a"]
    assert after["prefix"] == before["prefix"]


# -- real sizes of NFS requests compared with the estimators' values -------------------------------


SIZES = [1, 512, 1000, *range(1024, 70_000, 1024), 1 << 18, (1 << 20) - 1, 1 << 20]


CALL = 4 + 24 + (8 + 84 + 8) + (4 + 64) + (8 + 4)
REPLIES = 4 + 24 + 4 + (4 + 84) + 12, 4 + 24 + 4 + (4 + 24) + (4 + 84) + 16
"""Bytes of a read's call, and of a read's and a write's reply without data (RFC 1813 and 5531)."""


def sent(size: int, *, read: bool, mtu: int) -> tuple[int, int]:
    """Return the bytes of frames to the server and from it. Every second full segment, and every
    message's end, is acknowledged by a frame of its own."""
    call, reply = (CALL, REPLIES[0] + size) if read else (CALL + 8 + size, REPLIES[1])
    there, back = -(-call // (mtu - HEADERS)), -(-reply // (mtu - HEADERS))
    towards = call + FRAMING * (there - (-back // 2))
    return towards, reply + FRAMING * (back - (-there // 2))


def estimated(cost: NetworkCost, size: int, *, read: bool) -> tuple[float, float]:
    kind = np.array([read])
    return float(cost.bytes(np.array([size]), ~kind)[0]), float(
        cost.bytes(np.array([size]), kind)[0]
    )


@pytest.mark.parametrize("mtu", [1280, 1500, 4470, 9000, 65520])
def test_costs_of_testbeds_are_never_below_what_is_sent(mtu):
    disk = DiskSpec(size=1 << 32, scratch=0, positioning=0.004, bandwidth=1.5e8, queue_depth=32)
    costs = parse_profile(profile_of(disk, mtu)).network
    assert profile_of(disk, mtu)["network"] == network_of(mtu)
    segment = mtu - HEADERS
    edges = [n * segment + d for n in (1, 2, 3) for d in range(-220, 3) if n * segment + d > 0]
    for size in [*SIZES, *edges]:
        for read in (True, False):
            pairs = zip(
                sent(size, read=read, mtu=mtu), estimated(costs, size, read=read), strict=True
            )
            for real, said in pairs:
                assert real <= said <= 1.6 * real
