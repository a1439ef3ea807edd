"""Parts of the site `chameleon`: options, filters, slots, flavors, credentials, node set-up."""

from __future__ import annotations

import json
import shutil
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import UserError
from testbed.deploy.inventory import fio_file_bytes
from testbed.sites.chameleon import cloud as clouds
from testbed.sites.chameleon import node_setup
from testbed.sites.chameleon.cloud import Booking, NoCredentials, Reservation
from testbed.sites.chameleon.lease import choose_flavors, next_slot, wanted_reservations
from testbed.sites.chameleon.node_setup import Trouble
from testbed.sites.chameleon.options import (
    check_spec,
    holds,
    read_filter,
    read_options,
    same,
    text_of,
)
from testbed.sites.chameleon.servers import signal_of
from testbed.spec import load_spec
from tests.errors import raises
from tests.testbed.sites.chameleon_world import BARE, VIRTUAL, spec_of
from tests.testbed.sites.fake_cloud import FLAVORS

WRONG = {
    "no machines": ({"site": "CHI@UC"}, "needs a node_type"),
    "a flavor of bare metal": ({**BARE, "flavor": "m1.small"}, "give node_type, not flavor"),
    "too long": ({**BARE, "lease": {"hours": 169}}, "at most 168"),
    "a naive time": ({**BARE, "lease": {"start": "2026-12-01T08:00"}}, "needs its offset"),
    "a wrong filter": ({**BARE, "filters": '["~", "$a", "b"]'}, "is no filter"),
    "unknown": ({**BARE, "nodes": 3}, "nodes"),
    "alternatives inside": (
        {**BARE, "filters": '["and", [">", "$a", "1"], ["or", ["==", "$b", "1"]]]'},
        "Blazar does not take `or`",
    ),
    "a group without a type": ({**BARE, "node_type": {"osd": "storage"}}, "group 'admin'"),
    "devices without a disk": ({**BARE, "devices": {"admin": "/dev/sdb"}}, "no disk block"),
    "too many": ({**BARE, "devices": {"osd": ["/dev/sdb", "/dev/sdc"]}}, "2 for the store"),
    "no scratch": ({**BARE, "devices": {"osd": {"osd": "/dev/sdb1"}}}, "give scratch a device"),
}


@pytest.mark.parametrize("case", WRONG)
def test_options_that_are_wrong_or_do_not_fit_the_spec(case):
    options, words = (WRONG)[case]
    with raises(UserError, words) as error:
        check_spec(spec_of(options), read_options(options))
    assert "\n" not in str(error.value)


JOINED = ["and", ["==", "$node_name", "nc01"], [">=", "$architecture.smt_size", "48"]]


@pytest.mark.parametrize(
    "filters",
    [
        {"node_name": "nc01", "architecture.smt_size": ">=48"},
        JOINED,
        '["and", ["and", ["==", "$node_name", "nc01"], [">=", "$architecture.smt_size", 48]]]',
    ],
    ids=["a mapping", "flat", "nested"],
)
def test_a_type_and_several_filters_are_joined_flat(filters):
    """Blazar reads only the first part of a nested `and`."""
    made = read_options({**BARE, "filters": filters}).filter_of("osd")
    flat = ["and", ["==", "$node_type", "compute_skylake"], *JOINED[1:]]
    assert json.loads(text_of(made)) == flat
    assert same(text_of(made), json.dumps(["and", *reversed(flat[1:])]))
    assert not same(text_of(made), json.dumps(flat[:-1]))


@pytest.mark.parametrize(
    ("given", "properties", "passes"),
    [
        (JOINED, {"architecture.smt_size": "64", "node_name": "nc01"}, True),
        (JOINED, {"architecture.smt_size": "40", "node_name": "nc01"}, False),
        # Blazar compares all values except its own columns as text.
        ([">=", "$architecture.smt_size", "48"], {"architecture.smt_size": "8"}, True),
        (["==", "$ram", "16"], {"ram": "16.0"}, False),
        ([">=", "$vcpus", "48"], {"vcpus": "8"}, False),
        ([">=", "$memory_mb", "9000"], {"memory_mb": "128000"}, True),
    ],
)
def test_hosts_pass_as_in_blazar(given, properties, passes):
    assert holds(read_filter(given), properties) is passes


bookings = st.lists(
    st.tuples(st.integers(0, 3), st.integers(-5, 9), st.integers(1, 6)), max_size=7
).map(lambda many: [Booking(f"h{host}", start, start + length) for host, start, length in many])
MACHINES: list[dict[str, Any]] = [
    {"id": "h0", "t": "a"},
    {"id": "h1", "t": "a", "big": "1"},
    {"id": "h2", "t": "a", "big": "1"},
    {"id": "h3", "t": "a", "big": "1", "reservable": False},
]


