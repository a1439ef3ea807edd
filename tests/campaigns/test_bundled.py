"""Files of Hotbed that a bundle includes, and reruns of campaigns from a bundle."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from campaigns.bundled import RerunRequest, is_exact, profiles_of, require, sources
from campaigns.bundled import again as again_as_asked
from campaigns.engine import session
from campaigns.engine.campaign_file import ROOT, find_campaign, load_campaign, resolve
from campaigns.engine.kind import OnTestbed, Prepared
from campaigns.engine.provenance import Facts
from campaigns.engine.session import Request
from campaigns.papers.mos.profile.points import ELSEWHERE, reference, references
from schemas.errors import UserError
from schemas.run import Provenance
from testbed.spec import load_spec
from tests.campaigns.bundled_files import SPEC, folder_of, found_in, ran, unpacked
from tests.campaigns.tiny_campaigns import TINY
from tests.campaigns.tiny_kinds import TWOCHOICE, URSA
from tests.errors import raises


def again(bundle: Path, campaign: str, artifacts: Path, **options: Any) -> Request:
    asked = RerunRequest(bundle, artifacts=artifacts, **options)
    return again_as_asked(bundle, campaign, asked)


def test_the_files_behind_the_runs_come_along(tmp_path):
    digest = load_spec(SPEC).digest()
    folder = folder_of(tmp_path, dict(TINY) | {"ground": "local"}, spec_digest=digest)
    found = found_in(tmp_path, folder)
    assert {
        *("environment/requirements.lock", "environment/environment.yml", "LICENSE"),
        *("campaigns/tiny.yaml", "specs/dlr.yaml", "notebooks/experiment.ipynb"),
    } <= set(found.files)
    assert found.hide[str(ROOT)] == "$HOTBED"
    assert not [note for note in found.notes if "spec" in note]
    assert found.authors == ({"name": "Hotbed maintainers"},)
    changed = folder_of(tmp_path / "x", dict(TINY) | {"ground": "local"}, spec_digest="another")
    assert any("dlr.yaml" in note for note in found_in(tmp_path, changed).notes)


def test_controllers_of_ones_own_come_along_and_are_run_again(tmp_path):
    folders = [
        folder_of(tmp_path / "artifacts", dict(TINY) | {"ground": "sim", "name": name})
        for name in ("mine", "usual")
    ]
    own = tmp_path / "own"
    (own / "shy" / "__pycache__").mkdir(parents=True)
    (own / "shy" / "policy.py").write_text("NAME = 'shy'\n")
    (own / "shy" / "__pycache__" / "policy.pyc").write_bytes(b"\0")
    places = {"shy": own, "dlr": own, "gone": tmp_path / "nowhere"}
    jobs = [
        {"controllers_dir": str(place), "parameters": {"controller": name}}
        for name, place in places.items()
    ]
    ran(folders[0], *jobs)
    ran(folders[1], {"parameters": {"controller": "dlr"}})
    found = found_in(tmp_path, *folders)
    controllers = [name for name in found.files if name.startswith("controllers/")]
    assert controllers == ["controllers/shy/policy.py"]
    assert any("controller gone" in note for note in found.notes)
    bundle = unpacked(tmp_path, *folders)
    asked = [again(bundle, name, tmp_path / "new") for name in ("mine", "usual")]
    assert [one.controllers_dir for one in asked] == [bundle / "controllers", None]


def microstores(place: Path, *profiles: str) -> Path:
    """Write a MOS campaign with cells that name these profiles."""
    folder = folder_of(place, dict(TINY) | {"name": "mos-tiny", "system": "mos"})
    return ran(folder, *({"parameters": {"profile": profile}} for profile in profiles))


def test_points_that_cells_plan_with_come_along(tmp_path, monkeypatch):
    kept = tmp_path / "kept"
    kept.mkdir()
    body = reference("paper").model_dump(mode="json") | {"name": "mine", "about": "my own runs"}
    (kept / "mine.json").write_text(json.dumps(body))
    monkeypatch.setenv(ELSEWHERE, str(kept))
    folder = microstores(tmp_path / "artifacts", "mine", "local", "gone")
    found = found_in(tmp_path, folder)
    names = [name for name in found.files if name.startswith("profiles/")]
    assert names == ["profiles/local.json", "profiles/mine.json"]
    assert "The profile gone is not there any more." in found.notes
    monkeypatch.delenv(ELSEWHERE)
    assert "mine" not in references()


def test_a_folder_must_have_its_campaigns_name(tmp_path):
    folder = folder_of(tmp_path, dict(TINY) | {"ground": "local"}).rename(tmp_path / "kept")
    with raises(UserError, where="kept"):
        found_in(tmp_path, folder)


def test_two_files_of_one_name_are_not_taken_for_each_other(tmp_path):
    folders = []
    for index, name in enumerate(("one", "two")):
        spec = tmp_path / name / "dlr.yaml"
        spec.parent.mkdir()
        spec.write_text(SPEC.read_text())
        body = dict(TINY) | {"name": f"tiny-{index}", "ground": "local", "spec": str(spec)}
        folders.append(folder_of(tmp_path / "artifacts", body))
    assert "specs/dlr.yaml" in found_in(tmp_path, *folders).files
    spec.write_text(SPEC.read_text() + "# another\n")
    with raises(UserError, "specs/dlr.yaml"):
        found_in(tmp_path, *folders)


def next_to(place: Path, text: str) -> tuple[Path, dict[str, object]]:
    """Write a spec next to a user's own campaign file and return it with its campaign."""
    spec = place / "lab" / "mine.yaml"
    spec.parent.mkdir(parents=True)
    spec.write_text(text)
    return spec, dict(TINY) | {"ground": "local", "spec": "mine.yaml"}


