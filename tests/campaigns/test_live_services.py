"""Steps of a cell against a scripted admin node and an in-memory site."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from live_campaigns import summary_of
from read_settings import SET_BY_HAND, SPEC_S, fails_by_name, positioning_in, reads
from tiny_kinds import job_with

from campaigns.engine.provenance import Facts
from campaigns.engine.store import read_run
from campaigns.grounds.live import LiveTestbed
from campaigns.grounds.testbed import read_facts
from campaigns.papers.dlr import live, loads
from campaigns.papers.dlr.cell import CellContext, CellSetting, Services, run_cell
from campaigns.papers.dlr.live import BenchServices, Snapshots, StoreContents
from controllers.journal import JournalStep
from schemas.cells.dlr import DLR
from schemas.errors import HotbedError
from testbed.agent.contract import UnitResult
from testbed.deploy import lifecycle
from testbed.deploy.roles import save_spec, spec_of
from testbed.sites.contract import Testbed
from testbed.spec import load_spec
from tests.errors import raises
from tests.papers.live_fakes import RecordingAgent
from tests.testbed.fake_site import FakeSite

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "tests" / "data" / "rados-bench" / "16.2.15"
WALL = 1_700_000_000.0


class ScriptedAgent(RecordingAgent):
    """Admin agent that answers verbs from a table, records them and replays rados bench."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.left: list[str] = []
        self.steady: list[bool | None] = [True]
        self.ended: dict[str, Any] = {"was_running": True, "code": 0, "reason": "stopped"}
        self.bench_code = 0
        self._argv: list[str] = []

    @property
    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.asked]

    def call(
        self, verb: str, payload: Mapping[str, Any] | None = None, *, timeout_s: float = 60.0
    ) -> Any:
        given = payload or {}
        self.asked.append((verb, given))
        name = verb.replace("-", "_")
        return getattr(self, f"on_{name}", lambda given: {})(given)

    def on_clean(self, given: Mapping[str, Any]) -> Any:
        return {"put_right": self.left, "settled_s": 0.1, "caches": None}

    def on_caches(self, given: Mapping[str, Any]) -> Any:
        return {"failed": {}, "osds": [0], "nodes": [], "not_permitted": []}

    def on_disturb_status(self, given: Mapping[str, Any]) -> Any:
        steady = self.steady.pop(0) if len(self.steady) > 1 else self.steady[0]
        load = {"node": "osd0", "name": "load-hot-osd0", "alive": True, "steady": steady}
        return {"running": True, "steady": steady, "loads": [load]}

    def on_disturb_log(self, given: Mapping[str, Any]) -> Any:
        return {"state": {}, "events": [], "outputs": []}

    def on_control_start(self, given: Mapping[str, Any]) -> Any:
        return {"name": given["name"], "journal": "", "healed": []}

    def on_control_stop(self, given: Mapping[str, Any]) -> Any:
        return self.ended

    def on_control_log(self, given: Mapping[str, Any]) -> Any:
        needs = {"senses": ["pressure"], "acts": ["primary-affinity"]}
        header = {"schema": 1, "header": True, "policy": "dlr", "needs": needs}
        header["code_hash"] = "that of a test: there is no such code to replay it with"
        step = JournalStep(
            step=0,
            t_s=0.0,
            wall=WALL,
            actions=[{"action": "SetPrimaryAffinity"}],
            effects=[{"ok": True, "message": "", "seconds": 0.2, "detail": {}}],
            sense_s=0.1,
            decide_s=0.01,
            act_s=0.2,
        )
        text = "".join(json.dumps(one) + "\n" for one in (header, {"schema": 1, **asdict(step)}))
        return {"text": text, "offset": len(text), "size": len(text)}

    def on_recorder_fetch(self, given: Mapping[str, Any]) -> Any:
        values = {"osd0": {"pressure": 90.0, "hot": 1.0}, "admin": {"pressure": 1.0}}
        began = self.began
        return {"samples": [{"wall": began + k, "values": values, "lost": {}} for k in range(20)]}

    began = WALL

    def unit_start(self, node: str, name: str, argv: Sequence[str], *, max_s: float) -> None:
        self.asked.append((f"unit {name}", {"argv": list(argv)}))
        self._argv = list(argv)

    def unit_wait(self, node: str, name: str, *, timeout_s: float) -> UnitResult:
        if "prefill" in name:
            return UnitResult(node, name, 0, WALL, WALL + 1, self._prefilled(), "")
        text = (BENCH / "rand-64k.txt").read_text()
        return UnitResult(node, name, self.bench_code, WALL, WALL + 24, text, "it broke", 1.0)

    def _prefilled(self) -> str:
        """Return the answer if all objects exist."""
        raw = (65536).to_bytes(8, "little") + (10**6).to_bytes(4, "little")
        raw += (7).to_bytes(4, "little") + (65536).to_bytes(8, "little")
        return f"{raw.hex(' ')} objects 1000000"

    def unit_stop(self, node: str, name: str) -> UnitResult | None:
        self.asked.append((f"stop {name}", {}))
        return None


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    return FakeSite(tmp_path / "site")


