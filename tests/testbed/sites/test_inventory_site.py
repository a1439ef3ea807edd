"""Inventory site on played machines: the contract, refusals, wiping, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from schemas.errors import HotbedError, UserError
from testbed.deploy import deployment
from testbed.deploy.inventory import fsid_of
from testbed.sites.contract import SiteError, State, Testbed
from testbed.sites.inventory import InventorySite, fitness
from testbed.sites.inventory.assign import Member
from testbed.sites.inventory.hosts import HostOptions
from testbed.sites.records import Records
from testbed.spec import TestbedSpec
from tests.errors import raises
from tests.testbed.sites.conformance import SiteConformance
from tests.testbed.sites.fake_hosts import KEY, FakeHost, FakeHosts, Killed
from tests.testbed.sites.inventory_support import (
    OPTIONS,
    Make,
    ceph_spec,
    files,
    hosts,
    make,
    make_spec,
    run,
    spec_file,
)

__all__ = ["hosts", "make", "spec_file"]

DEVICES = OPTIONS["devices"]
MOUNTED = "30 23 0:0 / /srv/data rw - ext4 /dev/sdb2 rw\n"


class TestInventorySite(SiteConformance):
    @pytest.fixture
    def site(self, make: Make) -> InventorySite:
        return make()

    @pytest.fixture
    def spec(self) -> TestbedSpec:
        return make_spec()


def refuse(make: Make, fakes: FakeHosts, *facts: str, **options: Any) -> None:
    """Assert that provisioning is refused and changes nothing."""
    before = files(fakes)
    site = make(**options)
    with raises(HotbedError, *facts):
        site.provision(make_spec(**options))
    assert files(fakes) == before
    assert site.names() == []


def head(hosts: FakeHosts, address: str = "192.0.2.2", name: str = "sdb2") -> bytes:
    with (hosts.hosts[address].root / "dev" / name).open("rb") as file:
        return file.read(4096).strip(b"\0")


# -- devices ---------------------------------------------------------------------------------------


REFUSED: list[tuple[Callable[[FakeHost], object], tuple[str, ...], dict[str, Any]]] = [
    (
        lambda host: host.disk("/dev/sdb2", 16 * 2**30, "ext4"),
        ("/dev/sdb2", "osd0", "16.0 GiB", "ext4", "--yes-wipe /dev/sdb2@osd0"),
        {},
    ),
    (
        lambda host: (host.root / "dev/sdb1").open("r+b").write(b"a database of my own"),
        ("/dev/sdb1", "osd0", "not known"),
        {},
    ),
    (
        lambda host: host.write("proc/self/mountinfo", MOUNTED),
        ("/srv/data",),
        {"wipe": ["/dev/sdb2@osd0"]},
    ),
    (lambda host: host.disk("/dev/sdb2", 2**30), ("/dev/sdb2", "osd0", "1.0 GiB", "1.8 GiB"), {}),
    (lambda host: setattr(host, "wipefs", False), ("wipefs is missing", "osd0"), {}),
    (
        lambda host: None,
        ("/dev/sdz", "osd0"),
        {"devices": {"osd": {"osd": "/dev/sdz", "scratch": "/dev/sdb1"}}},
    ),
    (
        lambda host: (host.root / "dev/wwn-1").symlink_to("sdb2"),
        ("/dev/wwn-1", "/dev/sdb2", "osd0"),
        {"devices": DEVICES | {"osd0": {"osd": "/dev/sdb2", "scratch": "/dev/wwn-1"}}},
    ),
]


@pytest.mark.parametrize(("change", "facts", "options"), REFUSED)
def test_a_device_with_data_in_use_or_unfit_is_refused(make, hosts, change, facts, options):
    change(hosts.hosts["192.0.2.2"])
    refuse(make, hosts, *facts, **options)


def test_a_disk_and_its_partition_overlap():
    whole, part = "/dev/sdb", "/dev/disk/by-id/p1"
    empty = {"is": "a device", "uses": [], "holds": [], "bytes": 2**40}
    seen = {
        whole: {**empty, "path": whole, "real": whole, "parts": ["/dev/sdb1"]},
        part: {**empty, "path": part, "real": "/dev/sdb1", "parts": []},
    }
    member = Member(
        node="osd0",
        group="osd",
        roles=("osd",),
        memory_bytes=2**29,
        host=HostOptions(name="a", address="192.0.2.1"),
        devices={"osd": whole, "scratch": part},
    )
    found = list(fitness.device_findings(make_spec(), member, seen))
    assert not found[0].ok and found[0].needed
    assert part in found[0].found


def test_a_device_is_wiped_once_it_was_named(make, hosts):
    host = hosts.hosts["192.0.2.2"]
    host.disk("/dev/sdb2", 16 * 2**30, "ext4")
    assert [one.name for one in make().doomed(make_spec())] == ["/dev/sdb2@osd0"]
    site = make()
    site.allow(["/dev/sdb2@osd0"])
    site.provision(make_spec())
    assert not head(hosts)
    # The store's later data belongs to it: no question and no wipe again.
    (host.root / "dev/sdb2").open("r+b").write(b"SIGNATURE:ceph_bluestore\n")
    assert make().doomed(make_spec()) == ()
    make().provision(make_spec())
    assert head(hosts)


def test_only_the_allowed_disk_with_the_allowed_content_is_wiped(make, hosts):
    """The process ends between the permission and the wipe; names and content change meanwhile."""
    host = hosts.hosts["192.0.2.2"]
    host.disk("/dev/sdb2", 16 * 2**30, "ext4")
    host.link("by-id/wwn-1", "/dev/sdb2")
    site = make()
    site.allow(["/dev/sdb2@osd0"])
    hosts.kill_at = 1 + 2 * len(make_spec().node_names())
    with pytest.raises(Killed):
        site.provision(make_spec())
    hosts.kill_at = None
    host.link("by-id/wwn-2", "/dev/sdb2")
    with raises(SiteError, "is another device now than"):
        make().provision(make_spec())
    assert head(hosts) == b"SIGNATURE:ext4\n"
    host.link("by-id/wwn-1", "/dev/sdb2")
    host.disk("/dev/sdb2", 16 * 2**30, "xfs")
    with raises(SiteError, "holds xfs now"):
        make().provision(make_spec())
    assert head(hosts) == b"SIGNATURE:xfs\n"
    host.disk("/dev/sdb2", 16 * 2**30, "ext4")
    assert make().provision(make_spec()).nodes
    assert not head(hosts)


# -- machines --------------------------------------------------------------------------------------


def test_host_keys_must_be_vouched_for(make, hosts, tmp_path):
    nobody = tmp_path / "known_hosts"
    nobody.write_text("")
    strict = {"accept_host_keys": False, "known_hosts": str(nobody)}
    refuse(make, hosts, "SHA256:", "ssh-ed25519", **strict)
    lines = [f"{address} {host.host_key}" for address, host in hosts.hosts.items()]
    nobody.write_text("\n".join(lines) + "\n")
    assert make(**strict).provision(make_spec(**strict)).nodes
    make().release("small")
    nobody.write_text(nobody.read_text().replace(hosts.hosts["192.0.2.2"].host_key, KEY.format(99)))
    refuse(make, hosts, "known_hosts has another", **strict | {"accept_host_keys": True})
    nobody.write_text(f"@revoked 192.0.2.2 {hosts.hosts['192.0.2.2'].host_key}\n")
    refuse(make, hosts, "@revoked", **strict | {"accept_host_keys": True})


def test_a_machine_that_another_testbed_holds(make, hosts, tmp_path):
    other = InventorySite(
        OPTIONS, records=Records("inventory", tmp_path / "another"), contact=hosts
    )
    other.provision(make_spec())
    refuse(make, hosts, "node admin", "'small'")
    other.release("small")
    assert make().provision(make_spec()).nodes


OTHER, OURS = "7c9e6679-7425-40de-944b-e07fc1f90ae7", fsid_of("inventory", "small")


@pytest.mark.parametrize(
    ("file", "unit", "fact"),
    [
        ("etc/ceph/ceph.conf:[global]\nfsid = {other}\n", "", "fsid {other} in /etc/ceph"),
        ("etc/ceph/ceph.conf:[global]\nmon_host = x\n", "", "fsid not named in /etc/ceph"),
        ("var/lib/ceph/{other}/mon:x", "", "fsid {other} in /var/lib/ceph/{other}"),
        ("var/lib/ceph/osd/ceph-3/ceph_fsid:{other}\n", "", "in /var/lib/ceph/osd/ceph-3"),
        ("etc/x:", "ceph-mon@a.service", "ceph-mon@a.service runs"),
        ("etc/ceph/ceph.conf:[global]\nfsid={ours} ; ours\n", "ceph-mon@osd0.service", None),
        ("var/lib/ceph/{ours}/mon:x", "ceph-{ours}@mon.a.service", None),
        ("var/lib/ceph/osd/ceph-3/whoami:3", "", None),
    ],
)
def test_a_machine_of_another_ceph_is_refused(make, hosts, file, unit, fact):
    """Leftovers of this testbed's own deployment are no obstacle."""
    names = {"other": OTHER, "ours": OURS}
    hosts.hosts["192.0.2.2"].write(*file.format(**names).split(":", 1))
    hosts.hosts["192.0.2.2"].units = [unit.format(**names)] if unit else []
    if fact is None:
        assert make().provision(ceph_spec()).nodes
        return
    before = files(hosts)
    with raises(UserError, fact.format(**names), where="osd0"):
        make().provision(ceph_spec())
    assert files(hosts) == before
    # Without a store the other Ceph does not matter.
    assert make().provision(make_spec()).nodes


