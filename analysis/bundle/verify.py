"""Check of a bundle: nothing is missing or changed, and all its statements follow from its runs.

The check needs only the archive: neither the machine nor the folder that the bundle came from.
"""

from __future__ import annotations

import base64
import errno
import json
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata as installed
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from analysis.bundle import archive
from analysis.bundle.derive import DATA, Derived, derive, ran
from analysis.bundle.describe import described
from analysis.bundle.differences import Difference, differences
from analysis.bundle.publish import CAMPAIGN_FILES, parse, private_in
from schemas.bundle import ABOUT, BUNDLE_VERSION, MANIFEST, About, Entry, Manifest
from schemas.errors import HotbedError, UserError
from schemas.mistakes import mistake

Progress = Callable[[str, float], None]
Otherwise = Callable[[Path, Sequence[str]], Iterable[Difference]]

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENOMEM)
"""Errors of this machine, not of a bundle."""
_SHARES = {"unpacking": (0.0, 0.2), "deriving": (0.2, 0.8), "comparing": (0.8, 1.0)}


@dataclass(frozen=True)
class Check:
    """One check. `ok` is None if the check was impossible or does not count."""

    name: str
    ok: bool | None
    detail: str


@dataclass
class Verification:
    """Results of all checks."""

    path: Path
    sha256: str
    manifest: Manifest
    checks: list[Check] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if no check failed."""
        return all(check.ok is not False for check in self.checks)

    @property
    def sentence(self) -> str:
        """The result in one line."""
        failed = [check.name for check in self.checks if check.ok is False]
        if failed:
            return f"{self.path.name}: does not hold ({', '.join(failed)})."
        files = len(self.manifest.files)
        return (
            f"{self.path.name}: {files} files, and all that follows from the runs, are as stated."
        )

    def record(self, name: str, found: Iterable[Difference], good: str) -> None:
        """Add a check that fails with any difference."""
        more = list(found)
        self.differences += more
        self.checks.append(Check(name, not more, f"{len(more)} differences" if more else good))


@dataclass(frozen=True)
class Opened:
    """An unpacked bundle."""

    path: Path
    folder: Path
    manifest: Manifest
    found: Mapping[str, archive.Digest]


@contextmanager
def opened(
    path: Path, *, most_bytes: int = 16 * archive.GIB, progress: Progress
) -> Iterator[Opened]:
    """Unpack a bundle into a temporary folder, which is removed with the block.

    Args:
        path: the archive.
        most_bytes: maximum size of the unpacked bundle.
        progress: called with each phase.

    Raises:
        UserError: it is no bundle, or one that should not be opened.
    """
    with tempfile.TemporaryDirectory(prefix="hotbed-verify-") as place:
        folder = Path(place) / "bundle"
        folder.mkdir()
        found = archive.unpack(path, folder, most_bytes=most_bytes, progress=progress)
        archive.require_moderate({name: folder / name for name in sorted(found)}, path)
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
        raise mistake(error, Manifest).error(f"{path}: {MANIFEST}") from error


def _refuse_later(path: Path, manifest: bytes) -> None:
    """Raise if the format is a later version, before its unknown fields are refused."""
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
        most_bytes: maximum size of the unpacked bundle.
        otherwise: yields the places where campaign files of the unpacked bundle disagree with the
            records of the runs (see `hotbed.contained.otherwise`).
        progress: called with each phase.

    Raises:
        UserError: it is no bundle, or one that should not be opened.
    """
    phase = phases(progress, _SHARES)
    with opened(path, most_bytes=most_bytes, progress=phase("unpacking")) as bundle:
        made = Verification(path, archive.digest(path).sha256, bundle.manifest)
        made.record("files", changed(bundle), "every file has the SHA-256 that was stated")
        private = private_in({name: bundle.folder / name for name in bundle.found})
        found = [Difference(one.file, f"line {one.line}", one.what, "") for one in private]
        made.record("private", found, "no address, home folder or secret")
        _check_runs(bundle, made, otherwise, phase)
    progress("done", 1.0)
    return made


def _check_runs(
    bundle: Opened, made: Verification, otherwise: Otherwise, phase: Callable[[str], Progress]
) -> None:
    """Check all results that follow from the runs; a result that cannot be computed fails."""
    path = bundle.path
    try:
        made.record(
            "campaigns",
            otherwise(bundle.folder, bundle.manifest.campaigns),
            "their files say what was run",
        )
        _derive_again(bundle, made, phase)
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
    except Exception as error:  # a foreign bundle may hold anything
        detail = f"cannot be analysed ({type(error).__name__}: {error})"
        made.checks.append(Check("runs", False, detail))


