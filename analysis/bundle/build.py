"""Building of a bundle: stage the publishable runs, compute figures and claims from the staged
runs, describe the whole, and pack it."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata as installed
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from analysis.bundle import archive
from analysis.bundle.derive import Derived, Ran, derive, ran
from analysis.bundle.describe import described
from analysis.bundle.publish import Finding, Stage, aliases_of, attempts_of
from analysis.bundle.verify import phases
from analysis.core.report import campaign_folders
from schemas.bundle import ABOUT, MANIFEST, About, Author, Entry, Manifest
from schemas.errors import UserError
from schemas.mistakes import mistake

Progress = Callable[[str, float], None]
Require = Callable[[Path, Sequence[str]], None]

LIBRARIES = ("numpy", "scipy", "pandas", "matplotlib", "seaborn", "pyarrow")
SHOWN = 20  # findings that a refusal names
_SHARES = {"runs": (0.0, 0.35), "report": (0.35, 0.8), "packing": (0.8, 1.0)}


@dataclass(frozen=True)
class Inputs:
    """Files that a bundle takes from the code, and what is known about them.

    Attributes:
        files: name in the bundle -> file: campaign files, specs, notebooks, locks, license.
        hide: absolute folders of this machine, and the word that stands for each.
        notes: sentences for the appendix.
        hotbed_version: version of the code.
        commit: None outside a clone.
        authors: authors unless `about` names some.
        about: fields of `schemas.bundle.About` from the user.
        names: of machines, users and projects, which get aliases.
        hidden: host names that stop the bundle if a program has them.
    """

    files: Mapping[str, Path]
    hotbed_version: str
    commit: str | None
    authors: tuple[Author, ...]
    hide: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bundled:
    """Result of `build`."""

    path: Path
    sha256: str
    bytes: int
    manifest: Manifest
    derived: Derived
    campaigns: tuple[Ran, ...]


def chosen_campaigns(
    artifacts: Path, name: str, ground: str | None
) -> tuple[list[Path], str, bool]:
    """Return the folders of runs behind the report `name`, the report's folder, and True if it is
    a comparison.

    Raises:
        UserError: there is no such campaign, or `name` is a path.
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
    with_logs: bool = False,
    require: Require = lambda stage, campaigns: None,
    progress: Progress = lambda phase, share: None,
) -> Bundled:
    """Bundle the report `name` (see `hotbed report`), or the comparison of that name, into `out`.

    Run folders are only read.

    Args:
        artifacts: the folder of campaigns.
        name: name of the report.
        out: the archive.
        inputs: other files of the bundle.
        ground: ground of the runs, if there are several.
        with_logs: True to pack raw logs too.
        require: raises a `UserError` if the campaigns could not be run again from a folder with the
            runs and sources of the bundle.
        progress: called with each phase.

    Raises:
        UserError: there is no such campaign or no run in it, `out` cannot be written, or a file has
            content that must not be published. The message names files and lines.
    """
    archive.refuse_target(out)
    folders, report, compared = chosen_campaigns(artifacts, name, ground)
    phase = phases(progress, _SHARES)
    with _disk(), tempfile.TemporaryDirectory(prefix="hotbed-bundle-") as place:
        left_out: Counter[str] = Counter()
        attempts = {folder: attempts_of(folder, left_out) for folder in folders}
        every = [attempt for taken in attempts.values() for attempt in taken]
        hide = {str(artifacts.resolve()): "$ARTIFACTS", **inputs.hide}
        aliases = aliases_of(every, hide, inputs.names, inputs.hidden)
        stage = Stage(Path(place), aliases, with_logs, left_out=left_out)
        for folder, taken in attempts.items():
            stage.add_campaign(folder, taken, lambda share: phase("runs")("runs", share))
        for target, file in inputs.files.items():
            stage.add_source(target, file)
        refuse(stage.found)
        require(stage.folder, [folder.name for folder in folders])
        derived = derive(
            stage.folder / "artifacts", report, comparison=compared, progress=phase("report")
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
            redacted={kind: count for kind, count in sorted(aliases.counts.items()) if count},
            left_out={what: count for what, count in sorted(left_out.items()) if count},
            notes=inputs.notes,
            files=(),
        )
        stage.put(ABOUT, _json(about.model_dump(mode="json")), "metadata")
        for target, text in described(about, manifest, derived, campaigns, stage.files()).items():
            stage.put(target, text, "metadata")
        manifest = manifest.model_copy(update={"files": _entries(stage)})
        stage.put(MANIFEST, _json(manifest.model_dump(mode="json")), "metadata")
        sha256 = archive.write(out, stage.files(), phase("packing"))
    progress("done", 1.0)
    return Bundled(out, sha256, out.stat().st_size, manifest, derived, campaigns)


@contextmanager
def _disk() -> Iterator[None]:
    """Turn errors of the disk under the temporary folder into a `UserError`."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise UserError(
            f"nothing was bundled: {where}{error.strerror or error}; it is put together in a "
            "temporary folder, which has to have room for all of it: set TMPDIR to one that has."
        ) from error


def about_of(inputs: Inputs, derived: Derived, campaigns: Sequence[Ran]) -> About:
    """Return the description of a bundle: fields from the user, and the others from the runs.

    Raises:
        UserError: a field from the user is not valid.
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
        raise mistake(error, About).error("--about") from error


def refuse(findings: Sequence[Finding]) -> None:
    """Raise if there are findings: content that must not be published.

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


def _entries(stage: Stage) -> tuple[Entry, ...]:
    digests = {name: stage.digest(name) for name in stage.files()}
    return tuple(
        Entry(path=name, sha256=digest.sha256, bytes=digest.bytes, role=stage.roles[name])
        for name, digest in digests.items()
    )


def _json(body: object) -> bytes:
    return (json.dumps(body, indent=1, ensure_ascii=False) + "\n").encode()
