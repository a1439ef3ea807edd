"""What made the runs of a campaign, as far as a bundle takes it along.

The runs themselves are `analysis.bundle`'s; `campaigns.again` runs a campaign again from a bundle.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from campaigns.bundled_spec import portable_spec
from campaigns.campaign_file import FILES, ROOT
from campaigns.mos.profile.points import place as place_of
from campaigns.provenance import code_state, hotbed_version
from controllers.registry import available
from schemas.errors import UserError
from schemas.yaml_file import dump, read_mapping, survey
from testbed.spec import NfsSpec, load_spec

LOCKS = ("requirements.lock", "environment.yml", "pyproject.toml")
Job = Mapping[str, Any]
_SKIPPED = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".git"}


@dataclass(frozen=True)
class Sources:
    """Files by their names in a bundle, folders of this machine and what stands for them, what does
    not quite fit, and names of machines, users and projects that were left out of specs."""

    files: Mapping[str, Path]
    hide: Mapping[str, str]
    notes: tuple[str, ...]
    version: str
    commit: str | None
    authors: tuple[Mapping[str, Any], ...]
    names: tuple[str, ...] = ()


@dataclass
class _Found:
    files: dict[str, Path] = field(default_factory=dict)
    hide: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def add(self, name: str, file: Path) -> None:
        """Take a file.

        Raises:
            UserError: another one of that name is in the bundle, with other contents.
        """
        there = self.files.setdefault(name, file)
        if there != file and there.read_bytes() != file.read_bytes():
            raise UserError(
                f"{there} and {file} are two different files that would both be {name} in the "
                "bundle: bundle the campaigns one by one, or rename one of the files."
            )


def sources(campaigns: Mapping[Path, Sequence[Path]], scratch: Path) -> Sources:
    """What made the runs of campaigns (folder -> the attempts that go into the bundle).

    Args:
        campaigns: folders of runs.
        scratch: an empty folder for files that have to be written first.

    Raises:
        UserError: a campaign's record cannot be read, its folder has another name, a file that it
            names is gone, or two of them name different files that would have one name.
    """
    found = _Found(hide={str(ROOT): "$HOTBED", str(Path.home()): "$HOME"})
    for name in LOCKS:
        if (ROOT / name).is_file():
            found.files[f"environment/{name}"] = ROOT / name
    found.files["LICENSE"] = ROOT / "LICENSE"
    for folder, attempts in campaigns.items():
        _add_campaign(found, folder, list(jobs(attempts)), scratch)
    commit, dirty = code_state()
    if dirty:
        found.notes.append("The code that made this bundle differs from its commit.")
    return Sources(
        found.files,
        found.hide,
        tuple(found.notes),
        hotbed_version(),
        commit,
        tuple(_authors()),
        tuple(dict.fromkeys(found.names)),
    )


def _add_campaign(found: _Found, folder: Path, made: Sequence[Job], scratch: Path) -> None:
    record = recorded(folder)
    body, identity = record["campaign"], record.get("identity", {})
    name = str(body["name"])
    if name != folder.name:
        raise UserError(
            f"{folder}: holds runs of the campaign {name}: call the folder {name} again."
        )
    file = scratch / f"{name}.yaml"
    file.write_text(dump(portable(body)))
    found.add(f"campaigns/{name}.yaml", file)
    spec = _named(folder, body, "spec", made)
    if spec is not None:
        known = (body, record.get("cells"))
        found.add(f"specs/{spec.name}", _leaving(found, spec, known, scratch / name))
        found.notes += _changed(spec, str(identity.get("spec_digest", "")))
    notebook = _named(folder, body, "notebook", made)
    if notebook is not None:
        found.add(f"notebooks/{notebook.name}", notebook)
    models, own, profiles = set(), set(), set()
    for job in made:
        models.add(str(job.get("model") or ""))
        parameters = job.get("parameters", {})
        own.add((str(job.get("controllers_dir") or ""), str(parameters.get("controller"))))
        profiles.add(str(parameters.get("profile") or ""))
    for model in sorted(models - {""}):
        if Path(model).is_file():  # else the bundle is refused: it could not be run again
            found.add(f"models/{Path(model).name}", Path(model))
    for place, controller in sorted(own):
        if place:
            _add_controller(found, Path(place), controller)
    if body.get("system") == "mos":
        _add_profiles(found, profiles - {""})


def _leaving(found: _Found, spec: Path, campaign: object, scratch: Path) -> Path:
    """A spec that names no file beside it, no machine and nobody."""
    alone = _alone(spec, scratch)
    made = portable_spec(alone, spec.parent, campaign)
    found.names += made.names
    found.notes += made.notes
    if made.text is None:
        return alone
    scratch.mkdir(exist_ok=True)
    file = scratch / spec.name
    file.write_text(made.text)
    return file


def _alone(spec: Path, scratch: Path) -> Path:
    """A spec that names no file beside it: what the store is charged by is written into it, and
    what aliases stand for, which a bundle's readers refuse."""
    body = read_mapping(spec, "a spec is a mapping with name, groups and store")
    store = body.get("store")
    charged = isinstance(store, dict) and isinstance(store.get("profile"), str)
    if not charged and not survey(spec.read_text()):
        return spec
    if charged:
        read = load_spec(spec).store
        assert isinstance(store, dict)
        assert isinstance(read, NfsSpec)  # no other store has a profile
        store["profile"] = read.profile
    scratch.mkdir()
    made = scratch / spec.name
    made.write_text(dump(body))
    return made


