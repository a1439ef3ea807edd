"""Comparison of code and libraries: a worker that has the same gives the same results."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata

from campaigns.job import Job, Make
from schemas.errors import HotbedError, StoreError
from testbed import closure
from testbed.simulated import sources

OTHER_CODE = "has another version of Hotbed's code: install this one there and restart it"
OTHER_SIMULATOR = (
    "has a simulator that computes something else than ours in a small simulation: run "
    "`make setup` there and here, and restart it"
)


class WrongWorker(HotbedError):
    """A worker whose results need not be ours."""


@dataclass(frozen=True)
class Code:
    """Digests of what decides a result, short enough to be shown.

    Attributes:
        python: as ``3.11``.
        libraries: versions by name of those that decide a result, or write the files of a run.
        sources: of Hotbed's code, a simulator's included.
        problem: why this process cannot compute, as the end of a sentence about a worker (a
            simulator that was built from other sources, say); None where it can.
        probe: of something small that it has computed, the same on every machine whose arithmetic
            is ours.
    """

    python: str
    libraries: Mapping[str, str]
    sources: str
    problem: str | None = None
    probe: str | None = None


@dataclass(frozen=True)
class Sameness:
    """Requirements on a worker whose results count. Functions must be a module's: they travel by
    name.

    Attributes:
        code: entry points of a cell's code (`testbed.closure`).
        libraries: those whose versions must be ours.
        program: the simulator in use.
        probe: digest of something small that is computed.
        probed: the end of a sentence about a worker with another probe.
    """

    code: tuple[str, ...]
    libraries: tuple[str, ...]
    program: str | None = None
    probe: Callable[[], str] | None = None
    probed: str = OTHER_SIMULATOR

    def versions(self) -> dict[str, str]:
        """Versions of what computes, for a run's record."""
        found = library_versions(self.libraries)
        return found | ({self.program: sources.digest(self.program)[:24]} if self.program else {})

    def ready(self) -> None:
        """Check that the simulator, if any, was built from the sources that there are.

        Raises:
            StoreError: it was not, or is not there.
        """
        if self.program is not None:
            sources.require(self.program)

    def here(self) -> Code:
        """Code and libraries of this process, read once: its imports stay as they were."""
        return _here(self)

    def difference(self, ours: Code, theirs: Code) -> str | None:
        """Why results of `theirs` need not be ours, as the end of a sentence about a worker; None
        if they are the same."""
        if theirs.sources != ours.sources:
            return OTHER_CODE
        if theirs.problem is not None:
            return theirs.problem
        if theirs.python != ours.python:
            return f"runs Python {theirs.python}, and here it is {ours.python}: use the same"
        for name, version in ours.libraries.items():
            if theirs.libraries.get(name) != version:
                return (
                    f"has {name} {theirs.libraries.get(name)}, and here it is {version}: install "
                    "requirements.lock there"
                )
        return self.probed if theirs.probe != ours.probe else None

    def require(self, ours: Code, job: Job) -> None:
        """Refuse to make a cell in this process with other code than the plan's.

        Raises:
            WrongWorker: says what differs.
        """
        why = self.difference(ours, self.here())
        if why is None and any(each != closure.first(each.entries) for each in job.code):
            why = OTHER_CODE
        if why is not None:
            raise WrongWorker(f"this worker {why}")


@dataclass(frozen=True)
class Recipe:
    """Recipe of a cell on a worker: `make` is a function of a module, since it is sent by name."""

    make: Make
    same: Sameness


@cache
def _here(same: Sameness) -> Code:
    problem, probe = None, None
    try:
        same.ready()
        probe = None if same.probe is None else same.probe()
    except StoreError as error:
        problem = f"cannot use its simulator: {str(error).rstrip('.')}"
    return Code(
        python=".".join(platform.python_version_tuple()[:2]),
        libraries=library_versions(same.libraries),
        sources=closure.first(same.code).digest[:16],
        problem=problem,
        probe=probe,
    )


def library_versions(names: Iterable[str]) -> dict[str, str]:
    """Versions by name; ``none`` for what is not installed."""
    return {name: _version(name) for name in names}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"
