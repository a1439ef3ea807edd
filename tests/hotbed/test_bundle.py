"""`hotbed bundle`, `verify` and `rerun` at the command line."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis.bundle.verify import Verification
from campaigns.bundled import RerunRequest
from hotbed import bundling, contained
from hotbed.output import emit
from hotbed.verbs.verify import _table, other_code
from schemas.bundle import Manifest
from schemas.errors import UserError
from tests.campaigns.tiny_kinds import TWOCHOICE
from tests.hotbed.runner import Runner
from tests.hotbed.tiny_bundle import pack


def test_a_bundle_of_other_code_is_noted_and_its_brackets_are_no_markup(
    tmp_path, monkeypatch, capsys
):
    body = {"report": "x", "campaigns": ("x",), "libraries": {}, "files": ()}
    made = Manifest.model_validate(body | {"hotbed_version": "0.1.0", "commit": "a" * 40})
    monkeypatch.setattr("campaigns.engine.provenance.hotbed_version", lambda: "0.1.0")
    monkeypatch.setattr("campaigns.engine.provenance.code_state", lambda: ("a" * 40, False))
    assert other_code(made) == []
    monkeypatch.setattr("campaigns.engine.provenance.code_state", lambda: ("b" * 40, True))
    (note,) = other_code(made)
    assert note.ok is None
    assert "a" * 12 in note.detail
    assert f"{'b' * 12}) with changes" in note.detail
    # The manifest may contain any text as the version that made the bundle.
    made = Manifest.model_validate(body | {"hotbed_version": "[/red]", "commit": None})
    verification = Verification(tmp_path / "x.zip", "0" * 64, made, other_code(made))
    emit({}, False, lambda: _table(verification))
    assert "made by Hotbed [/red]" in " ".join(capsys.readouterr().out.split())


SPEC = {
    "name": "mine",
    "store": None,
    "groups": [{"name": "admin", "roles": ["admin", "client"]}],
}


def with_spec(folder: Path) -> Path:
    """Write a bundle of a testbed campaign without runs."""
    campaign = {"name": "dlr-tiny", "paper": "dlr", "ground": "local", "spec": "../specs/mine.yaml"}
    texts = {
        "campaigns/dlr-tiny.yaml": yaml.safe_dump(campaign),
        "specs/mine.yaml": yaml.safe_dump(SPEC),
    }
    return pack(folder / "mine.zip", {name: text.encode() for name, text in texts.items()})


def test_rerun_speaks_of_the_bundle_and_not_of_where_it_was_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(contained, "look", lambda *_, **__: None)  # in a process, which takes long
    archive = with_spec(tmp_path)
    with (
        pytest.raises(UserError) as answer,
        bundling.unpacked(RerunRequest(archive)) as ready,
    ):
        raise UserError(f"{ready.request.campaign}: has no figure '99'.")
    assert "mine.zip: campaigns/dlr-tiny.yaml" in str(answer.value)
    assert "'99'" in str(answer.value)
    missing = "there is no testbed 'mine': bring it up with `hotbed up SPEC`."
    with pytest.raises(UserError) as answer, bundling.unpacked(RerunRequest(archive)):
        raise UserError(missing)
    assert str(answer.value) == (
        f"{missing} SPEC is in the bundle: unzip {archive} specs/mine.yaml."
    )
    elsewhere = RerunRequest(archive, site="inventory")
    with pytest.raises(UserError) as answer, bundling.unpacked(elsewhere):
        raise UserError(missing)
    assert str(answer.value) == missing


def hotbed(*words: object, code: int = 0) -> dict[str, Any]:
    ended = Runner().run([str(word) for word in (*words, "--json")])
    assert ended.exit_code == code, ended.output
    said: dict[str, Any] = json.loads(ended.stdout)
    return said


def manifest_of(archive: Path) -> Any:
    with zipfile.ZipFile(archive) as opened:
        return json.loads(opened.read("manifest.json"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_simulated_campaign_comes_out_the_same(tmp_path, monkeypatch):
    file = tmp_path / "twochoice-tiny.yaml"
    file.write_text(yaml.safe_dump(dict(TWOCHOICE)))
    artifacts, archive = tmp_path / "artifacts", tmp_path / "tiny.zip"
    assert hotbed("run", file, "--artifacts", artifacts)["ok"]
    made = hotbed("bundle", "twochoice-tiny", "--artifacts", artifacts, "--out", archive)
    assert made["runs"] == 12
    checked = hotbed("verify", archive, "--sha256", made["sha256"])
    assert checked["ok"]
    assert checked["as_published"]
    assert not checked["differences"]
    known = Verification(archive, made["sha256"], Manifest.model_validate(manifest_of(archive)))
    with monkeypatch.context() as patch:
        patch.setattr(contained, "verify", lambda *_, **__: known)  # all holds
        hotbed("verify", archive, "--sha256", "0" * 64, code=1)
        hotbed("verify", archive, "--sha256", made["sha256"])

    new = tmp_path / "new"
    planned = hotbed("rerun", archive, "--artifacts", new, "--dry-run")
    assert (planned["campaign"], planned["cells"], planned["done"]) == ("twochoice-tiny", 12, 0)
    assert not new.exists()
    answer = hotbed("rerun", archive, "--artifacts", new)
    assert answer["ok"]
    assert (answer["comparison"]["matched"], answer["comparison"]["identical"]) == (12, 12)
    assert answer["comparison"]["exact"]
    assert set(answer["outcomes"].values()) <= {"identical", "not run"}

    # If somebody's simulator gives another value, the report names the number.
    summary = next(new.glob("twochoice-tiny/*/attempt-1/summary.json"))
    body = json.loads(summary.read_text())
    name = "response_s"
    body["extra"][name] *= 2
    summary.write_text(json.dumps(body))
    answer = hotbed("rerun", archive, "--artifacts", new, code=1)
    assert answer["comparison"]["identical"] == 11
    assert any(one["where"] == f"extra.{name}" for one in answer["comparison"]["differing"])


def recorded_beside(folder: Path, **otherwise: Any) -> Path:
    """Write an unpacked bundle with a campaign file that may differ from its runs' record."""
    body = {
        "name": "dlr-tiny",
        "spec": "/srv/lab/specs/mine.yaml",
        "grids": [{"name": "a", "vary": {"op": ["seq"], "rate": [1e-05]}}],
    }
    place = folder / "artifacts" / "dlr-tiny"
    place.mkdir(parents=True)
    (place / "campaign.json").write_text(json.dumps({"campaign": body, "cells": []}))
    (folder / "specs").mkdir()
    (folder / "specs" / "mine.yaml").write_text(yaml.safe_dump(SPEC))
    (folder / "campaigns").mkdir()
    stated = body | {"spec": "../specs/mine.yaml"} | otherwise
    (folder / "campaigns" / "dlr-tiny.yaml").write_text(yaml.safe_dump(stated, sort_keys=False))
    return folder