def test_nobody_becomes_root_without_sudo_or_python(make, hosts):
    for host in hosts.hosts.values():
        host.user = "me"
    hosts.hosts["192.0.2.1"].sudo = False
    refuse(make, hosts, "192.0.2.1", "root", user="me")
    hosts.hosts["192.0.2.1"].sudo = True
    for version, facts in (("", ("python3",)), ("3.8", ("3.8", "3.10"))):
        hosts.hosts["192.0.2.2"].python = version
        refuse(make, hosts, *facts, user="me")
    hosts.hosts["192.0.2.2"].python = "3.10"
    testbed = make(user="me").provision(make_spec(user="me"))
    assert {node.ssh_user for node in testbed.nodes} == {"root"}


@pytest.mark.parametrize(
    ("away", "options"),
    [
        ("192.0.2.2", {}),
        ("192.0.2.6", {"hosts": OPTIONS["hosts"][:3], "proxy_jump": "me@192.0.2.6"}),
    ],
)
def test_after_no_answer_a_retry_may_help(make, hosts, away, options):
    hosts.hosts[away].up = False
    with raises(SiteError, away) as lost:
        make(**options).provision(make_spec(**options))
    assert lost.value.retry_after_s is not None
    assert make().names() == []


def test_nodes_that_are_one_machine_or_at_one_address(make, hosts):
    one, other = hosts.hosts["192.0.2.2"], hosts.hosts["192.0.2.3"]
    for name in ("etc/machine-id", "proc/sys/kernel/random/boot_id"):
        other.write(name, one.read(name))
    refuse(make, hosts, "osd0", "osd1")
    other.address = "192.0.2.2"
    other.write("etc/machine-id", "192.0.2.3\n")
    refuse(make, hosts, "osd0", "osd1", "192.0.2.2")


