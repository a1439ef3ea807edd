"""Inventory site on played machines: the contract, and refusals before any change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import HotbedError, UserError
from testbed.deploy.inventory import fsid_of
from testbed.sites.contract import CautiousSite, InspectingSite, SiteError
from testbed.sites.inventory import InventorySite, fitness, hostside
from testbed.sites.inventory.assign import InventoryHost, Member
from testbed.sites.records import Records
from testbed.spec import TestbedSpec
from tests.errors import raises
from tests.testbed.sites.conformance import SiteConformance
from tests.testbed.sites.fake_hosts import KEY, FakeHosts, Killed
from tests.testbed.sites.inventory_support import (
    OPTIONS,
    Make,
    files,
    hosts,
    make,
    make_spec,
)

__all__ = ["hosts", "make"]

DEVICES = OPTIONS["devices"]
FIT = {"mark": None, "machine_id": "a", "boot_id": "b", "host_name": "a", "root_login": "yes"} | {
    "ceph": {"fsids": {}, "units": []}
}
"""Survey result of a machine that may be taken."""


class TestInventorySite(SiteConformance):
    @pytest.fixture
    def site(self, make: Make) -> InventorySite:
        return make()

    @pytest.fixture
    def spec(self) -> TestbedSpec:
        return make_spec()


def test_it_asks_and_inspects(make: Make) -> None:
    assert isinstance(make(), CautiousSite)
    assert isinstance(make(), InspectingSite)


def refuse(make: Make, fakes: FakeHosts, *facts: str, **options: Any) -> None:
    """Assert that provisioning is refused in a sentence and changes nothing."""
    before = files(fakes)
    site = make(**options)
    with raises(HotbedError, *facts):
        site.provision(make_spec(**options))
    assert files(fakes) == before
    assert site.names() == ()


def test_a_device_that_holds_something_is_named_and_kept(make: Make, hosts: FakeHosts) -> None:
    hosts.hosts["192.0.2.2"].disk("/dev/sdb2", 16 * 2**30, "ext4")
    refuse(make, hosts, "/dev/sdb2", "osd0", "16.0 GiB", "ext4", "--yes-wipe /dev/sdb2@osd0")
    assert [one.name for one in make().doomed(make_spec())] == ["/dev/sdb2@osd0"]


def test_a_device_is_wiped_once_it_was_named(make: Make, hosts: FakeHosts) -> None:
    host = hosts.hosts["192.0.2.2"]
    host.disk("/dev/sdb2", 16 * 2**30, "ext4")
    site = make()
    site.allow(["/dev/sdb2@osd0"])
    site.provision(make_spec())
    assert not (host.root / "dev/sdb2").open("rb").read(4096).strip(b"\0")
    # The store's later data belongs to it: no question and no wipe again.
    (host.root / "dev/sdb2").open("r+b").write(b"SIGNATURE:ceph_bluestore\n")
    assert make().doomed(make_spec()) == ()
    make().provision(make_spec())
    assert (host.root / "dev/sdb2").open("rb").read(9) == b"SIGNATURE"


def test_data_of_an_unknown_kind_is_data(make: Make, hosts: FakeHosts) -> None:
    (hosts.hosts["192.0.2.3"].root / "dev/sdb1").open("r+b").write(b"a database of my own")
    refuse(make, hosts, "osd1", "is not known")


def test_a_wrong_name_in_the_consent_is_told(make: Make, hosts: FakeHosts) -> None:
    site = make()
    with raises(UserError, "write device@node"):
        site.allow(["/dev/sdb2"])
    site.allow(["/dev/sdx@osd0"])
    with raises(UserError, "/dev/sdx", "osd0"):
        site.provision(make_spec())


def test_what_is_in_use_is_never_wiped(make: Make, hosts: FakeHosts) -> None:
    mounted = "30 23 0:0 / /srv/data rw - ext4 /dev/sdb2 rw\n"
    hosts.hosts["192.0.2.2"].write("proc/self/mountinfo", mounted)
    refuse(make, hosts, "/srv/data", wipe=["/dev/sdb2@osd0"])


def test_a_device_that_is_none_or_too_small(make: Make, hosts: FakeHosts) -> None:
    hosts.hosts["192.0.2.3"].disk("/dev/sdb2", 2**30)
    refuse(make, hosts, "/dev/sdb2", "osd1", "1.0 GiB", "1.8 GiB")
    missing = {"osd": {"osd": "/dev/sdz", "scratch": "/dev/sdb1"}}
    refuse(make, hosts, "/dev/sdz", "osd0", devices=missing)


def test_a_device_with_two_names(make: Make, hosts: FakeHosts) -> None:
    other = hosts.hosts["192.0.2.2"].root / "dev/disk/by-id/wwn-1"
    other.parent.mkdir(parents=True)
    other.symlink_to("../../sdb2")
    twice = {"osd0": {"osd": "/dev/sdb2", "scratch": "/dev/disk/by-id/wwn-1"}}
    refuse(make, hosts, "wwn-1", "/dev/sdb2", "osd0", devices=DEVICES | twice)


def test_a_disk_and_its_partition_overlap() -> None:
    whole, part = "/dev/sdb", "/dev/disk/by-id/p1"
    empty = {"is": "a device", "uses": [], "holds": [], "bytes": 2**40}
    seen = {
        whole: {**empty, "path": whole, "real": whole, "parts": ["/dev/sdb1"]},
        part: {**empty, "path": part, "real": "/dev/sdb1", "parts": []},
    }
    host = InventoryHost("a", "192.0.2.1")
    member = Member("osd0", "osd", ("osd",), 2**29, host, {"osd": whole, "scratch": part})
    with raises(UserError, "/dev/disk/by-id/p1", "osd0"):
        fitness.require(make_spec(), [member], {"osd0": {**FIT, "devices": seen}})


def test_what_was_put_on_a_device_since_it_was_allowed_stays(make: Make, hosts: FakeHosts) -> None:
    host = hosts.hosts["192.0.2.2"]
    host.disk("/dev/sdb2", 16 * 2**30, "ext4")
    site = make()
    site.allow(["/dev/sdb2@osd0"])
    hosts.kill_at = 1 + 2 * len(make_spec().node_names())  # seen, and not taken yet
    with pytest.raises(Killed):
        site.provision(make_spec())
    hosts.kill_at = None
    host.disk("/dev/sdb2", 16 * 2**30, "xfs")
    with raises(SiteError, "holds xfs now"):
        make().provision(make_spec())
    assert b"xfs" in (host.root / "dev/sdb2").open("rb").read(20)
    make().release("small")
    refuse(make, hosts, "xfs", "--yes-wipe /dev/sdb2@osd0")


def test_a_disk_that_took_the_name_of_the_allowed_one_stays(make: Make, hosts: FakeHosts) -> None:
    """The machine was rebooted between the permission and the wipe."""
    host = hosts.hosts["192.0.2.2"]
    host.disk("/dev/sdb2", 16 * 2**30, "ext4")
    host.write("sys/dev/block/0:0/device/wwid", "naa.1")
    site = make()
    site.allow(["/dev/sdb2@osd0"])
    hosts.kill_at = 1 + 2 * len(make_spec().node_names())
    with pytest.raises(Killed):
        site.provision(make_spec())
    hosts.kill_at = None
    host.write("sys/dev/block/0:0/device/wwid", "naa.2")
    with raises(SiteError, "is another device now than"):
        make().provision(make_spec())
    assert (host.root / "dev/sdb2").open("rb").read(9) == b"SIGNATURE"
    host.write("sys/dev/block/0:0/device/wwid", "naa.1")
    assert make().provision(make_spec()).nodes


def test_host_keys_must_be_vouched_for(make: Make, hosts: FakeHosts, tmp_path: Path) -> None:
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


def test_a_machine_that_another_testbed_holds(make: Make, hosts: FakeHosts, tmp_path: Path) -> None:
    other = InventorySite(
        OPTIONS, records=Records("inventory", tmp_path / "another"), contact=hosts
    )
    other.provision(make_spec())
    refuse(make, hosts, "node admin", "'small'")
    other.release("small")
    assert make().provision(make_spec()).nodes


CEPH = {"kind": "ceph", "pools": [{"name": "bench", "pg_num": 8}]}


def with_ceph(**options: Any) -> TestbedSpec:
    """Return the small spec with a store."""
    body = make_spec(**options).model_dump()
    body["store"] = CEPH
    body["groups"][0]["roles"] = ["admin", "mon", "mgr", "client"]
    return TestbedSpec.model_validate(body)


OTHER, OURS = "7c9e6679-7425-40de-944b-e07fc1f90ae7", fsid_of("inventory", "small")


@pytest.mark.parametrize(
    ("file", "units", "told"),
    [
        (
            "etc/ceph/ceph.conf:[global]\nfsid = {other}\n",
            (),
            "fsid {other} in /etc/ceph/ceph.conf",
        ),
        (
            "etc/ceph/ceph.conf:[global]\nmon_host = x\n",
            (),
            "fsid not named in /etc/ceph/ceph.conf",
        ),
        ("var/lib/ceph/{other}/mon:x", (), "fsid {other} in /var/lib/ceph/{other}"),
        ("var/lib/ceph/osd/ceph-3/ceph_fsid:{other}\n", (), "in /var/lib/ceph/osd/ceph-3"),
        ("var/lib/ceph/osd/two-3/ceph_fsid:{other}\n", (), "in /var/lib/ceph/osd/two-3"),
        ("etc/x:", ("ceph-mon@a.service",), "ceph-mon@a.service runs"),
        ("etc/ceph/ceph.conf:[global]\nfsid={ours} ; ours\n", ("ceph-mon@osd0.service",), None),
        ("var/lib/ceph/{ours}/mon:x", ("ceph-{ours}@mon.a.service",), None),
        ("var/lib/ceph/osd/ceph-3/whoami:3", (), None),
    ],
)
def test_a_machine_of_another_ceph_is_refused(
    make: Make, hosts: FakeHosts, file: str, units: tuple[str, ...], told: str | None
) -> None:
    """A deployment would refuse it; leftovers of this testbed's own deployment are no obstacle."""
    names = {"other": OTHER, "ours": OURS}
    name, text = file.format(**names).split(":", 1)
    hosts.hosts["192.0.2.2"].write(name, text)
    hosts.hosts["192.0.2.2"].units = [unit.format(**names) for unit in units]
    (osd0,) = (each for each in make().inspect(with_ceph()) if each.node == "osd0")
    (finding,) = (each for each in osd0.findings if each.name == "ceph")
    assert (finding.ok, finding.needed) == (told is None, True)
    if told is None:
        assert make().provision(with_ceph()).nodes
        return
    assert told.format(**names) in finding.found
    before = files(hosts)
    with raises(UserError, "osd0", f"{told.format(**names)}"):
        make().provision(with_ceph())
    assert files(hosts) == before
    # Without a store the other Ceph does not matter.
    assert make().provision(make_spec()).nodes


