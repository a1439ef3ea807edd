"""References: added from runs, computed again and drawn without them, stale and tampered ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from synthetic import write_campaign

from analysis import reference
from analysis.core import aside
from analysis.core.load import load_campaign, run_folders
from analysis.core.papers import SHORT_NAMES, figures_of, paper
from analysis.core.report import build
from analysis.reference import Added, CheckedFigure, add, check, report
from analysis.stored import CLAIMS, DATA, RECORD, SUMMARY, read_record, read_runs
from hotbed import cli
from hotbed.verbs.reference import command_of
from schemas.claim import ClaimResult
from schemas.errors import UserError
from testbed import closure
from tests.errors import raises
from tests.hotbed.runner import run
from tests.papers import mos_runs, prioritymeister_runs, twochoice_runs, ursa_runs

ENTRY = "campaigns/papers/ursa/cell.py"
NOW = "0" * 64


def planned(campaign: Path, *figures: str, ground: str = "sim", digest: str = NOW) -> Path:
    """Add the records that `hotbed run` leaves next to runs: each cell's code, and the plan."""
    cells = []
    for folder in run_folders(campaign):
        code = [{"entries": [ENTRY], "digest": digest}, {"entries": [], "digest": ""}]
        (folder / "job.json").write_text(json.dumps({"code": code}))
        cells.append({"run_id": folder.parent.name, "figures": figures})
    short = campaign.name.partition("-")[0]
    plan = {"campaign": {"name": campaign.name, "paper": short, "ground": ground}, "cells": cells}
    (campaign / "campaign.json").write_text(json.dumps(plan))
    return campaign


def inputs(artifacts: Path, name: str = "ursa-quick") -> Path:
    """Write the runs of figures 1 and 3."""
    for kind in ("s1", "s2"):
        for block in range(2):
            ursa_runs.write_inputs(artifacts / name, "0.1K-0.1M", kind, block)
    return planned(artifacts / name, "1", "3")


def added(artifacts: Path, name: str, root: Path) -> Added:
    return add(artifacts, name, root, lambda entries: NOW, command_of)


