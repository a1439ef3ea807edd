"""Disturbance logs of runs: each run keeps only its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from campaigns.papers.dlr.live import write_log
from workloads.disturbance import Scenario, plan_disturbance

OLD = {"state": {"hot_nodes": []}, "events": [{"node": "osd0"}], "outputs": [{"node": "osd0"}]}


class AgentWithOldLog:
    """Admin node that still has the log of an earlier cell."""

    def call(
        self, verb: str, payload: Mapping[str, Any] | None = None, *, timeout_s: float = 60.0
    ) -> Any:
        return OLD


def kept(scenario: Scenario, folder: Path) -> dict[str, Any]:
    (folder / "logs").mkdir()
    plan = plan_disturbance(scenario, ("osd0", "osd1"), seed=1, duration_s=30.0, hot_nodes=1)
    write_log(AgentWithOldLog(), plan, folder)  # type: ignore[arg-type]
    data: dict[str, Any] = json.loads((folder / "logs" / "disturbance.json").read_text())
    return data


def test_a_run_without_disturbance_has_none_of_an_earlier_ones(tmp_path: Path) -> None:
    assert kept("none", tmp_path)["outputs"] == []


def test_a_disturbed_run_has_its_log(tmp_path: Path) -> None:
    assert kept("heterogeneity", tmp_path)["outputs"] == OLD["outputs"]