def test_files_next_to_the_campaigns_own_file_come_along(tmp_path, monkeypatch):
    """The place of the bundle and another file of the same name there do not matter."""
    spec, body = next_to(tmp_path, SPEC.read_text())
    notebook = spec.with_name("mine.ipynb")
    notebook.write_text("{}")
    job = {"spec": str(spec), "notebook": str(notebook)}
    folder = folder_of(tmp_path / "artifacts", body | {"notebook": "mine.ipynb"})
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.yaml").write_text("another: one\n")
    monkeypatch.chdir(elsewhere)
    found = found_in(tmp_path, ran(folder, job))
    assert found.files["specs/mine.yaml"] == spec
    assert found.files["notebooks/mine.ipynb"] == notebook


@pytest.mark.parametrize("key", ["spec", "notebook"])
def test_a_missing_file_of_a_campaign_is_named(key, tmp_path):
    spec, body = next_to(tmp_path, SPEC.read_text())
    gone = str(tmp_path / "gone" / "mine.x")
    folder = folder_of(tmp_path / "artifacts", body | {key: "mine.x"})
    with raises(UserError, f"{key} mine.x", gone, where="tiny"):
        found_in(tmp_path, ran(folder, {"spec": str(spec)} | {key: gone}))


def test_files_next_to_a_spec_are_written_into_it(tmp_path):
    """The spec could not be read without the proxy profile."""
    text = (ROOT / "testbed" / "specs" / "pm-local.yaml").read_text()
    spec, body = next_to(tmp_path, text.replace("kind: nfs", "kind: nfs\n  profile: disk.json"))
    spec.with_name("disk.json").write_text(json.dumps({"type": "storageTable", "a": [1e-05]}))
    digest = load_spec(spec).digest()
    folder = folder_of(tmp_path / "artifacts", body, spec_digest=digest)
    found = found_in(tmp_path, ran(folder, {"spec": str(spec)}))
    packed = tmp_path / "bundle" / "mine.yaml"
    packed.parent.mkdir()
    packed.write_bytes(found.files["specs/mine.yaml"].read_bytes())
    assert load_spec(packed).digest() == digest
    assert not [note for note in found.notes if "spec" in note]


