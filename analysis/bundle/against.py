"""What a bundle states, held against what was computed from its runs here (`Derived`)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from importlib import metadata as installed
from itertools import zip_longest
from pathlib import Path
from typing import Any

from analysis.bundle.derive import DATA, Derived
from analysis.bundle.differences import Difference, differences
from analysis.bundle.pictures import look_alike, same_picture, shown_in, told_by
from analysis.bundle.verification import Check
from schemas.bundle import ABOUT, Manifest

_ACTIVE = (b"/JavaScript", b"/JS", b"/Launch", b"/OpenAction", b"/AA", b"/EmbeddedFile", b"/ObjStm")
"""Names in a PDF file (ISO 32000-1) that the drawing library never writes."""


def read_json(file: Path) -> Any:
    """What a file says, where it says it once: of two values of one key readers take either.

    Raises:
        ValueError: it is no JSON, or has a key twice in one object.
        OSError: it cannot be read.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a key is there twice")
        return found

    return json.loads(file.read_bytes(), object_pairs_hook=once)


def claims(here: Path, derived: Derived) -> Iterator[Difference]:
    """Claims, in their order: of two of one name, readers would take either."""
    file = f"artifacts/{derived.folder.name}/claims.json"
    try:
        stated = read_json(here / "claims.json")
        names = [str(claim["id"]) for claim in stated]
    except (OSError, ValueError, KeyError, TypeError):
        yield Difference(file, "file", "claims", "cannot be read")
        return
    wanted = [claim.id for claim in derived.claims]
    for number, (name, known) in enumerate(zip_longest(names, wanted), 1):
        if name != known:  # those behind it are not in their places either
            yield from differences(
                file, name or "missing", known or "none", where=f"claim {number}"
            )
            break
    by_name = dict(zip(names, stated, strict=True))
    for claim in derived.claims:
        if claim.id in by_name:
            computed = claim.model_dump(mode="json")
            yield from differences(file, by_name[claim.id], computed, where=claim.id)


def figures(here: Path, derived: Derived) -> Iterator[Difference]:
    """What figures show, as numbers."""
    place = f"artifacts/{derived.folder.name}/figures/{DATA}"
    there = {path.stem for path in (here / "figures" / DATA).glob("*.json")}
    for name in sorted(there | set(derived.shown)):
        file = f"{place}/{name}.json"
        if name not in derived.shown:
            yield Difference(file, "figure", "stated", "not drawn from these runs")
            continue
        try:
            stated = read_json(here / "figures" / DATA / f"{name}.json")
        except (OSError, ValueError):
            yield Difference(file, "figure", "missing or unreadable", "drawn from these runs")
            continue
        yield from differences(file, stated, json.loads(json.dumps(derived.shown[name])))


def pictures(here: Path, derived: Derived, manifest: Manifest) -> Check:
    """Whether the pictures are drawn again: to the pixel by the same drawing library; by another
    one they must look alike, which small changes do."""
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


def tables(here: Path, derived: Derived) -> Iterator[Difference]:
    """Tables beside the report."""
    for path in sorted([*derived.folder.glob("*.csv"), *derived.folder.glob("*.md")]):
        file = f"artifacts/{derived.folder.name}/{path.name}"
        try:
            stated = (here / path.name).read_text()
        except (OSError, UnicodeDecodeError):
            yield Difference(file, "table", "missing or unreadable", "computed from these runs")
            continue
        yield from differences(file, _cells(stated), _cells(path.read_text()))


def _cells(text: str) -> list[list[object]]:
    """A table's lines, what is a number as such."""
    return [[_cell(part) for part in line.split(",")] for line in text.splitlines()]


def _cell(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def report(here: Path, derived: Derived) -> Iterator[Difference]:
    """The page, with the figures' pictures in the places that they have here; the figures' files
    are looked at by themselves."""
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


def programs(here: Path, derived: Derived) -> Iterator[Difference]:
    """Yield the PDF figures that hold more than a drawing; PDFs are not drawn again."""
    for path in sorted((here / "figures").rglob("*.pdf")):
        words = told_by(path.read_bytes()) or b""
        if any(word in words for word in _ACTIVE):
            file = f"artifacts/{derived.folder.name}/{path.relative_to(here).as_posix()}"
            yield Difference(file, "PDF", "a script, a file or hidden objects", "a drawing")


def _encoded(picture: Path) -> bytes | None:
    return base64.b64encode(picture.read_bytes()) if picture.is_file() else None


def documents(here: Path, written: Mapping[str, bytes] | None) -> Iterator[Difference]:
    """The appendix and the metadata in the bundle's folder; `written` is None where what they are
    written from cannot be read."""
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
