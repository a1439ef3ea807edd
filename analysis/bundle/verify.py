"""Checks a bundle: nothing is missing or changed, and all that it states follows from the raw runs
in it. Needs nothing but the archive: neither the machine nor the folder that it came from."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata as installed
from pathlib import Path

from pydantic import ValidationError

from analysis.bundle import against, archive, bounds
from analysis.bundle.build import described
from analysis.bundle.derive import Derived, derive
from analysis.bundle.differences import Difference
from analysis.bundle.experiments import ran
from analysis.bundle.folders import Folders, working_folder
from analysis.bundle.roles import is_run, misdeclared
from analysis.bundle.scan import Beside, scan
from analysis.bundle.verification import Check, Verification
from schemas.bundle import ABOUT, BUNDLE_VERSION, MANIFEST, About, Manifest
from schemas.errors import HotbedError, UserError
from schemas.mistakes import mistake

Progress = Callable[[str, float], None]
Otherwise = Callable[[Path, Sequence[str]], Iterable[Difference]]

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENOMEM)
"""What an operating system says of this machine, and not of a bundle."""
_SHARES = {"unpacking": (0.0, 0.2), "deriving": (0.2, 0.8), "comparing": (0.8, 1.0)}


@dataclass(frozen=True)
class Opened:
    """An unpacked bundle."""

    path: Path
    folder: Path
    manifest: Manifest
    found: Mapping[str, archive.Digest]


@contextmanager
def opened(
    path: Path, *, most_bytes: int = 16 * archive.GIB, on_disk: bool = False, progress: Progress
) -> Iterator[Opened]:
    """Unpack a bundle into a temporary folder that goes with the block.

    Args:
        path: the archive.
        most_bytes: how large it may be when it is unpacked.
        on_disk: for a block that lasts: what is measured meanwhile needs the memory itself.
        progress: told of each phase.

    Raises:
        UserError: it is no bundle, or one that should not be opened.
    """
    need = None if on_disk else archive.unpacked_bytes(path)
    with working_folder("hotbed-verify-", need) as place:
        folder = place / "bundle"
        folder.mkdir()
        found = archive.unpack(path, folder, most_bytes=most_bytes, progress=progress)
        bounds.require({name: folder / name for name in sorted(found)}, path)
        yield Opened(path, folder, _manifest(path, folder), found)


def _manifest(path: Path, folder: Path) -> Manifest:
    try:
        data = (folder / MANIFEST).read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        raise UserError(f"{path}: has no {MANIFEST}, so it is no bundle of Hotbed's.") from None
    _refuse_later(path, data)
    try:
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        raise UserError(mistake(error, Manifest).sentence(f"{path}: {MANIFEST}")) from error


def _refuse_later(path: Path, manifest: bytes) -> None:
    """A later format may have fields that are not known here: its version goes first."""
    try:
        body = json.loads(manifest)
        version, hotbed = int(body["schema_version"]), str(body["hotbed_version"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return
    if version > BUNDLE_VERSION:
        raise UserError(
            f"{path}: was made by a later Hotbed (version {version} of the format, here it is "
            f"{BUNDLE_VERSION}): install Hotbed {hotbed}."
        )


def verify(
    path: Path,
    *,
    most_bytes: int = 16 * archive.GIB,
    otherwise: Otherwise = lambda folder, campaigns: (),
    progress: Progress = lambda phase, share: None,
) -> Verification:
    """Check a bundle.

    Args:
        path: the archive.
        most_bytes: how large it may be when it is unpacked.
        otherwise: where the files of the campaigns do not say what was run (see
            `hotbed.contained.otherwise`), of the unpacked bundle.
        progress: told of each phase.

    Raises:
        UserError: it is no bundle, or one that should not be opened.
    """
    told = _shares(progress)
    with opened(path, most_bytes=most_bytes, progress=told("unpacking")) as bundle:
        made = Verification(path, archive.digest(path).sha256, bundle.manifest)
        made.record("files", changed(bundle), "every file has the SHA-256 that was stated")
        with _looking(bundle, made):
            _check_runs(bundle, made, otherwise, told)
    progress("done", 1.0)
    return made


def _check_runs(
    bundle: Opened, made: Verification, otherwise: Otherwise, told: Callable[[str], Progress]
) -> None:
    """All that follows from the runs; what cannot be computed of them is a failed check."""
    path = bundle.path
    try:
        made.record(
            "campaigns",
            otherwise(bundle.folder, bundle.manifest.campaigns),
            "their files say what was run",
        )
        _derive_again(bundle, made, told)
    except HotbedError as error:
        made.checks.append(Check("runs", False, str(error)))
    except MemoryError:
        raise
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise UserError(
                f"{path}: could not be checked here ({error.strerror}); it is unpacked in "
                f"{bundle.folder.parents[1]}: set TMPDIR to a folder with more room."
            ) from error
        made.checks.append(Check("runs", False, f"cannot be analysed ({error})"))
    except Exception as error:  # what is in a bundle is anybody's
        detail = f"cannot be analysed ({type(error).__name__}: {error})"
        made.checks.append(Check("runs", False, detail))


def changed(bundle: Opened) -> Iterator[Difference]:
    """Files that are not as the manifest says."""
    stated = {entry.path: entry for entry in bundle.manifest.files}
    for name in sorted({*stated, *bundle.found} - {MANIFEST}):
        entry, found = stated.get(name), bundle.found.get(name)
        if found is None:
            yield Difference(name, "file", "stated", "missing")
        elif entry is None:
            yield Difference(name, "file", "not stated", "there")
        elif (entry.sha256, entry.bytes) != (found.sha256, found.bytes):
            yield Difference(name, "SHA-256", entry.sha256[:16], found.sha256[:16])


@contextmanager
def _looking(bundle: Opened, made: Verification) -> Iterator[None]:
    """What must not be in a bundle is looked for while the block runs, in the runs at least: of
    those nothing is written meanwhile, but they are moved."""
    files = {name: bundle.folder / name for name in bundle.found}
    runs = {name: file for name, file in files.items() if "/attempt-" in name}
    before = scan({name: file for name, file in files.items() if name not in runs})
    place = len(made.checks)
    with Beside() as beside:
        for name, file in runs.items():
            beside.add(name, file, moved=_fresh(bundle) / name)
        yield
        found = sorted([*before, *scan(runs, begun=beside)], key=lambda one: one.file)
    told = [Difference(one.file, f"line {one.line}", one.what, "") for one in found]
    made.record("private", told, "no address, home folder or secret")
    made.checks.insert(place, made.checks.pop())


def _fresh(bundle: Opened) -> Path:
    """Where everything is computed again."""
    return bundle.folder.parent / "fresh"


def _derive_again(bundle: Opened, made: Verification, told: Callable[[str], Progress]) -> None:
    """Compute everything from the runs alone, in a folder that has nothing else, and compare."""
    manifest = bundle.manifest
    fresh = _fresh(bundle)
    _only_runs(bundle, fresh)
    made.record("runs", _misplaced(fresh, manifest), "every run is what its folder says")
    told("deriving")("deriving", 0.0)
    derived = derive(
        fresh / "artifacts",
        manifest.report,
        comparison=manifest.comparison,
        progress=told("deriving"),
        pdf=False,
    )
    told("comparing")("comparing", 0.0)
    here = bundle.folder / "artifacts" / derived.folder.name
    made.record(
        "claims",
        against.claims(here, derived),
        f"{len(derived.tested)} of {len(derived.claims)} claims computed from {derived.runs} runs",
    )
    made.record(
        "figures",
        against.figures(here, derived),
        f"what {len(derived.shown)} figures show was computed again",
    )
    made.checks.append(against.pictures(here, derived, manifest))
    made.record("tables", against.tables(here, derived), "the same")
    found = [*against.report(here, derived), *against.programs(here, derived)]
    made.record("report", found, "its words follow from the runs")
    text = written(bundle, derived, fresh)
    found = list(against.documents(bundle.folder, text))
    made.record("appendix and metadata", found, "follow from the runs")
    again = {
        path.relative_to(fresh).as_posix() for path in derived.folder.rglob("*") if path.is_file()
    }
    found = list(misdeclared(manifest, again, {ABOUT, *(text or ())}))
    made.record("places", found, "nothing lies where it is taken for something else")
    made.checks += _same_libraries(manifest)


def _only_runs(bundle: Opened, fresh: Path) -> None:
    """Move the runs to a folder of their own: all else of the bundle is not looked at."""
    campaigns, folders = bundle.manifest.campaigns, Folders()
    for path in {entry.path for entry in bundle.manifest.files if entry.role == "run"}:
        if path in bundle.found and is_run(path, campaigns):
            target = f"{fresh}/{path}"
            folders.hold(target)
            (bundle.folder / path).rename(target)


def _misplaced(fresh: Path, manifest: Manifest) -> Iterator[Difference]:
    """Records that do not belong where they lie, or cannot be read."""
    for campaign in manifest.campaigns:
        for record in sorted((fresh / "artifacts" / campaign).glob("*/attempt-*/run.json")):
            name = record.relative_to(fresh).as_posix()
            try:
                body = json.loads(record.read_bytes())
                said = (body["campaign"], body["run_id"], f"attempt-{body['attempt']}")
            except (ValueError, KeyError, TypeError):
                yield Difference(name, "record", "a run", "cannot be read")
                continue
            lies = (campaign, record.parent.parent.name, record.parent.name)
            for what, wanted, found in zip(("campaign", "run", "attempt"), said, lies, strict=True):
                if wanted != found:
                    yield Difference(name, what, wanted, found)


def written(bundle: Opened, derived: Derived, fresh: Path) -> dict[str, bytes] | None:
    """The appendix and the metadata, written again from the runs and `about.json`; None where that
    cannot be read. Of what the manifest states, only what is there is looked at."""
    try:
        about = About.model_validate_json((bundle.folder / ABOUT).read_bytes())
    except (OSError, ValidationError):
        return None
    manifest = bundle.manifest
    campaigns = tuple(ran(fresh / "artifacts" / name) for name in manifest.campaigns)
    files = {
        entry.path: bundle.folder / entry.path
        for entry in manifest.files
        if entry.path in bundle.found and (entry.role != "metadata" or entry.path == ABOUT)
    }
    return described(about, manifest, derived, campaigns, files)


def _same_libraries(manifest: Manifest) -> list[Check]:
    other = [
        f"{name} {version} (here {installed.version(name)})"
        for name, version in manifest.libraries.items()
        if name in ("matplotlib", "numpy", "pandas", "pyarrow", "scipy", "seaborn")
        and installed.version(name) != version
    ]
    if not other:
        return []
    return [Check("libraries", None, f"made with other versions: {', '.join(other)}")]


def _shares(progress: Progress) -> Callable[[str], Progress]:
    def of(phase: str) -> Progress:
        start, end = _SHARES[phase]
        return lambda what, share: progress(what, start + (end - start) * share)

    return of