def changed(bundle: Opened) -> Iterator[Difference]:
    """Yield the files that differ from the manifest."""
    stated = {entry.path: entry for entry in bundle.manifest.files}
    for name in sorted({*stated, *bundle.found} - {MANIFEST}):
        entry, found = stated.get(name), bundle.found.get(name)
        if found is None:
            yield Difference(name, "file", "stated", "missing")
        elif entry is None:
            yield Difference(name, "file", "not stated", "there")
        elif (entry.sha256, entry.bytes) != (found.sha256, found.bytes):
            yield Difference(name, "SHA-256", entry.sha256[:16], found.sha256[:16])


def _derive_again(bundle: Opened, made: Verification, phase: Callable[[str], Progress]) -> None:
    """Compute everything again from the runs alone, in a separate folder, and compare."""
    manifest, fresh = bundle.manifest, bundle.folder.parent / "fresh"
    _only_runs(bundle, fresh)
    made.record("runs", _misplaced(fresh, manifest), "every run is what its folder says")
    deriving = phase("deriving")
    derived = derive(
        fresh / "artifacts",
        manifest.report,
        comparison=manifest.comparison,
        progress=deriving,
        pdf=False,
    )
    phase("comparing")("comparing", 0.0)
    here = bundle.folder / "artifacts" / derived.folder.name
    tested = f"{len(derived.tested)} of {len(derived.claims)} claims computed from {derived.runs} "
    made.record("claims", _claims(here, derived), f"{tested}runs")
    shown = f"the data of {len(derived.shown)} figures was computed again"
    made.record("figures", _figures(here, derived), shown)
    made.checks.append(_pictures(here, derived, manifest))
    made.record("tables", _tables(here, derived), "the same")
    found = [*_report(here, derived), *_programs(here, derived)]
    made.record("report", found, "its words follow from the runs")
    text = written(bundle, derived, fresh)
    made.record("appendix and metadata", _documents(bundle.folder, text), "follow from the runs")
    again = {
        path.relative_to(fresh).as_posix() for path in derived.folder.rglob("*") if path.is_file()
    }
    strange = misdeclared(manifest, again, {ABOUT, *(text or ())})
    made.record("places", strange, "nothing lies where it is taken for something else")
    made.checks += _same_libraries(manifest)


def _only_runs(bundle: Opened, fresh: Path) -> None:
    """Move the runs to a separate folder, so that no other file of the bundle is read."""
    campaigns = bundle.manifest.campaigns
    for path in {entry.path for entry in bundle.manifest.files if entry.role == "run"}:
        if path in bundle.found and is_run(path, campaigns):
            target = fresh / path
            target.parent.mkdir(parents=True, exist_ok=True)
            (bundle.folder / path).rename(target)


def _misplaced(fresh: Path, manifest: Manifest) -> Iterator[Difference]:
    """Yield records in the folder of another run, and unreadable records."""
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
    """Write the appendix and the metadata again from the runs and `about.json`; None if
    `about.json` cannot be read. Files that the manifest states and the bundle lacks are ignored."""
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


def phases(
    progress: Progress, shares: Mapping[str, tuple[float, float]]
) -> Callable[[str], Progress]:
    """Return, for a phase's name, the progress of that phase as a part of the whole."""

    def of(phase: str) -> Progress:
        start, end = shares[phase]
        return lambda what, share: progress(what, start + (end - start) * share)

    return of


# ---- stated and computed -------------------------------------------------------------------------

_ACTIVE = (b"/JavaScript", b"/JS", b"/Launch", b"/OpenAction", b"/AA", b"/EmbeddedFile", b"/ObjStm")
"""Names in a PDF file (ISO 32000-1) that the drawing library never writes."""


def _claims(here: Path, derived: Derived) -> Iterator[Difference]:
    """Compare claims in order: if two claims had one name, readers would take either."""
    file = f"artifacts/{derived.folder.name}/claims.json"
    try:
        stated = parse((here / "claims.json").read_bytes())
        names = [str(claim["id"]) for claim in stated]
    except (OSError, ValueError, KeyError, TypeError):
        yield Difference(file, "file", "claims", "cannot be read")
        return
    wanted = [claim.id for claim in derived.claims]
    for number, (name, known) in enumerate(zip_longest(names, wanted), 1):
        if name != known:  # later claims are displaced too
            yield from differences(
                file, name or "missing", known or "none", where=f"claim {number}"
            )
            break
    by_name = dict(zip(names, stated, strict=True))
    for claim in derived.claims:
        if claim.id in by_name:
            computed = claim.model_dump(mode="json")
            yield from differences(file, by_name[claim.id], computed, where=claim.id)


