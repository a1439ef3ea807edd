"""Findings of `hotbed doctor --site` on machines, and their output by the verbs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.checks import CheckResult
from testbed.doctor import lacking
from testbed.sites.inventory.fitness import clock_finding
from testbed.spec import TestbedSpec
from tests.testbed.sites.fake_hosts import FakeHosts
from tests.testbed.sites.inventory_support import (
    SPEC,
    ceph_spec,
    hosts,
    make_site,
    make_spec,
    run,
    spec_file,
)

__all__ = ["hosts", "spec_file"]


def found(
    tmp_path: Path,
    hosts: FakeHosts,
    node: str = "osd0",
    spec: TestbedSpec | None = None,
    **options: Any,
) -> dict[str, CheckResult]:
    site = make_site(tmp_path / "state", hosts, **options)
    machines = site.inspect(spec or make_spec(**options))
    assert [machine.node for machine in machines] == ["admin", "osd0", "osd1"]
    (mine,) = (machine for machine in machines if machine.node == node)
    return {finding.name: finding for finding in mine.findings}


@pytest.mark.parametrize(
    ("name", "file", "fact"),
    [
        ("ports", "proc/net/tcp:x\n 0: 00000000:1A90 0 0A\n", "taken: 6800"),
        ("memory!", "proc/meminfo:MemTotal: 204800 kB\n", "200.0 MiB"),
        ("system", "etc/os-release:ID=debian\nVERSION_ID=14\n", "unknown"),
        ("system!", "etc/os-release:ID=alpine\nPRETTY_NAME=Alpine\n", "Alpine"),
        ("osd!", "proc/self/mountinfo:1 1 0:0 / /srv rw\n", "is mounted at /srv"),
        ("free!", 'etc/hotbed-site.json:{"testbed": "x", "id": "y"}', "testbed 'x'"),
    ],
)
def test_what_is_wrong_is_found(tmp_path, hosts, name, file, fact):
    """A finding marked with ! blocks the next step."""
    hosts.hosts["192.0.2.2"].write(*file.split(":", 1))
    spec = ceph_spec() if name == "ports" else None
    finding = found(tmp_path, hosts, spec=spec)[name.rstrip("!")]
    assert not finding.ok
    assert fact in finding.found
    assert finding.needed is name.endswith("!")


def test_clocks_and_network_between_machines(tmp_path, hosts):
    hosts.hosts["192.0.2.3"].up = False
    assert list(found(tmp_path, hosts, "osd1")) == ["ssh"]
    assert "192.0.2.3" in found(tmp_path, hosts, "osd1")["ssh"].found
    assert found(tmp_path, hosts, "admin")["network"].ok
    hosts.hosts["192.0.2.3"].up = True
    hosts.hosts["192.0.2.2"].clock_offset_s = 90.0
    hosts.hosts["192.0.2.2"].unreachable.add("osd1")
    findings = found(tmp_path, hosts)
    assert findings["clock"].found.startswith("+90.000 s to us")
    assert [one.name for one in lacking(findings.values())] == ["clock", "network"]
    assert findings["network"].found == "192.0.2.2; cannot reach osd1 at port 22: timed out"
    hosts.hosts["192.0.2.2"].clock_offset_s = 2.0
    clock = found(tmp_path, hosts)["clock"]
    assert (clock.ok, clock.needed) == (False, False)


@pytest.mark.parametrize(
    ("others", "kept", "ok"),
    [
        ((0.06, 0.01), True, True),  # 0.04 s at least, which is tolerated
        ((0.08, 0.01), True, False),
        ((-0.08, 0.01), True, False),
        ((0.08, 0.01), False, True),  # a deployment sets the clock
        ((0.25, 0.2), True, True),  # too slow a connection to judge
    ],
)
def test_monitors_clocks_are_held_against_each_other(others, kept, ok):
    offsets = {"a": (0.0, 0.01), "b": others}
    finding = clock_finding("a", offsets, {"a": True, "b": kept}, ["a", "b"])
    assert (finding.ok, finding.needed) == (ok, False)
    assert ("s to b, and monitors bear 0.05 s" in finding.found) is not ok
    assert clock_finding("a", offsets, {"a": True, "b": kept}, ["a"]).ok


def test_a_firewall_between_machines_is_found(tmp_path, hosts):
    """The firewall admits ssh; a port without a listener is not a firewall."""
    hosts.hosts["192.0.2.2"].unreachable |= {"admin:6789", "admin:6800", "osd1:6800"}
    network = found(tmp_path, hosts, spec=ceph_spec())["network"]
    assert (network.ok, network.needed) == (False, True)
    assert network.found == (
        "192.0.2.2; cannot reach admin at port 6789, 6800: timed out; osd1 at port 6800: timed out"
    )
    hosts.hosts["192.0.2.2"].unreachable.clear()
    assert found(tmp_path, hosts, spec=ceph_spec())["network"].ok


def test_an_sshd_that_the_others_do_not_reach(tmp_path, hosts):
    options = {"hosts": [{"address": a, "port": 2200 + int(a[-1])} for a in hosts.hosts]}
    machines = make_site(tmp_path / "state", hosts, **options).inspect(make_spec(**options))
    network = next(each for each in machines[1].findings if each.name == "network")
    assert (network.ok, network.needed) == (False, True)
    assert "admin at port 2201: refused; osd1 at port 2203" in network.found


def test_what_up_refuses_of_machines_together_is_found(tmp_path, hosts):
    (hosts.hosts["192.0.2.3"].root / "proc/pressure/io").unlink()
    missing = found(tmp_path, hosts, signal="io_pressure")["signal"]
    assert (missing.ok, missing.needed) == (False, True)
    assert "osd1 has none" in missing.how
    hosts.hosts["192.0.2.3"].address = "192.0.2.2"
    network = found(tmp_path, hosts)["network"]
    assert not network.ok
    assert "192.0.2.2, like osd1" in network.found


def test_ones_own_testbed_is_no_obstacle_to_itself(tmp_path, hosts):
    make_site(tmp_path / "state", hosts).provision(make_spec())
    hosts.hosts["192.0.2.2"].disk("/dev/sdb2", 16 * 2**30, "ceph_bluestore")
    findings = found(tmp_path, hosts)
    assert lacking(findings.values()) == []
    assert findings["osd"].found == "ours, 16.0 GiB"


# -- the verbs -------------------------------------------------------------------------------------


def test_doctor_looks_at_the_machines_of_a_spec(spec_file, hosts, capsys):
    assert run("doctor", "--site", str(spec_file), "--json") == 1
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert "for which nobody vouches" in printed["machines"][0]["findings"][0]["found"]
    assert run("doctor", "--site", str(spec_file), "--accept-host-keys") == 0
    out = capsys.readouterr().out
    assert "osd1: 192.0.2.3" in out
    assert "16.0 GiB, empty" in out
    assert all(not host.read("etc/hotbed-site.json") for host in hosts.hosts.values())


def test_consent_is_for_machines_of_ones_own(tmp_path, monkeypatch, capsys):
    path = tmp_path / "local.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    monkeypatch.setattr("testbed.doctor.diagnose", lambda *_: [])
    monkeypatch.setattr("testbed.doctor.require", lambda *_, **more: None)
    for fact, *words in (
        ("not both", "doctor", "--site", str(path), "--spec", str(path)),
        ("--accept-host-keys", "doctor", "--accept-host-keys", "--spec", str(path)),
        ("site of kind local", "doctor", "--site", str(path), "--accept-host-keys"),
        ("site of kind local", "up", str(path), "--yes-wipe", "/dev/sdb@osd0"),
    ):
        assert run(*words) == 2
        assert fact in capsys.readouterr().err


def test_a_person_is_asked_once_before_up_wipes(spec_file, hosts, monkeypatch, capsys):
    device = hosts.hosts["192.0.2.2"].root / "dev/sdb2"
    hosts.hosts["192.0.2.2"].disk("/dev/sdb2", 16 * 2**30, "ext4")
    assert run("up", str(spec_file), "--accept-host-keys") == 2
    assert "--yes-wipe /dev/sdb2@osd0`" in capsys.readouterr().err
    monkeypatch.setattr("hotbed.site_options._at_a_terminal", lambda: True)
    answers = ["y", "wipe"]
    monkeypatch.setattr("typer.prompt", lambda *_, **more: answers.pop(0))
    assert run("up", str(spec_file), "--accept-host-keys") == 2
    printed = capsys.readouterr().err
    assert "/dev/sdb2 of node osd0 (16.0 GiB) holds ext4" in printed
    assert "nothing was wiped, and nothing was changed" in printed
    assert device.open("rb").read(9) == b"SIGNATURE"
    assert run("up", str(spec_file), "--accept-host-keys") == 0
    assert device.open("rb").read(9) != b"SIGNATURE"
    assert run("up", str(spec_file)) == 0  # it is up already: no question
    assert answers == []
    capsys.readouterr()
    assert run("status", "small", "--json") == 0
    assert json.loads(capsys.readouterr().out)["nodes"]["osd1"] == "running"
    assert run("down", "small") == 0


# -- kernel features -------------------------------------------------------------------------------


def test_a_kernel_without_device_mapper_is_found(tmp_path, hosts):
    """The deployer would refuse the kernel only after the machines are taken."""
    host = hosts.hosts["192.0.2.2"]
    (host.root / "sys/module/dm_mod/refcnt").unlink()
    (host.root / "sys/module/dm_mod").rmdir()
    host.write(f"lib/modules/{os.uname().release}/modules.dep", "kernel/fs/ext4.ko:")
    for kind in ("cephadm", "ceph-ansible"):
        finding = found(tmp_path, hosts, "osd0", ceph_spec(kind))["features"]
        assert (finding.ok, finding.needed) == (False, True)
        assert f"no dm_mod: {kind} " in finding.found
        assert "choose deployer own" in finding.how
        assert found(tmp_path, hosts, "osd1", ceph_spec(kind))["features"].ok
    assert "features" not in found(tmp_path, hosts, "osd0", ceph_spec("own"))


def test_a_machine_that_is_a_container_is_refused_for_cephadm(tmp_path, hosts):
    hosts.hosts["192.0.2.1"].container = "lxc"
    spec = ceph_spec("cephadm")
    finding = found(tmp_path, hosts, "admin", spec)["container"]
    assert (finding.ok, finding.needed, finding.found) == (False, True, "lxc")
    assert found(tmp_path, hosts, "osd0", spec)["container"].ok
    assert "container" not in found(tmp_path, hosts, "admin", ceph_spec("ceph-ansible"))
