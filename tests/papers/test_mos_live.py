"""Cells on real microstores (sections 1, 3, 8.1): applied settings, load, results, clean-up."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from campaigns.papers.mos import drives as driving
from campaigns.papers.mos.cell import REPORT_FILE, division_of, loads_of, make, model
from campaigns.papers.mos.drives import ProxyDriver, ProxyLogin, drives_of, script, workload_of
from campaigns.papers.mos.measure import Sent, held_of, numbers_of, promised
from campaigns.papers.mos.profile.points import place
from campaigns.papers.mos.swift import (
    MEGABIT,
    OBJECTS_FILE,
    MicrostorePool,
    Share,
    Swift,
    layout_of,
)
from controllers.microstores.performance import PiecewiseLinear
from schemas.cells.mos import MOS
from schemas.errors import HotbedError, UserError
from schemas.run import Run
from testbed.agent.contract import AgentConfig, AgentNode
from testbed.deploy.swift_variables import cluster_of
from testbed.spec import load_spec
from testbed.stores.swift.bring import put_layout
from testbed.stores.swift.channels import NodeChannels
from testbed.stores.swift.cluster import cluster_from_json
from testbed.stores.swift.store import SwiftStore
from tests.campaigns.read_settings import SET_BY_HAND, SPEC_S, fails_by_name, positioning_in, reads
from tests.campaigns.tiny_kinds import job_with
from tests.errors import raises
from tests.papers.mos_fakes import RATE, FakeBed
from tests.testbed.fake_site import FakeSite
from workloads.cosbench.archive import Archive, Driver, OperationSecond
from workloads.cosbench.workload import to_xml

START = 1000.0
SMALL_CELL: dict[str, Any] = {"seconds": 4, "rampup_s": 1}


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campaigns.papers.mos.drives.time.time", lambda: START - driving.LEAD_S)


def run_on(bed: FakeBed, folder: Path, **parameters: Any) -> tuple[Run, dict[str, float]]:
    """Make a cell on a testbed; return the run and its numbers."""
    (folder / "logs").mkdir(parents=True)
    run = make(bed.swift, job_with(MOS.of(**parameters), "mos"), folder)
    extra: dict[str, float] = json.loads((folder / "summary.json").read_text())["extra"]
    return run, extra


def made(
    folder: Path, archived: int = 6, **parameters: Any
) -> tuple[FakeBed, Run, dict[str, float]]:
    bed = FakeBed(folder / "site", START, archived)
    return bed, *run_on(bed, folder / "attempt-1", **parameters)


def prepared(bed: FakeBed) -> int:
    """Return the number of times that objects were written."""
    return len([argv for _, _, argv in bed.agent.started if argv[0] != "bash"])


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
    verbs = bed.agent.called
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
    class SettableSite(FakeSite):  # a class of its own: isinstance() remembers a protocol's classes
        def set_disks(self, name: str, node: str, settings: object) -> None:
            chosen[node] = settings

    chosen: dict[str, Any] = {}
    monkeypatch.setattr("tests.papers.mos_fakes.FakeSite", SettableSite)
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
    assert "secret" not in json.dumps(bed.agent.started)
    for file in (tmp_path / "attempt-1").rglob("*"):
        assert file.is_dir() or b"secret-of" not in file.read_bytes(), file


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
    verbs = bed.agent.called
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


def test_the_promise_to_c_follows_its_workers() -> None:
    course = MOS.of(experiment="adaptation", minute_s=1)
    found = promised(loads_of(course), 42, 2)
    at = (0, 9, 10, 18, 19, 32, 33, 41)
    assert [found[second] / 2e6 for second in at] == [12, 12, 2, 2, 4, 12, 6, 6]


def test_the_model_is_of_the_cell_s_objects() -> None:
    (small, usual), (_, less) = (
        [
            PiecewiseLinear.from_json(model(place("local"), mb, MicrostorePool().total)).tables[
                letter
            ]
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


def test_a_testbed_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    bed = FakeBed(tmp_path, START, 4)
    ceph = load_spec(Path("testbed/specs/dlr.yaml"))
    with raises(UserError, "no Swift microstores"):
        Swift(replace(bed.live, spec=ceph))
    assert bed.swift.pool() == replace(MicrostorePool(), disks=1)
    with raises(UserError, "3 disks in each storage server", "has 1"):
        run_on(bed, tmp_path / "run", experiment="disks", workload="C", ssds=2)


def test_failures_count_and_objects_that_are_gone_are_written_again(tmp_path: Path) -> None:
    bed = FakeBed(tmp_path / "site", START, 6)
    cell = {"experiment": "proxy", **SMALL_CELL}
    bed.failed = 3
    _, found = run_on(bed, tmp_path / "first", **cell)
    assert found["A_failed"] == found["failed"] == 3
    bed.failed, bed.kind = 50, "not-found"
    with raises(HotbedError, "50 reads of workload A found no object"):
        run_on(bed, tmp_path / "second", **cell)
    bed.failed = 2  # an overloaded store may miss a few
    run_on(bed, tmp_path / "third", **cell)
    assert prepared(bed) == 2


def test_objects_that_were_not_all_written_are_an_error(tmp_path: Path) -> None:
    """The driver cosdrive still ends with 0."""
    bed = FakeBed(tmp_path / "site", START, 6)
    bed.prepared = "failed"
    with raises(HotbedError, "objects of A cannot all be written"):
        run_on(bed, tmp_path / "run", experiment="proxy", **SMALL_CELL)
    assert not (bed.testbed.directory / OBJECTS_FILE).exists()
    assert all(not shell.files for shell in bed.shells.values())


@pytest.mark.parametrize(
    ("late_s", "reason"), [(0.5, None), (1.5, "a driver began 1.5 s late (at most 1 s)")]
)
def test_a_driver_that_begins_late_spoils_its_cell(
    tmp_path: Path, late_s: float, reason: str | None
) -> None:
    bed = FakeBed(tmp_path / "site", START + late_s, 6)
    run, _ = run_on(bed, tmp_path / "run", experiment="proxy", **SMALL_CELL)
    assert (run.status, run.reason) == ("spoiled" if reason else "done", reason)


class Daemons(NodeChannels):
    """Daemons of a testbed's nodes; they accept every configuration."""

    def __init__(self) -> None:
        self.given: list[Mapping[str, Mapping[str, Any]]] = []

    def try_ask(
        self, requests: Mapping[str, Mapping[str, Any]], timeout_s: float = 1.0
    ) -> tuple[dict[str, Any], dict[str, str]]:
        self.given.append(requests)
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
        division = division_of(MOS.of(**cell), MicrostorePool())
        given = json.loads(json.dumps(layout_of(division)))
        put_layout(store, given["layout"], microstores=given["microstores"])
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
    assert daemons.given


