"""Checks of every notebook: its cells are thin, it holds no output, and it runs."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from live_campaigns import summary_of
from tiny_campaigns import ONE_CELL
from tiny_kinds import job

from campaigns import by_hand
from campaigns.engine import attempts
from campaigns.engine.attempts import CellProcess
from campaigns.engine.campaign_file import EXPERIMENT, FORMER_EXPERIMENTS, resolve
from campaigns.engine.display import Progress
from campaigns.engine.job import Job, write_job
from campaigns.engine.own_kernel import OwnKernel
from campaigns.engine.papermill_cell import notebook_parameters, parameter_names
from campaigns.engine.session import Request, dry_run, run
from campaigns.engine.store import RunStore, read_run
from schemas.errors import UserError
from testbed.sites import open_site
from tests.testbed.ceph_beds import SPEC, pools_of

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture
def nbformat() -> ModuleType:
    """Return nbformat, imported here because every worker of the unit tests imports this file."""
    return import_module("nbformat")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_are_thin_and_hold_no_output(path, nbformat):
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
            assert cell.source.count("\n") < 40, "cells are thin"
    tagged = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    assert len(tagged) == 1
    for line in tagged[0].source.splitlines():
        assert "  # type: " in line


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_relative_paths_begin_at_hotbed_s_folder(path, nbformat):
    """Jupyter starts a notebook in the notebook's folder, papermill in any folder."""
    cells = nbformat.read(path, as_version=4).cells
    tree = ast.parse("\n".join(cell.source for cell in cells if cell.cell_type == "code"))
    rooted: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and ast.unparse(node.left) == "ROOT":
            rooted.append(node.right)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "make_run":  # see below
            rooted += [keyword.value for keyword in node.keywords]
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            assert node.id not in {"artifacts", "controllers_dir", "spec"} or node in rooted


def test_a_cell_by_hand_is_written_below_hotbed_s_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(by_hand, "RESULTS", tmp_path / "hotbed")
    monkeypatch.setattr(by_hand, "run_cell", lambda context: None)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    made = by_hand.make_run({"op": "rand"}, testbed="dlr", ground="sim")
    assert made.is_relative_to(tmp_path / "hotbed" / "artifacts" / "by-hand")


