"""Check of a bundle: nothing is missing or changed, and all its statements follow from its runs.

The check needs only the archive: neither the machine nor the folder that the bundle came from.
Every file that follows from runs is made again in a separate folder, and compared with its twin.
"""

from __future__ import annotations

import base64
import math
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
from analysis.bundle.archive import Progress, quiet
from analysis.bundle.describe import (
    DATA,
    LIBRARIES,
    Derived,
    derive,
    described,
    ran,
    read_record,
)
from analysis.bundle.private import EMBEDDED, parse, private_in
from analysis.core.load import run_folders
from schemas.bundle import ABOUT, BUNDLE_VERSION, MANIFEST, About, Manifest, role_of
from schemas.errors import HotbedError, UserError
from schemas.migrate import current_claim
from schemas.mistakes import mistake

Otherwise = Callable[[Path, Sequence[str]], Iterable["Difference"]]


@dataclass(frozen=True)
class Difference:
    """One place in which two values differ; `bundled` and `derived` as short texts."""

    file: str
    where: str
    bundled: str
    derived: str


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


# ---- opening -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opened:
    """An unpacked bundle. `found` has the digest of every file."""

    path: Path
    folder: Path
    manifest: Manifest
    found: Mapping[str, archive.Digest]

    def look(self) -> None:
        """Raise a UserError unless every file can be read at a moderate cost."""
        archive.look({name: self.folder / name for name in self.found}, self.path)


@contextmanager
def opened(
    path: Path, *, most_bytes: int = 16 * archive.GIB, progress: Progress = quiet
) -> Iterator[Opened]:
    """Unpack a bundle into a temporary folder, which is removed with the block. UserError: it is no
    bundle, or one that should not be opened."""
    with tempfile.TemporaryDirectory(prefix="hotbed-verify-") as place:
        folder = Path(place) / "bundle"
        folder.mkdir()
        found = archive.unpack(path, folder, most_bytes=most_bytes, progress=progress)
        yield Opened(path, folder, _manifest(path, folder), found)


def _manifest(path: Path, folder: Path) -> Manifest:
    try:
        data = (folder / MANIFEST).read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        raise UserError(f"has no {MANIFEST}, so it is no bundle of Hotbed's", where=path) from None
    try:
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        # A later version is reported before its unknown fields are.
        if any(one["type"] == "less_than_equal" for one in error.errors()):
            made_by = read_record(folder / MANIFEST).get("hotbed_version")
            raise UserError(
                "has a version of the format that a later Hotbed made",
                where=path,
                allowed=f"up to {BUNDLE_VERSION}",
                do=f"install Hotbed {made_by}",
            ) from error
        raise mistake(error, Manifest).error(f"{path}: {MANIFEST}") from error


# ---- checks --------------------------------------------------------------------------------------


def verify(
    path: Path,
    *,
    most_bytes: int = 16 * archive.GIB,
    otherwise: Otherwise = lambda folder, campaigns: (),
    progress: Progress = quiet,
) -> Verification:
    """Check a bundle. UserError: it is no bundle, or one that should not be opened."""
    with opened(path, most_bytes=most_bytes, progress=progress) as bundle:
        bundle.look()
        made = Verification(path, archive.digest(path).sha256, bundle.manifest)
        made.record("files", changed(bundle), "every file has the SHA-256 that was stated")
        private = private_in({name: bundle.folder / name for name in bundle.found})
        found = [Difference(one.file, f"line {one.line}", one.what, "") for one in private]
        made.record("private", found, "no address, home folder or secret")
        try:
            stated = otherwise(bundle.folder, bundle.manifest.campaigns)
            made.record("campaigns", stated, "their files say what was run")
            _make_again(bundle, made, progress)
        except HotbedError as error:
            made.checks.append(Check("runs", False, str(error)))
        except MemoryError:
            raise
        except Exception as error:  # a foreign bundle may hold anything
            if isinstance(error, OSError) and error.errno in archive.NO_ROOM:
                raise UserError(
                    f"could not be checked here ({error.strerror})",
                    where=path,
                    do=f"set TMPDIR to a folder with more room than {bundle.folder.parents[1]}",
                ) from error
            detail = f"cannot be analysed ({type(error).__name__}: {error})"
            made.checks.append(Check("runs", False, detail))
    progress("done", 1.0)
    return made


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