def checked(root: Path, short: str | None = None) -> dict[str, CheckedFigure]:
    found = check(root, lambda entries: NOW, short)
    return {one.reference.figure: one for one in found}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with runs in ``artifacts`` and their references in ``root``."""
    place = tmp_path_factory.mktemp("made")
    inputs(place / "artifacts")
    for record in (place / "artifacts").rglob("run.json"):
        if json.loads(record.read_text())["block"] == 1:  # added by a rule for precision
            _changed(record, lambda run: run.update(stopping={"first_stage": 1, "looks": 1}))
    added(place / "artifacts", "ursa-quick", place / "root")
    return place


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """Return a copy of the references."""
    return shutil.copytree(made / "root", tmp_path / "root")


# ---- add -----------------------------------------------------------------------------------------


def test_a_reference_holds_the_figures_claims_and_runs_and_their_origin(made: Path) -> None:
    folder = made / "root" / "ursa" / "3"
    names = {path.name for path in folder.iterdir()}
    assert names == {RECORD, CLAIMS, SUMMARY, DATA, "ursa-fig3.png", "ursa-fig3.json"}
    record = read_record(folder)
    assert (record.paper, record.figure, record.ground, record.runs) == ("ursa", "3", "sim", 4)
    assert record.commands == ("hotbed run ursa-quick",)
    assert [code.entries for code in record.code] == [
        (ENTRY,),
        ("analysis/papers/ursa/figures.py",),
    ]
    assert record.machine == ({"processor": "made up", "cpus": 2},)
    runs = load_campaign(made / "artifacts" / "ursa-quick").runs
    assert [(one.run, one.summary) for one in read_runs(folder)] == [
        (one.run, one.summary) for one in runs
    ]
    table = pd.read_parquet(folder / SUMMARY)
    assert set(table["commit"]) == {"0" * 40} and set(table["status"]) == {"done"}
    claims = [ClaimResult.model_validate(one) for one in json.loads((folder / CLAIMS).read_text())]
    report = build(made / "artifacts", "ursa-quick", only="3")
    assert claims and claims == [one for one in report.claims if one.figure == "3"]


@pytest.mark.parametrize(
    ("campaign", "job", "command"),
    [
        ("dlr-quick-sim", {"ground": "sim"}, "dlr-quick --ground sim"),
        (
            "dlr-today-1000",
            {"ground": "sim", "model": "/a/testbed/simulated/reef.yaml"},
            "dlr-today-1000 --model testbed/simulated/reef.yaml",
        ),
        (
            "dlr-shapes-dlr-hdd10k-6",
            {"ground": "local", "spec": "/a/testbed/specs/dlr-hdd10k-6.yaml"},
            "dlr-shapes --spec testbed/specs/dlr-hdd10k-6.yaml",
        ),
        (
            "dlr-shapes-mine-sim",
            {"ground": "sim", "spec": "/data/mine.yaml"},
            "dlr-shapes --spec mine.yaml --ground sim",
        ),
        ("mine", {"ground": "sim"}, "mine"),
    ],
)
def test_a_command_gives_the_options_that_the_runs_had(
    tmp_path: Path, campaign: str, job: dict[str, str], command: str
) -> None:
    attempt = tmp_path / campaign / "0123" / "attempt-1"
    attempt.mkdir(parents=True)
    (attempt / "job.json").write_text(json.dumps(job))
    assert command_of(tmp_path / campaign) == f"hotbed run {command}"


def test_a_figure_stores_only_the_runs_that_it_needs(tmp_path: Path) -> None:
    campaign = inputs(tmp_path)
    described = {folder.parent.name for folder in run_folders(campaign)}
    ursa_runs.write_plan(campaign, "0.1K-0.1M", "alp", 0)
    planned(campaign)  # no cell is planned for a figure

    def feed(plan: dict[str, Any]) -> None:
        for cell in plan["cells"]:
            cell["figures"] = ["1", "3"] if cell["run_id"] in described else []

    added(tmp_path, "ursa-quick", tmp_path / "root")
    assert read_record(tmp_path / "root/ursa/1").runs == 5
    _changed(campaign / "campaign.json", feed)
    added(tmp_path, "ursa-quick", tmp_path / "root")
    assert read_record(tmp_path / "root/ursa/1").runs == 4


def _changed(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    body = json.loads(file.read_text())
    change(body)
    file.write_text(json.dumps(body))


def _dirty(run: Path) -> None:
    _changed(run / "run.json", lambda body: body["provenance"].update(dirty=True))


def _without_commit(run: Path) -> None:
    _changed(run / "run.json", lambda body: body["provenance"].update(commit=None, dirty=None))


def _other_code(run: Path) -> None:
    _changed(run / "job.json", lambda body: body["code"][0].update(digest="1" * 64))


def _foreign_code(run: Path) -> None:
    _changed(run / "job.json", lambda body: body["code"][0].update(entries=["/somewhere/mine"]))


def _by_hand(run: Path) -> None:
    (run / "job.json").unlink()


def _private(run: Path) -> None:
    _changed(run / "run.json", lambda body: body["provenance"].update(site="10.20.30.40"))


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (_dirty, "attempt-1"),
        (_without_commit, "attempt-1"),
        (_other_code, ENTRY),
        (_foreign_code, "attempt-1"),
        (_by_hand, "attempt-1"),
        (_private, SUMMARY),
    ],
)
def test_runs_that_cannot_be_referred_to_are_refused_and_nothing_is_written(
    change: Callable[[Path], None], where: str, tmp_path: Path
) -> None:
    campaign = inputs(tmp_path)
    change(next(run_folders(campaign)))
    with raises(UserError, where=where):
        added(tmp_path, "ursa-quick", tmp_path / "root")
    assert not list((tmp_path / "root").glob("*"))


def test_only_newer_results_replace_a_reference_and_only_whole(
    made: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def contents() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    before = contents()
    older = shutil.copytree(made / "artifacts", tmp_path / "older")
    for folder in run_folders(older / "ursa-quick"):
        _changed(folder / "run.json", lambda body: body.update(ended_at="2025-12-31T00:00:00Z"))
    with raises(UserError, where="root/ursa/1"):
        added(older, "ursa-quick", root)
    assert contents() == before

    def full(new: Path, final: Path) -> None:
        raise OSError(28, "No space left on device", str(final))

    monkeypatch.setattr(reference, "commit_folder", full)
    with pytest.raises(OSError, match="space"):
        added(made / "artifacts", "ursa-quick", root)
    assert contents() == before
    monkeypatch.undo()
    (root / "ursa" / "1" / "unknown").write_text("")
    added(made / "artifacts", "ursa-quick", root)
    assert contents().keys() == before.keys()


def test_too_large_references_are_refused(
    made: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "MOST_BYTES", 1000)
    with raises(UserError, where=str(root), allowed="1000"):
        added(made / "artifacts", "ursa-quick", root)


# ---- check ---------------------------------------------------------------------------------------


def test_what_is_stored_gives_the_same_claims_and_figures(root: Path) -> None:
    found = checked(root)
    assert found.keys() == {"1", "3"}
    assert not any(one.differences or one.stale for one in found.values())
    with raises(UserError, where="mos", allowed="ursa"):
        checked(root, "mos")


def _metric(folder: Path) -> None:
    table = pd.read_parquet(folder / SUMMARY)
    table["metrics"] = [text.replace("0.05,", "0.06,") for text in table["metrics"]]
    table.to_parquet(folder / SUMMARY, index=False)


def _claim(folder: Path) -> None:
    claims = json.loads((folder / CLAIMS).read_text())
    claims[0]["n"] += 1
    (folder / CLAIMS).write_text(json.dumps(claims))


def _datum(folder: Path) -> None:
    text = (folder / DATA).read_text()
    (folder / DATA).write_text(text.replace("1.01,", "1.012,"))


def _shown(folder: Path) -> None:
    file = folder / "ursa-fig3.json"
    file.write_text(file.read_text().replace("1.01,", "1.012,"))


def _commit(folder: Path) -> None:
    _changed(folder / RECORD, lambda body: body.update(commits=["1" * 40]))


@pytest.mark.parametrize(
    ("tamper", "file"),
    [
        (_metric, CLAIMS),
        (_claim, CLAIMS),
        (_datum, "ursa-fig3.json"),
        (_shown, "ursa-fig3.json"),
        (_commit, RECORD),
        (lambda folder: (folder / "ursa-fig3.png").unlink(), "*.png"),
        (lambda folder: (folder / DATA).unlink(), DATA),
        (lambda folder: (folder / DATA).write_text("{"), DATA),
        (lambda folder: (folder / CLAIMS).write_text("[{}]"), CLAIMS),
        (lambda folder: (folder / SUMMARY).write_text("{"), SUMMARY),
    ],
)
def test_a_changed_value_is_found(tamper: Callable[[Path], None], file: str, root: Path) -> None:
    shutil.rmtree(root / "ursa" / "1")
    tamper(root / "ursa" / "3")
    (found,) = checked(root).values()
    assert {one.file for one in found.differences} == {file}


def test_a_change_is_of_its_figure_alone(root: Path) -> None:
    _claim(root / "ursa" / "3")
    found = checked(root)
    assert found["3"].differences and not found["1"].differences


@pytest.mark.parametrize("text", ["{", "{}"])
def test_a_record_that_cannot_be_read_is_named(text: str, root: Path) -> None:
    (root / "ursa" / "3" / RECORD).write_text(text)
    with raises(UserError, where=f"ursa/3/{RECORD}"):
        checked(root)


def test_a_reference_is_stale_after_another_line_but_not_after_another_comment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closure, "ROOT", tmp_path / "code")
    cell, figures = (
        tmp_path / "code" / name for name in (ENTRY, "analysis/papers/ursa/figures.py")
    )
    for file in (cell, figures):
        file.parent.mkdir(parents=True)
        file.write_text('"""Docstring."""\n\nLIMIT = 3\n')
    inputs(tmp_path / "artifacts")
    planned(tmp_path / "artifacts/ursa-quick", digest=closure.digest((ENTRY,)))
    root = tmp_path / "root"
    add(tmp_path / "artifacts", "ursa-quick", root, closure.digest, str)

    def stale() -> set[str]:
        return {entry for one in check(root, closure.digest) for entry in one.stale}

    cell.write_text('"""Other words."""\n\nLIMIT = 3  # a reason\n')
    assert stale() == set()
    figures.write_text("LIMIT = 4\n")
    assert stale() == {"analysis/papers/ursa/figures.py"}
    cell.unlink()
    assert stale() == {"analysis/papers/ursa/figures.py", ENTRY}


# ---- report --------------------------------------------------------------------------------------


def test_a_report_needs_no_runs_and_marks_what_is_stale(root: Path, tmp_path: Path) -> None:
    made, _ = report(root, "ursa", tmp_path / "fresh", lambda entries: NOW)
    drawn = {one.entry.id: one for one in made.figures if one.path is not None}
    assert drawn.keys() == {"1", "3"}
    assert all(one.path and one.path.is_file() for one in drawn.values())
    assert made.runs == 4 and len(made.claims) == len(json.loads(made.claims_path.read_text()))
    stored = [
        claim
        for figure in "13"
        for claim in json.loads((root / "ursa" / figure / CLAIMS).read_text())
    ]
    shown = {one.id: one.model_dump(mode="json") for one in made.claims}
    assert shown == {claim["id"]: claim for claim in stored}
    old, checks = report(root, "ursa", tmp_path / "old", lambda entries: "1" * 64, only="3")
    assert [one.reference.figure for one in checks] == ["3"] and checks[0].stale
    (figure,) = old.figures
    assert figure.entry.caption != drawn["3"].entry.caption
    assert all(one.note for one in old.claims)
    assert figure.path and figure.path.read_bytes() != drawn["3"].path.read_bytes()
    with raises(UserError, "'12'", where="ursa", allowed="1, 3"):
        report(root, "ursa", tmp_path / "none", lambda entries: NOW, only="12")


# ---- the command line ----------------------------------------------------------------------------


def test_the_verbs_add_check_and_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    planned(inputs(Path("artifacts")), digest=closure.digest((ENTRY,)))
    code, out, _ = run(capsys, "reference", "add", "ursa-quick", "--json")
    body = json.loads(out)
    assert code == 0 and body["folders"].keys() == {f"artifacts/reference/ursa/{x}" for x in "13"}
    assert body["total_bytes"] == sum(body["folders"].values())
    assert "7" in body["left_out"]
    assert run(capsys, "reference", "add", "ursa-quick")[0] == 0
    shutil.rmtree("artifacts/ursa-quick")
    code, out, _ = run(capsys, "reference", "check", "--json")
    assert code == 0 and [one["stale"] for one in json.loads(out)] == [[], []]
    code, out, _ = run(capsys, "report", "ursa", "--reference", "--json")
    assert code == 0 and json.loads(out)["figures"].keys() == {"1", "3"}
    _claim(Path("artifacts/reference/ursa/3"))
    code, out, _ = run(capsys, "reference", "check", "ursa")
    assert code == cli.EXIT_FAILED and "artifacts/reference/ursa/3/claims.json" in out


# ---- every figure --------------------------------------------------------------------------------


@pytest.mark.parametrize("short", SHORT_NAMES)
def test_every_claim_belongs_to_a_figure_with_a_folder_of_its_own(short: str) -> None:
    chosen = paper(short)
    found = figures_of(chosen)
    assert len({one.folder for one in found}) == len(found)
    assert {one.id for one in found} >= {entry.id for entry in chosen.figures}
    claims = {claim.id for part in chosen.parts for claim in part.claims}
    assert {claim.id for one in found for claim in one.claims} == claims


def _pm(artifacts: Path) -> None:
    for one in prioritymeister_runs.all_runs(blocks=1):
        prioritymeister_runs.write(one, artifacts)


WRITTEN: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "dlr-full": (partial(write_campaign, blocks=2), "local"),
    "mos-local": (partial(mos_runs.write_all, blocks=2), "local"),
    "mos-sim": (lambda artifacts: mos_runs.write_simulated(artifacts / "mos-sim", 2), "sim"),
    "mos-gateway": (lambda place: mos_runs.write_gateway(place / "mos-gateway", 2), "local"),
    "pm-quick": (_pm, "sim"),
    "twochoice-full": (partial(twochoice_runs.write_all_bursts, blocks=2), "sim"),
    "twochoice-local": (partial(twochoice_runs.write_all_objects, blocks=2), "local"),
    "ursa-full": (partial(ursa_runs.write_all, blocks=2), "sim"),
    "ursa-live": (lambda place: ursa_runs.write_store(place / "ursa-live"), "local"),
}
"""Functions that write the runs of a campaign, and their ground."""


@pytest.mark.slow  # draws every figure
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", WRITTEN)
def test_every_figure_and_claim_follows_from_what_is_stored(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures are empty here: what they show is compared before it is written."""
    monkeypatch.setattr(aside, "write", lambda job: job.png.touch())
    write, ground = WRITTEN[name]
    write(tmp_path / "artifacts")
    planned(tmp_path / "artifacts" / name, ground=ground)
    written = added(tmp_path / "artifacts", name, tmp_path / "root")
    found = checked(tmp_path / "root")
    assert len(found) == len(written.folders) > 1
    assert not [one.differences[:3] for one in found.values() if one.differences]
