"""The ground `sim`: whole campaigns on modelled testbeds, with the files of a live run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from campaigns.by_hand import make_run
from campaigns.engine import engine, session
from campaigns.engine.display import CampaignResult, Silent
from campaigns.engine.session import Request
from campaigns.engine.store import RunStore, read_run
from campaigns.grounds.sim import SimulatedGround, open_sim
from controllers.journal import read_journal
from schemas.errors import StoreError, UserError
from schemas.run import Run, Summary
from testbed.simulated import ModelParameters, SimulatedClock, sources
from testbed.simulated.process import PROGRAM
from testbed.spec import load_spec

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "testbed" / "specs" / "dlr.yaml"
pytestmark = pytest.mark.timeout(300)
built = pytest.mark.skipif(not PROGRAM.is_file(), reason="the simulator is not built")
DRAWN = """import random

from testbed.stores.contract import Needs, SetPrimaryAffinity


class Drawn:
    name = "drawn"
    needs = Needs()

    def parameters(self):
        return {}

    def initial(self):
        return {}

    def decide(self, state, observation):
        return state, [SetPrimaryAffinity(osd, random.random()) for osd in range(8)]


def create(parameters, seed):
    return Drawn()
"""
"""Controller that draws random numbers, so it is not pure."""
SIM = {"ground": "sim", "name": "tiny", "time_scale": 1 / 12, "retries": 0}


def grid(**changes: Any) -> list[dict[str, Any]]:
    body = {
        "name": "fig6",
        "figures": ["6a"],
        "vary": {"op": ["rand"], "controller": ["default", "dlr"]},
        "fixed": {"scenario": "heterogeneity", "duration_s": 60, "interval_s": 12},
        "repetitions": 1,
    }
    return [body | changes]


def run(file: Path, **more: Any) -> tuple[CampaignResult, list[Run], Path]:
    """Run the campaign in `file` in this process; return result, records and folder."""
    artifacts = file.parent / "artifacts"
    result = session.run(
        Request(str(file), artifacts=artifacts, **more), progress=Silent(), in_process=True
    )
    store = RunStore(artifacts / result.campaign)
    return result, list(store.runs()), store.folder


@built
def test_a_simulated_run_leaves_what_a_live_one_does(campaign_file: Callable[..., Path]) -> None:
    result, runs, folder = run(campaign_file(**SIM, parameters={}, grids=grid()))
    assert result.ok, result.sentence
    assert {found.parameters["controller"] for found in runs} == {"default", "dlr"}
    for found in runs:
        assert (found.ground, found.provenance.site) == ("sim", "simulated")
        assert found.provenance.versions["hotbedsim"].startswith("model ")
        assert found.provenance.calibration["model"]["fio_iodepth"] == 16
        assert (found.osd_count, found.provenance.signal) == (8, "io_pressure")
        attempt = folder / found.run_id / "attempt-1"
        summary = Summary.model_validate_json((attempt / "summary.json").read_bytes())
        (whole,) = summary.whole
        assert whole.operations and whole.throughput_mb_s
        # 60 s of the paper's time, divided by twelve.
        assert 5 <= whole.seconds < 10
        samples = pd.read_parquet(attempt / "samples.parquet")
        assert list(samples.columns) == ["t_s", "node", "metric", "value"]
        client = set(samples[samples["node"] == "client"]["metric"])
        assert {"throughput_mb_s", "iops", "latency_s", "in_flight"} <= client
        assert {"pressure", "hot", "disk_util"} <= set(samples[samples["node"] == "osd3"]["metric"])
        assert "primary_affinity" in set(samples[samples["node"] == "osd.3"]["metric"])
        assert samples["t_s"].min() < 0
        latency = pd.read_parquet(attempt / "latency.parquet")
        assert latency["count"].sum() == whole.operations
        journal = read_journal(attempt / "journal.jsonl")
        assert journal.footer is not None
        assert not (attempt / "logs" / "saved.json").exists()


@built
def test_a_decision_that_does_not_come_out_again_fails_the_cell(
    campaign_file: Callable[..., Path],
) -> None:
    cells = grid(vary={"controller": ["drawn", "dlr"], "op": ["rand"]})
    file = campaign_file(**SIM, parameters={}, grids=cells)
    (file.parent / "own" / "drawn").mkdir(parents=True)
    (file.parent / "own" / "drawn" / "policy.py").write_text(DRAWN)
    _, runs, folder = run(file, controllers_dir=file.parent / "own")
    found = {one.parameters["controller"]: one for one in runs}
    assert {name: one.status for name, one in found.items()} == {"drawn": "failed", "dlr": "done"}
    reason = str(found["drawn"].reason)
    journal = read_journal(folder / found["drawn"].run_id / "attempt-1" / "journal.jsonl")
    assert "step 0: " in reason
    assert str(journal.steps[0]["actions"][0]) in reason  # the first differing action
    assert len(reason) < 500
    assert found["dlr"].phases_s["replay"] >= 0


@built
def test_equal_cells_give_equal_results_and_are_not_run_twice(
    campaign_file: Callable[..., Path],
) -> None:
    file = campaign_file(
        **SIM, parameters={}, grids=grid(vary={"controller": ["dlr"], "op": ["seq"]})
    )
    _, (first,), folder = run(file)
    again, _, _ = run(file)
    assert (again.ran, again.already_done) == (0, 1)
    (folder / first.run_id).rename(folder.parent / "first")
    _, (second,), _ = run(file)
    assert second.run_id == first.run_id
    for name in ("summary.json", "journal.jsonl", "samples.parquet", "latency.parquet"):
        one = folder.parent / "first" / "attempt-1" / name
        assert one.read_bytes() == (folder / second.run_id / "attempt-1" / name).read_bytes(), name


@built
def test_another_ground_has_a_folder_of_its_own(campaign_file: Callable[..., Path]) -> None:
    file = campaign_file(
        time_scale=1 / 12,
        parameters={},
        grids=grid(vary={"controller": ["default"], "op": ["rand"]}),
    )
    result, runs, folder = run(file, ground="sim")
    assert result.ok, result.sentence
    assert folder.name == "tiny-sim"
    assert {found.campaign for found in runs} == {"tiny-sim"}
    with pytest.raises(UserError, match="no such ground; allowed: local, sim"):
        session.prepare(Request(str(file), ground="moon"))


def test_dlr_quick_and_full_can_be_simulated() -> None:
    for name in ("dlr-quick", "dlr-full"):
        report = session.dry_run(Request(name, ground="sim", artifacts=Path("nowhere")))
        assert report.campaign == f"{name}-sim"
        assert report.cells >= 30
        assert not any("is not up" in note for note in report.notes)


@built
def test_a_simulator_of_other_sources_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "digest", lambda _program: "0" * 64)
    with pytest.raises(StoreError, match=r"built from other sources than .*: run `make setup`"):
        open_sim("dlr").facts()


def test_other_constants_are_another_simulator(tmp_path: Path) -> None:
    file = tmp_path / "model.yaml"
    file.write_text("fio_iodepth: 4\n")
    plain, other = open_sim("dlr"), open_sim("dlr", SPEC, file)
    assert plain.name == other.name == "dlr"
    versions = [ground.facts().versions["hotbedsim"] for ground in (plain, other)]
    assert versions[0] != versions[1]
    assert plain == SimulatedGround(load_spec(SPEC), "dlr", ModelParameters())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"groups": [{"name": "admin", "roles": ["admin", "mon", "mgr", "client"]}]}, "osd"),
        ({"network": -1}, "network"),
        ({"disk": {"size": "6GiB", "positioning": "12.7ms", "bandwidth": "-1MB/s"}}, "bandwidth"),
        ({"disk": {"size": "6GiB", "positioning": ".nan", "bandwidth": "150MB/s"}}, "positioning"),
        ({"count": 0}, "count"),
    ],
)
def test_a_spec_that_cannot_be_is_one_sentence(
    tmp_path: Path, campaign_file: Callable[..., Path], change: dict[str, Any], said: str
) -> None:
    body = yaml.safe_load(SPEC.read_text())
    if "groups" in change:
        body |= change
    else:
        body["groups"][1] |= change
    spec = tmp_path / "bad.yaml"
    spec.write_text(yaml.safe_dump(body))
    file = campaign_file(**SIM, spec=str(spec), parameters={}, grids=grid())
    with pytest.raises(UserError, match=said) as raised:
        session.prepare(Request(str(file)))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"controller": "nobody"}, "there is no controller 'nobody'"),
        ({"concurrency": -3}, "concurrency: -3 is not allowed"),
        ({"duration_s": float("nan")}, "duration_s: nan is not allowed"),
        ({"interval_s": float("inf")}, "interval_s: inf is not allowed"),
        ({"hot_nodes": 9}, "has 8 OSD nodes"),
    ],
)
def test_a_cell_that_cannot_be_is_one_sentence(
    campaign_file: Callable[..., Path], parameters: dict[str, Any], said: str
) -> None:
    fixed = {"scenario": "heterogeneity", "controller": "dlr", **parameters}
    file = campaign_file(**SIM, parameters={}, grids=grid(vary={"op": ["seq"]}, fixed=fixed))
    with pytest.raises(UserError, match=said):
        session.prepare(Request(str(file)))


NAUGHTY = """
from testbed.stores.contract import OSDS, PRIMARY_AFFINITY, Needs, SetPrimaryAffinity


