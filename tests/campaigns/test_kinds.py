"""Common behaviour of all campaign kinds: refused files and cells, plans, and cells on workers."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_kinds import CELLS, TINY, job, written

from campaigns.engine import session
from campaigns.engine.campaign_file import load_campaign
from campaigns.engine.dask import Task, Workers, run_task
from campaigns.engine.identity import Recipe, Sameness, WrongWorker
from campaigns.engine.job import Job, Phases
from campaigns.engine.kind import Kind
from campaigns.engine.session import Request
from campaigns.engine.write_cell import write_cell
from campaigns.papers.registry import KINDS, schema_of
from schemas.cells import Cells, cells_of
from schemas.errors import UserError
from schemas.run import Run, Summary
from tests.errors import raises

NAMES = tuple(TINY)
SYNTHETIC = ("planner", "simulation")


def kind(name: str) -> Kind[Any]:
    said = (name, TINY[name][name])
    (module,) = (one.module for one in KINDS if (one.key, one.value) == said)
    found: Kind[Any] = importlib.import_module(module).KIND
    return found


# Allowed contents of a file.


def cells(name: str) -> Cells[Any]:
    return cells_of(schema_of(TINY[name], Path()).kind, "sim")


@pytest.mark.parametrize("name", NAMES)
def test_a_kind_that_there_is_not_is_one_sentence(name, tmp_path):
    file = written(tmp_path, TINY[name], **{name: "best"})
    there = ", ".join(one.value for one in KINDS if one.key == name)
    with raises(UserError, f"no {name} 'best'", where=str(file), allowed=there):
        load_campaign(file)


@pytest.mark.parametrize("name", SYNTHETIC)
@pytest.mark.parametrize(
    "changes",
    [{"ground": "local"}, {"spec": "testbed/specs/dlr.yaml"}, {"time_scale": 0.5}],
    ids=lambda changes: next(iter(changes)),
)
def test_what_has_no_testbed_says_nothing_of_one(name, tmp_path, changes):
    with raises(UserError, f"{next(iter(changes))}"):
        session.dry_run(Request(str(written(tmp_path, TINY[name], **changes))))


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_survives_being_written(name):
    cell = cells(name).check(CELLS[name], "x")
    written_out = json.loads(json.dumps(cell.model_dump(mode="json")))
    assert cells(name).check(written_out, "again") == cell
    assert set(written_out) == set(type(cell).model_fields)


# Planning.


@pytest.mark.parametrize("name", NAMES)
def test_a_dry_run_reports_cells_and_time_and_writes_nothing(name, tmp_path):
    artifacts = tmp_path / "artifacts"
    request = Request(str(written(tmp_path, TINY[name])), artifacts=artifacts)
    report = session.dry_run(request)
    assert report.cells == len(report.pending) == 12
    assert report.pending_s > 0
    assert bool(report.power) is kind(name).resolves
    both = session.dry_run(request, workers=Workers(count=2))
    one = session.dry_run(request, workers=Workers(count=1))
    assert both.pending_s == pytest.approx(one.pending_s / 2)
    away = session.dry_run(request, workers=Workers(scheduler="tcp://10.0.0.1:8786"))
    assert away.notes[-1] == "the time is that of one worker; tcp://10.0.0.1:8786 may have many"
    with raises(UserError, "'99'"):
        session.dry_run(replace(request, figure="99"))
    assert not artifacts.exists()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"ground": "local"}, "--ground"),
        ({"testbed": "dlr"}, "--testbed"),
        ({"controllers_dir": Path()}, "--controllers-dir"),
        ({"model": Path("m.yaml")}, "--model"),
    ],
)
def test_options_of_testbeds_are_refused(name, tmp_path, changes, option):
    request = replace(Request(str(written(tmp_path, TINY[name]))), **changes)
    with pytest.raises(UserError) as raised:
        session.dry_run(request)
    does = f"{TINY[name]['name']} {kind(name).does}"
    assert raised.value.what.startswith(does)
    assert raised.value.do == f"leave out {option}"


def test_one_testbed_has_no_workers(tmp_path):
    request = Request("pm-local-quick", artifacts=tmp_path)
    assert session.dry_run(request).cells
    with pytest.raises(UserError) as raised:
        session.dry_run(request, workers=Workers(count=2))
    assert raised.value.do == "leave them out"
    with raises(UserError, "--model"):
        session.dry_run(replace(request, model=Path("m.yaml")))


@pytest.mark.parametrize("name", SYNTHETIC)
def test_what_memory_does_not_hold_is_refused(name, tmp_path, monkeypatch):
    body = TINY[name]
    size = "10K-10M" if name == "planner" else "10K-1M"
    grid = body["grids"][0] | {"fixed": {"size": size}}
    grid["vary"] = {key: found for key, found in grid["vary"].items() if key != "size"}
    artifacts = tmp_path / "artifacts"
    file = written(tmp_path, body, parameters={}, grids=[grid])
    request = Request(str(file), artifacts=artifacts)
    (cells,) = session.typed_cells(load_campaign(file), file).values()
    need = max(cell.memory_mib for cell in cells)
    monkeypatch.setattr(session, "available_memory", lambda _: 1.5 * need * 2**20)
    session.dry_run(request, workers=Workers(count=1))
    with raises(UserError, size):
        session.dry_run(request, workers=Workers(count=2))
    monkeypatch.setattr(session, "available_memory", lambda _: 0.5 * need * 2**20)
    for ask in (session.dry_run, session.run):
        with pytest.raises(UserError):
            ask(request, workers=Workers(count=1))
    # Unknown values and values of other owners are not refused.
    session.dry_run(request, workers=Workers(scheduler="tcp://10.0.0.1:8786"))
    monkeypatch.setattr(session, "available_memory", lambda _: 0)
    session.dry_run(request)
    assert not artifacts.exists()


# Cells on a worker.

SAME = Sameness((), ("numpy",))


def makes(job: Job, folder: Path) -> Run:
    (folder / "curve.json").write_text("[1]\n")
    return write_cell(folder, job, {"answer": 42.0}, Phases(), hosts={"here": {"cpus": 2}})


def breaks(job: Job, folder: Path) -> Run:
    raise UserError(f"run {job.run_id} cannot be.")


def task(make: Any, same: str | None = None) -> Task:
    return Task(job({}).model_dump_json(), Recipe(make, SAME), same or SAME.digest())


def test_what_a_cell_leaves_is_brought_back(tmp_path):
    run_task(task(makes)).unpack(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("curve.json", "summary.json", "run.json")
    }
    run = Run.model_validate_json((tmp_path / "run.json").read_text())
    assert (run.status, run.seed, run.provenance.hosts) == ("done", 5, {"here": {"cpus": 2}})
    assert run.started_at > "2026-01-01T00:00:00+00:00"
    assert Summary.model_validate_json((tmp_path / "summary.json").read_text()).extra == {
        "answer": 42.0
    }


def test_what_a_cell_raises_is_a_file(tmp_path):
    run_task(task(breaks)).unpack(tmp_path)
    assert json.loads((tmp_path / "error.json").read_text()) == {
        "kind": "UserError",
        "message": "run 000000000000 cannot be.",
    }
    with raises(WrongWorker, "this worker has other code"):
        run_task(task(makes, "other"))
