"""Cells on real microstores: applied settings, load, evaluation and clean-up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from mos_fakes import RATE, FakeBed
from read_settings import SET_BY_HAND, SPEC_S, fails_by_name, positioning_in, reads
from testbed_jobs import job_with

from campaigns.engine.job import Job
from campaigns.papers.mos.division import MEGABIT, Pool, division_of
from campaigns.papers.mos.live import drives as driving
from campaigns.papers.mos.live.cell import REPORT_FILE, controller_parameters, make, model
from campaigns.papers.mos.live.results import promised
from campaigns.papers.mos.live.swift import OBJECTS_FILE, Swift, layout_of
from campaigns.papers.mos.profile.points import place
from controllers.microstores.performance import PiecewiseLinear
from schemas.cells.mos import MOS
from schemas.errors import HotbedError, UserError
from schemas.run import Run
from testbed.agent.contract import AgentConfig, AgentNode
from testbed.deploy.swift_variables import cluster_of
from testbed.sites.fake import FakeSite
from testbed.spec import load_spec
from testbed.stores.swift.channels import Nodes
from testbed.stores.swift.cluster import cluster_from_json
from testbed.stores.swift.layouts import put_layout
from testbed.stores.swift.store import SwiftStore

START = 1000.0
SMALL_CELL: dict[str, Any] = {"seconds": 4, "rampup_s": 1}


def job_of(**parameters: Any) -> Job:
    return job_with(MOS.of(**parameters), "mos")


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "campaigns.papers.mos.live.drives.time.time", lambda: START - driving.LEAD_S
    )


def made(
    folder: Path, archived: int = 6, **parameters: Any
) -> tuple[FakeBed, Run, dict[str, float]]:
    bed = FakeBed(folder / "site", START, archived)
    where = folder / "attempt-1"
    (where / "logs").mkdir(parents=True)
    run = make(bed.swift, job_of(**parameters), where)
    extra: dict[str, float] = json.loads((where / "summary.json").read_text())["extra"]
    return bed, run, extra


def test_a_cell_is_divided_driven_and_counted(tmp_path: Path) -> None:
    bed, run, found = made(tmp_path, experiment="setups", setup="favors-large", **SMALL_CELL)
    assert run.status == "done"
    assert [found[f"{letter}_qps"] for letter in "ABCD"] == [RATE[x] for x in "abcd"]
    assert found["qps"] == sum(RATE[x] for x in "abcd")
    assert found["C_mb_s"] == pytest.approx(10.0)
    assert found["A_mean_s"] == pytest.approx(0.02)
    assert found["A_p95_s"] == pytest.approx(0.02)
    assert "C_p95_s" not in found  # fewer than ten requests are slower
    # Two proxies use 0.2 core each, of the 0.8 cores they hold.
    assert found["proxy_busy"] == pytest.approx(0.5)
    assert found["proxy_ms_per_op"] == pytest.approx(1e3 * 0.4 / found["qps"])
    assert found["storage_servers"] == 2
    verbs = bed.agent.verbs()
    assert verbs.index("recorder-start") < verbs.index("recorder-fetch")
    assert "control-start" not in verbs
    layout = bed.layout
    assert layout["layout"] == "static"
    assert layout["microstores"]["small"]["network"] == 20 * MEGABIT
    folder = tmp_path / "attempt-1"
    report = json.loads((folder / REPORT_FILE).read_text())
    assert report["series"]["A"]["ops"] == [RATE["a"]] * 5
    assert sum(count for _, _, count in report["latencies"]["A"]["read"]) == RATE["a"] * 6
    table = pd.read_parquet(folder / "samples.parquet")
    mine = table[(table["node"] == "workload A") & (table["metric"] == "requests_s")]
    assert list(mine["value"]) == [RATE["a"]] * 5
    assert set(pd.read_parquet(folder / "latency.parquet")["tenant"]) == set("ABCD")


@SET_BY_HAND
def test_a_disk_set_by_hand_fails_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: tuple[float, ...]
) -> None:
    monkeypatch.setattr(
        FakeSite,
        "set_disks",
        lambda site, name, node, settings: chosen.update({node: settings}),
        raising=False,
    )
    chosen: dict[str, Any] = {}
    asked = reads(monkeypatch, SPEC_S * 1.0001)
    _, whole, _ = made(tmp_path / "whole", experiment="setups", **SMALL_CELL)
    assert positioning_in(whole) == SPEC_S * 1.0001
    assert chosen
    assert asked == [chosen, chosen]
    reads(monkeypatch, *found)
    with fails_by_name():
        made(tmp_path, experiment="setups", **SMALL_CELL)
    assert not (tmp_path / "attempt-1" / "run.json").exists()


def test_no_key_is_left_or_shown(tmp_path: Path) -> None:
    bed, _, _ = made(tmp_path, experiment="setups", **SMALL_CELL)
    assert any("secret-of-small" in xml for xml in bed.xmls.values())
    for shell in bed.shells.values():
        assert not shell.files
        assert all(mode == 0o600 for path, mode in shell.modes.items() if path.endswith(".xml"))
        assert "secret" not in json.dumps(shell.ran)
    assert "secret" not in json.dumps(bed.agent.scripts)
    for file in (tmp_path / "attempt-1").rglob("*"):
        assert file.is_dir() or b"secret-of" not in file.read_bytes(), file


def test_in_default_workers_are_dealt_out_to_all_proxies(tmp_path: Path) -> None:
    bed, _, found = made(
        tmp_path, experiment="setups", setup="default", small_workers=5, **SMALL_CELL
    )
    mine = {name: xml for name, xml in bed.xmls.items() if name.startswith("a-of")}
    assert sorted(mine) == ["a-of-proxy0", "a-of-proxy1"]
    assert sum(xml.count('workers="3"') for xml in mine.values()) == 1
    assert sum(xml.count('workers="2"') for xml in mine.values()) == 1
    assert found["A_qps"] == 2 * RATE["a"]


def test_objects_are_written_once_for_all_layouts(tmp_path: Path) -> None:
    bed, _, _ = made(tmp_path, experiment="setups", **SMALL_CELL)
    prepared = [one for one in bed.agent.scripts if one[1][0] != "bash"]
    assert len(prepared) == 4
    kept = json.loads((bed.testbed.directory / OBJECTS_FILE).read_text())
    assert [one["letter"] for one in kept] == ["A", "B", "C", "D"]
    for setup in ("favors-small", "favors-large"):
        where = tmp_path / setup
        (where / "logs").mkdir(parents=True)
        make(bed.swift, job_of(experiment="setups", setup=setup, **SMALL_CELL), where)
    assert len([one for one in bed.agent.scripts if one[1][0] != "bash"]) == 4


@pytest.mark.slow
def test_mos_pp_controls_while_the_load_runs(tmp_path: Path) -> None:
    bed, _, found = made(
        tmp_path,
        archived=42,
        experiment="adaptation",
        setup="mos-pp",
        minute_s=1,
        latency_sla_ms=30,
        bandwidth_sla_mb_s=100,
    )
    verbs = bed.agent.verbs()
    order = [verbs.index(v) for v in ("recorder-start", "control-start", "recorder-fetch")]
    assert order == sorted(order)
    started = next(payload for verb, payload in bed.agent.calls if verb == "control-start")
    assert (started["name"], started["interval_s"]) == ("mos-pp", 12)
    assert (found["changes"], found["steps"], found["act_s_max"]) == (1, 2, 0.2)
    assert (found["A_sla_met"], found["C_sla_met"]) == (1.0, 0.0)
    report = json.loads((tmp_path / "attempt-1" / REPORT_FILE).read_text())
    assert report["course"] == {"stages": [0, 10, 33], "spike_ends": 19, "ends": 42}
    assert [line["t_s"] for line in report["held"]] == [0.0, 12.0]
    held = [line["stores"]["small"]["proxy_cores"] for line in report["held"]]
    assert held == [0.4, 0.3]
    assert found["A_qps_stage2"] > 0


@pytest.mark.slow
def test_what_mos_pp_is_told_is_what_it_takes() -> None:
    from controllers.registry import create, find

    parameters = MOS.of(experiment="load", setup="mos-pp")
    told = controller_parameters(parameters, Pool().total)
    known = create(find("mos-pp", ()), told, 1).parameters()
    assert set(told) <= set(known)
    assert told["tenants"]["small"]["sla"] == {"latency_ms": 90}
    # In proportion to the load, section 8.1.
    assert told["tenants"]["large"]["sla"] == {"bandwidth_mb_s": 2.5, "per_worker": True}
    assert json.loads(json.dumps(told)) == told


def test_what_is_promised_to_c_goes_with_its_workers() -> None:
    found = promised(MOS.of(experiment="adaptation", minute_s=1, bandwidth_sla_mb_s=2))
    at = (0, 9, 10, 18, 19, 32, 33, 41)
    assert [found[second] / 2e6 for second in at] == [12, 12, 2, 2, 4, 12, 6, 6]
    load = MOS.of(experiment="load", large_workers=3, bandwidth_sla_mb_s=2)
    assert set(promised(load)) == {6e6}


def test_the_model_is_of_the_cell_s_objects() -> None:
    (small, usual), (_, less) = (
        [
            PiecewiseLinear.from_json(model(place("local"), mb, Pool().total)).tables[letter]
            for letter in "AC"
        ]
        for mb in (16, 2)
    )
    ratio = 8.5 / 1.5
    assert usual.workload.mean_bytes == pytest.approx(ratio * less.workload.mean_bytes)
    assert less.network.value(25e6) == pytest.approx(ratio * usual.network.value(25e6))
    # A request of fewer bytes costs less, but not nothing.
    assert 1.5 < less.proxy_cores.value(0.2) / usual.proxy_cores.value(0.2) < ratio
    assert less.proxy_cores.value(0.2) < small.proxy_cores.value(0.2)
    # Stage 1 (section 8.1): twelve workers are promised more than Static's link carries, but less
    # than the total. No more is given than the tables cover.
    wanted = 12 * MOS.of(experiment="load").bandwidth_sla_mb_s * 1e6
    carried = [less.network.value(part * 50e6) * less.workload.mean_bytes for part in (0.7, 1.0)]
    assert carried[0] < wanted < carried[1]


def test_a_workload_of_which_nothing_ends_fails_the_cell(tmp_path: Path) -> None:
    with pytest.raises(HotbedError, match="not one operation of workload A ended"):
        made(tmp_path, archived=0, experiment="setups", **SMALL_CELL)


def test_a_testbed_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    bed = FakeBed(tmp_path, START, 4)
    ceph = load_spec(Path("testbed/specs/dlr.yaml"))
    with pytest.raises(UserError, match="has no Swift microstores"):
        Swift(replace(bed.live, spec=ceph))
    with pytest.raises(UserError, match="3 disks of each storage server are asked for, not 1"):
        make(bed.swift, job_of(experiment="disks", workload="C", ssds=2), tmp_path)


def test_the_pool_is_the_spec_s(tmp_path: Path) -> None:
    pool = FakeBed(tmp_path, START, 4).swift.pool()
    assert pool.total == Pool().total
    assert pool.step == Pool().step
    assert (pool.storage_servers, pool.disks) == (2, 1)


def test_failures_are_counted(tmp_path: Path) -> None:
    bed = FakeBed(tmp_path / "site", START, 6)
    bed.failed = 3
    where = tmp_path / "attempt-1"
    (where / "logs").mkdir(parents=True)
    make(bed.swift, job_of(experiment="proxy", **SMALL_CELL), where)
    extra = json.loads((where / "summary.json").read_text())["extra"]
    assert extra["A_failed"] == extra["failed"] == 3


def test_objects_that_are_gone_fail_the_cell_and_are_written_again(tmp_path: Path) -> None:
    bed = FakeBed(tmp_path / "site", START, 6)

    def run(name: str) -> None:
        (tmp_path / name / "logs").mkdir(parents=True)
        make(bed.swift, job_of(experiment="proxy", **SMALL_CELL), tmp_path / name)

    run("first")
    bed.failed, bed.kind = 50, "not-found"
    with pytest.raises(HotbedError, match="50 reads of workload A found no object"):
        run("second")
    bed.failed = 2  # an overloaded store may miss a few
    run("third")
    prepared = [one for one in bed.agent.scripts if one[1][0] != "bash"]
    assert len(prepared) == 2


def test_objects_that_were_not_all_written_are_told(tmp_path: Path) -> None:
    """The driver cosdrive still ends with 0."""
    bed = FakeBed(tmp_path / "site", START, 6)
    bed.prepared = "failed"
    with pytest.raises(HotbedError, match="the objects of A cannot all be written"):
        make(bed.swift, job_of(experiment="proxy", **SMALL_CELL), tmp_path)
    assert not (bed.testbed.directory / OBJECTS_FILE).exists()
    assert all(not shell.files for shell in bed.shells.values())


def test_a_driver_that_begins_late_spoils_its_cell(tmp_path: Path) -> None:
    runs = {}
    for late_s in (0.5, 1.5):
        bed = FakeBed(tmp_path / f"site-{late_s}", START + late_s, 6)
        where = tmp_path / f"attempt-{late_s}"
        (where / "logs").mkdir(parents=True)
        runs[late_s] = make(bed.swift, job_of(experiment="proxy", **SMALL_CELL), where)
    assert runs[0.5].status == "done"
    assert (runs[1.5].status, runs[1.5].reason) == (
        "spoiled",
        "a driver began 1.5 s late (at most 1 s)",
    )


def test_a_division_is_told_in_bytes_and_cores(tmp_path: Path) -> None:
    bed = FakeBed(tmp_path, START, 4)
    bed.swift.divide(division_of(MOS.of(experiment="load", setup="static"), Pool()))
    assert bed.layout["microstores"]["large"] == {
        "proxy_cores": 0.2,
        "storage_cores": 0.2,
        "network": pytest.approx(280 * MEGABIT),
        "workers": 1,
    }
    bed.swift.restore()
    assert bed.layout == {"layout": "static"}


class Daemons(Nodes):
    """Daemons of a testbed's nodes; they accept every configuration."""

    def __init__(self) -> None:
        self.told: list[Mapping[str, Mapping[str, Any]]] = []

    def try_ask(
        self, requests: Mapping[str, Mapping[str, Any]], timeout_s: float = 1.0
    ) -> tuple[dict[str, Any], dict[str, str]]:
        self.told.append(requests)
        return {node: {"tenants": {}, "slots": [], "changed": []} for node in requests}, {}