# ---- Drivers, and the results that count ----


def access(proxy: str = "proxy0") -> ProxyLogin:
    return ProxyLogin(proxy, "http://10.0.0.1:8080/auth/v1.0", "small:small", "k")


def test_a_load_is_cosbench_s_workload() -> None:
    (load, *_) = loads_of(MOS.of(experiment="setups", small_workers=3, **SMALL_CELL))
    xml = to_xml(workload_of(load.objects, access(), load), ("main",))
    for part in (
        'workers="3"',
        'runtime="4"',
        'rampup="1"',
        'ratio="90"',
        "sizes=u(1,128)KB",
        "cprefix=a-",
        "auth_url=http://10.0.0.1:8080/auth/v1.0",
    ):
        assert part in xml
    stored = to_xml(workload_of(load.objects, access()), ("init", "prepare"))
    assert "objects=r(1,50)" in stored
    (one,) = loads_of(MOS.of(experiment="sizes", object_kb=64, **SMALL_CELL))
    assert "sizes=c(64)KB" in to_xml(workload_of(one.objects, access()), ("prepare",))


@pytest.fixture
def cosdrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that drivers run here, for a test to write."""
    program = tmp_path / "cosdrive"
    program.touch(0o755)
    monkeypatch.setattr(driving, "FOLDER", str(tmp_path))
    monkeypatch.setattr(driving, "REMOTE_PROGRAM", str(program))
    return program


def test_drivers_begin_together_at_their_times_and_one_that_fails_ends_all(
    tmp_path: Path, cosdrive: Path
) -> None:
    cosdrive.write_text(
        '#!/bin/bash\nread -r line <&3\necho "$line" "$@"\n'
        '[ "$line" = fails ] && { echo "cosdrive: no store" >&2; exit 2; }\n'
        '[ "$line" = stays ] && exec sleep 100\nexit 0\n'
    )
    (load, *_) = loads_of(MOS.of(experiment="setups", **SMALL_CELL))

    def run(**contents: str) -> subprocess.CompletedProcess[bytes]:
        for name, text in contents.items():
            (tmp_path / f"{name}.xml").write_text(text + "\n")
        ones = [ProxyDriver(name, load, access(), "client0") for name in contents]
        text = script(ones, 0.0, 5)
        # The shell would wait longer for the remaining process.
        return subprocess.run(["bash", "-c", text], capture_output=True, check=False, timeout=60)

    assert run(a="well", b="well").returncode == 0
    assert (tmp_path / "b.out").read_text() == ("well run /dev/fd/3 --archive b.archive --seed 6\n")
    assert not list(tmp_path.glob("*.xml"))
    assert run(a="stays", b="fails").returncode == 1
    assert (tmp_path / "b.err").read_text() == "cosdrive: no store\n"


def test_a_driver_that_fails_is_named(tmp_path: Path) -> None:
    bed = FakeBed(tmp_path / "site", START, 4)
    bed.agent.exit_code = 1
    loads = loads_of(MOS.of(experiment="setups", **SMALL_CELL))
    drives = drives_of(loads, bed.swift.access(), bed.swift.clients)
    with raises(HotbedError, "the driver of a on node client0 failed"):
        driving.drive(bed.agent, bed.live.shell_to, drives, seed=1, folder=tmp_path)
    assert all(not shell.files for shell in bed.shells.values())


def test_an_operation_counts_by_its_part_in_the_measured_time() -> None:
    """Eight workers that start together end together: by end times a second has all or nothing."""
    second = OperationSecond(4.0, "s1-main", "main", "read", "c", 8, 8_000_000, 0, 4.0, 4.0, True)
    later = replace(second, t_s=8.0)
    driver = Driver("finished", START, START + 9, 1, None, None)
    sent = Sent(6)
    sent.add(Archive(Path(), "w1", "c", (), driver=driver, seconds=(second, later)), START)
    assert list(sent.ops) == pytest.approx([1, 2, 2, 2, 2, 2])
    assert list(sent.ended) == [0, 0, 0, 0, 8, 0]
    found = numbers_of({"C": sent}, 2.0, 6.0)
    assert [found["C_qps"], found["C_mb_s"]] == pytest.approx([2.0, 2.0])
    assert [found["C_ops"], found["C_mean_s"]] == [8, 4.0]


# ---- A pool of whole machines, as in basic MOS (Algorithm 1) ----

MACHINES = Path("testbed/specs/mos-machines.yaml")
LOAD: dict[str, Any] = {
    **{"experiment": "load", "small_workers": 3, "large_workers": 2, "seconds": 4, "rampup_s": 1},
    **{"epoch_s": 2, "settle_epochs": 1},
}
ONE = Share(0.2, 0.2, 12.5e6)


def test_drivers_follow_machines_that_come_and_go(tmp_path: Path) -> None:
    bed = FakeBed(tmp_path / "site", START, 8, MACHINES)
    assert bed.swift.pool().machines == {"small": ONE, "large": ONE}
    _, found = run_on(bed, tmp_path / "run", setup="mos", **LOAD)
    # One driver per workload: its workers use the proxies in the client's file.
    assert sorted(name for name in bed.xmls if not name.startswith("objects")) == ["a", "c"]
    assert "proxies_file=/etc/hotbed/swift/small.json" in bed.xmls["a"]
    assert "proxies_file=/etc/hotbed/swift/large.json" in bed.xmls["c"]
    started = next(payload for verb, payload in bed.agent.calls if verb == "control-start")
    assert (started["name"], started["parameters"]) == ("mos", {})
    # The number of held cores changes, so no busy fraction exists.
    assert "proxy_busy" not in found
    assert found["proxy_cores_used"] == pytest.approx(4 * 0.2)
    report = json.loads((tmp_path / "run" / REPORT_FILE).read_text())
    assert report["division"]["shares"]["small"]["proxy_cores"] == 0.2
    bed = FakeBed(tmp_path / "other", START, 8, MACHINES)
    run_on(bed, tmp_path / "static", setup="static", **LOAD)
    assert bed.layout["layout"] == "static"  # the machines that microstores begin with
    assert "control-start" not in bed.agent.called


@pytest.mark.parametrize(
    ("spec", "parameters", "said"),
    [
        (MACHINES, {**LOAD, "setup": "mos-pp"}, "whole machines (pool.machine), which only load"),
        (MACHINES, {**LOAD, "setup": "default"}, "whole machines"),
        (MACHINES, {"experiment": "setups", "setup": "default"}, "whole machines"),
        (
            Path("testbed/specs/mos.yaml"),
            {**LOAD, "setup": "mos"},
            "testbed/specs/mos-machines.yaml",
        ),
    ],
)
def test_a_setup_that_is_not_for_the_pool_is_refused(
    tmp_path: Path, spec: Path, parameters: dict[str, Any], said: str
) -> None:
    bed = FakeBed(tmp_path / "site", START, 8, spec)
    with raises(UserError, said):
        run_on(bed, tmp_path / "run", **parameters)
    assert "swift-layout" not in bed.agent.called


def test_held_resources_count_machines_that_were_just_given() -> None:
    holds = {"proxy_cores": 0.2, "storage_cores": 0.2, "network": 12.5e6, "ssds": 0, "hdds": 0}
    machines = [
        {"name": "proxy0", "holds": holds, "microstore": "small"},
        {"name": "proxy1", "holds": holds, "microstore": "large"},
        {"name": "proxy2", "holds": holds, "microstore": ""},
    ]
    stores: list[dict[str, Any]] = [
        {"name": name, "resources": holds, "utilization": {"proxy_cpu": 0.9}, "slots": []}
        for name in ("small", "large")
    ]
    actions = [
        {"action": "AssignMachine", "machine": machine, "microstore": to, "kind": "machines"}
        for machine, to in (("proxy1", ""), ("proxy2", "small"))
    ]
    seen = {"microstores": {"stores": stores, "machines": machines}}
    (line,) = held_of([{"wall": START, "observation": seen, "actions": actions}], START)
    assert line["stores"]["small"]["proxy_cores"] == pytest.approx(0.4)
    assert line["stores"]["large"]["network"] == 0
    assert held_of([{"wall": START, "observation": None, "actions": []}], START) == []


@pytest.mark.parametrize("given", ["http://10.0.0.9:8080/auth/v1.0", ""])
def test_a_driver_that_begins_later_logs_in_where_its_tenant_is_served_then(
    tmp_path: Path, cosdrive: Path, given: str
) -> None:
    """The proxy that served at the start of the cell may have returned to the pool."""
    cosdrive.write_text("#!/bin/sh\ncat /dev/fd/3\n")
    file = tmp_path / "small.json"
    file.write_text(json.dumps({"auth_url": given, "key": "k", "proxies": []}))
    (load, *_) = loads_of(MOS.of(experiment="load", setup="mos"))
    began = access().auth_url
    login = replace(access(), file=str(file))
    xml = to_xml(workload_of(load.objects, login, load))
    (tmp_path / "a.xml").write_text(xml)
    text = script([ProxyDriver("a", load, login, "client0")], 0.0, 1)
    subprocess.run(["bash", "-c", text], check=True, timeout=60)
    assert (tmp_path / "a.out").read_text() == xml.replace(began, given or began)
    assert xml.count(began) == 1
