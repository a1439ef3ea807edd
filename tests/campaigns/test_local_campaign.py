"""A campaign on a real Ceph: whole, with foreign load, and with the engine killed.

They take whatever deployed testbed is up and idle; they change it and put it back.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from tiny_campaigns import TINY

from campaigns.cell import summary_of
from campaigns.engine import CampaignResult
from campaigns.progress import Lines
from campaigns.run_store import RunStore
from campaigns.session import Request, run
from campaigns.steps.facts import require_current
from controllers import remote
from controllers.journal import read_journal
from controllers.replay import replay
from schemas.errors import HotbedError
from schemas.run import Run
from testbed.agent.client import agent_client
from testbed.choose import choose_ready
from testbed.deploy import spec_of
from testbed.reach import shell_to
from testbed.sites.contract import SiteError, Testbed

pytestmark = [pytest.mark.local, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
HOT = {"scenario": "heterogeneity", "hot_nodes": 1}


@pytest.fixture(scope="module")
def testbed() -> Testbed:
    try:
        _, found = choose_ready(None)
        require_current(found)
        agent = agent_client(found)
        if agent.units() or remote.status(agent)["running"]:
            pytest.skip("the testbed is in use")
    except (HotbedError, SiteError) as error:
        pytest.skip(f"needs one deployed testbed: {error}")
    return found


@pytest.fixture
def campaign(tmp_path: Path, testbed: Testbed) -> Callable[..., Path]:
    """Writes a campaign file for the testbed that is up, whatever its size."""
    spec = tmp_path / "spec.yaml"
    spec.write_text(yaml.safe_dump(spec_of(testbed).model_dump(mode="json")))

    def write(*grids: dict[str, Any], **changes: Any) -> Path:
        path = tmp_path / "campaign.yaml"
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


def go(path: Path, testbed: Testbed) -> CampaignResult:
    request = Request(str(path), testbed=testbed.name, artifacts=path.parent / "artifacts")
    return run(request, progress=Lines())


def folders(path: Path) -> dict[Path, Run]:
    store = RunStore(path.parent / "artifacts" / "tiny")
    return {
        store.folder / found.run_id / f"attempt-{found.attempt}": found for found in store.runs()
    }


def assert_clean(testbed: Testbed) -> None:
    agent = agent_client(testbed)
    assert not any(agent.units().values())
    assert not any(agent.strays().values())
    assert remote.status(agent)["running"] is None
    assert agent.call("clean", {"caches": False}, timeout_s=200)["put_right"] == []


def test_a_campaign_on_a_real_cluster(campaign: Callable[..., Path], testbed: Testbed) -> None:
    path = campaign(
        {"vary": {"op": ["rand", "seq"]}, "fixed": {**HOT, "controller": "dlr"}},
        {"vary": {"op": ["write"]}, "fixed": {"scenario": "none", "controller": "default"}},
    )
    result = go(path, testbed)
    assert result.ok, result.sentence
    found = folders(path)
    assert len(found) == 3
    for folder, done in found.items():
        assert done.status == "done"
        assert "ceph" in done.provenance.versions
        assert done.osd_count == len(testbed.with_role("osd"))
        summary = summary_of(folder)
        (whole,) = summary.whole
        assert whole.throughput_mb_s is not None and whole.throughput_mb_s > 1
        assert whole.seconds >= 0.95 * 6
        journal = read_journal(folder / "journal.jsonl")
        assert len(journal.steps) >= 2
        assert replay(journal).difference is None
        samples = pd.read_parquet(folder / "samples.parquet")
        assert {"throughput_mb_s", "pressure", "primary_affinity"} <= set(samples["metric"])
        hot = samples[(samples["metric"] == "hot") & (samples["t_s"] >= 0)]
        expected = 1 if done.parameters["scenario"] == "heterogeneity" else 0
        assert (hot.groupby("node")["value"].mean() > 0.5).sum() == expected
    assert_clean(testbed)
    assert go(path, testbed).ran == 0


def test_foreign_load_is_refused_by_node_and_process(
    campaign: Callable[..., Path], testbed: Testbed
) -> None:
    path = campaign(
        {"vary": {"op": ["rand"]}, "fixed": {"scenario": "none"}}, retries=0, spoiled_retries=0
    )
    node = testbed.with_role("osd")[0]
    argv = ["fio", "--name=foreign", "--ioengine=null", "--size=1g", "--time_based"]
    stray = shell_to(testbed, node).popen([*argv, "--rate_iops=10", "--runtime=60"])
    try:
        time.sleep(3)
        result = go(path, testbed)
    finally:
        stray.kill()
        stray.wait()
        for line in agent_client(testbed).strays().get(node.name, ()):
            shell_to(testbed, node).run(["kill", line.split()[0]], check=False)
    assert not result.ok
    (failed,) = folders(path).values()
    assert f"node {node.name} runs load that is not Hotbed's" in (failed.reason or "")


def test_an_engine_killed_in_mid_cell_resumes(
    campaign: Callable[..., Path], testbed: Testbed
) -> None:
    path = campaign({"vary": {"op": ["rand", "seq"]}, "fixed": {**HOT, "controller": "dlr"}})
    artifacts = path.parent / "artifacts"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "hotbed.cli", "run", str(path)),
            *("--testbed", testbed.name, "--artifacts", str(artifacts)),
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    agent = agent_client(testbed)
    deadline = time.monotonic() + 200
    while not any("load-bench-rand" in u or "load-bench-seq" in u for u in _units(agent)):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.5)
    process.send_signal(signal.SIGKILL)
    process.wait()
    result = go(path, testbed)
    assert result.ok, result.sentence
    statuses = sorted(found.status for found in folders(path).values())
    assert statuses.count("done") == 2
    assert set(statuses) <= {"done", "interrupted"}
    assert_clean(testbed)


def _units(agent: Any) -> list[str]:
    return [unit for units in agent.units().values() for unit in units]