def test_nobody_becomes_root_without_sudo_or_python(make: Make, hosts: FakeHosts) -> None:
    for host in hosts.hosts.values():
        host.user = "me"
    hosts.hosts["192.0.2.1"].sudo = False
    refuse(make, hosts, "192.0.2.1", "root", user="me")
    hosts.hosts["192.0.2.1"].sudo = True
    hosts.hosts["192.0.2.2"].python = ""
    refuse(make, hosts, "python3", user="me")
    hosts.hosts["192.0.2.2"].python = "3.8"
    refuse(make, hosts, "3.8", "3.10", user="me")
    hosts.hosts["192.0.2.2"].python = "3.10"
    testbed = make(user="me").provision(make_spec(user="me"))
    assert {node.ssh_user for node in testbed.nodes} == {"root"}


def test_a_port_that_is_forwarded_to_another(make: Make, hosts: FakeHosts) -> None:
    """Other nodes would contact a port without a listener."""
    inside = hosts.hosts["192.0.2.2"]
    inside.sshd_port = 22
    listed = [{"address": a, "port": 2202 if a == "192.0.2.2" else 22} for a in OPTIONS["hosts"]]
    refuse(make, hosts, "osd0", "2202", "port 22", hosts=listed)
    inside.sshd_port = None
    assert make(hosts=listed).provision(make_spec(hosts=listed)).nodes[1].ssh_port == 2202


