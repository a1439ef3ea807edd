"""Assignment of machines to nodes, and its options."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UserError
from testbed.sites.inventory.assign import Member, assign
from testbed.sites.inventory.hosts import HostOptions, JumpOption, ListedMachines, read_options
from testbed.spec import TestbedSpec, load_spec
from tests.errors import raises

DEVICES = {"osd": {"osd": "/dev/sdb2", "scratch": "/dev/sdb1"}}


def spec_of(osds: int = 2, **disk: Any) -> TestbedSpec:
    disk = {"size": "3GiB", "scratch": "1GiB", **disk}
    disks = disk.pop("disks", 1)
    groups = [
        {"name": "head", "roles": ["admin", "client"]},
        {"name": "osd", "count": osds, "roles": ["osd"], "disk": disk, "disks": disks},
    ]
    return TestbedSpec.model_validate({"name": "t", "store": None, "groups": groups})


def machines(*names: str, **groups: tuple[str, ...]) -> ListedMachines:
    hosts = tuple(
        HostOptions(name=name, address=f"192.0.2.{number}") for number, name in enumerate(names, 1)
    )
    return ListedMachines(hosts, groups)


def names_of(
    found: ListedMachines, spec: TestbedSpec | None = None, taken: Any = (), **options: Any
) -> dict[str, str]:
    read = read_options({"devices": DEVICES, **options})
    return {m.node: m.host.name for m in assign(spec or spec_of(), read, found, taken)}


def test_without_a_word_machines_are_taken_in_their_order() -> None:
    found = names_of(machines("a", "b", "c", "d"))
    assert found == {"head": "a", "osd0": "b", "osd1": "c"}


def test_machines_of_other_testbeds_are_left_out() -> None:
    listed = machines("a", "b", "c", "d")
    assert names_of(listed, taken=[("192.0.2.1", 22, None)])["head"] == "b"


@pytest.mark.parametrize("key", ["osd", "osds"])
def test_groups_of_the_inventory_are_those_of_the_spec(key: str) -> None:
    listed = machines("a", "b", "c", **{key: ("b", "a")})
    assert names_of(listed) == {"head": "c", "osd0": "b", "osd1": "a"}


def test_ceph_ansibles_groups_by_role() -> None:
    listed = machines("a", "b", "c", osds=("a", "b"), admins=("c",))
    assert names_of(listed) == {"head": "c", "osd0": "a", "osd1": "b"}


def test_a_machine_in_several_groups_is_left_to_the_node_that_has_no_other() -> None:
    """In ceph-ansible's inventories, a monitor's machine may also have an OSD."""
    groups = [{"name": "head", "roles": ["admin", "mon", "mgr", "client"]}]
    groups += spec_of(3).model_dump()["groups"][1:]
    spec = TestbedSpec.model_validate({"name": "t", "store": None, "groups": groups})
    listed = machines("a", "m", "b", "c", mons=("a",), mgrs=("m",), osds=("a", "b", "c"))
    assert names_of(listed, spec) == {"head": "m", "osd0": "a", "osd1": "b", "osd2": "c"}
    listed = machines("m", "a", "b", "c", mons=("a",), osds=("a", "b", "c"))
    with raises(UserError, "osd2"):
        names_of(listed, spec)


def test_machines_that_options_name_for_several_nodes_are_matched() -> None:
    listed = machines("a", "b", "c")
    found = names_of(listed, nodes={"osd0": ["a", "b"], "osd1": ["a"], "head": ["a", "b", "c"]})
    assert found == {"head": "c", "osd0": "b", "osd1": "a"}


@given(
    st.lists(st.lists(st.sampled_from("abcde"), unique=True, min_size=1), min_size=3, max_size=3)
)
def test_a_node_is_refused_only_if_no_assignment_has_a_machine_for_each(
    wanted: list[list[str]],
) -> None:
    nodes = dict(zip(("osd0", "osd1", "head"), wanted, strict=True))
    possible = any(len(set(each)) == 3 for each in itertools.product(*wanted))
    try:
        found = names_of(machines(*"abcde"), nodes=nodes)
    except UserError:
        assert not possible
        return
    assert len(set(found.values())) == 3
    assert all(found[node] in names for node, names in nodes.items())


def test_options_come_before_groups_and_a_node_before_its_group() -> None:
    listed = machines("a", "b", "c", "d", osd=("a", "b"))
    found = names_of(listed, nodes={"osd": ["c", "d"], "osd1": "c", "admin": "b"})
    assert found == {"head": "b", "osd0": "d", "osd1": "c"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": {"osd": ["a"]}}, "osd1"),
        ({"nodes": {"osd": ["z"]}}, "'z'"),
        ({"nodes": {"odd": ["a"]}}, "'odd'"),
        ({"devices": {}}, "1 disk(s)"),
        ({"devices": {"osd": "/dev/sdb"}}, "no device is named for"),
        ({"devices": {**DEVICES, "head": "/dev/sdb"}}, "group head has no disk"),
        ({"wipe": ["/dev/sdb@osd7"]}, "osd0"),
    ],
)
def test_what_does_not_fit_is_one_sentence(options: dict[str, Any], message: str) -> None:
    with raises(UserError, message):
        names_of(machines("a", "b", "c"), **options)


def test_too_few_machines() -> None:
    with raises(UserError, "2 machines", "osd1"):
        names_of(machines("a", "b"))


def test_several_disks_a_node_have_names_in_order() -> None:
    spec = spec_of(scratch=0, disks=2)
    options = read_options({"devices": {"osd": ["/dev/sdb", "/dev/sdc"]}})
    found = assign(spec, options, machines("a", "b", "c"))
    assert found[1].devices == {"osd": "/dev/sdb", "osd1": "/dev/sdc"}
    with raises(UserError, "2 disk(s) a node"):
        assign(spec, read_options({"devices": {"osd": "/dev/sdb"}}), machines("a", "b", "c"))
    scratch = {"osd": {"osd": ["/dev/sdb", "/dev/sdc"], "scratch": "/dev/sdd"}}
    with raises(UserError, "the spec keeps no files"):
        assign(spec, read_options({"devices": scratch}), machines("a", "b", "c"))


@given(
    osds=st.integers(1, 6),
    total=st.integers(1, 10),
    group=st.lists(st.integers(0, 9), unique=True, max_size=10),
    taken=st.sets(st.integers(0, 9)),
)
def test_every_node_has_a_free_machine_of_its_own_or_a_sentence(
    osds: int, total: int, group: list[int], taken: set[int]
) -> None:
    listed = machines(
        *(f"m{number}" for number in range(total)),
        osd=tuple(f"m{number}" for number in group if number < total),
    )
    busy = [(f"192.0.2.{number + 1}", 22, None) for number in taken]
    try:
        found = names_of(listed, spec_of(osds), busy)
    except UserError:
        return
    assert len(set(found.values())) == osds + 1
    assert not {f"m{number}" for number in taken} & set(found.values())
    if listed.groups["osd"]:
        assert {name for node, name in found.items() if node != "head"} <= set(listed.groups["osd"])


def test_a_member_survives_its_record() -> None:
    hosts = (HostOptions(address="a.example", user="me", proxy_jump=JumpOption(address="j")),)
    listed = ListedMachines((*hosts, *machines("b", "c").hosts))
    found = assign(spec_of(), read_options({"devices": DEVICES}), listed)
    assert tuple(Member.from_json(member.to_json()) for member in found) == found
    assert found[0].host.jump is not None


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "jump"),
    [
        ("bastion", ("bastion", None, 22)),
        ("me@bastion:2222", ("bastion", "me", 2222)),
        ("me@[2001:db8::1]:22", ("2001:db8::1", "me", 22)),
    ],
)
def test_a_jump_is_written_as_ssh_has_it(text: str, jump: tuple[str, str | None, int]) -> None:
    found = read_options({"proxy_jump": text}).proxy_jump
    assert found is not None
    assert (found.address, found.user, found.port) == jump


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": []}, "host"),
        ({"password": "x"}, "password"),
        ({"hosts": [{"address": "a", "become": True}]}, "hosts.0.become"),
        ({"proxy_jump": "a,b:c"}, "one machine only"),
        ({"proxy_jump": "me@a,me@b"}, "one machine only"),
        ({"hosts": ["-oProxyCommand=x"]}, "neither an IP address nor"),
        ({"user": "-x"}, "'-x' is no user's name"),
        ({"hosts": ["a"], "inventory": "b"}, "either inventory (a file)"),
        ({"devices": {"osd": "sdb"}}, "'sdb' is no device"),
        ({"devices": {"osd": "/dev/../etc/passwd"}}, "is no device"),
        ({"devices": {"osd": ["/dev/sdb", "/dev/sdb"]}}, "a device is named twice"),
        ({"hosts": [{"address": "a", "private_address": "b"}]}, "private_address"),
        ({"wipe": ["/dev/sdb"]}, "/dev/sdb"),
        ({"signal": "load"}, "signal"),
    ],
)
def test_bad_options_are_one_sentence(options: dict[str, Any], message: str) -> None:
    with raises(UserError, message):
        read_options(options)


def test_one_device_to_be_wiped_needs_no_list() -> None:
    assert read_options({"wipe": "/dev/sdb@osd0"}).wipe == ("/dev/sdb@osd0",)


def test_paths_in_a_spec_start_at_its_folder(tmp_path: Path) -> None:
    site = {
        "kind": "inventory",
        "options": {"inventory": "hosts.ini", "key": "/k", "hosts": [{"address": "a", "key": "x"}]},
    }
    body = {"name": "t", "store": None, "site": site}
    body["groups"] = [{"name": "a", "roles": ["admin"]}]
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(body))
    options = load_spec(path).site.options
    assert options["inventory"] == str(tmp_path / "hosts.ini")
    assert options["key"] == "/k"
    assert options["hosts"] == [{"address": "a", "key": str(tmp_path / "x")}]
