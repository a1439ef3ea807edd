"""Reruns of campaigns from a bundle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from campaigns.bundled import Again, again, is_exact, profiles_of, require
from campaigns.engine import session
from campaigns.engine.attempts import Setting
from campaigns.engine.campaign_file import ROOT, find_campaign, load_campaign, resolve
from campaigns.engine.kind import OnTestbed
from campaigns.engine.provenance import Facts
from campaigns.engine.session import Request
from campaigns.papers.mos.profile.points import reference, references
from schemas.errors import UserError
from testbed.spec import load_spec
from tests.campaigns.bundled_files import SPEC, folder_of, ran, unpacked
from tests.campaigns.tiny_campaigns import TINY
from tests.campaigns.tiny_kinds import TWOCHOICE, URSA
from tests.errors import raises


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
    with profiles_of(tmp_path / "profiles"):  # a bundle without profiles
        assert reference("local") == ours


@pytest.mark.parametrize("text", ["- a\n", "{", "a: [\n"])
def test_a_strangers_campaign_that_is_none_is_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "campaigns").mkdir()
    (tmp_path / "campaigns" / "tiny.yaml").write_text(text)
    with raises(UserError, where="tiny.yaml"):
        again(tmp_path, "tiny", tmp_path / "new")


@pytest.mark.parametrize("notebook", ["experiment", "dlr_experiment"])
def test_it_is_run_again_from_the_bundle_alone(notebook: str, tmp_path: Path) -> None:
    named = {"notebook": f"notebooks/{notebook}.ipynb"}
    body = dict(TINY) | {"ground": "sim", "spec": str(SPEC)} | named
    bundle = unpacked(tmp_path, folder_of(tmp_path, body))
    asked = again(bundle, "tiny", tmp_path / "new", figure="6a")
    file = Path(str(asked.request.campaign))
    campaign = load_campaign(file)
    assert resolve(campaign.spec, file).resolve() == (bundle / "specs" / "dlr.yaml").resolve()
    assert Path(campaign.notebook) == ROOT / "notebooks" / "experiment.ipynb"
    assert (asked.request.figure, asked.request.artifacts) == ("6a", tmp_path / "new")
    assert asked.ground == "sim"
    other = tmp_path / "other.yaml"
    other.write_text(SPEC.read_text())
    asked = again(bundle, "tiny", tmp_path / "new", spec=other, testbed="mine")
    assert resolve(load_campaign(file).spec, file) == other
    assert asked.request.testbed == "mine"


def test_a_bundle_names_no_file_of_this_machine(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("campaign", "options", "said"),
    [
        ("other", {}, "holds no file of the"),
        ("tiny", {"spec": Path("nowhere.yaml")}, "--spec nowhere.yaml"),
    ],
)
def test_a_mistake_is_one_sentence(
    campaign: str, options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    bundle = unpacked(tmp_path, folder_of(tmp_path, dict(TINY) | {"ground": "local"}))
    with raises(UserError, said):
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
    with pytest.raises(UserError):
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
    with pytest.raises(UserError):
        again(bundle, "twochoice-tiny", tmp_path / "new", site="local")


def simulated(place: Path, name: str, *models: Path | None) -> Path:
    """Write a simulated campaign with one attempt per constants file."""
    folder = folder_of(place / "artifacts", dict(TINY) | {"ground": "sim", "name": name})
    return ran(folder, *({"model": None if model is None else str(model)} for model in models))


def constants(place: Path, name: str, clients: int) -> Path:
    file = place / f"{name}.yaml"
    file.write_text(f"clients: {clients}\n")
    return file


def test_a_campaign_is_run_again_on_its_own_constants(tmp_path: Path) -> None:
    """Constants of the bundle's other campaigns, or their absence, do not matter."""
    a, b = constants(tmp_path, "a", 2), constants(tmp_path, "b", 3)
    wanted = {"one": a, "two": b, "three": None}
    folders = [simulated(tmp_path, name, model) for name, model in wanted.items()]
    bundle = unpacked(tmp_path, *folders, ran(folder_of(tmp_path / "artifacts", dict(TWOCHOICE))))
    for name, model in wanted.items():
        require(bundle, name)
        found = again(bundle, name, tmp_path / "new").request.model
        assert found == (None if model is None else bundle / "models" / model.name)
    # This campaign is of another kind, which takes no constants.
    other = again(bundle, "twochoice-tiny", tmp_path / "new")
    assert other.request.model is None
    assert other.request.controllers_dir is None