@settings(max_examples=60)
@given(bookings, st.integers(0, 3), st.integers(0, 2), st.integers(1, 4))
def test_the_next_slot_is_the_first_in_which_all_are_free(booked, small, big, length):
    """The reference tries every minute and every choice of hosts."""
    needs = [Reservation(small, '["==", "$t", "a"]'), Reservation(big, '["==", "$big", "1"]')]
    slot = next_slot(needs, MACHINES, booked, now_s=0, seconds=length)

    def serves(start: int) -> bool:
        free = [
            host
            for host in MACHINES
            if host.get("reservable", True)
            and all(
                b.end_s <= start or b.start_s >= start + length
                for b in booked
                if b.host_id == host["id"]
            )
        ]
        bigs = [host for host in free if "big" in host]
        return any(len(free) - big >= small for _ in combinations(bigs, big))

    first = next((start for start in range(40) if serves(start)), None)
    assert slot.start_s == first


def test_the_smallest_flavor_that_fits():
    options = read_options(VIRTUAL)
    chosen = choose_flavors(spec_of(VIRTUAL), options, FLAVORS)
    # 8 GiB for the system and 10 GiB for a disk
    assert {group: flavor.name for group, flavor in chosen.items()} == dict.fromkeys(
        ("admin", "osd"), "m1.small"
    )
    (wanted,) = wanted_reservations(spec_of(VIRTUAL), options, chosen)
    assert wanted == Reservation(3, flavor_id="2", groups=("admin", "osd"))
    for flavor, words in (("m9.huge", "'m9.huge'"), ("baremetal", "is smaller")):
        named = {**VIRTUAL, "flavor": flavor}
        with raises(UserError, words):
            choose_flavors(spec_of(named), read_options(named), FLAVORS)


@pytest.mark.parametrize(
    ("wanted", "facts", "signal"),
    [
        ("auto", {"cpus": 2, "pressure": True}, ("iowait", None)),
        ("auto", {"cpus": 48, "pressure": True}, ("io_pressure", "/proc/pressure/io")),
        ("auto", {"cpus": 48, "pressure": False}, ("iowait", None)),
        ("io_pressure", {"cpus": 2}, ("io_pressure", "/proc/pressure/io")),
    ],
)
def test_signal(wanted, facts, signal):
    assert signal_of(wanted, facts) == signal


APPLICATION = {
    "OS_AUTH_TYPE": "v3applicationcredential",
    "OS_AUTH_URL": "https://chi.uc.chameleoncloud.org:5000/v3",
    "OS_APPLICATION_CREDENTIAL_ID": "id",
    "OS_APPLICATION_CREDENTIAL_SECRET": "very-secret",
    "OS_REGION_NAME": "CHI@UC",
}


@pytest.mark.parametrize(
    ("site", "environ"),
    [
        ("CHI@UC", APPLICATION),
        ("CHI@TACC", {"OS_AUTH_TYPE": "v3oidcaccesstoken", "JUPYTERHUB_API_TOKEN": "t"}),
        ("CHI@TACC", {"OS_AUTH_TYPE": "v3password", "OS_USERNAME": "u", "OS_PASSWORD": "p"}),
        ("CHI@TACC", {"OS_AUTH_TYPE": "v3oidcpassword"}),  # whichever method the file names
    ],
)
def test_credentials_that_serve(site, environ):
    clouds.check_login(site, "CHI-1", environ)