def test_files_of_other_attempts_do_not_come_along(tmp_path):
    folder = folder_of(tmp_path / "artifacts", dict(TINY) | {"ground": "sim"})
    models = [tmp_path / "old.yaml", tmp_path / "new.yaml"]
    for model in models:
        model.write_text("clients: 2\n")
    ran(folder, *({"model": str(model)} for model in models))
    (tmp_path / "scratch").mkdir()
    found = sources({folder: [folder / "1" / "attempt-1"]}, tmp_path / "scratch")
    assert [name for name in found.files if name.startswith("models/")] == ["models/new.yaml"]


# Reruns of campaigns from a bundle.


def test_a_bundles_points_are_what_its_cells_plan_with(tmp_path):
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
    with profiles_of(tmp_path / "profiles"):  # a bundle without profiles
        assert reference("local") == ours


@pytest.mark.parametrize("notebook", ["experiment", "dlr_experiment"])
def test_it_is_run_again_from_the_bundle_alone(notebook, tmp_path):
    named = {"notebook": f"notebooks/{notebook}.ipynb"}
    body = dict(TINY) | {"ground": "sim", "spec": str(SPEC)} | named
    bundle = unpacked(tmp_path, folder_of(tmp_path, body))
    asked = again(bundle, "tiny", tmp_path / "new", figure="6a")
    file = Path(str(asked.campaign))
    campaign = load_campaign(file)
    assert resolve(campaign.spec, file).resolve() == (bundle / "specs" / "dlr.yaml").resolve()
    assert Path(campaign.notebook) == ROOT / "notebooks" / "experiment.ipynb"
    assert (asked.figure, asked.artifacts) == ("6a", tmp_path / "new")
    other = tmp_path / "other.yaml"
    other.write_text(SPEC.read_text())
    asked = again(bundle, "tiny", tmp_path / "new", spec=other, testbed="mine")
    assert resolve(load_campaign(file).spec, file) == other
    assert asked.testbed == "mine"


def test_a_bundle_names_no_file_of_this_machine(tmp_path):
    bundle = unpacked(tmp_path, folder_of(tmp_path, dict(TINY) | {"ground": "sim"}))
    ours = tmp_path / "private.yaml"
    ours.write_text(SPEC.read_text())
    file = bundle / "campaigns" / "tiny.yaml"
    body = yaml.safe_load(file.read_text()) | {"spec": str(ours), "notebook": f"{ours}.ipynb"}
    file.write_text(yaml.safe_dump(body))
    again(bundle, "tiny", tmp_path / "new")
    campaign = load_campaign(file)
    assert campaign.spec == "../specs/private.yaml"
    assert campaign.notebook == "../notebooks/private.yaml.ipynb"


def test_a_mistake_is_one_sentence(tmp_path):
    bundle = unpacked(tmp_path, folder_of(tmp_path, dict(TINY) | {"ground": "local"}))
    with raises(UserError, "other"):
        again(bundle, "other", tmp_path / "new")
    with raises(UserError, where="--spec: nowhere.yaml"):
        again(bundle, "tiny", tmp_path / "new", spec=Path("nowhere.yaml"))
    for text in ("- a\n", "{", "a: [\n"):
        (bundle / "campaigns" / "tiny.yaml").write_text(text)
        with raises(UserError, where="tiny.yaml"):
            again(bundle, "tiny", tmp_path / "new")


@pytest.mark.parametrize(
    ("body", "exact"),
    [
        (dict(TWOCHOICE), True),
        (dict(URSA), False),  # a planner's seconds are part of its result
        (dict(TINY) | {"ground": "sim"}, True),
        (dict(TINY) | {"ground": "local"}, False),
    ],
)
def test_results_that_must_agree_to_the_bit(body, exact, tmp_path):
    file = tmp_path / "x.yaml"
    file.write_text(yaml.safe_dump(body))
    assert is_exact(file) is exact


def test_another_ground_or_site_is_a_real_one(tmp_path):
    bundle = unpacked(tmp_path, folder_of(tmp_path, dict(TINY) | {"ground": "local"}))
    moved = again(bundle, "tiny", tmp_path / "new", ground="inventory")
    assert moved.ground == "inventory"
    with raises(UserError, where="--ground sim"):
        again(bundle, "tiny", tmp_path / "new", ground="sim")
    asked = again(bundle, "tiny", tmp_path / "new", site="inventory")
    file = Path(str(asked.campaign))
    spec = load_spec(resolve(load_campaign(file).spec, file))
    assert spec.site.kind == "inventory"
    assert spec.digest() == load_spec(SPEC).digest()