@pytest.mark.parametrize(
    ("cpus", "wanted", "signal"),
    [
        (2, None, "iowait"),
        (8, None, "io_pressure"),
        (8, "iowait", "refused: osd1 (8)"),
        (-8, None, "refused: osd1 has none"),
    ],
)
def test_the_signal_is_the_same_on_all_machines(make, hosts, cpus, wanted, signal):
    """A negative number of CPUs means that the kernel has no io.pressure."""
    stat = "cpu  1 0 1 1 1 0 0 0\n" + "".join(f"cpu{n} 1 0\n" for n in range(abs(cpus)))
    hosts.hosts["192.0.2.3"].write("proc/stat", stat)
    if cpus < 0:
        (hosts.hosts["192.0.2.3"].root / "proc/pressure/io").unlink()
    options = {"signal": wanted} if wanted else {}
    if signal.startswith("refused: "):
        refuse(make, hosts, signal.removeprefix("refused: "), **options)
        return
    testbed = make(**options).provision(make_spec(**options))
    assert {node.signal for node in testbed.nodes} == {signal}
    assert (testbed.nodes[0].pressure_file is None) is (signal == "iowait")


# -- files on the machines, and their removal after a kill or a loss -------------------------------


def test_a_lost_machine_is_kept_on_record_until_it_is_back(make, hosts):
    before = files(hosts)
    site = make()
    site.provision(make_spec())
    hosts.hosts["192.0.2.2"].up = False
    status = site.status("small")
    assert status.state is State.FAILED
    assert status.nodes == {"admin": "running", "osd0": "lost", "osd1": "running"}
    with raises(SiteError, "osd0", "hotbed down small") as lost:
        site.release("small")
    assert lost.value.retry_after_s is not None
    assert site.names() == ["small"]
    assert site.find("small") is None
    assert site.status("small").detail.endswith("`hotbed down small` again")
    hosts.hosts["192.0.2.2"].up = True
    site.release("small")
    assert files(hosts) == before
    assert site.names() == []