def test_a_machine_that_does_not_answer_says_to_try_again(make: Make, hosts: FakeHosts) -> None:
    hosts.hosts["192.0.2.2"].up = False
    with raises(SiteError, "shows no host key") as lost:
        make().provision(make_spec())
    assert lost.value.retry_after_s is not None
    assert make().names() == ()


def test_a_machine_to_go_through_that_does_not_answer_is_named(
    make: Make, hosts: FakeHosts
) -> None:
    hosts.hosts["192.0.2.6"].up = False
    site = make(hosts=OPTIONS["hosts"][:3], proxy_jump="me@192.0.2.6")
    with raises(SiteError, "ssh cannot go through a") as lost:
        site.provision(make_spec(hosts=OPTIONS["hosts"][:3], proxy_jump="me@192.0.2.6"))
    assert lost.value.retry_after_s is not None


def test_nodes_that_are_one_machine(make: Make, hosts: FakeHosts) -> None:
    hosts.hosts["192.0.2.3"].write("etc/machine-id", "192.0.2.2\n")
    hosts.hosts["192.0.2.3"].write("proc/sys/kernel/random/boot_id", "192.0.2.2\n")
    refuse(make, hosts, "osd0", "osd1")
    hosts.hosts["192.0.2.3"].address = "192.0.2.2"
    hosts.hosts["192.0.2.3"].write("etc/machine-id", "192.0.2.3\n")
    refuse(make, hosts, "osd0", "osd1", "192.0.2.2")


