"""Inventory for Ansible."""

from __future__ import annotations

import shlex
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.errors import UserError
from testbed.deploy.inventory import agent_config, build_inventory, fio_file_bytes, osd_ids
from testbed.sites.contract import Node, Testbed
from testbed.spec import DiskSpec, TestbedSpec
from tests.errors import raises
from tests.testbed.deployers.beds import DISK, bed_of
from tests.testbed.fake_site import FakeSite
from tests.testbed.plain_specs import CEPH_ROLES, plain_spec

KEYS = Path("/keys")


def make_spec(**changes: object) -> TestbedSpec:
    more = {"store": {}, **changes}
    return plain_spec("t", admin=CEPH_ROLES, osds=3, disk=DISK, **more)  # type: ignore[arg-type]


def test_every_osd_has_its_device_number_and_lasting_identity():
    spec = make_spec()
    hosts = build_inventory(bed_of(spec, KEYS), spec)["all"]["hosts"]
    again = build_inventory(bed_of(spec, KEYS), spec)["all"]["hosts"]
    other = build_inventory(replace(bed_of(spec, KEYS), name="u"), spec)["all"]["hosts"]
    found = [hosts[f"osd{number}"]["hotbed_osds"][0] for number in range(3)]
    assert [osd["id"] for osd in found] == [0, 1, 2]
    assert len({uuid.UUID(osd["uuid"]) for osd in found}) == 3
    assert hosts == again
    assert other["osd0"]["hotbed_osds"][0]["uuid"] != found[0]["uuid"]
    assert found[1]["device"] == "/dev/sdb2"
    assert hosts["osd1"]["hotbed_scratch_device"] == "/dev/sdb1"
    assert "hotbed_osds" not in hosts["admin"]


def test_a_node_with_several_disks_has_an_osd_on_each():
    disk = {"size": "4GiB", "scratch": 0}
    groups = [
        {"name": "admin", "roles": ["admin", "mon", "mgr", "client"]},
        {"name": "osd", "count": 4, "roles": ["osd"], "disk": disk, "disks": 12},
    ]
    spec = make_spec(groups=groups, racks={"count": 2}, store={"failure_domain": "rack"})
    testbed = FakeSite().provision(spec)
    assert testbed.osds == 48
    assert osd_ids(testbed)["osd1"] == tuple(range(12, 24))
    inventory = build_inventory(testbed, spec)["all"]
    found = [osd for n in range(4) for osd in inventory["hosts"][f"osd{n}"]["hotbed_osds"]]
    assert [osd["id"] for osd in found] == list(range(48))
    assert len({osd["uuid"] for osd in found}) == 48
    # The order follows the disks, not their names as text.
    assert [osd["device"] for osd in found[:12]] == [f"/dev/fake{n + 2}" for n in range(12)]
    racks = [inventory["hosts"][f"osd{n}"]["hotbed_rack"] for n in range(4)]
    assert racks == ["rack0", "rack0", "rack1", "rack1"]
    assert "hotbed_rack" not in inventory["hosts"]["admin"]
    assert inventory["vars"]["ceph_failure_domain"] == "rack"
    # The store uses the whole disk, so no place exists for fio's files and none are laid out.
    assert inventory["hosts"]["osd0"]["hotbed_fio_file_bytes"] == 0
    assert "hotbed_scratch_device" not in inventory["hosts"]["osd0"]
    assert [node.osds for node in agent_config(testbed, spec).nodes][2] == tuple(range(12, 24))


def test_ssh_checks_host_keys_and_reads_nothing_of_the_users():
    spec = make_spec()
    inventory = build_inventory(bed_of(spec, KEYS, user="cc"), spec)["all"]
    arguments = inventory["vars"]["ansible_ssh_common_args"]
    assert "StrictHostKeyChecking=yes" in arguments
    assert "UserKnownHostsFile=/keys/known_hosts" in arguments
    assert arguments.startswith("-F none")
    assert inventory["hosts"]["osd2"]["ansible_port"] == 22
    assert inventory["hosts"]["osd2"]["ansible_become"] is True
    assert inventory["vars"]["ansible_python_interpreter"] == "/usr/bin/python3"


def test_nodes_are_reached_at_their_public_address_or_through_another():
    spec = make_spec()
    plain = bed_of(spec, KEYS)
    nodes = tuple(
        replace(node, public_address="192.0.2.1")
        if "admin" in node.roles
        else replace(node, via="admin", ssh_port=2201)
        for node in plain.nodes
    )
    testbed = replace(plain, nodes=nodes)
    hosts = build_inventory(testbed, spec)["all"]["hosts"]
    assert hosts["admin"]["ansible_host"] == "192.0.2.1"
    assert hosts["admin"]["hotbed_address"] == "10.1.0.10"
    assert "ansible_ssh_common_args" not in hosts["admin"]
    assert hosts["osd0"]["ansible_host"] == hosts["osd0"]["hotbed_address"] == "10.1.0.11"
    words = shlex.split(hosts["osd0"]["ansible_ssh_common_args"])
    assert "StrictHostKeyChecking=yes" in words
    (proxy,) = (word for word in words if word.startswith("ProxyCommand="))
    through = shlex.split(proxy.removeprefix("ProxyCommand="))
    assert through[-3:] == ["-W", "10.1.0.11:2201", "root@192.0.2.1"]
    assert "UserKnownHostsFile=/keys/known_hosts" in through
    # Nodes use the addresses between nodes.
    assert agent_config(testbed, spec).nodes[0].address == "10.1.0.10"


def test_what_cannot_be_deployed_is_reported():
    spec = make_spec(store=None)
    with raises(UserError, "nothing to deploy"):
        build_inventory(bed_of(spec, KEYS), spec)
    spec = make_spec()
    testbed = bed_of(spec, KEYS)
    bare = [
        Node(node.name, node.address, node.roles, node.group, devices={}) for node in testbed.nodes
    ]
    without = Testbed("t", "site", tuple(bare), Path("k"), Path("h"), Path("d"), "x")
    with raises(UserError, where="osd0"):
        build_inventory(without, spec)


def test_fio_files_are_five_percent_of_the_disk_each():
    assert fio_file_bytes(DiskSpec(size=40 * 2**30, scratch=9 * 2**30), "n") == 2 * 2**30
    assert fio_file_bytes(DiskSpec.model_validate(DISK), "n") == 409 * 2**20

    with pytest.raises(UserError):
        fio_file_bytes(DiskSpec(size=8 * 2**30, scratch=2**30), "n")