def _changed(spec: Path, digest: str) -> Iterator[str]:
    if digest and load_spec(spec).digest() != digest:
        yield f"The spec {spec.name} has changed since the runs were made."


def _add_controller(found: _Found, own: Path, controller: str) -> None:
    """A controller that is not Hotbed's own."""
    try:
        known = available((own,)).get(controller)
    except UserError:
        known = None
    if known is None:
        found.notes.append(f"The code of the controller {controller} is not there any more.")
    elif known.outside:
        for file in sorted(known.folder.rglob("*")):
            inner = file.relative_to(known.folder)
            if file.is_file() and not _SKIPPED.intersection(inner.parts):
                found.add(f"controllers/{known.folder.name}/{inner.as_posix()}", file)


def _add_profiles(found: _Found, names: set[str]) -> None:
    """Measured points that cells name (`hotbed mos profile --keep`)."""
    for name in sorted(names):
        try:
            found.add(f"profiles/{name}.json", place_of(name))
        except UserError:
            found.notes.append(f"The profile {name} is not there any more.")


def jobs(attempts: Iterable[Path]) -> Iterator[Job]:
    """What the attempts in these folders were to do."""
    for attempt in attempts:
        try:
            body = json.loads((attempt / "job.json").read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(body, dict):
            yield body


def _named(folder: Path, body: Mapping[str, Any], key: str, made: Sequence[Job]) -> Path | None:
    """A file that a campaign names as its `key`: where its runs found it, the latest first; for
    runs of earlier code, which do not tell, where a campaign of Hotbed's own has it. None where
    it names none.

    Raises:
        UserError: it is not there any more.
    """
    name = str(body.get(key) or "")
    if not name:
        return None
    last = PurePosixPath(name).name
    latest = sorted(made, key=lambda job: str(job.get("started_at")), reverse=True)
    told = dict.fromkeys(str(job.get(key) or "") for job in latest)
    places = [Path(one) for one in told if PurePosixPath(one).name == last]
    places += [ROOT / name, FILES / name]
    # Of runs that lay in a bundle, or were made again from one.
    ours = [one for one in (name, *told) if one.startswith("$HOTBED/")]
    places += [ROOT / one.removeprefix("$HOTBED/") for one in ours]
    if name == f"../specs/{last}":
        places.append(ROOT / "testbed" / "specs" / last)
    for place in places:
        if place.is_file():
            return place
    raise UserError(
        f"{folder}: its campaign names the {key} {name}, which is not there any more "
        f"({places[0]}), so that nobody could run it again: put it back."
    )


def recorded(folder: Path) -> dict[str, Any]:
    """``campaign.json`` of a folder of runs.

    Raises:
        UserError: there is none, or it cannot be read.
    """
    path = folder / "campaign.json"
    try:
        body = json.loads(path.read_bytes())
        if isinstance(body["campaign"], dict) and body["campaign"]["name"]:
            return dict(body)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise UserError(
        f"{path}: does not tell what the campaign was; run it once more with hotbed run."
    )


def portable(body: Mapping[str, Any]) -> dict[str, Any]:
    """A campaign's file whose spec and notebook are found in a bundle, or in Hotbed."""
    changed = dict(body)
    for key, place in (("spec", "specs"), ("notebook", "notebooks")):
        name = str(body.get(key) or "")
        if name:
            changed[key] = f"../{place}/{PurePosixPath(name).name}"
    return changed


def stated(bundle: Path, campaign: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What an unpacked bundle's file of a campaign says, which is what `again` runs, and what the
    record that its runs lie beside says.

    Raises:
        UserError: either cannot be read.
    """
    file = bundle / "campaigns" / f"{campaign}.yaml"
    said = read_mapping(file, "a campaign is a mapping with name, grids and more")
    return said, portable(recorded(bundle / "artifacts" / campaign)["campaign"])


def _authors() -> Iterator[dict[str, Any]]:
    """Who is named in CITATION.cff."""
    import yaml

    known = ("name", "family-names", "given-names", "affiliation")
    for author in yaml.safe_load((ROOT / "CITATION.cff").read_text())["authors"]:
        found = {key.replace("-", "_"): str(author[key]) for key in known if key in author}
        if "orcid" in author:
            found["orcid"] = str(author["orcid"]).rpartition("/")[2]
        yield found