def provisioned(site: FakeSite, name: str) -> Testbed:
    """Return a testbed of a bundled spec."""
    spec = load_spec(ROOT / "testbed" / "specs" / f"{name}.yaml")
    made = site.provision(spec)
    made.directory.mkdir(parents=True)
    save_spec(made, spec)
    return made


@pytest.fixture
def testbed(site: FakeSite) -> Testbed:
    return provisioned(site, "dlr")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the operations done on the store as a whole."""
    done: list[str] = []

    def restore(site: FakeSite, name: str, label: str) -> Testbed:
        done.append(f"restore {label}")
        return site.restore(name, label)

    monkeypatch.setattr(lifecycle, "stop_store", lambda testbed: done.append("stop"))
    monkeypatch.setattr(lifecycle, "start_store", lambda testbed: done.append("start"))
    monkeypatch.setattr(live, "restore_snapshot", restore)
    return done


def live_of(
    site: FakeSite, testbed: Testbed, agent: ScriptedAgent, shell: Any = None
) -> LiveTestbed:
    return LiveTestbed(site, testbed, spec_of(testbed), agent, lambda name: shell)


class OneGround:
    """Ground of one testbed."""

    name = "dlr"
    site: FakeSite | None = None
    shell: Any = None

    def __init__(self, site: FakeSite, testbed: Testbed, agent: ScriptedAgent) -> None:
        self.testbed = testbed
        self.live = live_of(site, testbed, agent, self.shell)

    def facts(self) -> Facts:
        return Facts("fake", {"ceph": "16"}, {"osd0": {"cpus": 2}}, "iowait", osd_count=8)

    def services(self, setting: CellSetting) -> Services:
        return BenchServices(self.live, setting)

    def lock_path(self) -> Path:
        return self.testbed.directory / "lock"


def context(
    tmp_path: Path, site: FakeSite, testbed: Testbed, agent: ScriptedAgent, **parameters: Any
) -> CellContext:
    folder = tmp_path / "run" / ".attempt-1.partial"
    (folder / "logs").mkdir(parents=True)
    given = {
        **{"op": "rand", "scenario": "heterogeneity", "controller": "dlr"},
        **{"object_size": 65536, "duration_s": 24, "interval_s": 2, **parameters},
    }
    job = job_with(DLR.of(**given), "dlr", "dlr")
    return CellContext(job, OneGround(site, testbed, agent), folder, sleep=lambda seconds: None)


def bench_start() -> float:
    """Return the start of the recorded benchmark (epoch), so that times match the recording."""
    from workloads.rados_output import parse_rados_bench

    started = parse_rados_bench((BENCH / "rand-64k.txt").read_text()).started_wall
    return WALL if started is None else started


@pytest.mark.parametrize("same", [False, True])
def test_cells_of_a_block_read_the_same_objects_if_asked(tmp_path, site, testbed, store, same):
    read = []
    for place, controller in enumerate(("default", "dlr")):
        agent = ScriptedAgent()
        folder = tmp_path / str(place)
        made = context(folder, site, testbed, agent, controller=controller, same_objects=same)
        run_cell(made)
        read += [given["argv"] for verb, given in agent.asked if verb == "unit load-bench-rand"]
    assert read[0] == read[1]
    assert ("sh" in read[0]) == same
    assert (str(made.job.seed) in read[0]) == same


def test_a_cell_from_clean_to_summary(tmp_path, site, testbed, store):
    agent = ScriptedAgent()
    agent.began = bench_start()
    made = context(tmp_path, site, testbed, agent)
    run = run_cell(made)
    assert run.status == "done"
    assert (run.osd_count, run.provenance.signal) == (8, "iowait")
    stops = {"control-stop", "disturb-stop", "recorder-stop"}
    asked = iter(agent.verbs)
    # The verbs of a set are asked in parallel.
    for together in (
        *(stops, {"clean"}, {"unit load-bench-prefill"}, {"caches"}),
        *({"disturb-start", "control-start"}, {"recorder-start", "disturb-status"}),
        *({"unit load-bench-rand"}, {"disturb-go"}, stops),
        {"clean", "disturb-log", "recorder-fetch", "control-log"},
    ):
        assert {next(asked) for _ in together} == together
    assert not list(asked)
    started = dict(agent.asked)["control-start"]
    assert (started["interval_s"], started["seed"], started["signal"]) == (2.0, 7, "node")
    summary = summary_of(made.folder)
    assert summary.whole[0].throughput_mb_s is not None
    assert summary.pressure_mean == {"osd0": 90.0}
    assert (summary.controller["actions"], summary.inert) == (1.0, None)
    names = {path.name for path in made.folder.iterdir()}
    assert names >= {"run.json", "summary.json", "samples.parquet", "journal.jsonl", "logs"}
    logs = {path.name for path in (made.folder / "logs").iterdir()}
    assert logs == {"rados-bench-1.txt", "disturbance.json", "recording.jsonl", "next-may-start"}
    assert store == []
    import pandas as pd

    samples = pd.read_parquet(made.folder / "samples.parquet")
    assert list(samples.columns) == ["t_s", "node", "metric", "value"]
    assert {"throughput_mb_s", "pressure", "hot"} <= set(samples["metric"])


def test_an_interrupt_after_the_record_is_written_leaves_the_cell_done(
    tmp_path, site, testbed, store, monkeypatch
):
    agent = ScriptedAgent()
    agent.began = bench_start()
    made = context(tmp_path, site, testbed, agent)

    def sync_folder(folder: Path) -> None:
        if (folder / "run.json").exists():
            raise KeyboardInterrupt

    monkeypatch.setattr("schemas.durable.sync_folder", sync_folder)
    with pytest.raises(KeyboardInterrupt):
        run_cell(made)
    record = read_run(made.folder)
    assert record is not None and record.status == "done"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ({"stray": {"osd3": ["4711 fio --name=x"]}}, ["osd3", "4711 fio"]),
        ({"left": ["osd.2 had primary affinity 0.1"]}, ["dlr left the store changed", "osd.2"]),
        ({"ended": {"was_running": True, "code": 3, "reason": "it raised"}}, ["dlr", "it raised"]),
        ({"bench_code": 1}, ["rados bench", "it broke"]),
    ],
)
def test_what_is_wrong_fails_the_cell_and_everything_is_stopped(
    tmp_path, site, testbed, spoil, words
):
    agent = ScriptedAgent()
    for name, value in spoil.items():
        setattr(agent, name, value)
    made = context(tmp_path, site, testbed, agent)
    with pytest.raises(HotbedError) as error:
        run_cell(made)
    for word in words:
        assert word in str(error.value)
    for start, stop in (("recorder-start", "recorder-stop"), ("disturb-start", "disturb-stop")):
        if start in agent.verbs:
            assert agent.verbs[agent.verbs.index(start) :].count(stop) == 1
    if "control-start" in agent.verbs:
        assert agent.verbs[agent.verbs.index("control-start") :].count("control-stop") == 1


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("failing", ["control-start", "disturb-start"])
def test_a_step_whose_neighbour_fails_is_stopped_even_if_it_starts_later(
    tmp_path, site, testbed, failing, interrupted
):
    agent = ScriptedAgent()
    begun, failed = threading.Event(), threading.Event()

    def fail(given: Mapping[str, Any]) -> Any:
        begun.wait()
        failed.set()
        if interrupted:
            os.kill(os.getpid(), signal.SIGINT)
        raise HotbedError("as asked")

    def start_late(given: Mapping[str, Any]) -> Any:
        begun.set()
        failed.wait()
        time.sleep(0.1)
        agent.asked.append(("late start", {}))
        return {}

    (late,) = {"control-start", "disturb-start"} - {failing}
    setattr(agent, f"on_{failing.replace('-', '_')}", fail)
    setattr(agent, f"on_{late.replace('-', '_')}", start_late)
    made = context(tmp_path, site, testbed, agent)
    with pytest.raises(KeyboardInterrupt if interrupted else HotbedError):
        run_cell(made)
    record = read_run(made.folder)
    assert record is not None
    assert record.status == ("interrupted" if interrupted else "failed")
    started = agent.verbs.index("late start")
    assert late.replace("start", "stop") in agent.verbs[started:]
    assert "unit load-bench-rand" not in agent.verbs


def test_an_interrupt_while_a_step_starts_stops_the_step(tmp_path, site, testbed, monkeypatch):
    agent = ScriptedAgent()
    start = threading.Thread.start
    interrupts = iter([os.getpid()])

    def interrupted_start(thread: threading.Thread) -> None:
        start(thread)
        if "caches" in agent.verbs:
            for process in interrupts:
                os.kill(process, signal.SIGINT)

    def start_late(given: Mapping[str, Any]) -> Any:
        time.sleep(0.1)
        agent.asked.append(("late start", {}))
        return {}

    monkeypatch.setattr(threading.Thread, "start", interrupted_start)
    monkeypatch.setattr(agent, "on_disturb_start", start_late, raising=False)
    with pytest.raises(KeyboardInterrupt):
        run_cell(context(tmp_path, site, testbed, agent))
    assert "disturb-stop" in agent.verbs[agent.verbs.index("late start") :]
    assert "unit load-bench-rand" not in agent.verbs


@SET_BY_HAND
def test_a_disk_set_by_hand_fails_the_cell(tmp_path, site, testbed, monkeypatch, found):
    agent = ScriptedAgent()
    agent.began = bench_start()
    reads(monkeypatch, SPEC_S * 1.0001)
    assert positioning_in(run_cell(context(tmp_path / "whole", site, testbed, agent))) == (
        SPEC_S * 1.0001
    )
    # The setting is read before the hotspots, at the start of the load and at its end.
    reads(monkeypatch, *found[:-1], *found)
    agent = ScriptedAgent()
    made = context(tmp_path, site, testbed, agent)
    with fails_by_name():
        run_cell(made)
    record = read_run(made.folder)
    assert record is not None
    assert record.status == "failed"
    assert ("unit load-bench-rand" in agent.verbs) == (found[0] == SPEC_S)


def test_fios_files_fill_the_filestores_of_disturbed_nodes_alone(tmp_path, site):
    agent = ScriptedAgent()
    agent.began = bench_start()
    made = context(tmp_path, site, provisioned(site, "dlr-filestore"), agent, controller="reweight")
    placed: dict[str, list[str]] = {}
    start = agent.unit_start

    def unit_start(node: str, name: str, argv: Sequence[str], *, max_s: float) -> None:
        start(node, name, argv, max_s=max_s)
        if name == "load-files":
            placed[node] = list(argv)

    agent.unit_start = unit_start  # type: ignore[method-assign]
    run_cell(made)
    logged = json.loads((made.folder / "logs" / "disturbance.json").read_text())
    (stretch,) = logged["stretches"]
    assert {node for node, argv in placed.items() if argv[0] == "fio"} == set(stretch["loads"])
    assert len(placed) == 8
    assert agent.verbs.index("unit load-files") < agent.verbs.index("disturb-start")


def test_the_disturbance_is_waited_for():
    agent = ScriptedAgent()
    agent.steady = [False, False, True]
    times = iter(range(100))
    since = live.wait_steady(agent, clock=lambda: float(next(times)))
    assert agent.verbs.count("disturb-status") == 3
    assert since == float(next(times)) - 1  # when the last of the looks began
    agent.steady = [None]
    live.wait_steady(agent)
    agent.steady = [False]
    times = iter(range(0, 1000, 10))
    with raises(HotbedError, "osd0 is not steady"):
        live.wait_steady(agent, clock=lambda: float(next(times)))


@pytest.mark.parametrize("scenario", ["heterogeneity", "none"])
def test_the_lead_counts_from_the_controller_and_the_steady_disturbance(
    tmp_path, site, testbed, monkeypatch, scenario
):
    now, slept = [100.0], list[float]()
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(live.time, "sleep", slept.append)
    monkeypatch.setattr(live.wait_steady, "__kwdefaults__", {"clock": lambda: now[0]})
    agent = ScriptedAgent()
    agent.steady = [False, True]

    def look(given: Mapping[str, Any]) -> Any:
        now[0] += 3.0
        return ScriptedAgent.on_disturb_status(agent, given)

    agent.on_disturb_status = look  # type: ignore[method-assign]
    made = context(tmp_path, site, testbed, agent, scenario=scenario)
    services = made.ground.services(made.setting(made.parameters))
    services.steady()
    services.wait(10.0)
    services.wait(10.0)
    assert slept == ([7.0, 10.0] if scenario == "heterogeneity" else [10.0, 10.0])


def test_every_controller_of_a_block_meets_the_same_disturbance(tmp_path):
    nodes = tuple(f"osd{number}" for number in range(8))

    def plan(controller: str, seed: int) -> Any:
        parameters = DLR.of(op="seq", scenario="interference", controller=controller)
        setting = CellSetting(parameters, seed, 0, 1 / 6, tmp_path)
        return loads.disturbance_of(setting, nodes)

    assert plan("dlr", 1) == plan("default", 1)
    assert plan("dlr", 1) != plan("dlr", 2)
    assert [stretch.t_s for stretch in plan("dlr", 1).stretches] == [0.0, 15.0]


def test_a_hot_set_is_that_of_the_design_in_every_block(tmp_path):
    nodes = tuple(f"osd{number}" for number in range(8))

    def hot(block: int, **more: Any) -> frozenset[str]:
        cell = DLR.of(op="seq", scenario="heterogeneity", hot_design=1, **more)
        setting = CellSetting(cell, block, block, 1 / 6, tmp_path)
        return loads.disturbance_of(setting, nodes).at(0).hot

    for number in range(4):
        assert {hot(block, hot_set=number) for block in range(3)} == {hot(number)}
    assert len({hot(0, hot_set=number) for number in range(4)}) == 4
    with raises(HotbedError, "hot_design"):
        DLR.of(op="seq", scenario="heterogeneity", hot_set=1)


def test_a_write_cell_starts_from_the_newest_frozen_state_and_is_undone(
    tmp_path, site, testbed, store
):
    site.snapshot(testbed.name, "deployed")
    site.snapshot(testbed.name, "mine")
    snapshots = Snapshots(site, testbed)
    assert snapshots.fresh()
    assert store == ["restore deployed"]
    snapshots.mark_written("hotbed-abc")
    assert Snapshots(site, testbed).contents().written == "hotbed-abc"
    assert Snapshots(site, testbed).undo_writes()
    assert not Snapshots(site, testbed).undo_writes()
    assert store == ["restore deployed"] * 2


def services_of(made: CellContext) -> Services:
    return made.ground.services(made.setting(made.parameters))


def test_writes_are_put_back_once_however_many_write_cells_follow(tmp_path, site, testbed, store):
    site.snapshot(testbed.name, "deployed")
    for number in (1, 2, 3):
        folder = tmp_path / str(number)
        folder.mkdir()
        agent = ScriptedAgent()
        agent.began = bench_start()
        services = services_of(context(folder, site, testbed, agent, op="write"))
        services.clean()
        assert len(store) == number - 1
        assert services.restore()
        services.clean()
        assert store == ["restore deployed"] * number
        Snapshots(site, testbed).mark_written(f"run-{number}")
    reader = services_of(context(tmp_path, site, testbed, ScriptedAgent()))
    reader.clean()
    assert store == ["restore deployed"] * 4


def test_objects_to_read_are_frozen_once_before_the_first_write_cell(site, testbed, store):
    site.snapshot(testbed.name, "deployed")
    snapshots = Snapshots(site, testbed)
    snapshots.mark_prefilled()
    assert snapshots.fresh()
    assert store == ["stop", "start"]
    assert list(site.snapshots(testbed.name)) == ["deployed", "filled-1"]
    assert snapshots.contents() == StoreContents()
    snapshots.mark_written("x")
    snapshots.mark_prefilled()
    assert snapshots.fresh()
    assert store[2:] == ["restore filled-1"]


def test_a_load_outlives_a_lost_engine_by_minutes_at_most(tmp_path, site, testbed):
    agent = ScriptedAgent()
    made = context(tmp_path, site, testbed, agent)
    with made.ground.services(made.setting(made.parameters)).disturbance():
        pass
    asked = dict(agent.asked)["disturb-start"]
    assert asked["max_s"] == 2 * 2 + 2 * 24 + live.SLACK_S
    assert asked["wait_for_go"]


def test_a_node_that_the_admin_node_cannot_reach_is_reported_before_anything_starts(site, testbed):
    agent = ScriptedAgent()
    agent.on_versions = lambda given: {"ceph": "16"}  # type: ignore[attr-defined]
    agent.on_facts = lambda given: {"osd0": {"error": "no key."}}  # type: ignore[attr-defined]
    with raises(HotbedError, "no key;", "hotbed deploy dlr"):
        read_facts(live_of(site, testbed, agent))
    agent.on_facts = lambda given: {"osd0": {"osds": [0, 1]}}  # type: ignore[attr-defined]
    assert read_facts(live_of(site, testbed, agent)).osd_count == 2
