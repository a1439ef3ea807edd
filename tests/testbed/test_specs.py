"""Specs: names, network, racks and disks, mistakes of every kind, and digests that stay."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.campaign import Campaign
from schemas.errors import UserError
from testbed.deploy import deployers
from testbed.sites.chameleon.options import ChameleonOptions
from testbed.sites.chameleon.site import ChameleonSite
from testbed.sites.inventory.site import InventorySite
from testbed.sites.local import racks
from testbed.sites.local.network import CORE
from testbed.sites.records import Records
from testbed.spec import NfsSpec, TestbedSpec, load_spec
from testbed.spec.stores import (
    CephadmDeployer,
    CephAnsibleDeployer,
    MicrostoreSpec,
    SwiftSpec,
    TenantSpec,
)
from tests.errors import raises
from tests.testbed.test_store_specs import FILES, NFS, SWIFT, SWIFT_STORE

SPECS = Path(__file__).resolve().parents[2] / "testbed" / "specs"
BARE: dict[str, Any] = {
    "name": "t",
    "store": None,
    "groups": [{"name": "admin", "roles": ["admin", "client"]}],
}
ADMIN = {"name": "admin", "roles": ["admin", "mon", "mgr", "client"]}


def bare(network: dict[str, Any] | None = None) -> TestbedSpec:
    return TestbedSpec.model_validate(BARE | {"network": network})


def ceph(nodes: int = 4, disks: int = 1, **more: Any) -> dict[str, Any]:
    disk = {"size": "4GiB", "scratch": 0}
    osd = {"name": "osd", "count": nodes, "roles": ["osd"], "disk": disk, "disks": disks}
    return {"name": "t", "groups": [ADMIN, osd], **more}


# -- mistakes --------------------------------------------------------------------------------------

NETWORK = [
    ({"mtu": 1279}, "network.mtu"),
    ({"congestion_control": "no such"}, "congestion_control"),
    # A name that becomes part of a command.
    ({"congestion_control": "reno\n"}, "congestion_control"),
    ({"congestion_control": "reno\ncubic"}, "congestion_control"),
    ({"priority_levels": 8}, "network.priority_levels"),
]
RACKS = [
    ({"racks": {}}, "racks"),
    ({"racks": {"count": 2, "members": {"a": ["osd0"]}}}, "either count"),
    ({"racks": {"count": 5}}, "4 nodes"),
    ({"racks": {"count": 2, "uplink": "1kbit"}}, "racks.uplink"),
    ({"racks": {"members": {"a": ["osd9"]}}}, "'a'"),
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
    ({"store": {"tenants": ["web"]}}, "no node is one"),
    ({"store": {"tenants": ["web", "web"]}}, "'web' twice"),
    ({"store": {"tenants": ["web"], "deployer": {"kind": "cephadm"}}}, "not with cephadm"),
    ({"metrics": True, "store": {"deployer": "ceph-ansible"}}, "metrics need the deployer own"),
    (
        {"store": {"pools": [{"name": "b", "size": 2, "min_size": 3}]}},
        "store.pools.0: min_size is 3",
    ),
    (
        {"store": {"deployer": "rook"}},
        "store.deployer.kind: 'rook' is not allowed; allowed: 'own', 'ceph-ansible', 'cephadm'",
    ),
    (
        {"store": {"deployer": {"kind": "own", "image": "x"}}},
        "store.deployer.image: there is no such key",
    ),
    (
        {"store": {"deployer": {"kind": "ceph-ansible", "variables": {"fsid": "x"}}}},
        "variables: fsid follows from the rest of the spec",
    ),
    ({"store": {"deployer": {"kind": "ceph-ansible", "osds": "raw"}}}, "packages: distro"),
    ({"store": {"deployer": "ceph-ansible", "twochoice": {}}}, "twochoice names OSDs by numbers"),
    (
        {
            "groups": [
                ADMIN,
                ceph(disks=3)["groups"][1] | {"disk": {"size": "4GiB", "scratch": "1GiB"}},
            ]
        },
        "3 disks",
    ),
]
STORES = [
    ({"kind": "nfs", "pools": []}, "store.pools"),
    ({"kind": "nfs", "export": "/../etc"}, "store"),
    ({"kind": "nfs", "port": 111, "mount_port": 111}, "mount_port"),
    ({"kind": "nfs", "profile": "no.json"}, "profile"),
]
OBJECTS = [
    ({"kind": "twochoice", "scheduler": "oracle"}, "store.scheduler"),
    ({"kind": "ceph"}, "store ceph needs a node"),
]
SMALL, LARGE = SWIFT_STORE["microstores"]
MICROSTORES = [
    ({"layout": "mos"}, "'mos'"),
    ({"pool": {"machine": {"proxy_cores": 0.5, "network": "100Mbit"}}}, "2 machines"),
    ({"replicas": 3}, "'small'"),
    ({"tenants": [{"name": "a", "microstore": "x"}]}, "'a'"),
    ({"pool": {"proxy_cores": 0.85}}, "0.85"),
    ({"layouts": {"big": {"small": {"proxy_cores": 0.8}}}}, "layout big"),
    ({"layouts": {"static": {}}}, "'static'"),
    ({"microstores": [SMALL | {"proxies": ["store0"]}]}, "store"),
    ({"microstores": [SMALL, SMALL | {"name": "large"}]}, "'proxy0'"),
    # Files of tenants on client nodes carry the tenants' names, next to our own files.
    *(
        ({"tenants": [{"name": n, "microstore": "small"}]}, n)
        for n in ("cluster", "node", "secrets")
    ),
    # On one node, shares of both would be one group.
    (
        {
            "microstores": [SMALL | {"name": "proxy"}],
            "tenants": [{"name": "a", "microstore": "proxy"}],
        },
        "'proxy'",
    ),
]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        *((BARE | {"network": network}, said) for network, said in NETWORK),
        *((ceph(**more), said) for more, said in RACKS),
        *((NFS | {"store": store}, said) for store, said in STORES),
        (NFS | {"groups": NFS["groups"][:2]}, "store nfs needs a node"),
        (NFS | {"groups": [NFS["groups"][0], NFS["groups"][2]]}, "needs a node with the role"),
        (NFS | {"groups": [*NFS["groups"][:1], {"name": "s", "roles": ["nfs"]}]}, "'s'"),
        *((FILES | {"store": store}, said) for store, said in OBJECTS),
        *((SWIFT | {"store": SWIFT_STORE | store}, said) for store, said in MICROSTORES),
    ],
)
def test_a_mistake_is_reported_in_a_sentence(tmp_path, body, said):
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(body))
    with raises(UserError, said) as caught:
        load_spec(path)
    assert "\n" not in str(caught.value)


# -- names: host names, folders and interface names ------------------------------------------------


def written(path: Path, *, testbed: str = "t", group: str = "admin") -> Path:
    groups = [{"name": group, "roles": ["admin", "client"]}]
    path.write_text(yaml.safe_dump(BARE | {"name": testbed, "groups": groups}))
    return path


@pytest.mark.parametrize("name", ["Big", "0th", "-a", "a_b", "a.b", "a" * 21, "", "a\n"])
def test_a_bad_name_is_one_sentence(tmp_path, name):
    for where, report in (("testbed", "name"), ("group", "group 1.name")):
        path = written(tmp_path / "spec.yaml", **{where: name})
        with raises(UserError, "20", report) as error:
            load_spec(path)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("model", "body", "said"),
    [
        (CephAnsibleDeployer, {"variables": {"a\n": 1}}, "no name of a variable"),
        (CephadmDeployer, {"image": "example.org/ceph\n"}, "image is a reference"),
        (NfsSpec, {"kind": "nfs", "export": "/export\n"}, "write a name after a slash"),
        (ChameleonOptions, {"site": "KVM@TACC", "devices": {"osd": "/dev/sdb\n"}}, "is no device"),
        (Campaign, {"name": "a\n"}, "a name is lower-case"),
        (MicrostoreSpec, {"name": "a\n", "proxies": ["p"], "storage": ["s"]}, "1 to 20 lower"),
        (TenantSpec, {"name": "a\n", "microstore": "m"}, "20"),
        (SwiftSpec, SWIFT_STORE | {"layouts": {"a\n": {}}}, "is no name for a layout"),
    ],
)
def test_what_ends_in_a_new_line_is_no_name(model, body, said):
    """A dollar sign in the pattern would accept such a name."""
    with raises(ValidationError, said):
        model.model_validate(body)


@pytest.mark.parametrize("text", ["{{ lookup('pipe', 'id') }}", "{% set a = 1 %}"])
def test_a_spec_holds_no_template_of_ansibles(text):
    """A template would run on the engine's machine, and a spec may be from a stranger."""
    with raises(ValidationError, "begins a template"):
        TestbedSpec.model_validate(ceph(store={"config": {"global": {"a": text}}}))
    TestbedSpec.model_validate(ceph(store={"config": {"global": {"a": "{} {1} %d"}}}))