def test_constants_that_are_the_same_are_one(tmp_path: Path) -> None:
    a, b = constants(tmp_path, "a", 2), constants(tmp_path, "b", 2)
    bundle = unpacked(tmp_path, simulated(tmp_path, "both", a, b))
    assert again(bundle, "both", tmp_path / "new").request.model == bundle / "models" / "a.yaml"


def test_several_constants_in_one_campaign_are_told(tmp_path: Path) -> None:
    a, b = constants(tmp_path, "a", 2), constants(tmp_path, "b", 3)
    bundle = unpacked(
        tmp_path, simulated(tmp_path, "both", a, b), simulated(tmp_path, "usual", a, None)
    )
    for name, said in (("both", "(a.yaml, b.yaml)"), ("usual", "(a.yaml, and its usual")):
        with raises(UserError, name, said):
            require(bundle, name)
        with raises(UserError, name, said):
            again(bundle, name, tmp_path / "new")


def test_constants_that_are_gone_are_told(tmp_path: Path) -> None:
    gone = tmp_path / "gone.yaml"
    bundle = unpacked(tmp_path, simulated(tmp_path, "tiny", gone))
    with raises(UserError, "gone.yaml"):
        require(bundle, "tiny")


def test_controllers_are_those_of_the_campaign(tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / "shy").mkdir(parents=True)
    (own / "shy" / "policy.py").write_text("NAME = 'shy'\n")
    folders = [
        folder_of(tmp_path / "artifacts", dict(TINY) | {"ground": "sim", "name": name})
        for name in ("mine", "usual")
    ]
    ran(folders[0], {"controllers_dir": str(own), "parameters": {"controller": "shy"}})
    ran(folders[1], {"parameters": {"controller": "dlr"}})
    bundle = unpacked(tmp_path, *folders)
    found = [again(bundle, name, tmp_path / "new").request for name in ("mine", "usual")]
    assert [one.controllers_dir for one in found] == [bundle / "controllers", None]


def test_a_spec_that_is_not_there_is_told(tmp_path: Path) -> None:
    bundle = unpacked(tmp_path, folder_of(tmp_path, dict(TINY) | {"ground": "local"}))
    require(bundle, "tiny")
    (bundle / "specs" / "dlr.yaml").write_text("name: [\n")
    with raises(UserError, where="dlr.yaml"):
        require(bundle, "tiny")
    (bundle / "specs" / "dlr.yaml").unlink()
    with raises(UserError, "specs/dlr.yaml"):
        require(bundle, "tiny")


def test_jobs_of_every_kind_tell_where_their_spec_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle looks for the spec there."""
    told: list[Path | None] = []

    @contextmanager
    def opened(*_: object) -> Iterator[tuple[Facts, object]]:
        yield Facts("local", {}), None

    def made(_prepared: object, setting: Setting, *_: object) -> None:
        told.append(setting.spec)

    kind, ground = session.declared(load_campaign(find_campaign("mos-local")))
    assert isinstance(ground, OnTestbed)
    monkeypatch.setattr(session, "declared", lambda _: (kind, replace(ground, open=opened)))
    monkeypatch.setattr(session, "typed_cells", lambda *_: {})
    monkeypatch.setattr(session, "make_cells", made)
    session.run(Request("mos-local", artifacts=tmp_path))
    assert told == [ROOT / "testbed" / "specs" / "mos-local.yaml"]
