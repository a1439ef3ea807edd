"""Parts of the local site without a machine: names, records, control group files, rates."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UserError
from schemas.locks import machine_lock
from testbed.sites import kinds, open_site
from testbed.sites.contract import SiteError
from testbed.sites.local import LocalSite, image, network, record, usage
from testbed.sites.local.cgroups import CPU_PERIOD_US, Cgroups, Hierarchies, detect
from testbed.sites.local.names import LocalNames
from testbed.sites.local.record import LocalRecord
from testbed.sites.records import locked
from testbed.spec import TestbedSpec
from tests.errors import raises
from tests.testbed.sites.local_support import small_spec

NAME = st.from_regex(r"[a-z][a-z0-9-]{0,19}", fullmatch=True)
NODE = st.from_regex(r"[a-z][a-z0-9-]{0,19}[0-9]{0,3}", fullmatch=True)

V1 = """\
25 1 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
26 25 0:23 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
27 25 0:24 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
28 25 0:25 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
29 25 0:26 / {unified} rw - cgroup2 cgroup rw
"""


# -- names ----------------------------------------------------------------------------------------


@given(NAME, NODE)
def test_interface_names_are_short_enough(name: str, node: str) -> None:
    for places in (LocalNames(), LocalNames(Path("/elsewhere"))):
        assert len(places.uplink(name)) <= 15
        assert len(places.port(node)) <= 15
        assert len(places.machine(name, node)) <= 64


@given(NAME, NAME, NODE)
def test_no_testbed_owns_what_is_anothers(name: str, other: str, node: str) -> None:
    places = LocalNames()
    owned = places.netns(other, node).startswith(places.netns_prefix(name))
    assert owned == (name == other)


def test_another_state_folder_has_names_of_its_own() -> None:
    here, there = LocalNames(), LocalNames(Path("/elsewhere"))
    assert not there.netns("a", "b").startswith(here.netns_prefix())
    assert not here.netns("a", "b").startswith(there.netns_prefix())
    assert here.cgroup != there.cgroup
    assert not there.uplink("a").startswith(here.uplink_prefix())


# -- the record -----------------------------------------------------------------------------------


def test_a_record_is_read_back(tmp_path: Path) -> None:
    kept = LocalRecord(small_spec(), subnet=7).frozen("one").frozen("two").rewound("one")
    record.save(tmp_path, kept)
    assert record.load(tmp_path) == kept
    assert record.subnets(tmp_path.parent) == {7}


def test_no_record_is_none_and_a_broken_one_is_told(tmp_path: Path) -> None:
    assert record.load(tmp_path) is None
    (tmp_path / "record.json").write_text("{}")
    with raises(UserError, do="hotbed down"):
        record.load(tmp_path)


def test_chains_of_layers() -> None:
    fresh = LocalRecord(small_spec(), subnet=0)
    one = fresh.frozen("one")
    assert (one.chain, one.snapshots["one"]) == ((0, 1), (0,))
    two = one.frozen("two")
    assert two.chain == (0, 1, 2)
    back = two.rewound("one")
    assert back.chain == (0, 3)
    assert back.used_layers() == {0, 1, 3}  # "two" still needs 1; the dropped top 2 is free


@given(st.lists(st.sampled_from(["freeze", "rewind"]), max_size=12), st.randoms())
def test_a_written_layer_is_never_one_that_a_snapshot_holds(
    steps: list[str], random: object
) -> None:
    kept = LocalRecord(small_spec(), subnet=0)
    for number, step in enumerate(steps):
        if step == "freeze":
            kept = kept.frozen(str(number))
        elif kept.snapshots:
            kept = kept.rewound(random.choice(sorted(kept.snapshots)))  # type: ignore[attr-defined]
        assert all(kept.chain[-1] not in chain for chain in kept.snapshots.values())
        assert set(kept.chain) <= kept.used_layers()


def test_addresses_follow_the_order_of_the_spec() -> None:
    members = list(LocalRecord(small_spec(), subnet=3).members())
    assert [(m.name, m.address) for m in members] == [
        ("admin", "10.77.3.10"),
        ("osd0", "10.77.3.11"),
        ("osd1", "10.77.3.12"),
    ]


def test_two_state_folders_do_not_choose_one_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder knows the other's networks only by routes, so each choice creates a route."""
    lock, routed = machine_lock(network.CHOOSING), set[int]()

    def make_switch(places: LocalNames, name: str, subnet: int, *, mtu: int) -> None:
        with raises(SiteError, "held"), locked(lock, timeout_s=0.0, busy="held"):
            raise AssertionError("another one may choose now")
        routed.add(subnet)

    monkeypatch.setattr(network, "choose_subnet", lambda taken: len(taken | routed))
    monkeypatch.setattr(network, "make_switch", make_switch)
    sites = [LocalSite(places=LocalNames(tmp_path / name, tmp_path)) for name in ("a", "b")]
    assert [site._begin(small_spec()).subnet for site in sites] == [0, 1]


