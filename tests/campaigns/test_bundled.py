"""What of Hotbed a bundle takes along, and campaigns that are run again from one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from campaigns.bundled import Again, again, is_exact, profiles_of, sources
from campaigns.campaign_file import ROOT, load_campaign, resolve
from campaigns.mos.profile.points import ELSEWHERE, reference, references
from campaigns.session import Request
from schemas.errors import UserError
from testbed.spec import load_spec
from tests.campaigns.tiny_campaigns import TINY
from tests.campaigns.tiny_kinds import TWOCHOICE, URSA

SPEC = ROOT / "testbed" / "specs" / "dlr.yaml"
POLICY = "NAME = 'shy'\n"


def folder_of(place: Path, body: dict[str, Any], **identity: Any) -> Path:
    folder = place / str(body["name"])
    folder.mkdir(parents=True)
    record = {"campaign": body, "identity": identity, "cells": []}
    (folder / "campaign.json").write_text(json.dumps(record))
    return folder


def unpacked(tmp_path: Path, folder: Path) -> Path:
    """The sources of a campaign as a bundle would hold them."""
    (tmp_path / "scratch").mkdir()
    bundle = tmp_path / "bundle"
    for name, file in sources([folder], tmp_path / "scratch").files.items():
        (bundle / name).parent.mkdir(parents=True, exist_ok=True)
        (bundle / name).write_bytes(file.read_bytes())
    return bundle


def test_it_takes_along_what_made_the_runs(tmp_path: Path) -> None:
    digest = load_spec(SPEC).digest()
    folder = folder_of(tmp_path, dict(TINY) | {"ground": "local"}, spec_digest=digest)
    (tmp_path / "scratch").mkdir()
    found = sources([folder], tmp_path / "scratch")
    assert {
        *("environment/requirements.lock", "environment/environment.yml", "LICENSE"),
        *("campaigns/tiny.yaml", "specs/dlr.yaml", "notebooks/dlr_experiment.ipynb"),
    } <= set(found.files)
    assert found.hide[str(ROOT)] == "$HOTBED"
    assert not [note for note in found.notes if "spec" in note]
    assert found.authors == ({"name": "Hotbed maintainers"},)


def test_a_spec_that_has_changed_is_told(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, dict(TINY) | {"ground": "local"}, spec_digest="another")
    (tmp_path / "scratch").mkdir()
    notes = sources([folder], tmp_path / "scratch").notes
    assert "The spec dlr.yaml has changed since the runs were made." in notes


def test_controllers_of_ones_own_come_along(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, dict(TINY) | {"ground": "local"})
    own = tmp_path / "own"
    (own / "shy" / "__pycache__").mkdir(parents=True)
    (own / "shy" / "policy.py").write_text(POLICY)
    (own / "shy" / "__pycache__" / "policy.pyc").write_bytes(b"\0")
    for index, controller in enumerate(("shy", "dlr", "gone")):
        attempt = folder / str(index) / "attempt-1"
        attempt.mkdir(parents=True)
        where = str(tmp_path / "nowhere") if controller == "gone" else str(own)
        job = {"controllers_dir": where, "parameters": {"controller": controller}}
        (attempt / "job.json").write_text(json.dumps(job))
    (tmp_path / "scratch").mkdir()
    found = sources([folder], tmp_path / "scratch")
    controllers = [name for name in found.files if name.startswith("controllers/")]
    assert controllers == ["controllers/shy/policy.py"]
    assert "The code of the controller gone is not there any more." in found.notes


def microstores(place: Path, *profiles: str) -> Path:
    """A campaign of MOS whose cells name these profiles."""
    folder = folder_of(place, dict(TINY) | {"name": "mos-tiny", "system": "mos"})
    for index, profile in enumerate(profiles):
        attempt = folder / str(index) / "attempt-1"
        attempt.mkdir(parents=True)
        (attempt / "job.json").write_text(json.dumps({"parameters": {"profile": profile}}))
    return folder


def test_points_that_cells_plan_with_come_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    body = reference("paper").model_dump(mode="json") | {"name": "mine", "about": "my own runs"}
    (kept / "mine.json").write_text(json.dumps(body))
    monkeypatch.setenv(ELSEWHERE, str(kept))
    folder = microstores(tmp_path / "artifacts", "mine", "local", "gone")
    (tmp_path / "scratch").mkdir()
    found = sources([folder], tmp_path / "scratch")
    names = [name for name in found.files if name.startswith("profiles/")]
    assert names == ["profiles/local.json", "profiles/mine.json"]
    assert "The profile gone is not there any more." in found.notes
    monkeypatch.delenv(ELSEWHERE)
    assert "mine" not in references()


def test_a_bundles_points_are_what_its_cells_plan_with(tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    for name, about in (("mine", "a stranger's"), ("local", "another local one")):
        body = reference("paper").model_dump(mode="json") | {"name": name, "about": about}
        (tmp_path / "profiles" / f"{name}.json").write_text(json.dumps(body))
    ours = reference("local")
    with profiles_of(tmp_path):
        assert {"mine", "paper"} <= set(references())
        assert (reference("local").about, reference("paper").name) == ("another local one", "paper")
    assert reference("local") == ours
    assert "mine" not in references()
    with profiles_of(tmp_path / "profiles"):  # a bundle that has none
        assert reference("local") == ours


def test_a_folder_without_its_plan_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not tell what the campaign was"):
        sources([tmp_path], tmp_path)


def test_a_folder_of_another_name_is_told_its_own(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, dict(TINY) | {"ground": "local"}).rename(tmp_path / "kept")
    with pytest.raises(UserError, match=r"kept: holds runs of the campaign tiny: call the folder"):
        sources([folder], tmp_path)


def test_two_files_of_one_name_are_not_taken_for_each_other(tmp_path: Path) -> None:
    folders = []
    for index, name in enumerate(("one", "two")):
        spec = tmp_path / name / "dlr.yaml"
        spec.parent.mkdir()
        spec.write_text(SPEC.read_text())
        body = dict(TINY) | {"name": f"tiny-{index}", "ground": "local", "spec": str(spec)}
        folders.append(folder_of(tmp_path / "artifacts", body))
    (tmp_path / "scratch").mkdir()
    assert "specs/dlr.yaml" in sources(folders, tmp_path / "scratch").files
    spec.write_text(SPEC.read_text() + "# another\n")
    with pytest.raises(UserError, match=r"would both be specs/dlr.yaml in the bundle"):
        sources(folders, tmp_path / "scratch")


@pytest.mark.parametrize("text", ["- a\n", "{", "a: [\n"])
def test_a_strangers_campaign_that_is_none_is_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "campaigns").mkdir()
    (tmp_path / "campaigns" / "tiny.yaml").write_text(text)
    with pytest.raises(UserError, match=r"tiny.yaml: "):
        again(tmp_path, "tiny", tmp_path / "new")


def test_it_is_run_again_from_the_bundle_alone(tmp_path: Path) -> None:
    body = dict(TINY) | {"ground": "sim", "spec": str(SPEC)}
    bundle = unpacked(tmp_path, folder_of(tmp_path, body))
    asked = again(bundle, "tiny", tmp_path / "new", figure="6a")
    file = Path(str(asked.request.campaign))
    campaign = load_campaign(file)
    assert resolve(campaign.spec, file).resolve() == (bundle / "specs" / "dlr.yaml").resolve()
    assert Path(campaign.notebook) == ROOT / "notebooks" / "dlr_experiment.ipynb"
    assert (asked.request.figure, asked.request.artifacts) == ("6a", tmp_path / "new")
    assert asked.ground == "sim"
    other = tmp_path / "other.yaml"
    other.write_text(SPEC.read_text())
    asked = again(bundle, "tiny", tmp_path / "new", spec=other, testbed="mine")
    assert resolve(load_campaign(file).spec, file) == other
    assert asked.request.testbed == "mine"


@pytest.mark.parametrize(
    ("campaign", "options", "said"),
    [
        ("other", {}, "holds no file of the campaign other"),
        ("tiny", {"spec": Path("nowhere.yaml")}, "--spec nowhere.yaml: there is no such file"),
    ],
)
def test_a_mistake_is_one_sentence(
    campaign: str, options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    bundle = unpacked(tmp_path, folder_of(tmp_path, dict(TINY) | {"ground": "local"}))
    with pytest.raises(UserError, match=said):
        again(bundle, campaign, tmp_path / "new", **options)


def asked_for(tmp_path: Path, body: dict[str, Any]) -> Again:
    file = tmp_path / "x.yaml"
    file.write_text(yaml.safe_dump(body))
    return Again(Request(str(file)), str(body.get("ground", "sim")))


@pytest.mark.parametrize(
    ("body", "exact"),
    [
        (dict(TWOCHOICE), True),
        (dict(URSA), False),  # a planner's seconds are part of its result
        (dict(TINY) | {"ground": "sim"}, True),
        (dict(TINY) | {"ground": "local"}, False),
    ],
)
def test_what_must_be_the_same_to_the_bit(
    body: dict[str, Any], exact: bool, tmp_path: Path
) -> None:
    assert is_exact(asked_for(tmp_path, body)) is exact


def test_what_is_simulated_is_not_compared_with_what_was_measured(tmp_path: Path) -> None:
    bundle = unpacked(tmp_path, folder_of(tmp_path, dict(TINY) | {"ground": "local"}))
    moved = again(bundle, "tiny", tmp_path / "new", ground="inventory")
    assert (moved.request.ground, moved.ground) == ("inventory", "local")
    with pytest.raises(UserError, match="never compared with what was measured"):
        again(bundle, "tiny", tmp_path / "new", ground="sim")


def test_a_word_takes_it_to_another_site(tmp_path: Path) -> None:
    bundle = unpacked(tmp_path, folder_of(tmp_path, dict(TINY) | {"ground": "local"}))
    asked = again(bundle, "tiny", tmp_path / "new", site="inventory")
    file = Path(str(asked.request.campaign))
    spec = load_spec(resolve(load_campaign(file).spec, file))
    assert spec.site.kind == "inventory"
    assert spec.digest() == load_spec(SPEC).digest()


def test_what_needs_no_testbed_has_no_site(tmp_path: Path) -> None:
    bundle = unpacked(tmp_path, folder_of(tmp_path, dict(TWOCHOICE)))
    with pytest.raises(UserError, match="twochoice-tiny needs no testbed"):
        again(bundle, "twochoice-tiny", tmp_path / "new", site="local")
