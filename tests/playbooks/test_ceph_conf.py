"""ceph.conf from the role `ceph`, by Ceph's release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.plugins.filter.core import FilterModule
from jinja2 import Environment

SETTINGS = {"global": {"ms_bind_ipv4": True}, "osd": {"osd_max_backfills": 1}}
OVERRIDE = "osd_mclock_override_recovery_settings"


def ceph_conf(root: Path, **variables: Any) -> list[str]:
    role = root / "playbooks/roles/ceph"
    made = Environment(trim_blocks=True)  # Ansible's settings
    made.filters["combine"] = FilterModule().filters()["combine"]
    known = {
        "ceph_objectstore": "bluestore",
        "ceph_default_settings": SETTINGS,
        "ceph_mclock_settings": {OVERRIDE: True},
        "ceph_settings": {},
    }
    template = made.from_string((role / "templates/ceph.conf.j2").read_text())
    return [line for line in template.render(known | variables).splitlines() if line]


@pytest.mark.parametrize("report", [None, {"ceph_major": None}, {"ceph_major": 16}])
def test_what_pacific_does_not_know_is_not_in_it(root: Path, report: dict[str, Any] | None) -> None:
    more = {} if report is None else {"validate_report": report}
    lines = ceph_conf(root, **more)
    assert lines[1:] == ["[global]", "ms_bind_ipv4 = true", "[osd]", "osd_max_backfills = 1"]


@pytest.mark.parametrize("major", [17, 20])
def test_settings_of_recovery_are_in_force_under_mclock(root: Path, major: int) -> None:
    report = {"ceph_major": major}
    assert f"{OVERRIDE} = true" in ceph_conf(root, validate_report=report)
    given = {"osd": {OVERRIDE: False}}
    lines = ceph_conf(root, validate_report=report, ceph_settings=given)
    assert f"{OVERRIDE} = false" in lines
