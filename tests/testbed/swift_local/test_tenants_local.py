"""Swift microstores on nodes of this machine under tenants and MOS++: a tenant that wants more than
its share, COSBench as a tenant, an active controller."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import yaml

from campaigns.papers.mos.cell import controller_parameters
from campaigns.papers.mos.swift import MicrostorePool
from controllers.journal import read_journal
from controllers.replay import replay
from schemas.cells.mos import MOS
from testbed.stores.microstores import NOTHING, microstores_from_json
from tests.testbed.swift_client import Stored
from tests.waiting import until
from workloads.cosbench.archive import read_archive
from workloads.cosbench.workload import TABLE_1, SwAuth, SwiftStorage, to_xml

pytestmark = [pytest.mark.local, pytest.mark.timeout(600)]

LITTLE = {"proxy_cores": 0.2, "storage_cores": 0.3, "network": 2.5e6}
SLACK = 1.1
BURST_CPU_S, BURST_BYTES = 0.1, 1_000_000


def test_a_tenant_above_its_share_gets_no_more_and_keeps_nobody_else_from_theirs(bed):
    before = bed.agent.call("swift-status")["state"]
    bed.agent.call("swift-layout", {"microstores": {"large": LITTLE}})
    greedy = Stored(bed.client("large"), "greedy")
    modest = Stored(bed.client("small"), "modest")
    with greedy.load(threads=8, size=1_000_000), modest.load(threads=2):
        time.sleep(3)
        failed, first = modest.failed, bed.used("proxy1")
        seen = bed.agent.call("swift-status", {"interval_s": 5})["microstores"]
        last = bed.used("proxy1")
        assert modest.failed == failed
    seconds = last.at_s - first.at_s
    assert last.cpu_s - first.cpu_s <= LITTLE["proxy_cores"] * seconds * SLACK + BURST_CPU_S
    sent = last.sent_bytes - first.sent_bytes
    assert sent <= LITTLE["network"] * seconds * SLACK + BURST_BYTES
    stores = {store["name"]: store for store in seen["stores"]}
    assert max(stores["large"]["utilization"].values()) > 0.85  # it wants more
    tenants = {tenant["name"]: tenant for tenant in seen["tenants"]}
    assert tenants["small"]["failed_s"] == 0
    assert tenants["small"]["requests_s"] > 1
    [effect] = bed.agent.call("swift-restore", {"state": before})
    assert effect["ok"], effect
    assert greedy.sums and greedy.lost() == []
    assert modest.lost() == []


def test_mos_pp_learning_acts_on_a_tenant_above_its_share_within_the_pool_and_puts_back(
    bed, tmp_path
):
    before = bed.agent.call("swift-status")["state"]
    # No Swift answers within a millisecond, so small's SLA is missed in every epoch.
    parameters = MOS.of(experiment="load", setup="mos-pp-learning", latency_sla_ms=1)
    options_file = tmp_path / "mos-pp-learning.yaml"
    given = controller_parameters(parameters, MicrostorePool().total)
    options_file.write_text(yaml.safe_dump(given | {"either": False}))
    stored = Stored(bed.client("small"), "controlled")
    greedy = Stored(bed.client("large"), "controlled")
    with stored.load(), greedy.load(threads=6, size=500_000):
        failed = stored.failed
        bed.hotbed("control", "start", "mos-pp-learning", "--act", "--interval", "2",
                   "--parameters", str(options_file))  # fmt: skip
        until(lambda: bed.steps("mos-pp-learning") >= 6)
        stopped = json.loads(bed.hotbed("control", "stop", "--json"))
        assert stored.failed == failed
    assert (stopped["code"], stopped["reason"]) == (0, "stopped")
    bed.hotbed("control", "log", "mos-pp-learning", "--out", str(tmp_path / "journal.jsonl"))
    journal = read_journal(tmp_path / "journal.jsonl")
    assert all(step["error"] is None for step in journal.steps)
    assert any(step["actions"] for step in journal.steps)
    assert all(effect["ok"] for step in journal.steps for effect in step["effects"])
    for step in journal.steps:
        seen = microstores_from_json(step["observation"]["microstores"])
        assert NOTHING.within(seen.free), seen
    assert replay(journal).equal
    after = bed.agent.call("swift-status")["state"]
    assert after["shares"] == before["shares"]
    assert stored.lost() == []
    assert greedy.lost() == []


def workload(folder: Path, seconds: int) -> Path:
    """Write A's XML, small enough for a short run, without any name and key."""
    made = TABLE_1["A"].with_(
        workers=2,
        containers=2,
        objects=5,
        runtime_s=seconds,
        storage=SwiftStorage(),
        auth=SwAuth(),
    )
    out = folder / "a.xml"
    out.write_text(to_xml(made))
    return out


def test_cosbench_runs_as_a_tenant_and_its_key_is_in_nothing_that_is_kept(bed, tmp_path):
    xml, out = workload(tmp_path, 5), tmp_path / "results"
    said = bed.hotbed("cosbench", "run", str(xml), "--tenant", "small", "--out", str(out))
    archive = read_archive(out / "cli")
    assert archive.finished
    assert sum(one.operations for one in archive.measured if one.op == "read") > 0
    assert not any(sum(one.failed.values()) for one in archive.measured)
    secrets = json.loads((bed.testbed.directory / "swift-secrets.json").read_text())
    kept = said + "".join(path.read_text() for path in out.rglob("*") if path.is_file())
    assert not any(key in kept for key in secrets["keys"].values())


def test_a_driver_that_is_gone_is_reported_and_loses_nothing(bed, tmp_path):
    stored = Stored(bed.client("small"), "beside")
    for number in range(10):
        assert stored.put(f"first-{number}", 1000 * number)
    xml, out = workload(tmp_path, 60), tmp_path / "results"
    process = bed.start("cosbench", "run", str(xml), "--tenant", "small", "--out", str(out))
    unit = "hotbed-load-cosbench-cli"
    node = bed.testbed.with_role("client")[0].name
    try:
        until(lambda: any(bed.agent.units().values()))
        bed.run(node, f"systemctl kill -s KILL {unit}")
        _, wrong = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode != 0
    assert "cosdrive" in wrong
    assert "Traceback" not in wrong
    assert not any(bed.agent.units().values())
    assert stored.lost() == []
