"""Comparison of code and libraries: workers with the same ones give the same results."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata

from campaigns.engine.job import Job, Make
from schemas.errors import HotbedError, StoreError
from testbed import closure
from testbed.simulated import sources

OTHER_CODE = "has another version of Hotbed's code: install this one there and restart it"
OTHER_SIMULATOR = (
    "has a simulator that computes something else than ours in a small simulation: run "
    "`make setup` there and here, and restart it"
)


class WrongWorker(HotbedError):
    """A worker with results that may differ from this machine's."""


@dataclass(frozen=True)
class Code:
    """Digests of everything that decides a result, short enough to show.

    Attributes:
        python: such as ``3.11``.
        libraries: versions by name of libraries that decide a result or write a run's files.
        sources: digest of Hotbed's code, including a simulator's.
        problem: why this process cannot compute, as the end of a sentence about a worker; None if
            it can. For example, its simulator was built from other sources.
        probe: digest of a small computation; it is equal on every machine with the same arithmetic.
    """

    python: str
    libraries: Mapping[str, str]
    sources: str
    problem: str | None = None
    probe: str | None = None


@dataclass(frozen=True)
class Sameness:
    """Requirements on a worker. Functions must be module-level, because they are sent by name.

    Attributes:
        code: entry points of a cell's code (`testbed.closure`).
        libraries: libraries that must have the same versions on the worker.
        program: name of the simulator.
        probe: returns the digest of a small computation.
        probed: end of a sentence about a worker with another probe.
    """

    code: tuple[str, ...]
    libraries: tuple[str, ...]
    program: str | None = None
    probe: Callable[[], str] | None = None
    probed: str = OTHER_SIMULATOR

    def versions(self) -> dict[str, str]:
        """Return the versions of the libraries and the simulator, for a run's record."""
        found = library_versions(self.libraries)
        return found | ({self.program: sources.digest(self.program)[:24]} if self.program else {})

    def ready(self) -> None:
        """Check that the simulator, if any, was built from the present sources.

        Raises:
            StoreError: the simulator is missing or was built from other sources.
        """
        if self.program is not None:
            sources.require(self.program)

    def here(self) -> Code:
        """Return code and libraries of this process, read once because imports do not change."""
        return _here(self)

    def difference(self, ours: Code, theirs: Code) -> str | None:
        """Return why results of `theirs` may differ from those of `ours`, as the end of a sentence
        about a worker; None if they are the same."""
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
        """Raise if this process would make a cell with other code than the plan's.

        Raises:
            WrongWorker: the difference.
        """
        why = self.difference(ours, self.here())
        if why is None and any(each != closure.first(each.entries) for each in job.code):
            why = OTHER_CODE
        if why is not None:
            raise WrongWorker(f"this worker {why}")


@dataclass(frozen=True)
class Recipe:
    """Recipe of a cell on a worker. `make` must be module-level, because it is sent by name."""

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
    """Return versions by name; ``none`` for a missing library."""
    return {name: _version(name) for name in names}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"
