"""Inventories of machines in Ansible's and our own format; unusable machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.errors import UserError
from testbed.sites.inventory import hosts as inventory_hosts
from testbed.sites.inventory.hosts import (
    JumpOption,
    ListedMachines,
    host_of,
    machines_of,
    proxy_jump,
    read_file,
    read_options,
)
from tests.errors import raises
from tests.testbed.sites.test_inventory_assign import names_of


def test_our_own_short_file(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    "text",
    [
        "hosts: [192.0.2.1]\ngroups: {}\nhosts: [192.0.2.2]\n",
        "all:\n  hosts: {a: {}}\n  vars: {ansible_user: cc}\n  hosts: {b: !vault x}\n",
    ],
)
def test_a_file_with_machines_in_two_places_is_refused(tmp_path: Path, text: str) -> None:
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
def test_a_machine_is_there_once(tmp_path: Path, hosts: list[Any], message: str) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text(yaml.safe_dump({"hosts": hosts}))
    with raises(UserError, message):
        machines_of(read_options({"inventory": str(path)}))


def test_an_inventory_that_is_not_there() -> None:
    with raises(UserError, "/nonexistent/x"):
        machines_of(read_options({"inventory": "/nonexistent/x"}))


def test_variables_of_ansible() -> None:
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
def test_older_names_of_variables_count_first_as_with_ansible(
    variables: dict[str, Any], found: dict[str, Any]
) -> None:
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


def test_machines_that_no_node_is_on_may_be_of_any_kind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    disks: dict[str, dict[str, Any]] = {"disk0": {}, "disk1": {"ansible_connection": "local"}}
    found = listed(monkeypatch, tmp_path / "hosts", **STRANGERS, **disks, head={})
    with raises(UserError, message) as refused:
        names_of(found, **options)
    assert "secret" not in str(refused.value)


def test_where_machines_are_too_few_those_that_cannot_be_used_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = listed(monkeypatch, tmp_path / "hosts", **STRANGERS, disk0={}, disk1={})
    with pytest.raises(UserError) as refused:
        names_of(found)
    assert "secret" not in str(refused.value)


def test_an_inventory_may_name_a_machine_twice_and_it_is_one_node(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hosts = {name: {"ansible_host": "192.0.2.1"} for name in ("a", "alias")}
    found = listed(monkeypatch, tmp_path / "hosts", **hosts, disk0={}, disk1={})
    with raises(UserError, "osd1"):
        names_of(found, nodes={"osd": ["a", "alias"]})
    assert names_of(found)["head"] == "a"


def test_what_ansible_says_is_told_without_secrets(tmp_path: Path) -> None:
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
def test_variables_that_cannot_be_followed(variables: dict[str, Any], message: str) -> None:
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
def test_a_vaulted_variable_is_named_without_its_ciphertext(variable: str) -> None:
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
def test_ways_of_saying_proxy_jump(arguments: str, jump: str | None) -> None:
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