@pytest.mark.parametrize(
    ("kind", "ground", "allowed"),
    [("dlr", "moon", "sim"), ("twochoice-objects", "local", "hotbed run"), ("moon", "sim", "mos")],
)
def test_a_ground_without_cells_by_hand_is_refused(kind, ground, allowed, tmp_path):
    with pytest.raises(UserError, match=allowed):
        by_hand.make_run({}, kind=kind, ground=ground, artifacts=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_student_s_controller_is_never_overwritten(tmp_path, nbformat):
    notebook = nbformat.read(ROOT / "notebooks" / "compare_controllers.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]

    def until_decided() -> Any:
        names: dict[str, Any] = {}
        for cell in cells:
            exec(cell.source, names)
            if "parameters" in cell.metadata.get("tags", []):
                names |= {"name": "mine-alone", "controllers_dir": str(tmp_path)}
            if "mine" in names:
                return names["mine"].decide(names["mine"].initial(), names["observation"])[1]
        raise AssertionError("the notebook makes no controller")

    first = until_decided()
    policy = tmp_path / "mine_alone" / "policy.py"
    changed = policy.read_text().replace("number(0.3,", "number(0.125,")
    policy.write_text(changed)
    second = until_decided()
    assert policy.read_text() == changed
    assert {action.value for action in second} == {0.125} != {action.value for action in first}


def test_the_experiment_takes_what_the_engine_passes(nbformat):
    notebook = nbformat.read(EXPERIMENT, as_version=4)
    (cell,) = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    named = {line.split(" = ")[0] for line in cell.source.splitlines()}
    assert parameter_names(EXPERIMENT) == named
    made = _job(scenario="heterogeneity")
    passed = notebook_parameters(made, Path("run"), named)
    assert set(passed) == named
    assert (passed["kind"], passed["cell"]) == ("dlr", made.parameters)
    # A notebook that a user adapted from a former one takes the cell's parameters by name.
    assert notebook_parameters(made, Path("run"), {"op"}).items() >= made.parameters.items()


@pytest.mark.parametrize("former", sorted(FORMER_EXPERIMENTS))
def test_a_campaign_that_names_a_former_notebook_runs_the_experiment(
    former, campaign_file, tmp_path
):
    path = campaign_file(notebook=f"notebooks/{former}")
    plan = dry_run(Request(str(path), artifacts=tmp_path / "artifacts"))
    assert resolve(f"notebooks/{former}", path) == EXPERIMENT
    assert [note for note in plan.notes if former in note and "experiment.ipynb" in note]
    copy = path.parent / "notebooks" / former
    copy.parent.mkdir()
    copy.write_text(EXPERIMENT.read_text())  # a user's own comes first
    assert resolve(f"notebooks/{former}", path) == copy


@pytest.mark.slow
def test_a_campaign_runs_the_experiment_in_our_kernels_one_ahead(
    campaign_file, tmp_path, monkeypatch, nbformat
):
    """Kernelspecs and start-up files of the user's do not count; the next cell's kernel starts
    while a cell runs."""
    spec = tmp_path / "jupyter" / "kernels" / "python3" / "kernel.json"
    startup = tmp_path / "ipython" / "profile_default" / "startup" / "mine.py"
    for path, text in (
        (spec, json.dumps({"argv": ["/bin/false"], "display_name": "x", "language": "python"})),
        (startup, f"open({str(tmp_path / 'ran')!r}, 'w')\n"),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTHONSTARTUP", str(startup))
    processes, alone = [], []
    start = CellProcess._start

    def started(self: CellProcess, words: list[str], log: Path) -> subprocess.Popen[bytes]:
        alone.append(bool(words))
        processes.append(start(self, words, log))
        return processes[-1]

    monkeypatch.setattr(CellProcess, "_start", started)
    monkeypatch.setattr(attempts, "LOOK_S", 0.01)
    file = campaign_file(grids=[ONE_CELL[0] | {"repetitions": 2}])
    result = run(Request(str(file), artifacts=tmp_path / "artifacts"), progress=Progress())
    assert (result.ok, result.ran) == (True, 2), result.sentence
    assert not (tmp_path / "ran").exists()
    assert alone == [True, False, False]
    assert all(process.poll() is not None for process in processes)
    store = RunStore(tmp_path / "artifacts" / "tiny")
    for done in store.runs():
        folder = store.folder / done.run_id / "attempt-1"
        assert (folder / "logs" / "cell.log").exists()
        executed = nbformat.read(folder / "notebook.ipynb", as_version=4)
        code = [cell for cell in executed.cells if cell.cell_type == "code"]
        assert all(cell.execution_count for cell in code)
        assert f"block {done.block}, seed" in json.dumps(code[-1].outputs)
    assert not list(store.folder.glob(".next*"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_papermill_alone_makes_the_runs_of_a_campaign(campaign_file, tmp_path, nbformat):
    settings = {"duration_s": 60, "interval_s": 10}
    path = campaign_file(ground="sim", time_scale=0.5, parameters=settings, grids=ONE_CELL)
    assert run(Request(str(path), artifacts=tmp_path / "artifacts"), in_process=True).ok
    store = RunStore(tmp_path / "artifacts" / "tiny")
    for made in store.runs():
        given = {"cell": json.dumps(made.parameters), "kind": made.kind, "ground": made.ground}
        given |= {
            "seed": str(made.seed),
            "block": str(made.block),
            "time_scale": str(made.time_scale),
        }
        options = [word for name, value in given.items() for word in ("-p", name, value)]
        papermill = [Path(sys.executable).with_name("papermill"), EXPERIMENT, "out.ipynb"]
        subprocess.run([*papermill, "-k", "python3", *options], cwd=tmp_path, check=True)
        shown = outputs(nbformat.read(tmp_path / "out.ipynb", as_version=4))
        found = re.search(r"/[^ <>]+/by-hand/\w+/attempt-1", shown)
        assert found, shown
        try:
            alone = summary_of(Path(found[0]))
        finally:
            shutil.rmtree(Path(found[0]).parent)
        assert alone.whole == summary_of(store.folder / made.run_id / "attempt-1").whole


@pytest.mark.parametrize("cell", ["[]", "{", "5"])
def test_a_cell_that_is_no_mapping_is_refused(cell, tmp_path):
    with pytest.raises(UserError) as refused:
        by_hand.make_run(cell, ground="sim", artifacts=tmp_path)
    assert refused.value.where == "cell"


@pytest.mark.slow
def test_a_failing_notebook_fails_the_cell_with_its_own_words(campaign_file, monkeypatch):
    path = campaign_file(grids=ONE_CELL, retries=0)
    monkeypatch.setenv("HOTBED_FAKE_FAULT", json.dumps({"step": "workload", "how": "raise"}))
    artifacts = path.parent / "artifacts"
    result = run(Request(str(path), artifacts=artifacts), progress=Progress())
    assert not result.ok
    (failed,) = RunStore(artifacts / "tiny").runs()
    assert (failed.status, failed.reason) == ("failed", "the fake step workload failed as asked.")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_kernel_puts_the_testbed_back(tmp_path, number):
    folder = tmp_path / "run" / ".attempt-1.partial"
    (folder / "logs").mkdir(parents=True)
    write_job(folder, _job(duration_s=300.0))
    process = subprocess.Popen(
        [sys.executable, "-m", "campaigns.engine.papermill_cell", str(folder)],
        cwd=ROOT,
        env=os.environ | {"PYDEVD_DISABLE_FILE_VALIDATION": "1"},
        stderr=subprocess.DEVNULL,
    )
    trace = tmp_path / "trace"
    deadline = time.monotonic() + 60
    while not (trace.is_file() and "workload\n" in trace.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(number)
    assert process.wait(30) == 1
    stopped = trace.read_text().splitlines()[-3:]
    assert stopped == ["recorder stop", "controller stop", "disturbance stop"]
    found = read_run(folder)
    assert found is not None
    assert found.status == "interrupted"
    error = json.loads((folder / "error.json").read_text())
    assert error == {"kind": "KeyboardInterrupt", "message": "interrupted"}


def _job(**parameters: Any) -> Job:
    cell = {"op": "seq", "interval_s": 0.001, "controller": "dlr", **parameters}
    return job(cell, "dlr", ground="fake", testbed="dlr", notebook=str(EXPERIMENT))


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kernels import this project and the synthetic campaigns of the analysis tests."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "analysis"))


def executed_in(folder: Path, name: str, /, *, cwd: Path | None = None, **parameters: Any) -> Any:
    """Return the notebook executed by papermill, written to a folder and run there or in `cwd`."""
    import papermill

    return papermill.execute_notebook(
        str(ROOT / "notebooks" / f"{name}.ipynb"),
        str(folder / "out.ipynb"),
        parameters=parameters,
        kernel_name="python3",
        kernel_manager_class=OwnKernel,
        progress_bar=False,
        cwd=str(cwd or folder),
    )


def outputs(executed: Any) -> str:
    """Return all cell outputs as JSON."""
    return json.dumps([cell.get("outputs", []) for cell in executed.cells])


@pytest.mark.slow
@pytest.mark.usefixtures("importable")
def test_the_figures_notebook_draws_or_names_the_missing_runs(tmp_path):
    import_module("tests.papers.mos_runs").write_simulated(tmp_path / "artifacts" / "mos-sim", 2)
    executed = executed_in(tmp_path, "figures", paper="mos", artifacts=str(tmp_path / "artifacts"))
    shown = outputs(executed)
    pictures = shown.count("image/png")
    assert pictures > 2
    assert pictures == shown.count("**Figure ") - shown.count("Missing: ")
    assert "Table 3: average performance" in shown
    assert "effect" in shown


@pytest.mark.slow
@pytest.mark.usefixtures("importable")
@pytest.mark.timeout(600)
def test_a_student_is_walked_from_a_policy_to_its_claims(tmp_path):
    places = {"controllers_dir": "my-controllers", "artifacts": "artifacts"}
    executed = executed_in(
        tmp_path,
        "compare_controllers",
        name="mine-alone",
        duration_s=90.0,
        **{parameter: str(tmp_path / place) for parameter, place in places.items()},
    )
    code = [cell for cell in executed.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    shown = outputs(executed)
    assert shown.count("image/png") == 2  # the ranking and the throughput of a run
    assert "mine-alone raises random read IOPS" in shown
    assert "9 of 9 runs" in shown
    assert "simulated" in shown
    # The student's files are in the reported place, with the test next to the policy.
    assert (tmp_path / "my-controllers" / "mine_alone" / "policy.py").is_file()
    assert (tmp_path / "my-controllers" / "test_mine_alone.py").is_file()
    results = tmp_path / "artifacts" / "compare-sim"
    claims = json.loads((results / "claims.json").read_text())
    assert {claim["ground"] for claim in claims} == {"sim"}
    assert len(list(results.glob("*/attempt-1/journal.jsonl"))) == 9


@pytest.mark.local
@pytest.mark.usefixtures("importable")
@pytest.mark.timeout(900)
def test_the_tour_goes_from_a_spec_to_a_figure_and_removes_its_testbed(frozen, tmp_path):
    """The tour resumes where it stopped. Here a snapshot restored machines and store, and a second
    deployment changes nothing."""
    assert pools_of(frozen) == ["bench"]
    spec = tmp_path / "tour.yaml"
    spec.write_text(yaml.safe_dump(SPEC.model_dump(mode="json")))
    executed = executed_in(
        tmp_path,
        "tour",
        cwd=ROOT,
        spec=str(spec),
        artifacts=str(tmp_path / "artifacts"),
        hot_nodes=1,
        duration_s=30.0,
        keep=False,
    )
    shown = outputs(executed)
    assert "image/png" in shown
    assert ", 0 changes" in shown
    assert "absent" in shown
    assert open_site(frozen.site).find(frozen.name) is None