def test_a_campaigns_file_is_what_its_runs_were_made_by(tmp_path):
    """`hotbed rerun` runs this file, and a matching hash is no proof of its contents."""
    assert not list(contained.otherwise(recorded_beside(tmp_path / "as"), ["dlr-tiny"]))
    more = recorded_beside(tmp_path / "more", grids=[], setup="rm")
    assert [(one.file, one.where) for one in contained.otherwise(more, ["dlr-tiny"])] == [
        ("campaigns/dlr-tiny.yaml", "grids"),
        ("campaigns/dlr-tiny.yaml", "setup"),
    ]
    for text, answer in ((None, "missing"), ("a: [", "cannot be read"), ("[1]", "cannot be read")):
        file = more / "campaigns" / "dlr-tiny.yaml"
        file.unlink() if text is None else file.write_text(text)
        (found,) = contained.otherwise(more, ["dlr-tiny"])
        assert (found.file, found.bundled) == ("campaigns/dlr-tiny.yaml", answer)
    folder = recorded_beside(tmp_path / "without spec")
    (folder / "specs" / "mine.yaml").unlink()
    (found,) = contained.otherwise(folder, ["dlr-tiny"])
    assert (found.file, found.bundled) == ("specs/mine.yaml", "missing")
    assert found.derived == "named in campaigns/dlr-tiny.yaml"
