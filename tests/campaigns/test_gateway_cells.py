"""Cells with COSBench workloads on the object gateway: parameters, steps and evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from live_campaigns import summary_of
from test_live_services import OneGround, ScriptedAgent, provisioned
from tiny_kinds import job_with

from campaigns.engine.campaign_file import FILES, load_campaign
from campaigns.papers.dlr import gateway
from campaigns.papers.dlr.cell import CellContext, CellSetting, Services, run_cell
from campaigns.papers.dlr.gateway import GatewayServices, mark_of, workload_of
from campaigns.validate import validate
from controllers.registry import available
from schemas.cells.dlr import DLR, DlrCell
from schemas.errors import HotbedError, UserError
from testbed.sites.contract import Testbed
from testbed.spec import load_spec
from testbed.ssh import Completed
from tests.errors import raises
from tests.testbed.fake_site import FakeSite
from workloads.cosbench.archive import (
    Archive,
    CosbenchStage,
    Driver,
    MeasuredOperation,
    OperationResult,
    OperationSecond,
)
from workloads.cosbench.credentials import Credentials
from workloads.cosbench.driver import ClientWorkload
from workloads.cosbench.workload import to_xml

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "testbed" / "specs" / "dlr-gateway.yaml"
CELL = {"op": "s3", "workload": "C", "workers": 8, "scenario": "heterogeneity"}
WALL = 1_700_000_000.0
SECONDS = 24
MB = 10**6


def cell(**more: object) -> DlrCell:
    return DLR.check({**CELL, **more}, "test")


def setting(folder: Path, **more: object) -> CellSetting:
    return CellSetting(cell(**more), seed=3, block=0, time_scale=1.0, folder=folder)


@pytest.mark.parametrize(
    ("name", "letters"), [("mos-gateway", "ABCD"), ("mos-gateway-quick", "AC")]
)
def test_our_campaigns_are_right_and_need_a_gateway(name, letters):
    file = FILES / f"{name}.yaml"
    campaign = load_campaign(file)
    spec = load_spec(ROOT / campaign.spec)
    cells = validate(campaign, file, controllers=available(), spec=spec)
    assert {one.workload for grid in cells.values() for one in grid} == set(letters)
    assert {one.op for grid in cells.values() for one in grid} == {"s3"}
    plain = load_spec(ROOT / "testbed" / "specs" / "dlr.yaml")
    with raises(UserError, "store.tenants"):
        validate(campaign, file, controllers=available(), spec=plain)
    simulated = campaign.model_copy(update={"ground": "sim"})
    with raises(UserError, "no model of"):
        validate(simulated, file, controllers=available(), spec=spec)


def test_a_workload_is_table_1s_through_s3(tmp_path):
    made = workload_of(setting(tmp_path, duration_s=30))
    assert (made.letter, made.workers, made.runtime_s) == ("C", 8, 30)
    assert (made.read, made.write, made.delete) == (90, 5, 5)
    assert str(made.sizes) == "u(1,16)MB"
    assert 'type="s3"' in to_xml(made, ("main",))
    assert mark_of(made) == mark_of(workload_of(setting(tmp_path, workers=64, duration_s=99)))
    assert mark_of(made) != mark_of(workload_of(setting(tmp_path, workload="D")))


def archive(status: str = "completed", operations: int = 48) -> Archive:
    """Return `SECONDS` seconds after a ramp-up of two: two 4 MB reads per second and a deletion."""
    results, measured, seconds = [], [], []
    for op, count, size, mean_s, failed in (
        ("read", operations, 4 * MB, 0.5, 3),
        ("delete", SECONDS, 0, 0.01, 0),
    ):
        rates = (count / SECONDS, count * size / SECONDS)
        results.append(
            OperationResult("s3-main", op, op, count, count * size, mean_s, mean_s, {}, *rates, 1.0)
        )
        measured.append(
            MeasuredOperation(
                *("s3-main", "main", op, op, WALL, 2.0, 2.0 + SECONDS, count, count * size),
                *({"server": failed} if failed else {}, *rates, mean_s, 2 * mean_s, ()),
            )
        )
        for at in range(SECONDS + 2):
            n = count // SECONDS
            seconds.append(
                OperationSecond(
                    *(float(at), "s3-main", "main", op, "s3-c", n, n * size),
                    *(0, mean_s, None, at >= 2),
                )
            )
    stage = CosbenchStage("s3-main", "main", status, (), tuple(results))
    driver = Driver("finished", WALL, WALL + SECONDS + 2, 3, None, None)
    return Archive(
        Path("nowhere"), "w1", "s3-c", (stage,), None, driver, tuple(measured), tuple(seconds)
    )


class Node:
    """Shell of a client node, which lists the existing RADOS objects."""

    def __init__(self) -> None:
        self.objects: set[str] = set()
        self.asked: list[Sequence[str]] = []

    def run(self, argv: Sequence[str], **options: Any) -> Completed:
        self.asked.append(argv)
        verb, name = argv[3], argv[4]
        code = 0 if verb == "put" or name in self.objects else 1
        if verb == "put":
            self.objects.add(name)
        return Completed(tuple(argv), code, b"", b"")


class GatewayGround(OneGround):
    """Ground with an object gateway."""

    name = "dlr-gateway"

    def services(self, setting: CellSetting) -> Services:
        return GatewayServices(self.live, setting)


@pytest.fixture
def testbed(tmp_path: Path) -> tuple[FakeSite, Testbed]:
    site = FakeSite(tmp_path / "site")
    return site, provisioned(site, "dlr-gateway")


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> tuple[list[ClientWorkload], Node, list[Archive]]:
    """Record the driven loads and their nodes, and supply the archives of results."""
    loads: list[ClientWorkload] = []
    node, made = Node(), [archive()]

    def run_on(
        agent: Any, shells: Any, given: Sequence[ClientWorkload], out: Path, begun: Any
    ) -> Any:
        loads.extend(given)
        for share in (0.1, 0.9):
            begun("main", share)
        kind = type("Drive", (), {"archive": made[0]})
        return {load.name: kind for load in given}

    keys = {"accesskey": "the-access", "secretkey": "the-secret", "endpoint": "http://192.0.2.1:1"}
    monkeypatch.setattr(gateway, "run_on", run_on)
    monkeypatch.setattr(gateway, "install", lambda shell: True)
    monkeypatch.setattr(GatewayGround, "shell", node)
    monkeypatch.setattr(gateway, "tenant", lambda shell, name: Credentials(keys))
    return loads, node, made


def context(
    tmp_path: Path, testbed: tuple[FakeSite, Testbed], agent: ScriptedAgent, number: int = 1
) -> CellContext:
    folder = tmp_path / f"run-{number}" / ".attempt-1.partial"
    (folder / "logs").mkdir(parents=True)
    given = DLR.of(**CELL, controller="dlr", duration_s=SECONDS, interval_s=2)
    job = job_with(given, "dlr-gateway", "dlr").model_copy(update={"seed": 3})
    ground = GatewayGround(*testbed, agent)
    return CellContext(job, ground, folder, sleep=lambda seconds: None)


def test_a_cell_from_clean_to_summary(tmp_path, testbed, driven):
    loads, node, _ = driven
    agent = ScriptedAgent()
    agent.began = WALL + 2
    made = context(tmp_path, testbed, agent)
    assert run_cell(made).status == "done"
    assert [load.name for load in loads] == ["s3-c-prepare", "s3-c"]
    assert "the-secret" in loads[1].xml
    assert loads[1].options.seed == 3
    assert agent.verbs.count("disturb-go") == 1
    assert agent.verbs.index("control-start") < agent.verbs.index("disturb-go")
    assert [words[1:4] for words in node.asked] == [
        ["-p", "default.rgw.buckets.data", verb] for verb in ("stat", "put")
    ]
    summary = summary_of(made.folder)
    overall = summary.whole[0]
    assert (overall.op, overall.operations, overall.errors) == ("s3", 72, 3)
    assert overall.throughput_mb_s == pytest.approx(8.0)
    assert overall.latency_mean_s == pytest.approx(0.5)  # deletions transfer no data
    assert [one.op for one in summary.whole[1:]] == ["read", "delete"]
    assert summary.steady[0].seconds == SECONDS - 4
    assert summary.steady[0].throughput_mb_s == pytest.approx(8.0)
    assert summary.pressure_mean == {"osd0": 90.0}
    samples = pd.read_parquet(made.folder / "samples.parquet")
    mine = samples[(samples["node"] == "client") & (samples["metric"] == "throughput_mb_s")]
    assert list(mine["t_s"]) == [float(second) for second in range(1, SECONDS + 1)]
    assert set(mine["value"]) == {8.0}
    run_cell(context(tmp_path, testbed, agent, 2))
    assert [load.name for load in loads[2:]] == ["s3-c"]  # the objects already exist


def test_a_workload_that_did_not_complete_fails_the_cell(tmp_path, testbed, driven):
    driven[1].objects.add(mark_of(workload_of(setting(tmp_path))))
    driven[2][0] = archive(status="terminated")
    with raises(HotbedError, "s3-c did not complete"):
        run_cell(context(tmp_path, testbed, ScriptedAgent()))
    driven[2][0] = archive(operations=0)
    with raises(HotbedError, "not one object"):
        run_cell(context(tmp_path, testbed, ScriptedAgent(), 2))
