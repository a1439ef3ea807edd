"""`hotbed verify`: check that a bundle is complete, and that its runs show all it states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hotbed.options import MostGibOption, argument, named, option
from hotbed.output import Output, new_table
from hotbed.progress import progress
from schemas.errors import UserError
from schemas.shown import line

if TYPE_CHECKING:
    from analysis.bundle.verify import Check, Verification
    from schemas.bundle import Entry, Manifest

SHOWN = 40  # differences that are printed


def verb(
    bundle: Annotated[Path, argument("An archive made by hotbed bundle.")],
    sha256: str | None = option("The archive's SHA-256 as published with it.", None),
    most_gib: MostGibOption = 16,
    no_limits: bool = named(
        "--no-limits", "No limits of memory and time; only for your own bundles.", False
    ),
) -> Output:
    """Check a bundle's hashes, and compute its figures and claims again from its runs."""
    from hotbed.bundling import foreign_code
    from hotbed.contained import verify as check

    if not bundle.is_file():
        raise UserError("there is no such file", where=bundle)
    with progress(f"verify {bundle.name}") as report:
        made = check(bundle, most_gib=most_gib, limited=not no_limits, progress=report)
    code = foreign_code(made.manifest)
    made.checks += [*other_code(made.manifest), *_unloaded(code)]
    published = sha256 is None or made.sha256 == sha256.lower().strip()
    facts = {
        "ok": made.ok and published,
        "sentence": made.sentence,
        "sha256": made.sha256,
        "as_published": None if sha256 is None else published,
        "checks": made.checks,
        "differences": made.differences,
        "foreign_code": code,
    }
    ok = made.ok and published
    return Output(facts, lambda: [_table(made), *_lines(made, published)], code=int(not ok))


def other_code(manifest: Manifest) -> list[Check]:
    """Return a note if the bundle was made by other code: texts may differ."""
    from analysis.bundle.verify import Check
    from campaigns.engine.provenance import code_state, hotbed_version

    commit, dirty = code_state()
    there = (manifest.hotbed_version, manifest.commit)
    here = (hotbed_version(), commit)
    if there == here and not dirty:
        return []
    ours = f"{_code(*here)}{' with changes' if dirty else ''}"
    detail = f"made by {_code(*there)}, here it is {ours}: where only words differ, use the former"
    return [Check("code", None, detail)]


def _unloaded(code: Sequence[Entry]) -> list[Check]:
    """Return a note on the bundle's own programs."""
    from analysis.bundle.verify import Check
    from hotbed.bundling import listed

    detail = "\n".join(["not Hotbed's, and not loaded here:", *listed(code)])
    return [Check("foreign code", None, detail)] if code else []


def _code(version: str, commit: str | None) -> str:
    return f"Hotbed {version}" + (f" (commit {commit[:12]})" if commit else "")


def _table(made: Verification) -> object:
    from rich.text import Text

    words = {True: ("holds", "green"), False: ("does not hold", "red"), None: ("note", "dim")}
    rows = ((check.name, Text(*words[check.ok]), check.detail) for check in made.checks)
    return new_table(("what", "", ""), rows)


def _lines(made: Verification, published: bool) -> Iterator[str]:
    for one in made.differences[:SHOWN]:
        place = f" {one.where}" if one.where else ""
        yield line(f"{one.file}{place}: in the bundle {one.bundled}, here {one.derived or '-'}")
    if len(made.differences) > SHOWN:
        yield f"... and {len(made.differences) - SHOWN} more differences (--json lists all)."
    yield f"SHA-256 {made.sha256}{'' if published else ' is not the published one'}"
    yield line(made.sentence)