REFUSED = {
    "none": ({}, "OS_AUTH_TYPE is not set"),
    "another site's": ({**APPLICATION, "OS_REGION_NAME": "CHI@TACC"}, "is for CHI@TACC"),
    "of a way that python-chi does not know": (
        {"OS_AUTH_TYPE": "password", "OS_USERNAME": "u", "OS_PASSWORD": "very-secret"},
        "v3applicationcredential",
    ),
    "without a project": (
        {"OS_AUTH_TYPE": "v3password", "OS_USERNAME": "u", "OS_PASSWORD": "very-secret"},
        "no project is chosen",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_credentials_that_cannot_serve(case):
    environ, words = REFUSED[case]
    project = None if case == "without a project" else "CHI-1"
    with raises(UserError, words) as error:
        clouds.check_login("CHI@UC", project, environ)
    assert "very-secret" not in str(error.value)
    assert isinstance(error.value, NoCredentials) == (case == "none")


@pytest.mark.parametrize(("name", "nodes"), [("dlr-kvm", 9), ("dlr-chameleon", 9)])
def test_the_specs_that_come_with_hotbed_are_right(root, name, nodes):
    spec = load_spec(root / "testbed" / "specs" / f"{name}.yaml")
    options = read_options(spec.site.options)
    check_spec(spec, options)
    flavors = choose_flavors(spec, options, FLAVORS) if options.virtual else None
    assert sum(each.amount for each in wanted_reservations(spec, options, flavors)) == nodes
    if flavors is not None:
        assert {flavor.name for flavor in flavors.values()} == {"m1.medium"}
    for group in spec.groups:
        if group.disk is not None:
            assert fio_file_bytes(group.disk, group.name) > 0


# -- set-up of a fresh machine: its disks, admitted keys, names ------------------------------------


GIB = 2**30


def disk(name: str, gib: int, *children: dict[str, Any], rota: bool = True) -> dict[str, Any]:
    whole = {**part(f"/dev/{name}"), "name": name, "type": "disk", "ro": False}
    return whole | {"size": gib * GIB, "rota": rota, "children": list(children)}


def part(path: str, label: str | None = None, mount: str | None = None) -> dict[str, Any]:
    return {"name": path, "path": path, "type": "part", "partlabel": label, "mountpoints": [mount]}


ROOT = disk("sda", 400, part("/dev/sda1", mount="/"), rota=False)


MARK = "0123456789ab"


def divided(name: str, mark: str, *volumes: dict[str, Any]) -> dict[str, Any]:
    """Return a disk that was partitioned for the server with this mark."""
    scratch = part(f"/dev/{name}1", node_setup.label("scratch", 0, mark))
    osd = part(f"/dev/{name}2", node_setup.label("osd", 0, mark))
    return disk(name, 100, scratch, {**osd, "children": list(volumes)})


def volume(name: str, mount: str | None = None) -> dict[str, Any]:
    return {**part(f"/dev/mapper/{name}", mount=mount), "name": name, "type": "lvm"}


def test_the_first_free_disk_of_the_kind_is_taken(monkeypatch):
    devices = [disk("sdc", 2000), disk("sdb", 2000), ROOT, disk("sdd", 400, rota=False)]
    assert node_setup.choose(devices, 0, MARK, 40 * GIB, "any") == "/dev/sdb"
    assert node_setup.choose(devices, 0, MARK, 40 * GIB, "solid") == "/dev/sdd"
    assert node_setup.choose([*devices, disk("sdaa", 9)], 0, MARK, GIB, "rotational") == "/dev/sdb"
    mirror = {**part("/dev/md0"), "type": "raid1"}
    devices = [
        ROOT,
        disk("sdb", 10),
        disk("sdc", 900, {**part("/dev/sdc1"), "children": [mirror]}),
        disk("sdd", 900, part("/dev/sdd1", f"hotbed-osd-{MARK}")),
        disk("sde", 900, {**part("/dev/sde1"), "children": [volume("theirs")]}),
        divided("sdf", "another", volume("ceph", mount="/mnt")),
    ]
    with raises(Trouble, "/dev/sda", "400 GiB"):
        node_setup.choose(devices, 1, MARK, 40 * GIB, "any")
    monkeypatch.setattr(node_setup, "block_devices", lambda: [ROOT])
    each = {"path": "/dev/sda", "osd_bytes": GIB, "scratch_bytes": 0}
    with raises(Trouble, "/dev/sda in use"):
        node_setup.make_disks({**WANTED, "disks": [each]})


class Machine:
    """`run` on a machine with these disks."""

    def __init__(self, *devices: dict[str, Any]) -> None:
        self.devices = {each["path"]: each for each in devices}
        self.ran: list[str] = []
        self.emptied: list[tuple[str, int]] = []

    def run(self, *argv: str, stdin: str = "") -> str:
        self.ran.append(" ".join(argv))
        if argv[0] != "sfdisk":
            return ""
        if argv[1] == "--part-label":
            self.devices[argv[2]]["children"][int(argv[3]) - 1]["partlabel"] = argv[4]
        elif argv[1] == "--json":
            parts = self.devices[argv[2]]["children"]
            starts = [{"start": 2048 * (place + 1)} for place in range(len(parts))]
            return json.dumps({"partitiontable": {"partitions": starts, "sectorsize": 512}})
        else:
            path, sizes = argv[-1], stdin.count("size=")
            self.devices[path]["children"] = [part(f"{path}{i + 1}") for i in range(sizes)]
        return ""


def machine(monkeypatch: pytest.MonkeyPatch, *devices: dict[str, Any]) -> Machine:
    made = Machine(*devices)
    monkeypatch.setattr(node_setup, "run", made.run)
    monkeypatch.setattr(node_setup, "block_devices", lambda: list(made.devices.values()))
    monkeypatch.setattr(node_setup.shutil, "which", lambda name: None)
    monkeypatch.setattr(
        node_setup, "empty", lambda path, start, size: made.emptied.append((path, start))
    )
    return made


WANTED: dict[str, Any] = {
    "disks": [{"path": None, "osd_bytes": 7 * GIB, "scratch_bytes": 3 * GIB}],
    "files": False,
    "media": "any",
    "mark": MARK,
}


def test_dividing_and_dividing_again(monkeypatch):
    there = machine(monkeypatch, ROOT, disk("sdb", 100), disk("sdc", 100))
    made = node_setup.make_disks(WANTED)
    assert made == {"scratch": "/dev/sdb1", "osd": "/dev/sdb2"}
    assert there.emptied == [("/dev/sdb", 2048 * 512), ("/dev/sdb", 4096 * 512)]
    assert there.ran[-2:] == [
        f"sfdisk --part-label /dev/sdb 1 hotbed-scratch-{MARK}",
        f"sfdisk --part-label /dev/sdb 2 hotbed-osd-{MARK}",
    ]
    there.ran.clear()
    assert node_setup.make_disks(WANTED) == made
    assert there.ran == []


@pytest.mark.parametrize("mark", ["another", ""], ids=["another server's", "an earlier version's"])
def test_a_disk_of_an_earlier_lease_is_cleared_and_divided_anew(monkeypatch, mark):
    """Disks survive a lease: the same user may get the same machine again."""
    left = divided("sdb", mark, volume("ceph--0-osd--block--0"))
    there = machine(monkeypatch, ROOT, left)
    assert node_setup.make_disks(WANTED) == {"scratch": "/dev/sdb1", "osd": "/dev/sdb2"}
    assert there.ran[:4] == [
        "dmsetup remove --retry ceph--0-osd--block--0",
        "wipefs --all --force /dev/sdb2",
        "wipefs --all --force /dev/sdb1",
        "wipefs --all --force /dev/sdb",
    ]
    assert len(there.emptied) == 2


@pytest.mark.parametrize("first", [None, f"hotbed-scratch-{MARK}"])
def test_a_crash_before_the_parts_had_their_names_divides_anew(monkeypatch, first):
    there = machine(monkeypatch, disk("sdb", 100, part("/dev/sdb1", first), part("/dev/sdb2")))
    node_setup.make_disks(WANTED)
    assert len(there.emptied) == 2


def test_a_part_is_named_by_its_label_where_udev_makes_such_a_path(tmp_path, monkeypatch):
    monkeypatch.setattr(node_setup, "BY", tmp_path)
    monkeypatch.setattr(node_setup.shutil, "which", lambda name: None)
    (tmp_path / "hotbed-osd-x").touch()
    parts = {"osd": part("/dev/sdb2", "hotbed-osd-x"), "scratch": part("/dev/sdb1", "hotbed-s-x")}
    found = {"osd": str(tmp_path / "hotbed-osd-x"), "scratch": "/dev/sdb1"}
    assert node_setup.lasting(parts) == found


@pytest.mark.skipif(shutil.which("sfdisk") is None, reason="sfdisk is not installed")
def test_a_partition_table_that_sfdisk_understands(tmp_path, monkeypatch):
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(2 * GIB)
    monkeypatch.setattr(node_setup.shutil, "which", lambda name: None)  # no udev to wait for
    node_setup.divide(str(image), 1, "old", 1200 * node_setup.MIB, 600 * node_setup.MIB)
    with image.open("r+b") as file:
        for place in (601 * node_setup.MIB, 601 * node_setup.MIB + GIB):
            file.seek(place)
            file.write(b"bluestore block device")
    node_setup.divide(str(image), 1, "new", 1200 * node_setup.MIB, 600 * node_setup.MIB)
    with image.open("rb") as file:
        for place in (601 * node_setup.MIB, 601 * node_setup.MIB + GIB):
            file.seek(place)
            assert file.read(22) == bytes(22)
    dump = json.loads(node_setup.run("sfdisk", "--json", str(image)))["partitiontable"]
    assert dump["label"] == "gpt"
    made = {each["name"]: each["size"] * 512 for each in dump["partitions"]}
    assert made == {
        "hotbed-scratch1-new": 600 * node_setup.MIB,
        "hotbed-osd1-new": 1200 * node_setup.MIB,
    }
