"""What tests of machines of one's own share: a small spec, a site on machines that are played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from testbed.sites.contract import Testbed
from testbed.sites.inventory import InventorySite
from testbed.sites.records import Records
from testbed.spec import TestbedSpec
from tests.testbed.sites.fake_hosts import FakeHosts
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


def make_spec(**options: Any) -> TestbedSpec:
    """The small spec with these options of the site beside the usual ones."""
    site = {"kind": "inventory", "options": {**OPTIONS, **options}}
    return TestbedSpec.model_validate({**SPEC, "site": site})


def make_site(state: Path, hosts: FakeHosts, /, **options: Any) -> InventorySite:
    """A site with its state in a folder, on machines that are played."""

    def take_away(testbed: Testbed, progress: object) -> None:
        raise AssertionError("nothing was deployed")

    return InventorySite(
        {**OPTIONS, **options},
        records=Records("inventory", state),
        contact=hosts,
        clock=ManualClock(),
        take_away=take_away,
    )
