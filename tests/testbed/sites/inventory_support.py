"""Shared parts of tests of users' own machines: a small spec, and a site on played machines."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hotbed import cli
from testbed.sites.contract import Testbed
from testbed.sites.inventory import InventorySite
from testbed.sites.records import Records
from testbed.spec import TestbedSpec
from tests.testbed.sites.fake_hosts import FakeHosts, play
from tests.testbed.sites.fake_shells import made_up_key
from tests.testbed.sites.manual_clock import ManualClock

SPEC = yaml.safe_load("""
name: small
store: null
groups:
  - {name: admin, roles: [admin, client], memory: 512MiB}
  - name: osd
    count: 2
    roles: [osd]
    memory: 512MiB
    disk: {size: 3GiB, scratch: 1GiB}
""")
OPTIONS: dict[str, Any] = {
    "hosts": [f"192.0.2.{number}" for number in range(1, 7)],
    "accept_host_keys": True,
    "user": "root",
    "devices": {"osd": {"osd": "/dev/sdb2", "scratch": "/dev/sdb1"}},
}


Make = Callable[..., InventorySite]


def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int = 6) -> FakeHosts:
    """Return played machines, reached without ssh and with a made-up key."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("testbed.reach.make_control_dir", lambda testbed: tmp_path)
    monkeypatch.setattr("testbed.reach.hang_up", lambda *_: None)
    monkeypatch.setattr("testbed.sites.keys.make", made_up_key)
    return play(tmp_path, count, monkeypatch)


def files(hosts: FakeHosts) -> dict[str, dict[str, bytes]]:
    """Return all files on the machines, by address."""
    return {address: host.files() for address, host in hosts.hosts.items()}


def make_spec(**options: Any) -> TestbedSpec:
    """Return the small spec with these site options in addition to the usual ones."""
    site = {"kind": "inventory", "options": {**OPTIONS, **options}}
    return TestbedSpec.model_validate({**SPEC, "site": site})


def ceph_spec(deployer: str = "own") -> TestbedSpec:
    """Return the small spec with a Ceph."""
    body: dict[str, Any] = make_spec().model_dump(mode="json")
    pools = [{"name": "bench", "pg_num": 8}]
    body["store"] = {"kind": "ceph", "pools": pools, "deployer": {"kind": deployer}}
    body["groups"][0]["roles"] = ["admin", "mon", "mgr", "client"]
    return TestbedSpec.model_validate(body)


def make_site(state: Path, hosts: FakeHosts, /, **options: Any) -> InventorySite:
    """Return a site with its state in a folder, on played machines."""

    def take_away(testbed: Testbed, progress: object) -> None:
        raise AssertionError("nothing was deployed")

    return InventorySite(
        {**OPTIONS, **options},
        records=Records("inventory", state),
        contact=hosts,
        clock=ManualClock(),
        take_away=take_away,
    )


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHosts:
    """Return six played machines."""
    return played(tmp_path, monkeypatch)


@pytest.fixture
def make(tmp_path: Path, hosts: FakeHosts) -> Make:
    """Return a function that opens a site on the machines, as a new process would."""
    return lambda **options: make_site(tmp_path / "state", hosts, **options)


@pytest.fixture
def spec_file(tmp_path: Path, hosts: FakeHosts, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the small spec for the verbs; no host keys are vouched for yet."""
    hosts.now = time.time
    monkeypatch.setenv("HOTBED_STATE", str(tmp_path / "state"))
    monkeypatch.setattr("testbed.sites.inventory.recorded.Contact", lambda: hosts)
    options = {**OPTIONS, "accept_host_keys": False, "known_hosts": "known_hosts"}
    (tmp_path / "known_hosts").write_text("")
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump({**SPEC, "site": {"kind": "inventory", "options": options}}))
    return path


def run(*words: str) -> int:
    """Run a command and return its exit code."""
    with pytest.raises(SystemExit) as stopped:
        cli.main(list(words))
    return int(stopped.value.code or 0)
