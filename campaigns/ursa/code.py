"""What a process plans with, and whether it is what we plan with: only then are its results ours.
(Seconds are those of the machine that makes the cell; the run's record names it.)"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata

import numpy as np

from campaigns.campaign_file import ROOT
from campaigns.fingerprint import digest_paths
from controllers.ursa.run import warm_instances

LIBRARIES = ("numpy", "scipy", "numba", "highspy", "pyarrow", "pydantic")
"""Their versions decide what plans come out, or write the files of a run."""

PLANNER = ("controllers/ursa", "controllers/jit.py", "campaigns/ursa/measure.py")
"""What can change a cell's result."""

WORKER = ("campaigns/ursa", "campaigns/dask_cell.py", "schemas")
"""What else makes a cell on a worker."""


@dataclass(frozen=True)
class Code:
    """Digests of what decides a result, short enough to be shown; `problem` as in
    `campaigns.worker_code.Code`. `probe` is of small instances: the same on every machine whose
    arithmetic is ours."""

    python: str
    libraries: Mapping[str, str]
    sources: str
    probe: str
    problem: str | None = None


@cache
def here() -> Code:
    """This process's. (Read once: what a process has imported does not change with its files.)"""
    return Code(
        python=".".join(platform.python_version_tuple()[:2]),
        libraries=libraries(),
        sources=digest_paths(ROOT / name for name in (*PLANNER, *WORKER))[:16],
        probe=_probe(),
    )


def difference(ours: Code, theirs: Code) -> str | None:
    """Why results of `theirs` need not be ours, as the end of a sentence about a worker; None if
    they are the same."""
    if theirs.sources != ours.sources:
        return "has another version of Hotbed's code: install this one there and restart it"
    if theirs.python != ours.python:
        return f"runs Python {theirs.python}, and here it is {ours.python}: use the same"
    for name, version in ours.libraries.items():
        if theirs.libraries.get(name) != version:
            other = theirs.libraries.get(name)
            return f"has {name} {other}, and here it is {version}: install requirements.lock there"
    if theirs.probe != ours.probe:
        return "generates other instances than we do: its processor's arithmetic differs"
    return None


def planner_digest() -> str:
    """Of all that can change a cell's result: part of a run's identity."""
    return digest_paths(ROOT / name for name in PLANNER)


def libraries() -> dict[str, str]:
    """Versions by name; ``none`` for what is not installed."""
    return {name: _version(name) for name in LIBRARIES}


def _probe() -> str:
    sha = hashlib.sha256()
    for made in warm_instances():
        for array in (made.replica_node, made.primary_load, made.capacity):
            sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()[:16]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"
