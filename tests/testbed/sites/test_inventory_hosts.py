"""Inventories of machines, unusable machines, and assignment of machines to nodes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UserError
from testbed.sites.inventory import hosts as inventory_hosts
from testbed.sites.inventory.assign import Member, assign
from testbed.sites.inventory.hosts import (
    HostOptions,
    JumpOption,
    ListedMachines,
    host_of,
    machines_of,
    proxy_jump,
    read_file,
    read_options,
)
from testbed.spec import TestbedSpec, load_spec
from tests.errors import raises

# -- inventory files -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("hosts: [{adress: 192.0.2.1}]", "hosts.0.adress"),
        ("hosts: []", "no machines"),
        ("hosts: [a, {address: a, name: b}]", "'b'"),
        ("hosts: [a]\ngroups: {}\nhosts: [b]\n", "'hosts'"),
        # In Ansible's format; Ansible takes the last entry and warns.
        ("all:\n  hosts: {a: {}}\n  vars: {ansible_user: cc}\n  hosts: {b: !vault x}\n", "'hosts'"),
    ],
)
def test_mistakes_in_a_short_file(tmp_path, text, fact):
    path = tmp_path / "hosts.yaml"
    path.write_text("hosts: [192.0.2.1, {address: b.example, user: cc}]\ngroups: {o: [b.example]}")
    found = read_file(path)
    assert [(host.name, host.user) for host in found.hosts] == [
        ("192.0.2.1", None),
        ("b.example", "cc"),
    ]
    assert found.groups == {"o": ("b.example",)}
    path.write_text(text)
    with raises(UserError, fact, where="hosts.yaml"):
        machines_of(read_options({"inventory": str(path)}))


HERE = Path("/there/hosts.ini")
VAULTED = {"__ansible_vault": "$ANSIBLE_VAULT;1.1;AES256 secret"}


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"ansible_host": "192.0.2.7", "ansible_port": 2222}, {"address": "192.0.2.7"}),
        ({"ansible_host": ""}, {"address": "disk0"}),
        ({"ansible_ssh_user": "b", "ansible_user": "a"}, {"user": "b"}),
        ({"ansible_ssh_port": 2222, "ansible_port": 1}, {"port": 2222}),
        ({"ansible_private_key_file": "keys/id"}, {"key": "/there/keys/id"}),
        ({"hotbed_address": "10.0.0.7"}, {"private_address": "10.0.0.7", "address": "disk0"}),
        (
            {"ansible_ssh_common_args": "-o ProxyJump=me@bastion -o ServerAliveInterval=5"},
            {"proxy_jump": JumpOption(address="bastion", user="me")},
        ),
        ({"database_password": VAULTED}, {"address": "disk0"}),
    ],
)
def test_variables_of_ansible(variables, found):
    host = host_of("disk0", {**variables, "ansible_connection": "ansible.builtin.ssh"}, HERE)
    assert {name: getattr(host, name) for name in found} == found


@pytest.mark.parametrize(
    ("variables", "fact"),
    [
        ({"ansible_connection": "local"}, "'local'"),
        ({"ansible_become_password": "secret"}, "ansible_become_password"),
        ({"ansible_ssh_pass": "secret"}, "ansible_ssh_pass"),
        ({"ansible_ssh_common_args": "-o ProxyCommand='sshpass -p secret ssh b'"}, "ProxyCommand"),
        ({"ansible_ssh_common_args": "-o 'ProxyCommand=sshpass -p secret"}, "cannot read"),
        ({"ansible_user": "{{ me }}"}, "ansible_user"),
        ({"ansible_host": VAULTED}, "ansible_host"),
    ],
)
def test_unusable_variables_are_named_without_secrets(variables, fact):
    with raises(UserError, fact, where="machine a") as refused:
        host_of("a", variables, HERE)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "jump"),
    [
        ("", None),
        ("-J me@b", "me@b"),
        ("-Jme@b:2222", "me@b:2222"),
        ("-oProxyJump=b", "b"),
        ("-o 'ProxyJump b'", "b"),
        ("-o ProxyJump=none", None),
        ("-o 'ProxyCommand=ssh -W %h:%p -q me@b'", "me@b"),
        ("-o ProxyCommand='ssh -p 2222 me@b -W %h:%p'", "me@b:2222"),
    ],
)
def test_spellings_of_a_proxy_jump(arguments, jump):
    assert proxy_jump(arguments, "here") == jump


@pytest.mark.slow
def test_any_inventory_that_ansible_reads(tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text(
        "[osds]\ndisk[0:1].example hotbed_address=10.0.0.1\n[mons]\nhead ansible_host=192.0.2.9\n"
        "[ceph:children]\nosds\nmons\n[ceph:vars]\nansible_user=cc\n"
    )
    found = read_file(path)
    assert {host.name for host in found.hosts} == {"disk0.example", "disk1.example", "head"}
    assert {host.user for host in found.hosts} == {"cc"}
    assert found.groups["osds"] == ("disk0.example", "disk1.example")
    assert set(found.groups["ceph"]) == {"disk0.example", "disk1.example", "head"}
    path.write_text("a ansible_password=hush b\n")
    with raises(UserError, "ansible-inventory -i", where=str(path)) as refused:
        read_file(path)
    assert "hush" not in str(refused.value)
    path.write_text("[osds]\ndisk0.example\n")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "osds.yml").write_text("ansible_user: a\nansible_user: b\n")
    with raises(UserError, where=str(path)):
        read_file(path)


# -- assignment ------------------------------------------------------------------------------------


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


def listed(monkeypatch: pytest.MonkeyPatch, path: Path, **hosts: dict[str, Any]) -> ListedMachines:
    """Return the machines read from an inventory that Ansible lists in this order."""
    groups = {"osds": {"hosts": [name for name in hosts if name.startswith("disk")]}}
    listing = {"_meta": {"hostvars": hosts}, "all": {"hosts": list(hosts)}, **groups}
    monkeypatch.setattr(inventory_hosts, "ansible_listing", lambda _: listing)
    path.touch()
    return machines_of(read_options({"inventory": str(path)}))


STRANGERS = {
    "here": {"ansible_connection": "local"},
    "windows": {"ansible_connection": "winrm", "ansible_password": "secret"},
}


@pytest.mark.parametrize(
    ("options", "disk1", "fact"),
    [
        ({}, {}, ""),
        ({"nodes": {"head": "here"}}, {}, "machine here"),
        ({"nodes": {"osd": ["disk0", "windows"]}}, {}, "'winrm'"),
        ({}, {"ansible_connection": "local"}, "machine disk1"),
    ],
)
def test_an_unusable_machine_is_refused_only_as_a_node(monkeypatch, tmp_path, options, disk1, fact):
    disks: dict[str, dict[str, Any]] = {"disk0": {}, "disk1": disk1}
    found = listed(monkeypatch, tmp_path / "hosts", **STRANGERS, **disks, head={})
    if not fact:
        assert set(found.unusable) == set(STRANGERS)
        assert names_of(found) == {"head": "head", "osd0": "disk0", "osd1": "disk1"}
        return
    with raises(UserError, fact) as refused:
        names_of(found, **options)
    assert "secret" not in str(refused.value)


def test_a_machine_in_several_groups_is_left_to_the_node_that_has_no_other():
    """In ceph-ansible's inventories, a monitor's machine may also have an OSD."""
    groups = [{"name": "head", "roles": ["admin", "mon", "mgr", "client"]}]
    groups += spec_of(3).model_dump()["groups"][1:]
    spec = TestbedSpec.model_validate({"name": "t", "store": None, "groups": groups})
    found = machines("a", "m", "b", "c", mons=("a",), mgrs=("m",), osds=("a", "b", "c"))
    assert names_of(found, spec) == {"head": "m", "osd0": "a", "osd1": "b", "osd2": "c"}
    found = machines("m", "a", "b", "c", mons=("a",), osds=("a", "b", "c"))
    with raises(UserError, "osd2"):
        names_of(found, spec)


@given(
    st.lists(st.lists(st.sampled_from("abcde"), unique=True, min_size=1), min_size=3, max_size=3),
    st.sets(st.sampled_from("abcde"), max_size=3),
)
def test_a_node_is_refused_only_if_no_assignment_has_a_machine_for_each(wanted, taken):
    nodes = dict(zip(("osd0", "osd1", "head"), wanted, strict=True))
    possible = any(
        len(set(each)) == 3 and not set(each) & taken for each in itertools.product(*wanted)
    )
    busy = [(f"192.0.2.{'abcde'.index(name) + 1}", 22, None) for name in taken]
    try:
        found = names_of(machines(*"abcde"), taken=busy, nodes=nodes)
    except UserError:
        assert not possible
        return
    assert len(set(found.values())) == 3
    assert not set(found.values()) & taken
    assert all(found[node] in names for node, names in nodes.items())


def test_options_come_before_groups_and_a_node_before_its_group():
    found = machines("a", "b", "c", "d", osd=("a", "b"))
    nodes = {"osd": ["c", "d"], "osd1": "c", "admin": "b"}
    assert names_of(found, nodes=nodes) == {"head": "b", "osd0": "d", "osd1": "c"}
    hosts = (HostOptions(address="a.example", user="me", proxy_jump="j"),)  # type: ignore[arg-type]
    found = ListedMachines((*hosts, *machines("b", "c").hosts))
    members = assign(spec_of(), read_options({"devices": DEVICES, "user": "cc"}), found)
    assert [member.host.user for member in members] == ["me", "cc", "cc"]
    recorded = members[0].model_dump(mode="json")
    assert Member.model_validate(recorded) == members[0]
    recorded["host"]["jump"] = recorded["host"].pop("proxy_jump")  # as written before
    assert Member.model_validate(recorded) == members[0]


def test_several_disks_a_node_have_names_in_order():
    spec = spec_of(scratch=0, disks=2)
    options = read_options({"devices": {"osd": ["/dev/sdb", "/dev/sdc"]}})
    found = assign(spec, options, machines("a", "b", "c"))
    assert found[1].devices == {"osd": "/dev/sdb", "osd1": "/dev/sdc"}
    scratch = {"osd": {"osd": ["/dev/sdb", "/dev/sdc"], "scratch": "/dev/sdd"}}
    for devices in ({"osd": "/dev/sdb"}, scratch):
        with raises(UserError, where="node osd0"):
            assign(spec, read_options({"devices": devices}), machines("a", "b", "c"))


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"nodes": {"osd": ["a"]}}, "osd1"),
        ({"nodes": {"osd": ["z"]}}, "'z'"),
        ({"devices": {}}, "1 disk(s)"),
        ({"devices": {"osd": "/dev/sdb"}}, "scratch"),
        ({"devices": {**DEVICES, "head": "/dev/sdb"}}, "group head"),
        ({"wipe": ["/dev/sdb@osd7"]}, "osd0"),
        ({"password": "x"}, "password"),
        ({"hosts": [{"address": "a", "become": True}]}, "hosts.0.become"),
        ({"proxy_jump": "a,b:c"}, "'a,b:c'"),
        ({"hosts": ["-oProxyCommand=x"]}, "'-oProxyCommand=x'"),
        ({"user": "-x"}, "'-x'"),
        ({"devices": {"osd": "sdb"}}, "'sdb'"),
        ({"devices": {"osd": "/dev/../etc/passwd"}}, "'/dev/../etc/passwd'"),
        ({"devices": {"osd": ["/dev/sdb", "/dev/sdb"]}}, "twice"),
        ({"wipe": ["/dev/sdb"]}, "'/dev/sdb'"),
    ],
)
def test_options_that_do_not_fit(options, fact):
    with raises(UserError, fact):
        names_of(machines("a", "b", "c"), **options)


def test_a_jump_is_written_as_for_ssh():
    for text, jump in {
        "bastion": ("bastion", None, 22),
        "me@bastion:2222": ("bastion", "me", 2222),
        "me@[2001:db8::1]:22": ("2001:db8::1", "me", 22),
    }.items():
        found = read_options({"proxy_jump": text}).proxy_jump
        assert found is not None
        assert (found.address, found.user, found.port) == jump


def test_paths_in_a_spec_start_at_its_folder(tmp_path):
    options = {"inventory": "hosts.ini", "key": "/k", "hosts": [{"address": "a", "key": "x"}]}
    body = {"name": "t", "store": None, "groups": [{"name": "a", "roles": ["admin"]}]}
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump({**body, "site": {"kind": "inventory", "options": options}}))
    assert load_spec(path).site.options == {
        "inventory": str(tmp_path / "hosts.ini"),
        "key": "/k",
        "hosts": [{"address": "a", "key": str(tmp_path / "x")}],
    }