# -- network ---------------------------------------------------------------------------------------


def test_their_sites_refuse_before_any_machine_is_asked(tmp_path):
    large = {"network": {"mtu": 9000}}
    host = {"name": "h", "address": "192.0.2.1"}
    inventory = InventorySite({"hosts": [host]}, records=Records("inventory", tmp_path))
    for fine in (None, {}, {"priority_levels": 3}, {"mtu": 1500}):
        assert inventory.plan(bare(fine)).nodes == 1
    with raises(UserError, "network.mtu", "9000", where="testbed t"):
        inventory.plan(bare({"mtu": 9000}))
    with raises(UserError, "network.congestion_control"):
        inventory.plan(bare({"congestion_control": "reno"}))
    body = load_spec(SPECS / "dlr-chameleon.yaml").model_dump()
    with raises(UserError, "network.mtu", "9000"):
        ChameleonSite().plan(TestbedSpec.model_validate(body | large))


# -- racks and disks -------------------------------------------------------------------------------


@given(st.integers(2, 60), st.data())
def test_racks_share_the_nodes_evenly_and_in_order(nodes, data):
    count = data.draw(st.integers(1, nodes))
    found = TestbedSpec.model_validate(ceph(nodes, racks={"count": count})).rack_of()
    assert list(found) == [f"osd{n}" for n in range(nodes)]
    assert list(dict.fromkeys(found.values())) == [f"rack{n}" for n in range(count)]
    sizes = [list(found.values()).count(f"rack{n}") for n in range(count)]
    assert max(sizes) - min(sizes) <= 1


