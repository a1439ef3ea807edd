"""Racks and several disks per node in a spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UserError
from testbed.sites.fake import FakeSite
from testbed.sites.local import racks
from testbed.sites.local.network import CORE
from testbed.spec import TestbedSpec, load_spec
from tests.errors import raises

SPECS = Path(__file__).resolve().parents[2] / "testbed" / "specs"
ADMIN = {"name": "admin", "roles": ["admin", "mon", "mgr", "client"]}


def body(nodes: int = 4, disks: int = 1, **more: Any) -> dict[str, Any]:
    disk = {"size": "4GiB", "scratch": 0}
    osd = {"name": "osd", "count": nodes, "roles": ["osd"], "disk": disk, "disks": disks}
    return {"name": "t", "groups": [ADMIN, osd], **more}


@given(st.integers(2, 60), st.data())
def test_racks_share_the_nodes_evenly_and_in_order(nodes: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, nodes))
    found = TestbedSpec.model_validate(body(nodes, racks={"count": count})).rack_of()
    assert list(found) == [f"osd{n}" for n in range(nodes)]
    assert list(dict.fromkeys(found.values())) == [f"rack{n}" for n in range(count)]
    sizes = [list(found.values()).count(f"rack{n}") for n in range(count)]
    assert max(sizes) - min(sizes) <= 1


def test_members_say_which_node_is_where() -> None:
    members = {"left": ["osd3", "admin"], "right": ["osd0"]}
    spec = TestbedSpec.model_validate(body(racks={"members": members, "uplink": "50Mbit"}))
    assert spec.rack_of() == {"osd3": "left", "admin": "left", "osd0": "right"}
    assert racks.bridges(spec) == {"left": "rack0", "right": "rack1"}
    homes = {node: racks.bridge_of(spec, node) for node in spec.node_names()}
    assert homes == {"admin": "rack0", "osd0": "rack1", "osd1": CORE, "osd2": CORE, "osd3": "rack0"}


def test_without_an_uplink_the_network_is_flat() -> None:
    spec = TestbedSpec.model_validate(body(racks={"count": 2}))
    assert racks.bridges(spec) == {}
    assert racks.bridge_of(spec, "osd0") == CORE
    assert spec.rack_of()["osd3"] == "rack1"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"racks": {}}, "racks"),
        ({"racks": {"count": 2, "members": {"a": ["osd0"]}}}, "either count"),
        ({"racks": {"count": 5}}, "4 nodes"),
        ({"racks": {"count": 2, "uplink": "fast"}}, "racks.uplink"),
        ({"racks": {"count": 2, "uplink": "1kbit"}}, "racks.uplink"),
        ({"racks": {"members": {"a": ["osd9"]}}}, "'a'"),
        ({"racks": {"members": {"a": ["osd0", "osd0"]}}}, "'osd0'"),
        ({"racks": {"members": {"A b": ["osd0"]}}}, "rack 'A b': a name is"),
        ({"racks": {"members": {"a": []}}}, "rack 'a' has no node"),
        ({"store": {"failure_domain": "rack"}}, "'osd0' has none"),
        (
            {
                "racks": {"count": 2},
                "store": {"failure_domain": "rack", "pools": [{"name": "p", "size": 3}]},
            },
            "'p'",
        ),
        ({"store": {"pools": [{"name": "p", "size": 5}]}}, "5 replicas on 4 nodes"),
        ({"store": {"objectstore": "filestore"}}, "filestore keeps objects on"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(
    more: dict[str, Any], said: str, tmp_path: Path
) -> None:
    import json

    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(body(**more)))
    with raises(UserError, said) as error:
        load_spec(path)
    assert "\n" not in str(error.value)


def test_files_and_several_disks_do_not_go_together(tmp_path: Path) -> None:
    import json

    wrong = body(disks=3)
    wrong["groups"][1]["disk"]["scratch"] = "1GiB"
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(wrong))
    with raises(UserError, "3 disks"):
        load_spec(path)


def test_every_disk_is_counted() -> None:
    spec = TestbedSpec.model_validate(body(nodes=4, disks=3))
    assert len(spec.osd_disks()) == 12
    assert FakeSite().plan(spec).disk_bytes == 12 * 4 * 2**30
    assert FakeSite().provision(spec).osds == 12


def test_what_a_spec_does_not_use_leaves_its_digest_alone() -> None:
    # Runs are identified by the digest: runs from before racks keep their names.
    assert load_spec(SPECS / "dlr.yaml").digest() == (
        "ce7916a58dfbdeb4d0ea4bc70592088d541825a059dd3ea1cb10cd8b9fc1fc96"
    )
    plain = TestbedSpec.model_validate(body())
    for more in ({"racks": {"count": 2}}, {"store": {"failure_domain": "host", "config": {}}}):
        other = TestbedSpec.model_validate(body(**more))
        assert (other.digest() == plain.digest()) == ("store" in more)
    assert TestbedSpec.model_validate(body(disks=2)).digest() != plain.digest()


@pytest.mark.parametrize("name", ["ursa-10", "ursa-10-random", "ursa-30", "ursa-30-random"])
def test_ursas_testbeds(name: str) -> None:
    spec = load_spec(SPECS / f"{name}.yaml")
    osds = int(name.split("-")[1])
    assert spec.name == name
    assert len(spec.osd_disks()) == osds
    assert (spec.racks is not None and spec.racks.uplink is not None) == (
        not name.endswith("random")
    )
    assert set(spec.rack_of()) == {node for node in spec.node_names() if node != "admin"}
    # Ursa, section 5.2: 10-100 and 30-900, three replicas.
    assert spec.store is not None
    assert [(pool.pg_num, pool.size) for pool in spec.store.pools] == [
        ({10: 100, 30: 900}[osds], 3)
    ]


def test_controlled_and_random_differ_by_the_uplinks_alone() -> None:
    for size in ("ursa-10", "ursa-30"):
        first, second = (load_spec(SPECS / f"{size}{end}.yaml") for end in ("", "-random"))
        assert first.racks is not None
        assert second.racks == first.racks.model_copy(update={"uplink": None})
        assert second == first.model_copy(update={"name": second.name, "racks": second.racks})