def simulated(place: Path, name: str, *models: Path | None) -> Path:
    """Write a simulated campaign with one attempt per constants file."""
    folder = folder_of(place / "artifacts", dict(TINY) | {"ground": "sim", "name": name})
    return ran(folder, *({"model": None if model is None else str(model)} for model in models))


def constants(place: Path, name: str, clients: int) -> Path:
    file = place / f"{name}.yaml"
    file.write_text(f"clients: {clients}\n")
    return file


def test_a_campaign_is_run_again_on_its_own_constants(tmp_path):
    """Constants of the bundle's other campaigns, or their absence, do not matter."""
    a, b = constants(tmp_path, "a", 2), constants(tmp_path, "b", 3)
    wanted = {"one": a, "two": b, "three": None}
    folders = [simulated(tmp_path, name, model) for name, model in wanted.items()]
    bundle = unpacked(tmp_path, *folders, ran(folder_of(tmp_path / "artifacts", dict(TWOCHOICE))))
    for name, model in wanted.items():
        require(bundle, name)
        found = again(bundle, name, tmp_path / "new").model
        assert found == (None if model is None else bundle / "models" / model.name)
    # This campaign is of another kind, which takes no constants.
    other = again(bundle, "twochoice-tiny", tmp_path / "new")
    assert other.model is None
    assert other.controllers_dir is None


def test_several_or_lost_constants_are_named(tmp_path):
    a, b = constants(tmp_path, "a", 2), constants(tmp_path, "b", 3)
    bundle = unpacked(
        tmp_path, simulated(tmp_path, "both", a, b), simulated(tmp_path, "usual", a, None)
    )
    gone = simulated(tmp_path / "gone", "gone", tmp_path / "gone.yaml")
    shutil.copytree(gone, bundle / "artifacts" / "gone")
    shutil.copy(bundle / "campaigns" / "usual.yaml", bundle / "campaigns" / "gone.yaml")
    refused = {"both": "(a.yaml, b.yaml)", "usual": "(a.yaml, and its usual", "gone": "gone.yaml"}
    for name, said in refused.items():
        with raises(UserError, name, said):
            require(bundle, name)
        with raises(UserError, name, said):
            again(bundle, name, tmp_path / "new")


def test_a_missing_spec_is_named(tmp_path):
    bundle = unpacked(tmp_path, folder_of(tmp_path, dict(TINY) | {"ground": "local"}))
    require(bundle, "tiny")
    (bundle / "specs" / "dlr.yaml").write_text("name: [\n")
    with raises(UserError, where="dlr.yaml"):
        require(bundle, "tiny")
    (bundle / "specs" / "dlr.yaml").unlink()
    with raises(UserError, "specs/dlr.yaml"):
        require(bundle, "tiny")


def test_a_kind_on_a_testbed_is_opened_and_its_jobs_record_the_place_of_their_spec(
    tmp_path, monkeypatch
):
    """A bundle looks for the spec there."""
    report: list[tuple[Path | None, str]] = []

    @contextmanager
    def opened(*_: object) -> Iterator[tuple[Facts, object]]:
        yield Facts("local", {}), None

    def made(prepared: Prepared, made_by: Provenance, *_: object) -> None:
        report.append((prepared.spec_file, made_by.site))

    kind, ground = session.declared(load_campaign(find_campaign("mos-local")))
    assert isinstance(ground, OnTestbed)
    monkeypatch.setattr(session, "declared", lambda _: (kind, replace(ground, open=opened)))
    monkeypatch.setattr(session, "typed_cells", lambda *_: {})
    monkeypatch.setattr(session, "make_cells", made)
    session.run(Request("mos-local", artifacts=tmp_path))
    assert report == [(ROOT / "testbed" / "specs" / "mos-local.yaml", "local")]