def test_a_testbed_stays_on_its_machines(make, hosts):
    testbed = make().provision(make_spec())
    record = testbed.directory / "record.json"
    record.write_text(record.read_text().replace('"provenance"', '"told"'))  # as written before
    assert make().find("small") == testbed
    fewer = {"hosts": OPTIONS["hosts"][1:]}
    with raises(UserError, "192.0.2.1", do="hotbed down small"):
        make(**fewer).provision(make_spec(**fewer))
    more = {"hosts": [{"address": "192.0.2.9", "name": "new"}, *OPTIONS["hosts"]]}
    assert make(**more).provision(make_spec(**more)).nodes[0].address == "192.0.2.1"
    (hosts.hosts["192.0.2.3"].root / "etc/hotbed-site.json").unlink()
    assert make().status("small").nodes["osd1"] == "not ours"
    assert make().provision(make_spec()).nodes
    assert make().status("small").state is State.READY


@pytest.mark.slow
@pytest.mark.parametrize("down", [False, True])
def test_killed_at_any_moment_it_resumes_or_is_removed(make, hosts, monkeypatch, down):
    monkeypatch.setattr("testbed.sites.inventory.contact.PARALLEL", 1)
    before = files(hosts)
    make().provision(make_spec())
    moments = 6 if down else hosts.counted
    make().release("small")
    assert down or moments >= 12
    for moment in range(1, moments + 1):
        if down:
            make().provision(make_spec())
        hosts.counted, hosts.kill_at = 0, moment
        with pytest.raises(Killed):
            make().release("small") if down else make().provision(make_spec())
        hosts.kill_at = None
        if moment % 2 and not down:
            assert make().provision(make_spec()).nodes
            assert make().status("small").state is State.READY
        make().release("small")
        assert files(hosts) == before, moment
        assert make().names() == []


def test_a_store_goes_before_the_machines_do(make, hosts, tmp_path):
    """A store that cannot be removed keeps its machine."""
    from testbed.deploy.playbook import Failure
    from testbed.deploy.roles import DeployError

    calls: list[str] = []

    def take_away(testbed: Testbed, progress: object) -> None:
        assert "hotbed-small" in hosts.hosts["192.0.2.3"].read("root/.ssh/authorized_keys")
        calls.append(testbed.name)
        if len(calls) == 1:
            raise DeployError("it failed", (Failure("osd1", "remove", "x", "it failed"),))

    site = InventorySite(
        OPTIONS, records=Records("inventory", tmp_path), contact=hosts, take_away=take_away
    )
    site.provision(make_spec())
    site.release("small")
    assert calls == []
    testbed = site.provision(make_spec())
    (testbed.directory / "unfrozen").touch()  # a deployment was started
    with raises(SiteError, "osd1: it failed"):
        site.release("small")
    assert hosts.hosts["192.0.2.2"].read("etc/hotbed-site.json") == ""
    assert hosts.hosts["192.0.2.3"].read("etc/hotbed-site.json") != ""
    site.release("small")
    assert hosts.hosts["192.0.2.3"].read("etc/hotbed-site.json") == ""


def test_load_of_others_and_steal(make, hosts):
    site = make()
    site.provision(make_spec())
    before = site.usage_counters("small")
    after = {**before, "wall": before["wall"] + 10.0}
    for node, busy, steal in (("admin", 2.0, 0.0), ("osd0", 6.0, 2.0), ("osd1", 0.0, 0.0)):
        after[f"all:{node}"] += 20.0
        after[f"busy:{node}"] += busy
        after[f"node:{node}"] += busy
        after[f"steal:{node}"] += steal
    after["ours:osd0"] += 1.0
    # A restarted daemon has a new container that begins at 0.
    before["ours docker/aa:osd0"] = 900.0
    before["ours docker/bb:osd0"], after["ours docker/bb:osd0"] = 100.0, 103.0
    after["ours docker/cc:osd0"] = 1.0
    usage = site.usage_between(before, after)
    assert usage.outside_cores == pytest.approx(0.3)
    assert usage.steal == pytest.approx(0.1)
    assert usage.node_cores == pytest.approx({"admin": 0.2, "osd0": 0.6, "osd1": 0.0})


# -- devices wiped by name before a deployment that wipes nothing ----------------------------------


