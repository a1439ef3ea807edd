"""Shared helpers for tests of campaigns on the tests' own Ceph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from tiny_campaigns import TINY

from campaigns.engine.display import CampaignResult, Lines
from campaigns.engine.session import Request, run
from campaigns.engine.store import RunStore
from controllers import remote
from controllers.journal import read_journal
from schemas.errors import RemoteError
from schemas.run import Run, Summary
from testbed.client import agent_client
from testbed.deploy.roles import spec_of
from testbed.sites.contract import Testbed

ROOT = Path(__file__).resolve().parents[2]
HOT = {"scenario": "heterogeneity", "hot_nodes": 1, "same_objects": True}


def summary_of(run_folder: Path) -> Summary:
    return Summary.model_validate_json((run_folder / "summary.json").read_bytes())


def writer(folder: Path, testbed: Testbed) -> Callable[..., Path]:
    """Return a function that writes campaign files for the testbed into `folder`."""
    spec = folder / "spec.yaml"
    spec.write_text(yaml.safe_dump(spec_of(testbed).model_dump(mode="json")))

    def write(*grids: dict[str, Any], **changes: Any) -> Path:
        path = folder / "campaign.yaml"
        body = {
            **{**TINY, "ground": testbed.site, "spec": str(spec), "time_scale": 0.1},
            # The machine that runs tests is never quiet.
            "limits": {"outside_cores": 100, "steal": 1, "client_share": 1},
            "parameters": {"duration_s": 60, "object_size": 1048576},
            "grids": [
                {"name": f"g{number}", "figures": ["x"], "repetitions": 1, **grid}
                for number, grid in enumerate(grids)
            ],
            **changes,
        }
        path.write_text(yaml.safe_dump(body))
        return path

    return write


def go(path: Path, testbed: Testbed, controllers_dir: Path | None = None) -> CampaignResult:
    artifacts = path.parent / "artifacts"
    request = Request(
        str(path), testbed=testbed.name, artifacts=artifacts, controllers_dir=controllers_dir
    )
    return run(request, progress=Lines())


def folders(path: Path) -> dict[Path, Run]:
    store = RunStore(path.parent / "artifacts" / "tiny")
    return {
        store.folder / found.run_id / f"attempt-{found.attempt}": found for found in store.runs()
    }


def assert_whole(folder: Path, found: Run, testbed: Testbed) -> None:
    """Assert that a finished run of six seconds has all measurements, decisions and records."""
    assert found.status == "done"
    assert "ceph" in found.provenance.versions
    # Read back: no spec states by what factor a fault slows a disk.
    assert found.provenance.calibration["groups"]["osd"]["disk"]["slow"] == 1.0
    assert found.osd_count == len(testbed.with_role("osd"))
    (whole,) = summary_of(folder).whole
    assert whole.throughput_mb_s is not None and whole.throughput_mb_s > 1
    assert whole.seconds >= 0.95 * 6
    journal = read_journal(folder / "journal.jsonl")
    assert len(journal.steps) >= 2
    samples = pd.read_parquet(folder / "samples.parquet")
    assert {"throughput_mb_s", "pressure", "primary_affinity"} <= set(samples["metric"])
    hot = samples[(samples["metric"] == "hot") & (samples["t_s"] >= 0)]
    expected = 1 if found.parameters["scenario"] == "heterogeneity" else 0
    assert (hot.groupby("node")["value"].mean() > 0.5).sum() == expected


def assert_clean(testbed: Testbed) -> None:
    agent = agent_client(testbed)
    assert not any(agent.units().values())
    assert not any(agent.strays().values())
    assert remote.status(agent)["running"] is None
    assert agent.call("clean", {"caches": False}, timeout_s=200)["put_right"] == []


def live_units(agent: Any) -> list[str]:
    """Return the running load units; none while nodes are being restored to a snapshot."""
    try:
        return [unit for units in agent.units().values() for unit in units]
    except RemoteError:
        return []
