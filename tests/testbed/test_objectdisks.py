"""Several object servers per node, each on its own disk: the roles' parameters, and our specs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.deploy import twochoice_variables
from testbed.deploy.inventory import build_inventory
from testbed.sites.fake import FakeSite
from testbed.spec import ObjectsSpec, TestbedSpec, load_spec

SPECS = Path(__file__).resolve().parents[2] / "testbed" / "specs"
DATA: dict[str, Any] = {
    "name": "t",
    "groups": [
        {"name": "admin", "roles": ["admin"]},
        {"name": "client", "roles": ["client"]},
        {
            "name": "server",
            "count": 2,
            "roles": ["object"],
            "disk": {"size": "1GiB", "scratch": 0},
            "disks": 3,
        },
    ],
    "store": {"kind": "twochoice"},
}


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for name in ("twochoiced", "twochoicebench"):
        (tmp_path / name).touch()
    monkeypatch.setattr(twochoice_variables, "BINARIES", tmp_path)
    spec = TestbedSpec.model_validate(DATA)
    found: dict[str, Any] = build_inventory(FakeSite(tmp_path / "site").provision(spec), spec)
    return found["all"]  # type: ignore[no-any-return]


def test_every_disk_has_a_server_with_a_port_and_a_folder(inventory: dict[str, Any]) -> None:
    first, second = (inventory["hosts"][f"server{place}"] for place in range(2))
    assert (first["twochoice_agents"], second["twochoice_agents"]) == ([0, 1, 2], [3, 4, 5])
    peers = inventory["vars"]["twochoice_peers"]
    assert len(set(peers)) == 6
    assert [peer.rpartition(":")[2] for peer in peers] == ["7100", "7101", "7102"] * 2
    disks = second["objectdisks_disks"]
    assert [disk["number"] for disk in disks] == [3, 4, 5]
    assert [disk["path"] for disk in disks] == [
        f"{second['twochoice_root']}/{n}" for n in (3, 4, 5)
    ]
    assert len({disk["device"] for disk in disks}) == 3
    assert "hotbed_scratch_device" not in second
    # A path's unit joins its parts with dashes, so no part may contain a dash.
    assert not any("-" in disk["path"] for disk in disks)


@pytest.mark.parametrize(("name", "servers"), [("twochoice-64", 64), ("twochoice-16", 16)])
def test_our_specs_have_that_many_servers(name: str, servers: int) -> None:
    spec = load_spec(SPECS / f"{name}.yaml")
    assert isinstance(spec.store, ObjectsSpec)
    disks = sum(group.count * group.disks for group in spec.groups if "object" in group.roles)
    assert disks == servers
    assert sum(group.count for group in spec.groups if "client" in group.roles) == 1
