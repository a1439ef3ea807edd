"""The unit of work by which a core's speed is measured."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.agent import speed
from testbed.agent.contract import AgentConfig


def test_speed_is_units_of_work_in_a_second_of_the_processor(monkeypatch):
    spent = [0.0]

    def work() -> str:
        spent[0] += 0.002
        return ""

    monkeypatch.setattr(speed, "work", work)
    monkeypatch.setattr(speed.time, "process_time", lambda: spent[0])
    found: dict[str, Any] = speed.core_speed(AgentConfig("t", "ceph", ()), {})
    assert found == {"units_s": pytest.approx(500)}


def test_the_unit_of_work_is_fixed():
    assert speed.work() == speed.work() == HASH


HASH = "339adcd1623eee1f7590580dd49701152a2b2691beddd3743ccab97b45c4edb9"
"""Result of one unit; another one would make speeds incomparable with stored runs."""
