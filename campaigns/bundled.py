"""What of Hotbed a bundle takes along, and a campaign that is run again from one.

The runs themselves are `analysis.bundle`'s; here are the files that made them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from campaigns.campaign_file import FILES, ROOT, load_campaign, resolve
from campaigns.mos.profile.points import ELSEWHERE
from campaigns.mos.profile.points import place as place_of
from campaigns.provenance import code_state, hotbed_version
from campaigns.session import Request
from controllers.registry import available
from schemas.errors import UserError
from schemas.yaml_file import read_mapping
from testbed.spec import load_spec

LOCKS = ("requirements.lock", "environment.yml", "pyproject.toml")
_SKIPPED = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".git"}


@dataclass(frozen=True)
class Sources:
    """Files by their names in a bundle, folders of this machine and what stands for them, and what
    does not quite fit."""

    files: Mapping[str, Path]
    hide: Mapping[str, str]
    notes: tuple[str, ...]
    version: str
    commit: str | None
    authors: tuple[Mapping[str, Any], ...]


@dataclass
class _Found:
    files: dict[str, Path] = field(default_factory=dict)
    hide: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

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


def sources(campaigns: Sequence[Path], scratch: Path) -> Sources:
    """What made the runs in the folders `campaigns`.

    Args:
        campaigns: folders of runs.
        scratch: an empty folder for files that have to be written first.

    Raises:
        UserError: a campaign's record cannot be read, its folder has another name, or two of
            them name different files that would have one name.
    """
    found = _Found(hide={str(ROOT): "$HOTBED", str(Path.home()): "$HOME"})
    for name in LOCKS:
        if (ROOT / name).is_file():
            found.files[f"environment/{name}"] = ROOT / name
    found.files["LICENSE"] = ROOT / "LICENSE"
    for folder in campaigns:
        _add_campaign(found, folder, scratch)
    commit, dirty = code_state()
    if dirty:
        found.notes.append("The code that made this bundle differs from its commit.")
    return Sources(
        found.files, found.hide, tuple(found.notes), hotbed_version(), commit, tuple(_authors())
    )


def _add_campaign(found: _Found, folder: Path, scratch: Path) -> None:
    import yaml

    record = recorded(folder)
    body, identity = record["campaign"], record.get("identity", {})
    name = str(body["name"])
    if name != folder.name:
        raise UserError(
            f"{folder}: holds runs of the campaign {name}: call the folder {name} again."
        )
    text = yaml.safe_dump(portable(body), sort_keys=False, allow_unicode=True)
    file = scratch / f"{name}.yaml"
    file.write_text(text)
    found.add(f"campaigns/{name}.yaml", file)
    spec = _file(str(body.get("spec") or ""))
    if spec is not None:
        found.add(f"specs/{spec.name}", spec)
        found.notes += _changed(spec, str(identity.get("spec_digest", "")))
    notebook = _file(str(body.get("notebook") or ""))
    if notebook is not None:
        found.add(f"notebooks/{notebook.name}", notebook)
    models, own, profiles = set(), set(), set()
    for job in _jobs(folder):
        models.add(job.get("model"))
        parameters = job.get("parameters", {})
        own.add((str(job.get("controllers_dir") or ""), str(parameters.get("controller"))))
        profiles.add(str(parameters.get("profile") or ""))
    for name in sorted(filter(None, models)):
        if Path(name).is_file():
            found.add(f"models/{Path(name).name}", Path(name))
        else:
            found.notes.append(f"The constants {Path(name).name} are not there any more.")
    for place, controller in sorted(own):
        if place:
            _add_controller(found, Path(place), controller)
    if body.get("system") == "mos":
        _add_profiles(found, profiles - {""})


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


def _jobs(folder: Path) -> Iterator[Mapping[str, Any]]:
    for path in sorted(folder.glob("*/attempt-*/job.json")):
        try:
            body = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(body, dict):
            yield body


def _file(name: str) -> Path | None:
    """A file that a campaign names, where it is still there."""
    if not name:
        return None
    candidates = [Path(name), ROOT / name, FILES / name]
    if name.startswith("$HOTBED/"):
        candidates.append(ROOT / name.removeprefix("$HOTBED/"))
    return next((path for path in candidates if path.is_file()), None)


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


@contextmanager
def profiles_of(bundle: Path) -> Iterator[None]:
    """Cells plan with the measured points of an unpacked bundle, not with Hotbed's of that name,
    also those in processes of their own."""
    folder = bundle / "profiles"
    before = os.environ.get(ELSEWHERE)
    if folder.is_dir():
        os.environ[ELSEWHERE] = str(folder)
    try:
        yield
    finally:
        os.environ.pop(ELSEWHERE, None)
        if before is not None:
            os.environ[ELSEWHERE] = before


@dataclass(frozen=True)
class Again:
    """How a campaign of a bundle is run again: `request` is what `hotbed run` would get; the
    bundle's runs are of `ground`."""

    request: Request
    ground: str


