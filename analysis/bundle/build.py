"""Makes a bundle: stages the runs, computes figures and claims from what was staged, describes it
all, looks for what must not leave, and packs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata as installed
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from analysis.bundle import appendix, archive, metadata
from analysis.bundle.derive import Derived, derive
from analysis.bundle.experiments import Ran, ran
from analysis.bundle.folders import working_folder
from analysis.bundle.hosts import is_distinct
from analysis.bundle.redact import Redactor
from analysis.bundle.scan import Beside, Finding, scan, words_of_this_machine
from analysis.bundle.stage import Stage, attempts_of, private_names, source, stage_runs
from analysis.report import campaign_folders
from schemas.bundle import ABOUT, MANIFEST, About, Author, Entry, Manifest
from schemas.errors import UserError
from schemas.mistakes import mistake

Progress = Callable[[str, float], None]
Require = Callable[[Path, Sequence[str]], None]

LIBRARIES = ("numpy", "scipy", "pandas", "matplotlib", "seaborn", "pyarrow")
_RECORDS = ("campaigns/", "specs/")
"""Sources that say what was run and where; the others are programs, notebooks and constants."""
_DRAWN_BYTES = 50 * 2**20
SHOWN = 20  # findings that a refusal names
_SHARES = {"runs": (0.0, 0.3), "report": (0.3, 0.7), "scan": (0.7, 0.8), "packing": (0.8, 1.0)}


@dataclass(frozen=True)
class Inputs:
    """What of the code a bundle takes with it.

    Attributes:
        files: name in the bundle -> file: campaign files, specs, notebooks, locks, licence.
        hide: absolute folders of this machine, and what is written in their place.
        notes: sentences for the appendix.
        hotbed_version: of the code.
        commit: None outside a clone.
        authors: by default.
        about: what else the user says of the bundle (fields of `schemas.bundle.About`).
        hosts: host names to be hidden.
        names: of machines, users and projects that specs told of; runs may too.
    """

    files: Mapping[str, Path]
    hotbed_version: str
    commit: str | None
    authors: tuple[Author, ...]
    hide: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bundled:
    """What `build` made."""

    path: Path
    sha256: str
    bytes: int
    manifest: Manifest
    derived: Derived
    campaigns: tuple[Ran, ...]


def chosen_campaigns(
    artifacts: Path, name: str, ground: str | None
) -> tuple[list[Path], str, bool]:
    """The folders of runs that the report `name` is made of, the report's folder, and whether it is
    a comparison.

    Raises:
        UserError: there is none, or `name` is a path.
    """
    if Path(name).name != name:
        raise UserError(
            f"{name}: is a path; give the name of a campaign in {artifacts}, and --artifacts for "
            "another folder of campaigns."
        )
    if (artifacts / name / "comparison.json").is_file():
        return [artifacts / name], name, True
    _, folders, _ = campaign_folders(artifacts, name, ground)
    if not folders or not folders[0].is_dir():
        raise UserError(f"{artifacts / name}: no such campaign; run it first with hotbed run.")
    return list(folders), name, False


def build(
    artifacts: Path,
    name: str,
    out: Path,
    inputs: Inputs,
    *,
    ground: str | None = None,
    require: Require = lambda stage, campaigns: None,
    progress: Progress = lambda phase, share: None,
) -> Bundled:
    """Bundle the report `name` (see `hotbed report`), or the comparison of that name, into `out`.

    Run folders are only read.

    Args:
        artifacts: the folder of campaigns.
        name: of the report.
        out: the archive.
        inputs: what else goes into it.
        ground: of the runs, where there are several.
        require: refuses, by a `UserError`, what the campaigns could not be run again from; it gets
            the folder that holds runs and sources as the bundle will.
        progress: told of each phase.

    Raises:
        UserError: there is no such campaign or no run in it, `out` cannot be written, or something
            in it must not leave: names files and lines.
    """
    archive.refuse_target(out)
    folders, report, compared = chosen_campaigns(artifacts, name, ground)
    told = _shares(progress)
    words = words_of_this_machine((*inputs.hosts, *filter(is_distinct, inputs.names)))
    with (
        _disk(),
        working_folder("hotbed-bundle-", _size(folders)) as place,
        Beside(words) as beside,
    ):
        stage = Stage(place, beside.add)
        attempts = {folder: attempts_of(folder, stage.left_out) for folder in folders}
        everyone = [attempt for taken in attempts.values() for attempt in taken]
        hide = {str(artifacts.resolve()): "$ARTIFACTS", **inputs.hide}
        redactor = Redactor(*_names(everyone, hide, (*inputs.hosts, *inputs.names)))
        stage_runs(stage, attempts, redactor, told("runs"))
        for target, file in inputs.files.items():
            text = source(file, redactor if target.startswith(_RECORDS) else None)
            if text is None:
                stage.left_out["sources that are no text"] += 1
            else:
                stage.put(target, text, "source")
        require(stage.folder, [folder.name for folder in folders])
        derived = derive(
            stage.folder / "artifacts", report, comparison=compared, progress=told("report")
        )
        stage.adopt(f"artifacts/{derived.folder.name}", "derived")
        campaigns = tuple(ran(stage.folder / "artifacts" / folder.name) for folder in folders)
        about = about_of(inputs, derived, campaigns)
        manifest = Manifest(
            report=report,
            campaigns=tuple(one.campaign for one in campaigns),
            comparison=compared,
            hotbed_version=inputs.hotbed_version,
            commit=inputs.commit,
            libraries={library: installed.version(library) for library in LIBRARIES},
            redacted={kind: count for kind, count in sorted(redactor.counts.items()) if count},
            left_out={what: count for what, count in sorted(stage.left_out.items()) if count},
            notes=inputs.notes,
            files=(),
        )
        stage.put(ABOUT, _json(about.model_dump(mode="json")), "metadata")
        for target, text in described(about, manifest, derived, campaigns, stage.files()).items():
            stage.put(target, text, "metadata")
        told("scan")("scan", 0.0)
        refuse_private(scan(stage.files(), words, begun=beside))
        manifest = manifest.model_copy(update={"files": _entries(stage)})
        stage.put(MANIFEST, _json(manifest.model_dump(mode="json")), "metadata")
        sha256 = archive.write(out, stage.files(), told("packing"))
    progress("done", 1.0)
    return Bundled(out, sha256, out.stat().st_size, manifest, derived, campaigns)


def _size(campaigns: Sequence[Path]) -> int:
    """Bytes of all that lies in campaigns' folders, and of figures that will be drawn of them."""
    files = (
        Path(top) / name for one in campaigns for top, _, names in os.walk(one) for name in names
    )
    return _DRAWN_BYTES + sum(file.lstat().st_size for file in files)


