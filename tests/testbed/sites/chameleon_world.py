"""In-memory cloud, clock, nodes and records for tests of the site `chameleon`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed import reach
from testbed.sites import keys
from testbed.sites.chameleon.cloud import BlazarLease, CallFault, CloudError, Reservation
from testbed.sites.chameleon.site import ChameleonSite
from testbed.sites.records import Records
from testbed.spec import TestbedSpec
from tests.testbed.plain_specs import plain_spec
from tests.testbed.sites.fake_cloud import ME, FakeCloud
from tests.testbed.sites.fake_shells import FakeShells, made_up_key
from tests.testbed.sites.manual_clock import ManualClock

HOUR_S = 3600.0
LOST = CloudError("Gateway Time-out", CallFault.PASSING, status=504)
FULL = CloudError("Not enough hosts available", CallFault.FULL, status=500)
BARE: dict[str, Any] = {"site": "CHI@UC", "project": "CHI-1", "node_type": "compute_skylake"}
VIRTUAL: dict[str, Any] = {"site": "KVM@TACC", "project": "CHI-1"}


def spec_of(options: dict[str, Any]) -> TestbedSpec:
    """Return the spec of an admin node and two nodes with a disk."""
    disk = {"size": "10GiB", "scratch": "3GiB"}
    return plain_spec(disk=disk, site={"kind": "chameleon", "options": options})


class World:
    """Shared surroundings of consecutive sites."""

    def __init__(self, folder: Path, **cloud: Any) -> None:
        self.clock = ManualClock(tick=1e-3)
        self.cloud = FakeCloud(self.clock, **cloud)
        self.shells = FakeShells()
        self.records = Records("chameleon", folder)

    def fail(
        self, calls: str, error: BaseException, *, when: str = "before", times: int = 10**9
    ) -> None:
        """Make the first `times` of these calls (names separated by spaces; ``*``: all) raise
        `error`, before or after their effect."""
        left = [error] * min(times, 10**4)

        def trip(number: int, name: str, at: str) -> None:
            if at == when and (calls == "*" or name in calls.split()) and left:
                raise left.pop()

        self.cloud.trip = trip

    def heal(self) -> None:
        """Stop all failures of calls."""
        self.cloud.trip = lambda number, name, when: None

    def site(self) -> ChameleonSite:
        """Return the site as a new process would open it."""
        return ChameleonSite(
            connect=lambda site, project: self.cloud,
            clock=self.clock,
            records=self.records,
            contact=self.shells,
        )


def lease_of(world: World, identity: str, **fields: object) -> BlazarLease:
    """Return a lease made manually by a person, with the machines for `spec_of(BARE)`."""
    now = world.clock.now()
    hosts = '["==", "$node_type", "compute_skylake"]'
    reservation = Reservation(3, hosts, id=f"reservation-{identity}")
    ends, who = now + 50 * HOUR_S, (ME.user_id, ME.project_id)
    lease = BlazarLease(identity, "mine", "ACTIVE", now, ends, *who, (reservation,))
    return replace(lease, **fields)  # type: ignore[arg-type]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Return a world that does not sync records, because no power cut happens here. It uses made-up
    keys, and the test's own connection folders, which nobody creates."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(keys, "make", made_up_key)
    monkeypatch.setattr(reach, "control_dir", lambda name, folder: tmp_path / "run" / name / "ssh")
    return World(tmp_path)
