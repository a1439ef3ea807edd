"""Files of Hotbed that a bundle includes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaigns.bundled import sources
from campaigns.engine.campaign_file import ROOT
from campaigns.papers.mos.profile.points import ELSEWHERE, reference, references
from schemas.errors import UserError
from testbed.spec import load_spec
from tests.campaigns.bundled_files import SPEC, folder_of, found_in, ran
from tests.campaigns.tiny_campaigns import TINY
from tests.errors import raises

POLICY = "NAME = 'shy'\n"


def test_it_takes_along_what_made_the_runs(tmp_path: Path) -> None:
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


def test_a_spec_that_has_changed_is_told(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, dict(TINY) | {"ground": "local"}, spec_digest="another")
    notes = found_in(tmp_path, folder).notes
    assert any("dlr.yaml" in note for note in notes)


def test_controllers_of_ones_own_come_along(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, dict(TINY) | {"ground": "local"})
    own = tmp_path / "own"
    (own / "shy" / "__pycache__").mkdir(parents=True)
    (own / "shy" / "policy.py").write_text(POLICY)
    (own / "shy" / "__pycache__" / "policy.pyc").write_bytes(b"\0")
    places = {"shy": own, "dlr": own, "gone": tmp_path / "nowhere"}
    jobs = [
        {"controllers_dir": str(place), "parameters": {"controller": name}}
        for name, place in places.items()
    ]
    ran(folder, *jobs)
    found = found_in(tmp_path, folder)
    controllers = [name for name in found.files if name.startswith("controllers/")]
    assert controllers == ["controllers/shy/policy.py"]
    assert any("controller gone" in note for note in found.notes)


def microstores(place: Path, *profiles: str) -> Path:
    """Write a MOS campaign with cells that name these profiles."""
    folder = folder_of(place, dict(TINY) | {"name": "mos-tiny", "system": "mos"})
    return ran(folder, *({"parameters": {"profile": profile}} for profile in profiles))


def test_points_that_cells_plan_with_come_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_folder_without_its_plan_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        found_in(tmp_path, tmp_path)


def test_a_folder_of_another_name_is_told_its_own(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, dict(TINY) | {"ground": "local"}).rename(tmp_path / "kept")
    with raises(UserError, where="kept"):
        found_in(tmp_path, folder)


def test_two_files_of_one_name_are_not_taken_for_each_other(tmp_path: Path) -> None:
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


def beside(place: Path, text: str) -> tuple[Path, dict[str, object]]:
    """Write a spec next to a user's own campaign file and return it with its campaign."""
    spec = place / "lab" / "mine.yaml"
    spec.parent.mkdir(parents=True)
    spec.write_text(text)
    return spec, dict(TINY) | {"ground": "local", "spec": "mine.yaml"}


def test_what_is_named_beside_the_campaigns_own_file_comes_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place of the bundle and another file of the same name there do not matter."""
    spec, body = beside(tmp_path, SPEC.read_text())
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
def test_without_what_it_names_nobody_could_run_it_again(key: str, tmp_path: Path) -> None:
    spec, body = beside(tmp_path, SPEC.read_text())
    gone = str(tmp_path / "gone" / "mine.x")
    folder = folder_of(tmp_path / "artifacts", body | {key: "mine.x"})
    with raises(UserError, f"{key} mine.x", gone, where="tiny"):
        found_in(tmp_path, ran(folder, {"spec": str(spec)} | {key: gone}))


def test_the_latest_runs_tell_where_a_spec_is(tmp_path: Path) -> None:
    spec, body = beside(tmp_path, SPEC.read_text())
    old = tmp_path / "old" / "mine.yaml"
    old.parent.mkdir()
    old.write_text("another: one\n")
    jobs = [
        {"spec": str(place), "started_at": f"2026-01-0{day}"}
        for day, place in ((1, old), (2, spec), (3, tmp_path / "gone" / "mine.yaml"))
    ]
    folder = ran(folder_of(tmp_path / "artifacts", body), *jobs)
    assert found_in(tmp_path, folder).files["specs/mine.yaml"] == spec


def test_what_a_spec_names_beside_it_is_written_into_it(tmp_path: Path) -> None:
    """The spec could not be read without the proxy profile."""
    text = (ROOT / "testbed" / "specs" / "pm-local.yaml").read_text()
    spec, body = beside(tmp_path, text.replace("kind: nfs", "kind: nfs\n  profile: disk.json"))
    spec.with_name("disk.json").write_text(json.dumps({"type": "storageTable", "a": [1e-05]}))
    digest = load_spec(spec).digest()
    folder = folder_of(tmp_path / "artifacts", body, spec_digest=digest)
    found = found_in(tmp_path, ran(folder, {"spec": str(spec)}))
    packed = tmp_path / "bundle" / "mine.yaml"
    packed.parent.mkdir()
    packed.write_bytes(found.files["specs/mine.yaml"].read_bytes())
    assert load_spec(packed).digest() == digest
    assert not [note for note in found.notes if "spec" in note]


def test_what_only_other_attempts_had_does_not_come_along(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "artifacts", dict(TINY) | {"ground": "sim"})
    models = [tmp_path / "old.yaml", tmp_path / "new.yaml"]
    for model in models:
        model.write_text("clients: 2\n")
    ran(folder, *({"model": str(model)} for model in models))
    (tmp_path / "scratch").mkdir()
    found = sources({folder: [folder / "1" / "attempt-1"]}, tmp_path / "scratch")
    assert [name for name in found.files if name.startswith("models/")] == ["models/new.yaml"]