def _figures(here: Path, derived: Derived) -> Iterator[Difference]:
    """Compare the data of figures."""
    place = f"artifacts/{derived.folder.name}/figures/{DATA}"
    there = {path.stem for path in (here / "figures" / DATA).glob("*.json")}
    for name in sorted(there | set(derived.shown)):
        file = f"{place}/{name}.json"
        if name not in derived.shown:
            yield Difference(file, "figure", "stated", "not drawn from these runs")
            continue
        try:
            stated = parse((here / "figures" / DATA / f"{name}.json").read_bytes())
        except (OSError, ValueError):
            yield Difference(file, "figure", "missing or unreadable", "drawn from these runs")
            continue
        yield from differences(file, stated, json.loads(json.dumps(derived.shown[name])))


def _pictures(here: Path, derived: Derived, manifest: Manifest) -> Check:
    """Compare pictures: pixel by pixel with the same drawing library, otherwise by look."""
    drawn = sorted(derived.folder.rglob("*.png"))
    other = [
        path for path in drawn if not same_picture(path, here / path.relative_to(derived.folder))
    ]
    if not other:
        return Check("pictures", True, f"{len(drawn)} drawn again to the pixel")
    stated, ours = manifest.libraries.get("matplotlib"), installed.version("matplotlib")
    if stated == ours:
        detail = f"{len(other)} of {len(drawn)} differ in pixels, such as {other[0].name}"
        return Check("pictures", False, detail)
    by = f"drawn by matplotlib {stated}, here it is {ours}"
    unlike = [
        path for path in other if not look_alike(path, here / path.relative_to(derived.folder))
    ]
    if unlike:
        detail = f"{len(unlike)} of {len(drawn)} show something else, such as {unlike[0].name}"
        return Check("pictures", False, f"{detail}; {by}")
    detail = f"{len(other)} of {len(drawn)} differ in pixels and look alike"
    return Check("pictures", None, f"{detail}; {by}")


def _tables(here: Path, derived: Derived) -> Iterator[Difference]:
    """Compare the tables of the report."""
    for path in sorted([*derived.folder.glob("*.csv"), *derived.folder.glob("*.md")]):
        file = f"artifacts/{derived.folder.name}/{path.name}"
        try:
            stated = (here / path.name).read_text()
        except (OSError, UnicodeDecodeError):
            yield Difference(file, "table", "missing or unreadable", "computed from these runs")
            continue
        yield from differences(file, _cells(stated), _cells(path.read_text()))


def _cells(text: str) -> list[list[object]]:
    """Split a table into cells; numbers become floats."""
    return [[_cell(part) for part in line.split(",")] for line in text.splitlines()]