class Policy:
    name = "NAME"
    needs = Needs(senses=frozenset({OSDS}), acts=frozenset({PRIMARY_AFFINITY}))

    def parameters(self):
        return {}

    def initial(self):
        return {}

    def decide(self, state, observation):
        BODY


def create(parameters, seed):
    return Policy()
"""
BAD = {
    "unknown-osd": ("return state, [SetPrimaryAffinity(77, 0.5)]", "there is no osd.77"),
    "not-a-number": (
        "return state, [SetPrimaryAffinity(1, float('nan'))]",
        "an affinity is a number from 0 to 1",
    ),
    "endless": ("while True: pass", "took more than 0.5 s"),
    "leaver": ("import os; os._exit(3)", "ended with code 3"),
    "raiser": ("raise RuntimeError('no')", "RuntimeError: no"),
    "nan-state": ("return {'mean': float('nan')}, []", "JSON"),
}


@built
def test_a_bad_policy_fails_its_cell_alone(
    tmp_path: Path, campaign_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("campaigns.papers.dlr.simulated.DECIDE_LIMIT_S", 0.5)
    own = tmp_path / "own"
    for name, (body, _) in BAD.items():
        folder = own / name.replace("-", "_")
        folder.mkdir(parents=True)
        (folder / "policy.py").write_text(NAUGHTY.replace("NAME", name).replace("BODY", body))
    names = ["default", *BAD]
    file = campaign_file(
        **SIM, parameters={}, grids=grid(vary={"op": ["rand"], "controller": names})
    )
    result, runs, folder = run(file, controllers_dir=own)
    assert not result.ok
    by_name = {found.parameters["controller"]: found for found in runs}
    assert by_name["default"].status == "done"
    for name, (_, said) in BAD.items():
        found = by_name[name]
        assert (found.status, found.attempt) == ("failed", 1)
        assert found.reason is not None
        assert found.reason.startswith(f"the controller {name} failed: ")
        assert said in found.reason
        assert "\n" not in found.reason
    assert {path.name for path in folder.glob("*/attempt-*")} == {"attempt-1"}


@built
def test_an_interrupted_cell_is_marked_and_its_simulator_ends(
    campaign_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from campaigns.papers.dlr import simulated

    stores: list[Any] = []
    engines: list[Any] = []

    def stopping(store: Any, **named: Any) -> Any:
        stores.append(store)
        engines[-1].stop()  # like a Ctrl-C while the simulator runs
        return SimulatedClock(store, **named)

    def remembered(*arguments: Any, **named: Any) -> Any:
        engines.append(engine.Engine(*arguments, **named))
        return engines[-1]

    monkeypatch.setattr(simulated, "SimulatedClock", stopping)
    monkeypatch.setattr(session, "Engine", remembered)
    result, (found,), _ = run(campaign_file(**SIM, parameters={}, grids=grid()))
    assert result.interrupted
    assert (found.status, found.reason) == ("interrupted", "interrupted")
    assert len(stores) == 1
    with pytest.raises(StoreError, match="closed"):
        stores[0].advance(1)


def test_code_that_never_returns_is_refused_before_anything_starts(
    tmp_path: Path, campaign_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controllers.decider.START_LIMIT_S", 1.0)
    folder = tmp_path / "own" / "stuck"
    folder.mkdir(parents=True)
    (folder / "policy.py").write_text("while True: pass\n")
    fixed = {"scenario": "heterogeneity", "controller": "stuck"}
    file = campaign_file(**SIM, parameters={}, grids=grid(vary={"op": ["seq"]}, fixed=fixed))
    with pytest.raises(UserError, match=r"stuck: the policy's start took more than 1 s"):
        session.prepare(Request(str(file), controllers_dir=tmp_path / "own"))
    assert not (tmp_path / "artifacts").exists()


@pytest.mark.slow
@built
def test_the_notebook_runs_a_simulated_cell_too(campaign_file: Callable[..., Path]) -> None:
    file = campaign_file(
        **SIM, parameters={}, grids=grid(vary={"controller": ["dlr"], "op": ["rand"]})
    )
    artifacts = file.parent / "artifacts"
    result = session.run(Request(str(file), artifacts=artifacts), progress=Silent())
    assert result.ok, result.sentence
    (found,) = RunStore(artifacts / "tiny").runs()
    folder = artifacts / "tiny" / found.run_id / "attempt-1"
    executed = json.loads((folder / "notebook.ipynb").read_text())
    assert "simulated" in json.dumps(executed)
    (folder.parent).rename(artifacts / "by-notebook")
    again = session.run(Request(str(file), artifacts=artifacts), progress=Silent(), in_process=True)
    assert again.ok
    for name in ("summary.json", "journal.jsonl", "samples.parquet"):
        one = artifacts / "by-notebook" / "attempt-1" / name
        assert one.read_bytes() == (folder / name).read_bytes(), name


@built
def test_a_cell_by_hand_is_simulated_from_a_spec_s_name(tmp_path: Path) -> None:
    folder = make_run(
        {"op": "rand", "scenario": "none", "duration_s": 30, "controller": "default"},
        testbed="dlr",
        ground="sim",
        artifacts=tmp_path,
        time_scale=0.1,
    )
    made = read_run(folder)
    assert made is not None
    assert (made.status, made.ground, made.provenance.site) == ("done", "sim", "simulated")
    assert made.provenance.versions["hotbedsim"].startswith("model ")
    assert (folder / "samples.parquet").is_file()
    with pytest.raises(
        UserError, match="no spec 'moon' to simulate; there are dlr, dlr-chameleon,"
    ):
        make_run({"op": "rand"}, testbed="moon", ground="sim", artifacts=tmp_path)