def test_members_say_which_node_is_where():
    members = {"left": ["osd3", "admin"], "right": ["osd0"]}
    spec = TestbedSpec.model_validate(ceph(racks={"members": members, "uplink": "50Mbit"}))
    assert spec.rack_of() == {"osd3": "left", "admin": "left", "osd0": "right"}
    assert racks.bridges(spec) == {"left": "rack0", "right": "rack1"}
    homes = {node: racks.bridge_of(spec, node) for node in spec.node_names()}
    assert homes == {"admin": "rack0", "osd0": "rack1", "osd1": CORE, "osd2": CORE, "osd3": "rack0"}
    flat = TestbedSpec.model_validate(ceph(racks={"count": 2}))  # without an uplink
    assert (racks.bridges(flat), racks.bridge_of(flat, "osd0")) == ({}, CORE)
    assert flat.rack_of()["osd3"] == "rack1"


# -- the digest, under which results are stored ----------------------------------------------------


def test_what_a_spec_does_not_use_leaves_its_digest_alone():
    """Runs of before an option keep their names: the digest covers differences from the default."""
    assert load_spec(SPECS / "dlr.yaml").digest() == (
        "ce7916a58dfbdeb4d0ea4bc70592088d541825a059dd3ea1cb10cd8b9fc1fc96"
    )
    plain = TestbedSpec.model_validate(ceph()).digest()
    usual = {"failure_domain": "host", "config": {}, "deployer": "own", "tenants": []}
    assert TestbedSpec.model_validate(ceph(store=usual)).digest() == plain
    others = [
        ceph(racks={"count": 2}),
        ceph(disks=2),
        ceph(store={"twochoice": {}}),
        *(ceph(store={"deployer": kind}) for kind in ("cephadm", "ceph-ansible")),
    ]
    digests = {TestbedSpec.model_validate(other).digest() for other in others}
    usual = {"kind": "ceph-ansible", "release": "squid", "osds": "lvm"}
    assert TestbedSpec.model_validate(ceph(store={"deployer": usual})).digest() in digests
    reef = ceph(store={"deployer": usual | {"release": "reef"}})
    assert TestbedSpec.model_validate(reef).digest() not in digests
    assert len(digests - {plain}) == len(others)
    assert bare({"mtu": 1500}).digest() == bare({}).digest() == bare().digest()
    assert TestbedSpec.model_validate(ceph() | {"metrics": False}).digest() == plain
    assert TestbedSpec.model_validate(ceph() | {"metrics": True}).digest() != plain
    levels = bare({"priority_levels": 7})
    assert levels.digest() == bare({"priority_levels": 7, "mtu": 1500}).digest()
    different = [
        {"mtu": 9000},
        {"priority_levels": 7, "mtu": 9000},
        {"congestion_control": "cubic"},
    ]
    assert len({one.digest() for one in (levels, bare(), *map(bare, different))}) == 5


# -- the specs that come with Hotbed ---------------------------------------------------------------


@pytest.mark.parametrize("file", sorted(SPECS.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_spec_is_good_and_of_the_size_in_its_name(file):
    spec = load_spec(file)
    assert spec == TestbedSpec.model_validate_json(spec.model_dump_json())
    assert deployers.choose(spec).kind == "own"
    if match := re.fullmatch(r"(ursa|twochoice)-(\d+)(-random)?", spec.name):
        paper, size, random = match[1], int(match[2]), match[3]
        role = "osd" if paper == "ursa" else "object"
        disks = sum(group.count * group.disks for group in spec.groups if role in group.roles)
        assert disks == size
        if paper == "ursa":  # section 5.2: 10-100 and 30-900, three replicas
            [pool] = spec.ceph().pools
            assert (pool.pg_num, pool.size) == ({10: 100, 30: 900}[size], 3)
            assert set(spec.rack_of()) == set(spec.node_names()) - {"admin"}
            assert spec.racks is not None and (spec.racks.uplink is None) == bool(random)