@pytest.fixture
def deployed(
    spec_file: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[bool]:
    """Bring the testbed up; the list records the wipe flag of each deployment."""
    flags: list[bool] = []

    def bring(*_: object, wipe: bool, **more: Any) -> deployment.DeploymentResult:
        flags.append(wipe)
        return deployment.DeploymentResult("small", "deployed", 0, 0.0)

    monkeypatch.setattr(deployment, "bring", bring)
    assert run("up", str(spec_file), "--accept-host-keys") == 0
    capsys.readouterr()
    return flags


def test_a_deployment_wipes_named_devices_only(deployed, hosts, monkeypatch, capsys):
    for address in ("192.0.2.2", "192.0.2.3"):
        hosts.hosts[address].disk("/dev/sdb2", 16 * 2**30, "xfs")
    assert run("deploy", "--wipe") == 2
    printed = capsys.readouterr().err
    assert "/dev/sdb2 of node osd0 (16.0 GiB) holds xfs; /dev/sdb2 of node osd1" in printed
    assert "`hotbed deploy small --yes-wipe /dev/sdb2@osd0,/dev/sdb2@osd1`" in printed
    assert (deployed, head(hosts)) == ([], b"SIGNATURE:xfs\n")
    assert run("deploy", "--yes-wipe", "/dev/sdb2@osd0") == 0
    # The deployment must refuse the other device, because it may wipe nothing.
    assert deployed == [False]
    assert (head(hosts), head(hosts, "192.0.2.3")) == (b"", b"SIGNATURE:xfs\n")
    assert run("deploy", "--yes-wipe", "/dev/sdx@osd0") == 2
    assert "/dev/sdx@osd0" in capsys.readouterr().err
    # At a terminal a person is asked, once.
    monkeypatch.setattr("hotbed.site_options._at_a_terminal", lambda: True)
    answers = ["yes", "wipe"]
    monkeypatch.setattr("typer.prompt", lambda *_, **more: answers.pop(0))
    assert run("deploy", "--wipe") == 2
    assert head(hosts, "192.0.2.3")
    assert run("deploy", "--wipe") == 0
    assert run("deploy", "--wipe") == 0
    assert (deployed, answers) == ([False] * 3, [])
    assert not head(hosts, "192.0.2.3")


def test_nobody_is_asked_about_devices_that_are_allowed(spec_file, hosts, monkeypatch):
    for address in ("192.0.2.2", "192.0.2.3"):
        hosts.hosts[address].disk("/dev/sdb2", 16 * 2**30, "xfs")
    body = yaml.safe_load(spec_file.read_text())
    body["site"]["options"]["wipe"] = "/dev/sdb2@osd0"
    spec_file.write_text(yaml.safe_dump(body))
    monkeypatch.setattr("hotbed.site_options._at_a_terminal", lambda: True)
    words = ("up", str(spec_file), "--accept-host-keys", "--yes-wipe", "/dev/sdb2@osd1")
    assert run(*words) == 0
    assert (head(hosts), head(hosts, "192.0.2.3")) == (b"", b"")


def test_a_device_in_use_or_of_an_osd_is_never_wiped(make, hosts):
    site, host = make(), hosts.hosts["192.0.2.2"]
    site.provision(make_spec())
    host.disk("/dev/sdb2", 16 * 2**30, "ceph_bluestore")
    block = host.root / "var/lib/ceph/osd/ceph-3/block"
    block.parent.mkdir(parents=True)
    block.symlink_to(host.root / "dev/sdb2")
    assert site.leftovers("small") == ()
    with raises(UserError, "/ceph-3"):
        site.wipe("small", ["/dev/sdb2@osd0"])
    block.unlink()
    assert [one.name for one in site.leftovers("small")] == ["/dev/sdb2@osd0"]
    host.write("proc/self/mountinfo", MOUNTED)
    assert site.leftovers("small") == ()
    with raises(UserError, "/srv/data"):
        site.wipe("small", ["/dev/sdb2@osd0"])
    assert head(hosts)


def test_a_permission_for_one_call_ends_with_it(make, hosts):
    site, host = make(), hosts.hosts["192.0.2.2"]
    site.provision(make_spec())
    host.disk("/dev/sdb2", 16 * 2**30, "xfs")
    mark = host.read("etc/hotbed-site.json")
    host.write("etc/hotbed-site.json", mark.replace('"id": "', '"id": "0'))
    with raises(SiteError, "is not held by this"):
        site.wipe("small", ["/dev/sdb2@osd0"])
    host.write("etc/hotbed-site.json", mark)
    site.provision(make_spec())
    assert head(hosts)