# -- control groups -------------------------------------------------------------------------------


def test_v1_beside_a_tree_without_controllers(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("\n")
    found = detect(V1.format(unified=tmp_path))
    assert not found.unified
    assert found.v1["cpu"] == found.v1["cpuacct"] == Path("/sys/fs/cgroup/cpu,cpuacct")
    assert found.named == Path("/sys/fs/cgroup/systemd")
    assert len(found.trees()) == 4  # cpu and cpuacct are one tree


def test_v2_only(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    found = detect(f"29 25 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw,nsdelegate\n")
    assert found.unified
    assert found.trees() == [tmp_path]


def test_no_controllers_at_all() -> None:
    with raises(SiteError, "cpu and memory"):
        detect("25 1 0:22 / / rw - ext4 /dev/sda rw\n")


def test_limits_on_v2(tmp_path: Path) -> None:
    hierarchies = Hierarchies({}, None, tmp_path, frozenset({"cpu", "memory", "io", "pids"}))
    (tmp_path / "hotbed/t/n").mkdir(parents=True)
    (tmp_path / "hotbed/t/n/memory.swap.max").write_text("max")
    procs = Cgroups(hierarchies, "hotbed").create("t/n", cpus=1.5, memory=2**30)
    node = tmp_path / "hotbed" / "t" / "n"
    assert procs == [node / "cgroup.procs"]
    groups = Cgroups(hierarchies, "hotbed")
    assert groups.limits("t/n") == {"cpus": 1.5, "memory": 2**30, "io": "none"}
    (node / "io.max").write_text("8:0 rbps=1000 wbps=max riops=max wiops=max\n")
    assert groups.limits("t/n")["io"] == "8:0 rbps=1000 wbps=max riops=max wiops=max"
    groups.unthrottle("t/n")
    assert (node / "io.max").read_text() == "8:0 rbps=max wbps=max riops=max wiops=max"
    groups.create("t/n")
    assert groups.limits("t/n")["cpus"] == groups.limits("t/n")["memory"] == "none"
    groups.create("t/n", cpus=1.5, memory=2**30)
    assert (node / "cpu.max").read_text() == f"{CPU_PERIOD_US * 3 // 2} {CPU_PERIOD_US}"
    assert (node / "memory.max").read_text() == str(2**30)
    assert (node / "memory.swap.max").read_text() == "0"
    for folder in (tmp_path, tmp_path / "hotbed", tmp_path / "hotbed" / "t"):
        assert (folder / "cgroup.subtree_control").read_text() == "+cpu +io +memory"
    assert not (node / "cgroup.subtree_control").exists()  # the node fills its own file


def test_limits_on_v1(tmp_path: Path) -> None:
    trees = {name: tmp_path / name for name in ("cpu", "memory", "blkio")}
    groups = Cgroups(Hierarchies(trees, None, None, frozenset()), "hotbed")
    groups.create("t/n", cpus=0.5, memory=9)
    assert groups.limits("t/n") == {"cpus": 0.5, "memory": 9, "io": "none"}
    cpu = tmp_path / "cpu" / "hotbed" / "t" / "n"
    assert (cpu / "cpu.cfs_quota_us").read_text() == str(CPU_PERIOD_US // 2)
    assert (cpu / "cpu.cfs_period_us").read_text() == str(CPU_PERIOD_US)
    assert (tmp_path / "memory/hotbed/t/n/memory.limit_in_bytes").read_text() == "9"
    throttle = tmp_path / "blkio/hotbed/t/n/blkio.throttle.read_bps_device"
    throttle.write_text("7:3 1000000\n")
    assert groups.limits("t/n")["io"] == "7:3 1000000"
    groups.unthrottle("t/n")
    assert throttle.read_text() == "7:3 0"


def test_usage_is_read_from_either_version(tmp_path: Path) -> None:
    group = tmp_path / "hotbed" / "t"
    group.mkdir(parents=True)
    (group / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (group / "cpuacct.usage").write_text("1500000000\n")
    v2 = Cgroups(Hierarchies({}, None, tmp_path, frozenset({"cpu", "memory"})), "hotbed")
    v1 = Cgroups(Hierarchies({"cpuacct": tmp_path}, None, None, frozenset()), "hotbed")
    assert (v2.usage_s("t"), v1.usage_s("t"), v2.usage_s("gone")) == (2.5, 1.5, 0.0)
    assert (v2.machine_usage_s(), v1.machine_usage_s()) == (0.0, 0.0)
    (tmp_path / "cpu.stat").write_text("usage_usec 9500000\nuser_usec 1\n")
    (tmp_path / "cpuacct.usage").write_text("8500000000\n")
    assert (v2.machine_usage_s(), v1.machine_usage_s()) == (9.5, 8.5)


# -- the rest -------------------------------------------------------------------------------------


def test_a_token_bucket_holds_a_large_segment() -> None:
    assert network.token_bucket(1e6)[4] == str(96 * 1024)
    assert network.token_bucket(4e9)[2:5] == ["4000000000bit", "burst", "1000000"]


@pytest.mark.parametrize(
    ("kind", "options", "found"),
    [
        ("tbf", {"rate": 25_000_000, "burst": 98_300, "lat": 25_000}, 2e8),
        ("tbf", {"rate": 5_000_000, "burst": 98_300, "lat": 25_000}, 4e7),
        ("tbf", {"rate": 125_000_000, "burst": 250_000, "lat": 25_000}, 1e9),
        ("tbf", {"rate": 25_000_000, "burst": 2_000, "lat": 25_000}, "a burst of 2000 bytes"),
        ("tbf", {"rate": 25_000_000, "burst": 98_300, "lat": 400_000}, "400000 us of queue"),
        ("netem", {}, "netem"),
        ("noqueue", {}, "noqueue"),
    ],
)
def test_a_link_that_is_not_as_it_was_made_is_told_by_what_it_is(
    kind: str, options: dict[str, int], found: float | str
) -> None:
    there = [{"kind": kind, "root": True, "options": options}]
    read = network.rate_of("n", "eth0", there, 2e8)
    assert read == found or (isinstance(found, str) and found in str(read))
    assert isinstance(network.rate_of("n", "eth0", [*there, {"kind": "clsact"}], 2e8), str)


@given(NAME, NODE)
def test_hardware_addresses_are_local_and_stay(name: str, node: str) -> None:
    found = network.hardware_address(name, node)
    first = int(found.split(":")[0], 16)
    assert first & 0b11 == 0b10  # locally administered, not a group address
    assert found == network.hardware_address(name, node)
    assert found != network.hardware_address(name, f"{node}x")


def test_usage_between_readings() -> None:
    before = {"wall": 0.0, "busy": 0.0, "all": 0.0, "steal": 0.0, "kernel": 0.0, "testbed": 0.0}
    after = {"wall": 10.0, "busy": 9.0, "all": 20.0, "steal": 1.0, "kernel": 1.0, "testbed": 3.0}
    found = usage.between(before, after | {"node:osd0": 2.0})
    assert found.outside_cores == pytest.approx(0.5)
    assert found.steal == pytest.approx(0.05)
    assert found.node_cores == {"osd0": pytest.approx(0.2)}


def test_the_images_name_follows_its_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    before = image.digest()
    assert image.digest() == before
    monkeypatch.setattr(image, "PACKAGES", (*image.PACKAGES, "sysstat"))
    assert image.digest() != before


def test_the_site_refuses_what_it_cannot_give() -> None:
    body = small_spec().model_dump(mode="json")
    body["groups"][1]["disk"]["queue_depth"] = 1024
    with raises(UserError, "queue_depth 1024"):
        LocalSite().plan(TestbedSpec.model_validate(body))
    body["groups"][1] |= {"count": 300, "disk": {}}
    with raises(UserError, "301 nodes"):
        LocalSite().plan(TestbedSpec.model_validate(body))
    with raises(UserError, "unknown option 'where'"):
        LocalSite({"where": 1})


def test_an_unknown_kind_of_site_names_the_known_ones() -> None:
    with raises(UserError, "'moon'"):
        open_site("moon")
    assert "local" in kinds()
