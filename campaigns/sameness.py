"""What a process computes with, and whether it is what we compute with: only then are its results
ours."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata

OTHER_SIMULATOR = (
    "has a simulator that computes something else than ours in a small simulation: run "
    "`make setup` there and here, and restart it"
)


@dataclass(frozen=True)
class Code:
    """Digests of what decides a result, short enough to be shown.

    Attributes:
        python: as ``3.11``.
        libraries: versions by name of those that decide a result, or write the files of a run.
        sources: of Hotbed's code.
        simulator: of a simulator's sources, where there is one.
        problem: why this process cannot compute, as the end of a sentence about a worker (a
            simulator that was built from other sources, say); None where it can.
        probe: of something small that it has computed, the same on every machine whose arithmetic
            is ours.
    """

    python: str
    libraries: Mapping[str, str]
    sources: str
    simulator: str = ""
    problem: str | None = None
    probe: str | None = None


def difference(ours: Code, theirs: Code, *, probed: str = OTHER_SIMULATOR) -> str | None:
    """Why results of `theirs` need not be ours, as the end of a sentence about a worker; None if
    they are the same. `probed` is that end where the probes differ."""
    if (theirs.sources, theirs.simulator) != (ours.sources, ours.simulator):
        return "has another version of Hotbed's code: install this one there and restart it"
    if theirs.problem is not None:
        return theirs.problem
    if theirs.python != ours.python:
        return f"runs Python {theirs.python}, and here it is {ours.python}: use the same"
    for name, version in ours.libraries.items():
        if theirs.libraries.get(name) != version:
            other = theirs.libraries.get(name)
            return f"has {name} {other}, and here it is {version}: install requirements.lock there"
    return probed if theirs.probe != ours.probe else None


@dataclass(frozen=True)
class Sameness:
    """How workers whose results need not be ours are told: `here` is what a process computes with,
    `difference` the end of a sentence about a worker that has another one. Both are functions of
    modules: they travel to workers by name."""

    here: Callable[[], Code]
    difference: Callable[[Code, Code], str | None] = difference


def python_version() -> str:
    """``3.11``."""
    return ".".join(platform.python_version_tuple()[:2])


def library_versions(names: Iterable[str]) -> dict[str, str]:
    """Versions by name; ``none`` for what is not installed."""
    return {name: _version(name) for name in names}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"