def again(
    bundle: Path,
    campaign: str,
    artifacts: Path,
    *,
    figure: str | None = None,
    spec: Path | None = None,
    site: str | None = None,
    testbed: str | None = None,
    ground: str | None = None,
) -> Again:
    """The campaign `campaign` of an unpacked bundle, to be run into `artifacts`.

    Args:
        bundle: the folder that it is unpacked to; it must stay until the campaign has run. Its
            campaign's file is made to name what is there.
        campaign: its name.
        artifacts: a folder that is not the one with the original runs.
        figure: only the cells that feed it.
        spec: another testbed's file than the one in the bundle.
        site: another kind of site than the spec's, without options.
        testbed: another testbed than the spec's name.
        ground: another one than the campaign's, also of real machines.

    Raises:
        UserError: the bundle does not hold what is needed, or what is simulated would be held
            against what was measured.
    """
    import yaml

    file = bundle / "campaigns" / f"{campaign}.yaml"
    if not file.is_file():
        raise UserError(f"the bundle holds no file of the campaign {campaign}.")
    body = read_mapping(file, "a campaign is a mapping with name, grids and more")
    made_on = str(body.get("ground", "sim"))
    if ground not in (None, made_on) and "sim" in (ground, made_on):
        raise UserError(
            f"--ground {ground}: the bundle's runs are of ground {made_on}, and what is simulated "
            "is never compared with what was measured as if it were the same."
        )
    if spec is not None:
        if not spec.is_file():
            raise UserError(f"--spec {spec}: there is no such file.")
        body["spec"] = str(spec.resolve())
    if site is not None:
        body["spec"] = str(_on_site(bundle, file, str(body.get("spec") or ""), site))
    ours = ROOT / "notebooks" / Path(str(body.get("notebook") or "none")).name
    if ours.is_file():  # a stranger's notebook is not run where Hotbed has it itself
        body["notebook"] = str(ours)
    file.write_text(yaml.safe_dump(body, sort_keys=False))
    models = sorted((bundle / "models").glob("*"))
    controllers = bundle / "controllers"
    request = Request(
        str(file),
        figure,
        testbed,
        artifacts,
        controllers if controllers.is_dir() else None,
        ground,
        models[0] if len(models) == 1 else None,
    )
    return Again(request, made_on)


def _on_site(bundle: Path, campaign: Path, spec: str, site: str) -> Path:
    """The spec with another site, as a file in the bundle's folder."""
    import yaml

    if not spec:
        raise UserError(f"--site {site}: {campaign.stem} needs no testbed: leave it out.")
    body = read_mapping(resolve(spec, campaign), "a spec is a mapping with name, groups and store")
    body["site"] = {"kind": site}
    made = bundle / "specs" / f"on-{site}-{Path(spec).name}"
    made.write_text(yaml.safe_dump(body, sort_keys=False))
    load_spec(made)
    return made


def is_exact(asked: Again) -> bool:
    """Whether its results must be those of the bundle to the bit: they are simulated, and no
    seconds of this machine are among them."""
    from campaigns.kinds.kind import Computed
    from campaigns.kinds.registry import kind_of

    if asked.ground != "sim":
        return False
    kind = kind_of(load_campaign(Path(str(asked.request.campaign))))
    if kind is None:
        return True
    declared = kind.grounds[asked.ground]
    return isinstance(declared, Computed) and not declared.seconds_count
