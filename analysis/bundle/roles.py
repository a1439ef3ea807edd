"""What a file of a bundle may be taken for: what its manifest says of it must fit its place."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath

from analysis.bundle.differences import Difference
from analysis.bundle.stage import CAMPAIGN_FILES
from schemas.bundle import MANIFEST, Entry, Manifest

_ATTEMPT = re.compile(r"attempt-\d+")
_SOURCES = ("specs", "notebooks", "controllers", "models", "profiles", "environment")


def is_run(path: str, campaigns: Collection[str]) -> bool:
    """Whether a file lies where what was measured does: a campaign's own records, or within an
    attempt."""
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
    """Files that are not what the manifest takes them for, or that nothing gives again.

    Args:
        manifest: the bundle's.
        derived: names of what was computed from its runs here.
        metadata: names of what was written about it here.
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
        # A figure's PDF is not drawn again: its PNG, beside it, is.
        known = path in derived or (path.endswith(".pdf") and f"{path[:-4]}.png" in derived)
        return None if known else "does not follow from these runs"
    if entry.role == "metadata":
        return None if path in metadata or path == MANIFEST else "is not written about these runs"
    if path.startswith("artifacts/"):
        return "lies among the runs"
    return None if _is_source(path, campaigns) else "lies where nothing that made runs does"


def _is_source(path: str, campaigns: Collection[str]) -> bool:
    """Whether a file lies where what made the runs does, which nothing is held against."""
    top, _, inner = path.partition("/")
    if top == "campaigns":
        return inner in {f"{name}.yaml" for name in campaigns}
    return path == "LICENSE" or (top in _SOURCES and bool(inner))
