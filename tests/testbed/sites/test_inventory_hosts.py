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


def test_our_own_short_file(tmp_path):
    path = tmp_path / "hosts.yaml"
    path.write_text(
        "hosts: [192.0.2.1, {address: b.example, user: cc}]\n" + "groups: {osd: [b.example]}"
    )
    found = read_file(path)
    assert [host.name for host in found.hosts] == ["192.0.2.1", "b.example"]
    assert found.hosts[1].user == "cc"
    assert found.groups == {"osd": ("b.example",)}
    path.write_text("hosts: [{adress: 192.0.2.1}]")
    with raises(UserError, where="hosts.yaml: hosts.0.adress"):
        read_file(path)
    with raises(UserError, "/nonexistent/x"):
        machines_of(read_options({"inventory": "/nonexistent/x"}))


@pytest.mark.parametrize(
    "text",
    [
        "hosts: [192.0.2.1]\ngroups: {}\nhosts: [192.0.2.2]\n",
        "all:\n  hosts: {a: {}}\n  vars: {ansible_user: cc}\n  hosts: {b: !vault x}\n",
    ],
)
def test_a_file_with_machines_in_two_places_is_refused(tmp_path, text):
    """In our format and in Ansible's, which takes the last entry and warns."""
    path = tmp_path / "hosts.yaml"
    path.write_text(text)
    with raises(UserError, "'hosts'", where="hosts.yaml"):
        read_file(path)


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ([], "name one at least"),
        (["a", "a"], "'a' is there twice"),
        ([{"address": "a"}, {"address": "a", "name": "b"}], "a is there twice"),
    ],
)
def test_a_machine_is_there_once(tmp_path, hosts, message):
    path = tmp_path / "hosts.yml"
    path.write_text(yaml.safe_dump({"hosts": hosts}))
    with raises(UserError, message):
        machines_of(read_options({"inventory": str(path)}))


def test_variables_of_ansible():
    found = host_of(
        "disk0",
        {
            "ansible_host": "192.0.2.7",
            "ansible_port": 2222,
            "ansible_user": "cc",
            "ansible_ssh_private_key_file": "keys/id",
            "ansible_ssh_common_args": "-o ProxyJump=me@bastion -o ServerAliveInterval=5",
            "hotbed_address": "10.0.0.7",
        },
        Path("/there/hosts.ini"),
    )
    assert (found.address, found.port, found.user) == ("192.0.2.7", 2222, "cc")
    assert (found.key, found.private_address) == ("/there/keys/id", "10.0.0.7")
    assert found.proxy_jump == JumpOption(address="bastion", user="me")


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"ansible_ssh_host": "192.0.2.7"}, {"address": "192.0.2.7"}),
        ({"ansible_ssh_user": "b", "ansible_user": "a"}, {"user": "b"}),
        ({"ansible_ssh_port": 2222, "ansible_port": 1}, {"port": 2222}),
        ({"ansible_private_key_file": "id"}, {"key": "/there/id"}),
        ({"ansible_ssh_private_key_file": "id"}, {"key": "/there/id"}),
    ],
)
def test_older_names_of_variables_count_first_as_with_ansible(variables, found):
    variables |= {"ansible_connection": "ansible.builtin.ssh"}
    host = host_of("disk0", variables, Path("/there/hosts.ini"))
    assert {name: getattr(host, name) for name in found} == found


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
    "switch": {"ansible_password": "secret"},
}


def test_machines_that_no_node_is_on_may_be_of_any_kind(monkeypatch, tmp_path):
    found = listed(monkeypatch, tmp_path / "hosts", **STRANGERS, disk0={}, disk1={}, head={})
    assert set(found.unusable) == set(STRANGERS)
    assert names_of(found) == {"head": "head", "osd0": "disk0", "osd1": "disk1"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": {"head": "here"}}, "machine here"),
        ({"nodes": {"head": "switch"}}, "machine switch"),
        ({"nodes": {"osd": ["disk0", "windows"]}}, "'winrm'"),
        ({}, "'local'"),
    ],
)
def test_a_machine_that_is_to_be_a_node_and_cannot_be_used_is_told(
    monkeypatch, tmp_path, options, message
):
    disks: dict[str, dict[str, Any]] = {"disk0": {}, "disk1": {"ansible_connection": "local"}}
    found = listed(monkeypatch, tmp_path / "hosts", **STRANGERS, **disks, head={})
    with raises(UserError, message) as refused:
        names_of(found, **options)
    assert "secret" not in str(refused.value)


def test_an_inventory_may_name_a_machine_twice_and_it_is_one_node(monkeypatch, tmp_path):
    hosts = {name: {"ansible_host": "192.0.2.1"} for name in ("a", "alias")}
    found = listed(monkeypatch, tmp_path / "hosts", **hosts, disk0={}, disk1={})
    with raises(UserError, "osd1"):
        names_of(found, nodes={"osd": ["a", "alias"]})
    assert names_of(found)["head"] == "a"