def test_every_division_is_one_that_the_store_takes(tmp_path: Path) -> None:
    bed = FakeBed(tmp_path, START, 4)
    nodes = bed.testbed.nodes
    config = AgentConfig(
        "mos", "swift", tuple(AgentNode(n.name, n.address, tuple(n.roles), "x") for n in nodes)
    )
    cluster = cluster_from_json(cluster_of(bed.testbed, bed.spec, bed.swift.store))
    daemons = Daemons()
    store = SwiftStore(config, cluster, daemons, tmp_path / "state.json")
    cells: tuple[dict[str, Any], ...] = (
        {"experiment": "setups"},
        {"experiment": "setups", "setup": "favors-small"},
        {"experiment": "load", "setup": "static"},
        {"experiment": "proxy", "proxies": 2},
        {"experiment": "proxy", "workload": "C", "proxy_cores": 0.05, "proxy_workers": 2},
    )
    for cell in cells:
        division = division_of(MOS.of(**cell), Pool())
        told = json.loads(json.dumps(layout_of(division)))
        put_layout(store, told["layout"], microstores=told["microstores"])
        state = store.state()
        assert state.layout == division.layout
        for name, share in division.shares.items():
            held = state.shares[name]
            assert held.proxy_cores == share.proxy_cores
            assert held.storage_cores == share.storage_cores
            assert held.network == share.network
            assert state.workers[name] == share.proxy_workers
        served = 2 if division.layout == "default" else 1
        assert {len(state.endpoints(tenant)) for tenant in ("small", "large")} == {served}
    assert daemons.told
