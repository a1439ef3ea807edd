"""Which machine becomes which node; what inventories and options say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UserError
from testbed.sites.inventory import ansible_hosts
from testbed.sites.inventory.ansible_hosts import Machines, host_of, proxy_jump, read_file
from testbed.sites.inventory.assign import Member, assign
from testbed.sites.inventory.options import HostOptions, JumpOption, read_options
from testbed.spec import TestbedSpec, load_spec

DEVICES = {"osd": {"osd": "/dev/sdb2", "scratch": "/dev/sdb1"}}


def spec_of(osds: int = 2, **disk: Any) -> TestbedSpec:
    disk = {"size": "3GiB", "scratch": "1GiB", **disk}
    disks = disk.pop("disks", 1)
    groups = [
        {"name": "head", "roles": ["admin", "client"]},
        {"name": "osd", "count": osds, "roles": ["osd"], "disk": disk, "disks": disks},
    ]
    return TestbedSpec.model_validate({"name": "t", "store": None, "groups": groups})


def machines(*names: str, **groups: tuple[str, ...]) -> Machines:
    hosts = tuple(
        HostOptions(name=name, address=f"192.0.2.{number}") for number, name in enumerate(names, 1)
    )
    return Machines(hosts, groups)


def names_of(
    found: Machines, spec: TestbedSpec | None = None, taken: Any = (), **options: Any
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


def test_options_come_before_groups_and_a_node_before_its_group() -> None:
    listed = machines("a", "b", "c", "d", osd=("a", "b"))
    found = names_of(listed, nodes={"osd": ["c", "d"], "osd1": "c", "admin": "b"})
    assert found == {"head": "b", "osd0": "d", "osd1": "c"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": {"osd": ["a"]}}, r"node osd1 \(group osd, 2 nodes\) is left without a machine"),
        ({"nodes": {"osd": ["z"]}}, "osd: 'z' is no machine of the inventory; there are: a, b"),
        ({"nodes": {"odd": ["a"]}}, "'odd' is no node, group or role of testbed t"),
        ({"devices": {}}, "has 1 disk.s. a node in group osd, and site.options.devices names 0"),
        ({"devices": {"osd": "/dev/sdb"}}, r"no device is named for them.*two partitions"),
        ({"devices": {**DEVICES, "head": "/dev/sdb"}}, "group head has no disk block"),
        ({"wipe": ["/dev/sdb@osd7"]}, "names no node of testbed t; its nodes are: head, osd0"),
    ],
)
def test_what_does_not_fit_is_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        names_of(machines("a", "b", "c"), **options)


def test_too_few_machines() -> None:
    with pytest.raises(UserError, match="of the inventory's 2 machines none is left for osd1"):
        names_of(machines("a", "b"))


def test_several_disks_a_node_have_names_in_order() -> None:
    spec = spec_of(scratch=0, disks=2)
    options = read_options({"devices": {"osd": ["/dev/sdb", "/dev/sdc"]}})
    found = assign(spec, options, machines("a", "b", "c"))
    assert found[1].devices == {"osd": "/dev/sdb", "osd1": "/dev/sdc"}
    with pytest.raises(UserError, match=r"2 disk.s. a node"):
        assign(spec, read_options({"devices": {"osd": "/dev/sdb"}}), machines("a", "b", "c"))
    scratch = {"osd": {"osd": ["/dev/sdb", "/dev/sdc"], "scratch": "/dev/sdd"}}
    with pytest.raises(UserError, match="the spec keeps no files"):
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
    listed = Machines((*hosts, *machines("b", "c").hosts))
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
        (
            {"host": []},
            r"host: there is no such key; there are accept_.*, wipe \(did you mean hosts\?\)\.$",
        ),
        ({"password": "x"}, "password: there is no such key; there are .* key,"),
        (
            {"hosts": [{"address": "a", "become": True}]},
            r"hosts.0.become: there is no such key; there are address, .* user\.$",
        ),
        ({"proxy_jump": "a,b:c"}, "one machine only"),
        ({"proxy_jump": "me@a,me@b"}, "one machine only"),
        ({"hosts": ["-oProxyCommand=x"]}, "neither an IP address nor a host's name"),
        ({"user": "-x"}, "'-x' is no user's name"),
        ({"hosts": ["a"], "inventory": "b"}, "either inventory .a file. or hosts"),
        ({"devices": {"osd": "sdb"}}, "'sdb' is no device"),
        ({"devices": {"osd": "/dev/../etc/passwd"}}, "is no device"),
        ({"devices": {"osd": ["/dev/sdb", "/dev/sdb"]}}, "a device is named twice"),
        ({"hosts": [{"address": "a", "private_address": "b"}]}, "private_address 'b' is no IP"),
        ({"wipe": ["/dev/sdb"]}, "write device@node, such as /dev/sdb@osd0"),
        ({"signal": "load"}, "signal: 'load' is not allowed; allowed: 'iowait' or 'io_pressure'"),
    ],
)
def test_bad_options_are_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
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


# -- inventories -----------------------------------------------------------------------------------


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
    with pytest.raises(
        UserError,
        match=r"hosts\.yaml: hosts\.0\.adress: there is no such key; .* \(did you mean address\?\)",
    ):
        read_file(path)


@pytest.mark.parametrize(
    "text",
    [
        "hosts: [192.0.2.1]\ngroups: {}\nhosts: [192.0.2.2]\n",
        "all:\n  hosts: {a: {}}\n  vars: {ansible_user: cc}\n  hosts: {b: !vault x}\n",
    ],
)
def test_a_file_with_machines_in_two_places_is_refused(tmp_path: Path, text: str) -> None:
    """Of its own form, and of Ansible's, which takes the last and warns."""
    path = tmp_path / "hosts.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=r"hosts\.yaml: the key 'hosts' of line \d is there again"):
        read_file(path)


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ([], "name one at least"),
        (["a", "a"], "'a' is there twice"),
        ([{"address": "a"}, {"address": "a", "name": "b"}], "a is there twice, the second time"),
    ],
)
def test_a_machine_is_there_once(tmp_path: Path, hosts: list[Any], message: str) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text(yaml.safe_dump({"hosts": hosts}))
    with pytest.raises(UserError, match=message):
        ansible_hosts.machines_of(read_options({"inventory": str(path)}))