@contextmanager
def _disk() -> Iterator[None]:
    """What the disk says while a bundle is put together, as a sentence."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise UserError(
            f"nothing was bundled: {where}{error.strerror or error}; it is put together in a "
            "temporary folder, which has to have room for all of it: set TMPDIR to one that has."
        ) from error


def described(
    about: About,
    manifest: Manifest,
    derived: Derived,
    campaigns: Sequence[Ran],
    files: Mapping[str, Path],
) -> dict[str, bytes]:
    """The appendix and the metadata, of nothing but what the bundle holds."""
    bare = manifest.model_copy(update={"files": ()})
    pages = appendix.documents(about, bare, derived, campaigns)
    parts = _parts(manifest, derived, files)
    sizes = {path: files[path].stat().st_size for path, _ in parts if path in files}
    contents = metadata.Contents(
        parts=parts,
        made=[
            metadata.Made(one.campaign, one.started_at, one.ended_at, _made_of(one, files))
            for one in campaigns
        ],
        hotbed_version=manifest.hotbed_version,
        sizes=sizes | {name: len(text) for name, text in pages.items()},
    )
    return pages | metadata.documents(about, contents)


def _made_of(one: Ran, files: Mapping[str, Path]) -> list[str]:
    wanted = [f"campaigns/{one.campaign}.yaml", f"specs/{Path(one.spec).name}"]
    return [name for name in wanted if name in files]


def _parts(
    manifest: Manifest, derived: Derived, files: Mapping[str, Path]
) -> list[tuple[str, str]]:
    """What the crate names: the files that people open, and the folders of the rest."""
    folder = f"artifacts/{derived.folder.name}"
    parts = [
        (appendix.MARKDOWN, "Artifact appendix"),
        (appendix.HTML, "Artifact appendix as a page"),
        (MANIFEST, "Every file with its SHA-256"),
    ]
    named = {
        f"{folder}/report.html": "Report: figures, claims and runs",
        f"{folder}/comparison.md": "Comparison of the controllers",
        f"{folder}/claims.json": "Claims with their verdicts",
        "environment/requirements.lock": "Locked Python environment",
        "LICENSE": "License",
    }
    parts += [(path, what) for path, what in named.items() if path in files]
    for figure in derived.figures:
        for place in ("/figures/", "/"):
            path = f"{folder}{place}{figure.name}.png"
            if figure.name and path in files:
                parts.append((path, f"Figure {figure.id}: {figure.title}"))
    parts += [(f"artifacts/{one}/", f"Runs of the campaign {one}") for one in manifest.campaigns]
    tops = ("campaigns/", "specs/", "notebooks/", "controllers/", "models/")
    parts += [
        (path, "What the runs were made by") for path in sorted(files) if path.startswith(tops)
    ]
    return parts


def about_of(inputs: Inputs, derived: Derived, campaigns: Sequence[Ran]) -> About:
    """What the user said of the bundle, and for the rest what the runs say.

    Raises:
        UserError: what the user said does not fit.
    """
    names = ", ".join(one.campaign for one in campaigns)
    grounds = ", ".join(sorted({one.ground for one in campaigns}))
    runs = sum(one.finished for one in campaigns)
    claims = len(derived.tested)
    count = "1 claim that is" if claims == 1 else f"{claims} claims that are"
    body: dict[str, Any] = {
        "title": f"{derived.title}: results of {names}"[:250],
        "short_description": f"{runs} runs with figures, claims and their check"[:70],
        "description": (
            f"Runs, figures and claims regenerated by Hotbed {inputs.hotbed_version}: {runs} "
            f"finished runs of {names} on the ground {grounds}, "
            + (
                f"with {count} computed from them and can be computed again."
                if claims
                else "and no claim that can be computed from them."
            )
        ),
        "authors": [author.model_dump() for author in inputs.authors],
        "date": max((one.ended_at for one in campaigns), default="")[:10],
    }
    try:
        return About.model_validate(body | dict(inputs.about))
    except ValidationError as error:
        raise UserError(mistake(error, About).sentence("--about")) from error


def refuse_private(findings: Sequence[Finding]) -> None:
    """Refuse to pack what must not leave.

    Raises:
        UserError: names the first findings, by file and line.
    """
    if not findings:
        return
    named = "; ".join(f"{one.file}:{one.line}: {one.what}" for one in findings[:SHOWN])
    more = f"; and {len(findings) - SHOWN} more" if len(findings) > SHOWN else ""
    raise UserError(
        f"nothing was bundled, because something in it should not leave: {named}{more}. "
        "Hide a host name with --hide; take what is secret out of the runs, and whatever it is out "
        "of controllers, notebooks and constants, by hand: those are packed as they are."
    )


def _names(
    attempts: Sequence[Path], hide: Mapping[str, str], hosts: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    folders, names = private_names(attempts, hide)
    for host in hosts:
        names.setdefault(host, f"host-{len(names) + 1}")
    return folders, names


def _entries(stage: Stage) -> tuple[Entry, ...]:
    found = []
    for name in stage.files():
        digest = stage.digest(name)
        found.append(
            Entry(path=name, sha256=digest.sha256, bytes=digest.bytes, role=stage.roles[name])
        )
    return tuple(found)


def _json(body: object) -> bytes:
    return (json.dumps(body, indent=1, ensure_ascii=False) + "\n").encode()


def _shares(progress: Progress) -> Callable[[str], Progress]:
    """Each phase's own progress as a part of the whole."""

    def of(phase: str) -> Progress:
        start, end = _SHARES[phase]
        return lambda what, share: progress(what, start + (end - start) * share)

    return of
