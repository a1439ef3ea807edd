"""A campaign on a real Ceph: whole, with foreign load, and with the engine killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from live_campaigns import (
    HOT,
    ROOT,
    assert_clean,
    folders,
    go,
    live_units,
)

from campaigns.cell import summary_of
from controllers.journal import read_journal
from controllers.replay import replay
from testbed.agent.client import agent_client
from testbed.reach import shell_to
from testbed.sites.contract import Testbed

pytestmark = [pytest.mark.local, pytest.mark.timeout(900)]


def test_a_campaign_on_a_real_cluster(
    live_campaign: Callable[..., Path], deployed: Testbed
) -> None:
    path = live_campaign(
        {"vary": {"op": ["rand", "seq"]}, "fixed": {**HOT, "controller": "dlr"}},
        {"vary": {"op": ["write"]}, "fixed": {"scenario": "none", "controller": "default"}},
    )
    result = go(path, deployed)
    assert result.ok, result.sentence
    found = folders(path)
    assert len(found) == 3
    for folder, done in found.items():
        assert done.status == "done"
        assert "ceph" in done.provenance.versions
        assert done.osd_count == len(deployed.with_role("osd"))
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
    assert_clean(deployed)
    assert go(path, deployed).ran == 0


def test_foreign_load_is_refused_by_node_and_process(
    live_campaign: Callable[..., Path], deployed: Testbed
) -> None:
    path = live_campaign(
        {"vary": {"op": ["rand"]}, "fixed": {"scenario": "none"}}, retries=0, spoiled_retries=0
    )
    node = deployed.with_role("osd")[0]
    argv = ["fio", "--name=foreign", "--ioengine=null", "--size=1g", "--time_based"]
    stray = shell_to(deployed, node).popen([*argv, "--rate_iops=10", "--runtime=60"])
    try:
        time.sleep(3)
        result = go(path, deployed)
    finally:
        stray.kill()
        stray.wait()
        for line in agent_client(deployed).strays().get(node.name, ()):
            shell_to(deployed, node).run(["kill", line.split()[0]], check=False)
    assert not result.ok
    (failed,) = folders(path).values()
    assert f"node {node.name} runs load that is not Hotbed's" in (failed.reason or "")


def test_an_engine_killed_in_mid_cell_resumes(
    live_campaign: Callable[..., Path], deployed: Testbed
) -> None:
    path = live_campaign({"vary": {"op": ["rand", "seq"]}, "fixed": {**HOT, "controller": "dlr"}})
    artifacts = path.parent / "artifacts"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "hotbed.cli", "run", str(path)),
            *("--testbed", deployed.name, "--artifacts", str(artifacts)),
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    agent = agent_client(deployed)
    deadline = time.monotonic() + 200
    try:
        while not any("load-bench-rand" in u or "load-bench-seq" in u for u in live_units(agent)):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.5)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    result = go(path, deployed)
    assert result.ok, result.sentence
    statuses = sorted(found.status for found in folders(path).values())
    assert statuses.count("done") == 2
    assert set(statuses) <= {"done", "interrupted"}
    assert_clean(deployed)