def test_an_inventory_that_is_not_there() -> None:
    with pytest.raises(UserError, match="the inventory /nonexistent/x cannot be found"):
        ansible_hosts.machines_of(read_options({"inventory": "/nonexistent/x"}))


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


def test_the_older_names_of_ansibles_variables() -> None:
    old = {"ansible_ssh_host": "192.0.2.7", "ansible_ssh_port": 2222, "ansible_ssh_user": "cc"}
    found = host_of("disk0", {**old, "ansible_connection": "ansible.builtin.ssh"}, Path("hosts"))
    assert (found.address, found.port, found.user) == ("192.0.2.7", 2222, "cc")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"ansible_connection": "local"}, "only ssh will do"),
        ({"ansible_become_password": "secret"}, "ansible_become_password is not used"),
        ({"ansible_become_pass": "secret"}, "ansible_become_pass is not used"),
        ({"ansible_ssh_password": "secret"}, "ansible_ssh_password is not used"),
        ({"ansible_sudo_pass": "secret"}, "ansible_sudo_pass is not used"),
        ({"ansible_ssh_common_args": """-o ProxyCommand="ssh -W 'x" """}, "No closing quotation"),
        ({"ansible_ssh_common_args": "-o ProxyCommand='nc %h %p'"}, "is not understood"),
        ({"ansible_port": "ssh"}, "port"),
    ],
)
def test_variables_that_cannot_be_followed(variables: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        host_of("a", variables, Path("hosts.ini"))
    assert "machine a" in str(refused.value)
    assert "secret" not in str(refused.value)


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
    with pytest.raises(UserError, match="Ansible cannot read this inventory"):
        read_file(path)
    path.write_text("[osds]\ndisk0.example\n")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "osds.yml").write_text("ansible_user: a\nansible_user: b\n")
    with pytest.raises(UserError, match=r"Ansible cannot read this inventory: .*ansible_user"):
        read_file(path)