def _make_again(bundle: Opened, made: Verification, progress: Progress) -> None:
    """Make everything again from the runs alone, in a separate folder, and compare."""
    manifest, fresh = bundle.manifest, bundle.folder.parent / "fresh"
    _move_runs(bundle, fresh)
    made.record("runs", _misplaced(fresh, manifest), "every run is what its folder says")
    derived = derive(
        fresh / "artifacts",
        manifest.report,
        comparison=manifest.comparison,
        progress=progress,
        pdf=False,
    )
    progress("comparing", 0.0)
    written = described_again(bundle, derived, fresh)
    for name, text in written.items():
        (fresh / name).write_bytes(text)
    again = {
        name: file
        for name, file in archive.files_in(fresh).items()
        if role_of(name, manifest.campaigns) != "run"
    }
    other_library = manifest.libraries.get("matplotlib") != installed.version("matplotlib")
    found: dict[str, list[Difference]] = {name: [] for name in _GOOD}
    alike = 0
    for name, here in again.items():
        there = bundle.folder / name
        if not name.endswith(".png"):
            found[_check_of(name)] += _compare(name, there, here)
        elif not same_picture(there, here):
            if other_library and look_alike(there, here):
                alike += 1
            else:
                different = Difference(name, "picture", "another picture", "drawn again")
                found["pictures"].append(different)
    if not written:
        found["appendix and metadata"].append(Difference(ABOUT, "file", "stated", "cannot be read"))
    found["report"] += _active(bundle, derived)
    found["places"] += _misdeclared(manifest, {ABOUT, *again})
    good = _GOOD | {
        "claims": f"{len(derived.tested)} of {len(derived.claims)} claims computed from "
        f"{derived.runs} runs",
        "figures": f"the data of {len(derived.shown)} figures was computed again",
    }
    for check, differing in found.items():
        made.record(check, differing, good[check])
    if alike:
        versions = f"{manifest.libraries.get('matplotlib')}, here {installed.version('matplotlib')}"
        detail = f"{alike} look alike and differ in pixels: drawn by matplotlib {versions}"
        made.checks.append(Check("pictures", None, detail))
    made.checks += _other_libraries(manifest)


_GOOD = {
    "claims": "",
    "figures": "",
    "pictures": "drawn again",
    "tables": "the same",
    "report": "its words follow from the runs",
    "appendix and metadata": "follow from the runs",
    "places": "every file is in the place of its kind",
}
"""Checks of files that follow from the runs, and their detail if nothing differs."""


def _check_of(name: str) -> str:
    """Return the check that a derived or written file belongs to."""
    if not name.startswith("artifacts/"):
        return "appendix and metadata"
    if name.endswith(".html"):
        return "report"
    if name.endswith(f"/{DATA}/{PurePosixPath(name).name}"):
        return "figures"
    return "claims" if name.endswith("/claims.json") else "tables"


def _move_runs(bundle: Opened, fresh: Path) -> None:
    """Move the runs to a separate folder, so that no other file of the bundle is read."""
    for name in bundle.found:
        if role_of(name, bundle.manifest.campaigns) == "run":
            (fresh / name).parent.mkdir(parents=True, exist_ok=True)
            (bundle.folder / name).rename(fresh / name)


def _misplaced(fresh: Path, manifest: Manifest) -> Iterator[Difference]:
    """Yield records in the folder of another run, and unreadable records."""
    for campaign in manifest.campaigns:
        for folder in run_folders(fresh / "artifacts" / campaign):
            body, number = read_record(folder / "run.json"), folder.name.removeprefix("attempt-")
            place = {"campaign": campaign, "run_id": folder.parent.name, "attempt": int(number)}
            said = {key: body.get(key, "missing") for key in place}
            name = (folder / "run.json").relative_to(fresh).as_posix()
            yield from differences(name, said, place)


def described_again(bundle: Opened, derived: Derived, fresh: Path) -> dict[str, bytes]:
    """Write the appendix and the metadata again from the runs and `about.json`; nothing if
    `about.json` cannot be read."""
    try:
        about = About.model_validate_json((bundle.folder / ABOUT).read_bytes())
    except (OSError, ValidationError):
        return {}
    manifest = bundle.manifest
    campaigns = [ran(fresh / "artifacts" / name) for name in manifest.campaigns]
    sizes = {
        name: digest.bytes
        for name, digest in bundle.found.items()
        if name == ABOUT or role_of(name, manifest.campaigns) != "metadata"
    }
    return described(about, manifest, derived, campaigns, sizes)


