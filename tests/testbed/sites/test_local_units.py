"""Parts of the local site without a machine: names, records, files, processes, rates."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UserError
from schemas.locks import machine_lock
from testbed.sites.contract import SiteError
from testbed.sites.local import LocalSite, image, network, quota_slice, record
from testbed.sites.local.cgroups import CPU_PERIOD_US, Cgroups, Hierarchies, detect
from testbed.sites.local.container import Container
from testbed.sites.local.names import LocalNames
from testbed.sites.local.process import alive, detach, read_pid, stop
from testbed.sites.local.quota_slice import SLICE_US, put_back, shorten
from testbed.sites.local.record import LocalRecord
from testbed.sites.records import locked
from testbed.spec import TestbedSpec, load_spec, renamed, with_suite
from tests.errors import raises
from tests.testbed.deployers.beds import RAW, spec_with
from tests.testbed.sites.local_support import small_spec

ROOT = Path(__file__).resolve().parents[3]
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
def test_interface_names_are_short_enough(name, node):
    for places in (LocalNames(), LocalNames(Path("/elsewhere"))):
        assert len(places.uplink(name)) <= 15
        assert len(places.port(node)) <= 15
        assert len(places.machine(name, node)) <= 64


@given(NAME, NAME, NODE)
def test_no_testbed_owns_what_is_anothers(name, other, node):
    places = LocalNames()
    owned = places.netns(other, node).startswith(places.netns_prefix(name))
    assert owned == (name == other)


# -- the record -----------------------------------------------------------------------------------


def test_a_record_is_read_back_and_a_broken_one_refused(tmp_path):
    assert record.load(tmp_path) is None
    kept = LocalRecord(spec=small_spec(), subnet=7).frozen("one").frozen("two").rewound("one")
    record.save(tmp_path, kept)
    assert record.load(tmp_path) == kept
    assert record.subnets(tmp_path.parent) == {7}
    (tmp_path / "record.json").write_text("{}")
    with raises(UserError, do="hotbed down"):
        record.load(tmp_path)


@given(st.lists(st.sampled_from(["freeze", "rewind"]), max_size=12), st.randoms())
def test_a_written_layer_is_never_one_that_a_snapshot_holds(steps, random):
    kept = LocalRecord(spec=small_spec(), subnet=0)
    for number, step in enumerate(steps):
        if step == "freeze":
            kept = kept.frozen(str(number))
        elif kept.snapshots:
            kept = kept.rewound(random.choice(sorted(kept.snapshots)))  # type: ignore[attr-defined]
        assert all(kept.chain[-1] not in chain for chain in kept.snapshots.values())
        assert set(kept.chain) <= kept.used_layers()


def test_two_state_folders_do_not_choose_one_network(tmp_path, monkeypatch):
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


# -- Debian suites ---------------------------------------------------------------------------------


def test_each_suite_has_its_own_image_and_a_testbed_keeps_its_suite(tmp_path, monkeypatch):
    monkeypatch.setattr(network, "choose_subnet", len)
    monkeypatch.setattr(network, "make_switch", lambda *_, mtu: None)
    monkeypatch.setattr(image, "ensure", lambda cache, suite, _: image.folder(cache, suite))
    site = LocalSite(places=LocalNames(tmp_path / "state", tmp_path))
    small = small_spec()
    usual = image.DEFAULT_SUITE
    specs = [small, *(renamed(with_suite(small, name), name) for name in image.SUITES)]
    for spec in specs:
        suite = spec.name if spec is not small else usual
        assert spec.digest() == small.digest()
        known = site._begin(spec)
        assert (known.suite, known.spec) == (suite, spec)
        assert site._root(spec.name) == image.folder(tmp_path, suite)
    assert len({site._root(spec.name) for spec in specs}) == len(image.SUITES)
    monkeypatch.setattr(image, "DEFAULT_SUITE", "another")
    assert site._root(small.name) == image.folder(tmp_path, usual)
    old = json.loads((site.folder(small.name) / "record.json").read_text())
    del old["suite"]
    assert LocalRecord.model_validate(old).suite == "bookworm"
    record.save(site.folder(small.name), LocalRecord.model_validate(old))
    files = load_spec(ROOT / "testbed/specs/dlr-filestore.yaml")
    files = files.model_copy(update={"site": small.site})  # as before there was a choice
    site.plan(renamed(files, small.name))
    with raises(UserError, "filestore", do="suite bookworm"):
        site.plan(renamed(files, "trixie"))


def test_a_suite_that_there_is_not_or_without_the_objectstore_is_refused():
    with raises(UserError, "'buster'", allowed="bookworm, trixie, sid"):
        LocalSite().plan(with_suite(small_spec(), "buster"))
    with raises(UserError, "'buster'"):
        LocalSite({"suite": "buster"})
    spec = load_spec(ROOT / "testbed/specs/dlr-filestore.yaml")
    assert LocalSite().plan(spec).disk_bytes > 0
    with raises(UserError, "filestore", do="suite bookworm"):
        LocalSite().plan(with_suite(spec, "trixie"))
    LocalSite().plan(with_suite(load_spec(ROOT / "testbed/specs/dlr.yaml"), "trixie"))


# -- control groups -------------------------------------------------------------------------------


def test_control_groups_of_either_version_are_found(tmp_path):
    (tmp_path / "cgroup.controllers").write_text("\n")
    found = detect(V1.format(unified=tmp_path))
    assert not found.unified
    assert found.v1["cpu"] == found.v1["cpuacct"] == Path("/sys/fs/cgroup/cpu,cpuacct")
    assert found.named == Path("/sys/fs/cgroup/systemd")
    assert len(found.trees()) == 4  # cpu and cpuacct are one tree
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    found = detect(f"29 25 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw,nsdelegate\n")
    assert found.unified
    assert found.trees() == [tmp_path]
    with raises(SiteError, "cpu and memory"):
        detect("25 1 0:22 / / rw - ext4 /dev/sda rw\n")


def test_limits_on_v2(tmp_path):
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


def test_usage_is_read_from_either_version(tmp_path):
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
def test_a_link_that_is_not_as_it_was_made_is_reported_as_what_it_is(kind, options, found):
    there = [{"kind": kind, "root": True, "options": options}]
    read = network.rate_of("n", "eth0", there, 2e8)
    assert read == found or (isinstance(found, str) and found in str(read))
    assert isinstance(network.rate_of("n", "eth0", [*there, {"kind": "clsact"}], 2e8), str)


def test_the_site_refuses_what_it_cannot_give():
    body = small_spec().model_dump(mode="json")
    body["groups"][1]["disk"]["queue_depth"] = 1024
    with raises(UserError, "queue_depth 1024"):
        LocalSite().plan(TestbedSpec.model_validate(body))
    body["groups"][1] |= {"count": 300, "disk": {}}
    with raises(UserError, "301 nodes"):
        LocalSite().plan(TestbedSpec.model_validate(body))
    with raises(UserError, "unknown option 'where'", allowed="suite"):
        LocalSite({"where": 1})
    for deployer in ("cephadm", "ceph-ansible"):  # its kernel has no device mapper
        with raises(UserError, f"deployer {deployer} ", do="osds: raw"):
            LocalSite().plan(spec_with(deployer))
    assert LocalSite().plan(spec_with(RAW)).nodes == 5


# -- slice of CPU quotas ---------------------------------------------------------------------------


MINE = LocalNames()
TESTS = LocalNames(state=Path("/elsewhere"))


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "sched_cfs_bandwidth_slice_us"
    path.write_text("5000\n")
    monkeypatch.setattr(quota_slice, "SETTING", path)
    monkeypatch.setattr(quota_slice, "CLAIMS", tmp_path / "run" / "quota-slice")
    return path


def test_the_last_one_puts_back_what_was_there_and_what_others_set_stays(setting):
    for places in (MINE, TESTS, MINE):
        assert shorten(places)
        assert int(setting.read_text()) == SLICE_US
    put_back(MINE)
    assert int(setting.read_text()) == SLICE_US
    assert {path.name for path in quota_slice.CLAIMS.iterdir()} == {"before", f"of{TESTS.tag}"}
    put_back(MINE)
    put_back(TESTS)
    assert setting.read_text().strip() == "5000"
    assert not quota_slice.CLAIMS.exists()
    put_back(TESTS)
    assert setting.read_text().strip() == "5000"
    shorten(MINE)
    setting.write_text("2000")
    put_back(MINE)
    assert setting.read_text() == "2000"
    setting.write_text("300")
    assert shorten(MINE)
    put_back(MINE)
    assert setting.read_text() == "300"
    assert not quota_slice.CLAIMS.exists()


def test_after_a_crash_what_was_there_first_is_known(setting):
    """The kill is after saving the former value, or after setting the new one."""
    quota_slice.CLAIMS.mkdir(parents=True)
    (quota_slice.CLAIMS / "before").write_text("5000")
    for now in ("5000", "500"):
        setting.write_text(now)
        assert shorten(MINE)
        assert int(setting.read_text()) == SLICE_US
    put_back(MINE)
    assert setting.read_text() == "5000"


def test_where_it_cannot_be_set_nothing_is_left(setting, monkeypatch):
    setting.unlink()
    assert not shorten(MINE)  # a kernel without quotas
    put_back(MINE)

    class ReadOnly(type(setting)):  # type: ignore[misc]
        def write_text(self, data: str, *more: object, **others: object) -> int:
            raise PermissionError(30, "Read-only file system")

    setting.write_text("5000")
    monkeypatch.setattr(quota_slice, "SETTING", ReadOnly(setting))
    assert not shorten(MINE)
    assert not quota_slice.CLAIMS.exists()
    assert setting.read_text() == "5000"


# -- detached processes ----------------------------------------------------------------------------


def test_a_detached_process_is_known_at_once(tmp_path):
    # A node without a process id so far was mistaken for one that died while booting.
    for attempt in range(20):
        pid_file, procs = tmp_path / f"pid{attempt}", tmp_path / f"procs{attempt}"
        detach(["sleep", "60"], procs=[procs], pid_file=pid_file, log=tmp_path / "log")
        pid = read_pid(pid_file)
        assert pid is not None
        try:
            assert alive(pid)
            assert int(procs.read_text()) == pid
            assert os.getpgid(pid) != os.getpgid(0)
        finally:
            assert stop(pid, timeout_s=5.0, number=signal.SIGKILL)
        assert not alive(pid)


def test_a_group_that_cannot_be_joined_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("testbed.sites.local.process._START_S", 0.3)
    with raises(SiteError, "could not be started"):
        detach(
            ["sleep", "60"],
            procs=[tmp_path / "missing" / "cgroup.procs"],
            pid_file=tmp_path / "pid",
            log=tmp_path / "log",
        )


# -- files in a node's root before it boots --------------------------------------------------------


LOGIN = "ssh-ed25519 AAA hotbed-dlr"


@pytest.fixture
def container(tmp_path: Path) -> Container:
    for folder in ("node/root/etc/ssh", "node/root/root", "outside/ssh", "outside/.ssh"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("hosts", "hostname", "authorized_keys", ".ssh/authorized_keys"):
        (tmp_path / "outside" / name).write_text(f"ssh-ed25519 SECRET {name}\n")
    (tmp_path / "outside").chmod(0o755)
    return Container(tmp_path / "node", "osd0", "hotbed-test-osd0")


@pytest.fixture
def furnish(container: Container, tmp_path: Path) -> Callable[[str], None]:
    host_key = tmp_path / "host_key"
    host_key.write_text("private\n")
    host_key.with_suffix(".pub").write_text("public\n")
    return lambda login: container.furnish("127.0.0.1 localhost\n", login, host_key)


@pytest.fixture
def authorized(container: Container) -> Path:
    return container.root / "root" / ".ssh" / "authorized_keys"


def test_a_restarted_node_keeps_what_a_deployment_wrote_to_its_hosts(container, furnish):
    hosts = container.root / "etc" / "hosts"
    hosts.write_text("192.0.2.1 the-hosts-own\n")
    furnish(LOGIN)
    deployed = hosts.read_text() + "# BEGIN hotbed\n192.0.2.2 osd0\n# END hotbed\n"
    hosts.write_text(deployed)
    for _ in range(2):
        furnish(LOGIN)
        assert hosts.read_text() == deployed


def test_a_restarted_node_keeps_the_keys_that_were_let_in(furnish, authorized):
    furnish(LOGIN)
    # The agent role admits the admin node; a restore from a snapshot restarts the node.
    authorized.write_bytes(authorized.read_bytes() + b"ssh-ed25519 BBB hotbed-admin\n\xff odd\n")
    furnish("ssh-ed25519 CCC hotbed-dlr")
    assert authorized.read_bytes().splitlines() == [
        b"ssh-ed25519 CCC hotbed-dlr",
        b"ssh-ed25519 BBB hotbed-admin",
        b"\xff odd",
    ]


def _snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in (folder, *sorted(folder.rglob("*")))
    }


OUT = "{outside}"
UP = "../" * 40 + "{outside}"


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *(
            (name, target)
            for name in ("etc", "etc/ssh", "root", "root/.ssh")
            for target in (OUT, UP)
        ),
        *((f"etc/{name}", f"{OUT}/{name}") for name in ("hosts", "hostname", "machine-id")),
        *((".ssh_keys", f"{top}/authorized_keys") for top in (OUT, UP)),
        ("etc", "etc"),
        ("root/.ssh", "../root/.ssh"),
        (".ssh_keys", "authorized_keys"),
        ("etc/.hosts.hotbed", f"{OUT}/hosts"),
        ("etc", "/proc/self/cwd"),
        ("root/.ssh", "/proc/self/root{outside}"),
    ],
)
def test_a_nodes_links_lead_the_host_to_nothing_outside(
    container, furnish, authorized, name, target
):
    link = container.root / name
    if name == ".ssh_keys":
        link = authorized
        authorized.parent.mkdir()
    if link.is_dir():
        shutil.rmtree(link)
    outside = container.folder.parent / "outside"
    link.symlink_to(target.format(outside=outside))
    before = _snapshot(outside)
    try:
        furnish(LOGIN)
    except SiteError as error:
        assert "osd0" in str(error)
    else:
        assert authorized.read_text() == f"{LOGIN}\n"
    assert _snapshot(outside) == before
    inside = [
        path for path in container.root.rglob("*") if path.is_file() and not path.is_symlink()
    ]
    assert not any(b"SECRET" in path.read_bytes() for path in inside)


def test_a_link_within_the_root_is_followed_as_the_node_would(container, furnish):
    (container.root / "root").rmdir()
    (container.root / "home" / "root").mkdir(parents=True)
    (container.root / "root").symlink_to("/home/root")
    furnish(LOGIN)
    assert (container.root / "home/root/.ssh/authorized_keys").read_text() == f"{LOGIN}\n"


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


@pytest.mark.parametrize("make", [_pipe, Path.mkdir, _huge])
def test_what_is_no_small_plain_file_is_not_read(furnish, authorized, make):
    authorized.parent.mkdir()
    make(authorized)
    with pytest.raises(SiteError):
        furnish(LOGIN)