def test_what_ansible_says_is_told_without_secrets(tmp_path):
    path = tmp_path / "hosts.ini"
    path.write_text("a ansible_password=hush hush2\n")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text("ansible_become_pass: 'psst'\n")
    told = inventory_hosts._without_secrets("got: hush2, hush, 'psst' at a", path)
    assert told == "got: ***, ***, '***' at a"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"ansible_connection": "local"}, "only ssh will do"),
        ({"ansible_become_password": "secret"}, "ansible_become_password"),
        ({"ansible_become_pass": "secret"}, "ansible_become_pass"),
        ({"ansible_ssh_password": "secret"}, "ansible_ssh_password"),
        ({"ansible_sudo_pass": "secret"}, "ansible_sudo_pass"),
        ({"ansible_ssh_common_args": """-o ProxyCommand="ssh -W 'x" """}, "No closing quotation"),
        ({"ansible_ssh_common_args": "-o ProxyCommand='nc %h %p'"}, "is not understood"),
        ({"ansible_ssh_common_args": "-o ProxyCommand='sshpass -p secret ssh b'"}, "is not und"),
        ({"ansible_ssh_common_args": "-o 'ProxyCommand=sshpass -p secret"}, "cannot be read"),
        ({"ansible_private_key_passphrase": "secret"}, "passphrase is not used"),
        ({"ansible_private_key": "secret"}, "ansible_private_key"),
        ({"ansible_user": "{{ me }}"}, "ansible_user"),
        ({"ansible_port": "ssh"}, "port"),
    ],
)
def test_variables_that_cannot_be_followed(variables, message):
    with raises(UserError, message) as refused:
        host_of("a", variables, Path("hosts.ini"))
    assert "machine a" in str(refused.value)
    assert "secret" not in str(refused.value)


VAULTED = {"__ansible_vault": "$ANSIBLE_VAULT;1.1;AES256\n623133653963\n"}


@pytest.mark.parametrize(
    "variable",
    [
        *("ansible_host", "ansible_ssh_user", "ansible_port", "ansible_private_key_file"),
        *("hotbed_address", "hotbed_host_key", "ansible_connection", "ansible_ssh_common_args"),
    ],
)
def test_a_vaulted_variable_is_named_without_its_ciphertext(variable):
    with raises(UserError, variable) as refused:
        host_of("a", {variable: VAULTED}, Path("hosts.ini"))
    assert "6231" not in str(refused.value)
    assert host_of("a", {"database_password": VAULTED}, Path("hosts.ini")).address == "a"


@pytest.mark.parametrize(
    ("arguments", "jump"),
    [
        ("", None),
        ("-o StrictHostKeyChecking=yes", None),
        ("-J me@b", "me@b"),
        ("-Jme@b:2222", "me@b:2222"),
        ("-oProxyJump=b", "b"),
        ("-o 'ProxyJump b'", "b"),
        ("-o ProxyJump=none", None),
        ("-o 'ProxyCommand ssh -W %h:%p b'", "b"),
        ("-o 'ProxyCommand=ssh -W %h:%p -q me@b'", "me@b"),
        ("-o ProxyCommand='ssh -p 2222 me@b -W %h:%p'", "me@b:2222"),
    ],
)
def test_ways_of_saying_proxy_jump(arguments, jump):
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
    path.write_text("[osds\nbroken")
    with pytest.raises(UserError):
        read_file(path)
    path.write_text("[osds]\ndisk0.example\n")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "osds.yml").write_text("ansible_user: a\nansible_user: b\n")
    with raises(UserError, "ansible_user"):
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


def test_a_machine_in_several_groups_is_left_to_the_node_that_has_no_other():
    """In ceph-ansible's inventories, a monitor's machine may also have an OSD."""
    groups = [{"name": "head", "roles": ["admin", "mon", "mgr", "client"]}]
    groups += spec_of(3).model_dump()["groups"][1:]
    spec = TestbedSpec.model_validate({"name": "t", "store": None, "groups": groups})
    listed = machines("a", "m", "b", "c", mons=("a",), mgrs=("m",), osds=("a", "b", "c"))
    assert names_of(listed, spec) == {"head": "m", "osd0": "a", "osd1": "b", "osd2": "c"}
    listed = machines("m", "a", "b", "c", mons=("a",), osds=("a", "b", "c"))
    with raises(UserError, "osd2"):
        names_of(listed, spec)


@given(
    st.lists(st.lists(st.sampled_from("abcde"), unique=True, min_size=1), min_size=3, max_size=3)
)
def test_a_node_is_refused_only_if_no_assignment_has_a_machine_for_each(wanted):
    nodes = dict(zip(("osd0", "osd1", "head"), wanted, strict=True))
    possible = any(len(set(each)) == 3 for each in itertools.product(*wanted))
    try:
        found = names_of(machines(*"abcde"), nodes=nodes)
    except UserError:
        assert not possible
        return
    assert len(set(found.values())) == 3
    assert all(found[node] in names for node, names in nodes.items())


def test_options_come_before_groups_and_a_node_before_its_group():
    listed = machines("a", "b", "c", "d", osd=("a", "b"))
    found = names_of(listed, nodes={"osd": ["c", "d"], "osd1": "c", "admin": "b"})
    assert found == {"head": "b", "osd0": "d", "osd1": "c"}
    hosts = (HostOptions(address="a.example", user="me", proxy_jump=JumpOption(address="j")),)
    listed = ListedMachines((*hosts, *machines("b", "c").hosts))
    found = assign(spec_of(), read_options({"devices": DEVICES}), listed)
    assert tuple(Member.from_json(member.to_json()) for member in found) == found
    assert found[0].host.jump is not None


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
def test_what_does_not_fit_is_one_sentence(options, message):
    with raises(UserError, message):
        names_of(machines("a", "b", "c"), **options)


def test_several_disks_a_node_have_names_in_order():
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
def test_every_node_has_a_free_machine_of_its_own_or_a_sentence(osds, total, group, taken):
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


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "jump"),
    [
        ("bastion", ("bastion", None, 22)),
        ("me@bastion:2222", ("bastion", "me", 2222)),
        ("me@[2001:db8::1]:22", ("2001:db8::1", "me", 22)),
    ],
)
def test_a_jump_is_written_as_ssh_has_it(text, jump):
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
def test_bad_options_are_one_sentence(options, message):
    with raises(UserError, message):
        read_options(options)


def test_paths_in_a_spec_start_at_its_folder(tmp_path):
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