@pytest.mark.parametrize(
    ("cpus", "wanted", "signal"),
    [
        (2, None, "iowait"),
        (8, None, "io_pressure"),
        (2, "io_pressure", "io_pressure"),
        (8, "iowait", "says little on more than 4 CPUs"),
        (-8, None, "pressure on disks cannot be sensed"),
        (-2, "io_pressure", "has no /proc/pressure/io"),
    ],
)
def test_the_signal_is_the_same_on_all_machines(
    make: Make, hosts: FakeHosts, cpus: int, wanted: str | None, signal: str
) -> None:
    """A negative number of CPUs means that the kernel has no io.pressure."""
    stat = "cpu  1 0 1 1 1 0 0 0\n" + "".join(f"cpu{n} 1 0\n" for n in range(abs(cpus)))
    hosts.hosts["192.0.2.3"].write("proc/stat", stat)
    if cpus < 0:
        (hosts.hosts["192.0.2.3"].root / "proc/pressure/io").unlink()
    options = {"signal": wanted} if wanted else {}
    if " " in signal:
        refuse(make, hosts, signal, **options)
        return
    testbed = make(**options).provision(make_spec(**options))
    assert {node.signal for node in testbed.nodes} == {signal}
    assert testbed.nodes[0].pressure_file == (
        "/proc/pressure/io" if signal == "io_pressure" else None
    )


def test_what_runs_on_machines_is_one_program_of_the_standard_library() -> None:
    for request, found in (
        ({"do": "connect", "targets": {}}, {"ok": True, "result": {}}),
        (
            {"do": "wipe", "device": "/dev/nothing", "id": "nobody's", "seen": {}},
            {"ok": False, "error": "is not held by this testbed, and nothing on it is wiped"},
        ),
    ):
        # Run without site-packages and outside the repository.
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-", json.dumps(request)],
            input=hostside.program(),
            capture_output=True,
            check=True,
        )
        assert json.loads(done.stdout) == found