def _other_libraries(manifest: Manifest) -> list[Check]:
    other = [
        f"{name} {version} (here {installed.version(name)})"
        for name, version in manifest.libraries.items()
        if name in LIBRARIES and installed.version(name) != version
    ]
    detail = f"made with other versions: {', '.join(other)}"
    return [Check("libraries", None, detail)] if other else []


def _misdeclared(manifest: Manifest, again: Collection[str]) -> Iterator[Difference]:
    """Yield files with another role than the manifest states, and files that nothing reproduces;
    `again`: the files that were made again."""
    for entry in manifest.files:
        # A figure's PDF is not drawn again; its PNG is.
        drawn = f"{entry.path[:-4]}.png" if entry.path.endswith(".pdf") else entry.path
        role: str = role_of(entry.path, manifest.campaigns)
        if role in ("derived", "metadata") and drawn not in again:
            role = "nothing that a bundle holds"
        if entry.role != role and entry.path != MANIFEST:
            yield Difference(entry.path, "role", entry.role, role)


# ---- comparison ----------------------------------------------------------------------------------

_ACTIVE = (b"/JavaScript", b"/JS", b"/Launch", b"/OpenAction", b"/AA", b"/EmbeddedFile", b"/ObjStm")
"""Names in a PDF file (ISO 32000-1) that the drawing library never writes."""
RELATIVE, ABSOLUTE = 1e-9, 1e-12
"""The same runs give the same numbers; the arithmetic of another processor may round the last
digits differently, also of a difference that is zero."""


def _compare(name: str, there: Path, here: Path) -> Iterator[Difference]:
    """Yield the differences between a file of the bundle and the same file made again."""
    read = _READERS.get(here.suffix, _lines)
    try:
        stated = read(there)
    except (OSError, ValueError):
        yield Difference(name, "file", "missing or unreadable", "follows from the runs")
        return
    yield from differences(name, stated, read(here))


def _records(body: Any) -> Any:
    """Return the content of a file, with claims of earlier versions in the current form."""
    return [current_claim(one) for one in body] if isinstance(body, list) else body


def _lines(file: Path) -> list[str]:
    return file.read_bytes().decode(errors="replace").splitlines()


def _page(file: Path) -> list[str]:
    """Return the lines of a page; an embedded picture is the name of the figure that it shows."""
    figures = {
        base64.b64encode(path.read_bytes()): path.name.encode()
        for path in sorted((file.parent / "figures").glob("*.png"))
    }
    page = EMBEDDED.sub(lambda found: figures.get(found[1], b"another"), file.read_bytes())
    return page.decode(errors="replace").splitlines()


def _rows(file: Path) -> list[list[object]]:
    """Return the cells of a table; numbers become floats."""
    return [[_cell(part) for part in line.split(",")] for line in file.read_text().splitlines()]


