"""What makes two runs the same run: a hash of everything that can change a result.

The commit is not part of it: a cosmetic commit reruns nothing, a changed controller reruns its
cells.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas.run import SCHEMA_VERSION

_SKIPPED_FOLDERS = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"}
# Request traces (workloads/traces): no run on a store's testbed replays one.
_SKIPPED_FOLDERS |= {"traces"}
_SKIPPED_SUFFIXES = {".pyc", ".pyo", ".md", ".swp"}
_IDENTIFYING_TOOLS = ("ceph", "fio", "rados", "swift", "nfs", "hotbedsim", "deployer")
"""Versions that are part of a run's identity; python's and the kernel's are only recorded. A
deployer is named where it is not the project's own."""


@dataclass(frozen=True)
class Identity:
    """What all cells of a campaign on a testbed share."""

    spec_digest: str
    ground: str
    site: str
    time_scale: float
    versions: Mapping[str, str] = field(default_factory=dict)
    folders: Mapping[str, str] = field(default_factory=dict)  # role or workload folder -> digest


def digest_paths(paths: Iterable[Path]) -> str:
    """SHA-256 (hex) over names and contents of files, and of all files below folders."""
    sha = hashlib.sha256()
    for path in sorted(paths):
        for file in _files(path):
            relative = file.relative_to(path.parent).as_posix()
            sha.update(f"{relative}\0{file.stat().st_size}\0".encode())
            sha.update(file.read_bytes())
    return sha.hexdigest()


def identifying_versions(versions: Mapping[str, str]) -> dict[str, str]:
    """The versions of stores and load tools among `versions`."""
    return {name: versions[name] for name in _IDENTIFYING_TOOLS if name in versions}


def run_id(
    identity: Identity, parameters: Mapping[str, Any], *, seed: int, block: int, controller: str
) -> str:
    """Twelve hex digits.

    Args:
        identity: what the campaign's cells share.
        parameters: `CellParameters.canonical()`.
        seed: the block's seed.
        block: number of the block, from 0.
        controller: digest of the controller's folder.
    """
    body = {
        "schema": SCHEMA_VERSION,
        "spec": identity.spec_digest,
        "ground": identity.ground,
        "site": identity.site,
        "time_scale": identity.time_scale,
        "versions": identifying_versions(identity.versions),
        "folders": dict(identity.folders),
        "parameters": dict(parameters),
        "seed": seed,
        "block": block,
        "controller": controller,
    }
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(
        file
        for file in path.rglob("*")
        if file.is_file()
        and file.suffix not in _SKIPPED_SUFFIXES
        and not _SKIPPED_FOLDERS.intersection(file.relative_to(path).parts)
    )