def _cell(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def _report(here: Path, derived: Derived) -> Iterator[Difference]:
    """Compare the words of the page, and the places of its pictures."""
    known = {
        base64.b64encode(path.read_bytes()): path.name
        for path in (derived.folder / "figures").glob("*.png")
    }
    for path in sorted(derived.folder.glob("*.html")):
        file = f"artifacts/{derived.folder.name}/{path.name}"
        try:
            stated = (here / path.name).read_bytes()
        except OSError:
            yield Difference(file, "page", "missing", "written from these runs")
            continue
        words, shown = shown_in(stated)
        words_here, shown_here = shown_in(path.read_bytes())
        yield from differences(file, _lines(words), _lines(words_here))
        for number, (one, other) in enumerate(zip_longest(shown, shown_here), 1):
            name = "" if other is None else known.get(other, "")
            if one is None or not name or one != _encoded(here / "figures" / name):
                yield Difference(file, f"picture {number}", "another one", name or "none")


def _programs(here: Path, derived: Derived) -> Iterator[Difference]:
    """Yield the PDF figures that hold more than a drawing; PDFs are not drawn again."""
    for path in sorted((here / "figures").rglob("*.pdf")):
        # A stream is a drawing; names in the objects around the streams make a file active.
        parts = path.read_bytes().split(b"endstream")
        around = b"".join(part.partition(b"stream\n")[0] for part in parts)
        if any(word in around for word in _ACTIVE):
            file = f"artifacts/{derived.folder.name}/{path.relative_to(here).as_posix()}"
            yield Difference(file, "PDF", "a script, a file or hidden objects", "a drawing")


def _encoded(picture: Path) -> bytes | None:
    return base64.b64encode(picture.read_bytes()) if picture.is_file() else None


def _documents(here: Path, written: Mapping[str, bytes] | None) -> Iterator[Difference]:
    """Compare the appendix and the metadata; `written` is None if about.json cannot be read."""
    if written is None:
        yield Difference(ABOUT, "file", "stated", "cannot be read")
        return
    for name, text in written.items():
        try:
            stated = (here / name).read_bytes()
        except OSError:
            yield Difference(name, "file", "missing", "written from the runs")
            continue
        yield from differences(name, _lines(stated), _lines(text))


def _lines(text: bytes) -> list[str]:
    return text.decode(errors="replace").splitlines()


# ---- pictures ------------------------------------------------------------------------------------

UNLIKE = 0.03
"""Share of the ink by which two pictures differ. In plots of three bars and of two lines, other
hinting, smoothing and fonts moved 0.0005 to 0.024. One bar with a tenth less height moved 0.036,
two exchanged bars 0.07. The figure's data show smaller changes."""
_BLUR = 33  # points at 160 dpi: hides different letter shapes and small shifts
_MARGIN = 4  # points by which the size of the same picture may differ
_EMBEDDED = re.compile(rb"data:image/png;base64,([A-Za-z0-9+/=]*)")


def shown_in(page: bytes) -> tuple[bytes, list[bytes]]:
    """Split a page into the page without its PNG pictures, and the pictures in base64."""
    return _EMBEDDED.sub(b"", page), _EMBEDDED.findall(page)


def same_picture(one: Path, other: Path) -> bool:
    """Return True if two PNG files have the same pixels; False if either is unreadable."""
    import numpy as np
    from matplotlib.image import imread

    try:
        if one.read_bytes() == other.read_bytes():
            return True
        first, second = imread(one), imread(other)
    except Exception:  # a foreign picture may be anything
        return False
    return first.shape == second.shape and bool(np.array_equal(first, second))


def look_alike(one: Path, other: Path) -> bool:
    """Return True if two PNG files look alike: letters and edges may differ (see `UNLIKE`)."""
    import numpy as np
    from matplotlib.image import imread

    try:
        first, second = (_inked(imread(file)) for file in (one, other))
    except Exception:  # a foreign picture may be anything
        return False
    room = [abs(a - b) for a, b in zip(first.shape[:2], second.shape[:2], strict=True)]
    if max(room) > _MARGIN:
        return False
    height, width = (min(ends) for ends in zip(first.shape[:2], second.shape[:2], strict=True))
    first, second = first[:height, :width], second[:height, :width]
    ink = float(np.sum(first) + np.sum(second))
    return float(np.sum(np.abs(first - second))) <= UNLIKE * ink


def _inked(picture: Any) -> Any:
    """Return the distance of each point from white, blurred."""
    import numpy as np
    from scipy.ndimage import uniform_filter

    colours = np.atleast_3d(picture)
    clear = colours[..., 3:4] if colours.shape[2] == 4 else 1.0
    ink = (1.0 - colours[..., :3].astype(float)) * clear
    for _ in range(2):
        ink = uniform_filter(ink, size=(_BLUR, _BLUR, 1), mode="constant")
    return ink


# ---- places --------------------------------------------------------------------------------------

_ATTEMPT = re.compile(r"attempt-\d+")
_SOURCES = ("specs", "notebooks", "controllers", "models", "profiles", "environment")


def is_run(path: str, campaigns: Collection[str]) -> bool:
    """Return True if a path is a campaign's record or a file in an attempt's folder."""
    top, campaign, *inner = (*PurePosixPath(path).parts, "", "")[:6]
    if top != "artifacts" or campaign not in campaigns:
        return False
    names = [part for part in inner if part]
    if len(names) == 1:
        return names[0] in CAMPAIGN_FILES
    return len(names) > 2 and _ATTEMPT.fullmatch(names[1]) is not None


def misdeclared(
    manifest: Manifest, derived: Collection[str], metadata: Collection[str]
) -> Iterator[Difference]:
    """Yield files with another role than the manifest states, and files that nothing reproduces.

    Args:
        manifest: the bundle's manifest.
        derived: names of the files that were computed from its runs here.
        metadata: names of the files that were written about it here.
    """
    for entry in manifest.files:
        why = _why(entry, manifest.campaigns, derived, metadata)
        if why is not None:
            yield Difference(entry.path, "role", entry.role, why)


def _why(
    entry: Entry, campaigns: Collection[str], derived: Collection[str], metadata: Collection[str]
) -> str | None:
    path = entry.path
    if entry.role == "run":
        return None if is_run(path, campaigns) else "lies where no run does"
    if entry.role == "derived":
        # A figure's PDF is not drawn again; its PNG is.
        known = path in derived or (path.endswith(".pdf") and f"{path[:-4]}.png" in derived)
        return None if known else "does not follow from these runs"
    if entry.role == "metadata":
        return None if path in metadata or path == MANIFEST else "is not written about these runs"
    if path.startswith("artifacts/"):
        return "lies among the runs"
    return None if _is_source(path, campaigns) else "lies where nothing that made runs does"


def _is_source(path: str, campaigns: Collection[str]) -> bool:
    """Return True if a path may be a campaign file, spec, program or lock file."""
    top, _, inner = path.partition("/")
    if top == "campaigns":
        return inner in {f"{name}.yaml" for name in campaigns}
    return path == "LICENSE" or (top in _SOURCES and bool(inner))