def _cell(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


_READERS: Mapping[str, Callable[[Path], Any]] = {
    ".json": lambda file: _records(parse(file.read_bytes())),
    ".csv": _rows,
    ".md": _rows,
    ".html": _page,
}


def _active(bundle: Opened, derived: Derived) -> Iterator[Difference]:
    """Yield the PDF figures that hold more than a drawing; PDFs are not drawn again."""
    for path in sorted((bundle.folder / "artifacts" / derived.folder.name).rglob("*.pdf")):
        # A stream is a drawing; names in the objects around the streams make a file active.
        parts = path.read_bytes().split(b"endstream")
        around = b"".join(part.partition(b"stream\n")[0] for part in parts)
        if any(word in around for word in _ACTIVE):
            name = path.relative_to(bundle.folder).as_posix()
            yield Difference(name, "PDF", "a script, a file or hidden objects", "a drawing")


def differences(
    file: str, bundled: Any, derived: Any, where: str = "", scale: float | Sequence[float] = 0.0
) -> Iterator[Difference]:
    """Yield every difference between two values of JSON types: numbers by value, everything else
    literally. Around zero, a relative tolerance means nothing: `scale` is the largest number next
    to these values, or one number for each entry of a row."""
    if isinstance(bundled, Mapping) and isinstance(derived, Mapping):
        for key in [*bundled, *(key for key in derived if key not in bundled)]:
            place = f"{where}.{key}" if where else str(key)
            if key not in bundled or key not in derived:
                sides = (_text(side.get(key, "missing")) for side in (bundled, derived))
                yield Difference(file, place, *sides)
            else:
                room = _sides(derived[key]) if key == "bar" else 0.0
                yield from differences(file, bundled[key], derived[key], place, room)
    elif isinstance(bundled, list) and isinstance(derived, list):
        if len(bundled) != len(derived):
            yield Difference(file, where, f"{len(bundled)} entries", f"{len(derived)} entries")
            return
        scales = _scales(derived, scale)
        for index, (one, other) in enumerate(zip(bundled, derived, strict=True)):
            yield from differences(file, one, other, f"{where}[{index}]", scales[index])
    elif not _same(bundled, derived, 0.0 if isinstance(scale, Sequence) else scale):
        yield Difference(file, where, _text(bundled), _text(derived))


def _scales(entries: list[Any], scale: float | Sequence[float]) -> Sequence[float | list[float]]:
    """Return the scale of each entry of a list. Rows have one scale for each column."""
    if all(isinstance(entry, list) for entry in entries):
        columns = [_largest(column) for column in zip_longest(*entries)]
        return [columns] * len(entries)
    return scale if isinstance(scale, Sequence) else [_largest(entries)] * len(entries)


def _sides(bar: Any) -> float | list[float]:
    """Return the scales of a bar's x, y, width and height."""
    if not isinstance(bar, list) or len(bar) != 4:
        return 0.0
    return [_largest(bar[0::2]), _largest(bar[1::2])] * 2


def _largest(values: Iterable[Any]) -> float:
    """Return the largest absolute value of the finite numbers, 0.0 if there is none."""
    numbers = (one for one in values if isinstance(one, (int, float)) and math.isfinite(one))
    return max((abs(float(one)) for one in numbers), default=0.0)


def _same(one: Any, other: Any, scale: float) -> bool:
    numbers = (int, float)
    if isinstance(one, bool) or isinstance(other, bool) or not isinstance(one, numbers):
        return type(one) is type(other) and bool(one == other)
    if not isinstance(other, numbers):
        return False
    room = max(ABSOLUTE, RELATIVE * scale)
    close = math.isclose(one, other, rel_tol=RELATIVE, abs_tol=room)
    return close or (math.isnan(one) and math.isnan(other))


def _text(value: object) -> str:
    text = repr(value) if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


# ---- pictures ------------------------------------------------------------------------------------

UNLIKE = 0.03
"""Share of the ink by which two pictures differ. In plots of three bars and of two lines, other
hinting, smoothing and fonts moved 0.0005 to 0.024. One bar with a tenth less height moved 0.036,
two exchanged bars 0.07. The figure's data show smaller changes."""
_BLUR = 33  # points at 160 dpi: hides different letter shapes and small shifts
_MARGIN = 4  # points by which the size of the same picture may differ


def same_picture(one: Path, other: Path) -> bool:
    """Return True if two PNG files have the same pixels; False if either is unreadable."""
    import numpy as np
    from matplotlib.image import imread

    try:
        if one.read_bytes() == other.read_bytes():
            return True
        return bool(np.array_equal(imread(one), imread(other)))
    except Exception:  # a foreign picture may be anything
        return False


def look_alike(one: Path, other: Path) -> bool:
    """Return True if two PNG files look alike: letters and edges may differ (see `UNLIKE`)."""
    try:
        first, second = _inked(one), _inked(other)
    except Exception:  # a foreign picture may be anything
        return False
    if any(abs(a - b) > _MARGIN for a, b in zip(first.shape, second.shape, strict=True)):
        return False
    height, width = (min(ends) for ends in zip(first.shape[:2], second.shape[:2], strict=True))
    first, second = first[:height, :width], second[:height, :width]
    return bool(abs(first - second).sum() <= UNLIKE * (first.sum() + second.sum()))


def _inked(file: Path) -> Any:
    """Return the distance of each point from white, blurred, with the shape (height, width, 3)."""
    import numpy as np
    from PIL import Image
    from scipy.ndimage import uniform_filter

    with Image.open(file, formats=["PNG"]) as picture:  # others may run programs
        shown = picture.convert("RGBA")
    white = Image.new("RGBA", shown.size, "white")
    ink = 1.0 - np.asarray(Image.alpha_composite(white, shown).convert("RGB")) / 255
    for _ in range(2):
        ink = uniform_filter(ink, size=(_BLUR, _BLUR, 1), mode="constant")
    return ink
