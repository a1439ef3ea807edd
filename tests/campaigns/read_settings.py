"""Fake site that reads one setting back with values chosen by a test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from schemas.errors import HotbedError
from schemas.run import Run
from testbed.sites.contract import EnforcedSetting
from tests.errors import raises
from tests.testbed.fake_site import FakeSite

SPEC_S = 1e-4
SET_BY_HAND = pytest.mark.parametrize("found", [(0.004,), (SPEC_S, 0.004)], ids=["before", "after"])
"""Positioning times of a disk that somebody changed: before a cell's load, and during it."""


def reads(monkeypatch: pytest.MonkeyPatch, *found: float) -> list[Mapping[str, Any]]:
    """Make every `FakeSite` read osd0's positioning time from `found`, in order, then repeat the
    last. Return the list of the disks passed to each look."""
    left, asked = list(found), list[Mapping[str, Any]]()

    def settings(site: FakeSite, name: str, disks: Mapping[str, Any]) -> list[EnforcedSetting]:
        asked.append(disks)
        value = left.pop(0) if left[1:] else left[0]
        where = ("osd0", "groups.osd", "disk.positioning")
        return [EnforcedSetting(*where, value, SPEC_S, "s", lambda: None)]

    monkeypatch.setattr(FakeSite, "settings", settings)
    return asked


def positioning_in(run: Run) -> object:
    """Return the positioning time that a run's provenance holds."""
    return run.provenance.calibration["groups"]["osd"]["disk"]["positioning"]


def fails_by_name() -> Any:
    """Expect one sentence with node, setting, found value, the spec's value and the command."""
    return raises(HotbedError, "disk.positioning", "osd0", "0.004 s", "0.0001 s", "`hotbed up ")
