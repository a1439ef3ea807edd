"""Identity of a run and sameness of workers: digests of everything that can change a result.

A run's id is a hash. The commit is not part of it: a changed comment reruns nothing, a changed
controller only its cells. A Dask worker must have the same code and libraries as this process; then
it gives the same results.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from typing import Any

from campaigns.engine.job import Job, Make
from schemas.errors import HotbedError, StoreError
from schemas.run import SCHEMA_VERSION
from testbed import closure
from testbed.closure import Closure
from testbed.simulated import sources

_IDENTIFYING_TOOLS = ("ceph", "fio", "rados", "swift", "nfs", "hotbedsim", "deployer")
"""Tools with versions that are part of a run's identity; versions of Python and the kernel are only
recorded. A deployer has a version only if it is not Hotbed's own."""


@dataclass(frozen=True)
class Identity:
    """Facts that all cells of a campaign on a testbed share."""

    spec_digest: str
    ground: str
    site: str
    time_scale: float
    versions: Mapping[str, str] = field(default_factory=dict)
    code: Closure = field(default_factory=Closure)
    libraries: Mapping[str, str] = field(default_factory=dict)  # versions by name


def identifying_versions(versions: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of stores and load tools among `versions`."""
    return {name: versions[name] for name in _IDENTIFYING_TOOLS if name in versions}


def run_id(
    identity: Identity, parameters: Mapping[str, Any], *, seed: int, block: int, controller: str
) -> str:
    """Return the run's id, twelve hex digits; `parameters` as JSON, `block` from 0, `controller`
    the digest of the controller's code."""
    body = {
        "schema": SCHEMA_VERSION,
        "spec": identity.spec_digest,
        "ground": identity.ground,
        "site": identity.site,
        "time_scale": identity.time_scale,
        "versions": identifying_versions(identity.versions),
        "code": identity.code.digest,
        "libraries": dict(identity.libraries),
        "parameters": dict(parameters),
        "seed": seed,
        "block": block,
        "controller": controller,
    }
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


CODE = "code"
"""Part of `Code` for the digest of Hotbed's code."""


class WrongWorker(HotbedError):
    """A worker with results that may differ from this machine's."""


@dataclass(frozen=True)
class Code:
    """Everything that decides a result, short enough to show.

    Attributes:
        parts: digest or version by name: Hotbed's code with a simulator's, Python, libraries that
            decide a result or write a run's files, and ``arithmetic``, a small computation's
            result, equal on every machine with the same arithmetic.
        problem: why this process cannot compute, as the end of a sentence about a worker; None if
            it can. For example, its simulator was built from other sources.
    """

    parts: Mapping[str, str]
    problem: str | None = None

    def difference(self, theirs: Code) -> str | None:
        """Return why results of `theirs` may differ from this one's, as the end of a sentence about
        a worker; None if they are the same."""
        if theirs.problem is not None and theirs.parts.get(CODE) == self.parts.get(CODE):
            return theirs.problem
        for name, here in self.parts.items():
            there = theirs.parts.get(name)
            if there != here:
                return (
                    f"has another {name} ({there}, and here it is {here}): install this version of "
                    "Hotbed with its requirements.lock there (`make setup`) and restart it"
                )
        return None


@dataclass(frozen=True)
class Sameness:
    """Requirements on a worker. Functions must be module-level, because they are sent by name.

    Attributes:
        code: entry points of a cell's code (`testbed.closure`).
        libraries: libraries that must have the same versions on the worker.
        program: name of the simulator.
        probe: returns the digest of a small computation.
    """

    code: tuple[str, ...]
    libraries: tuple[str, ...]
    program: str | None = None
    probe: Callable[[], str] | None = None

    def versions(self) -> dict[str, str]:
        """Return the versions of the libraries and the simulator, for a run's record."""
        found = library_versions(self.libraries)
        return found | ({self.program: sources.digest(self.program)[:24]} if self.program else {})

    def ready(self) -> None:
        """Check that the simulator, if any, was built from the present sources. StoreError: the
        simulator is missing or was built from other sources."""
        if self.program is not None:
            sources.require(self.program)

    def here(self) -> Code:
        """Return code and libraries of this process, read once because imports do not change."""
        return _here(self)

    def require(self, ours: Code, job: Job) -> None:
        """Raise if this process would make a cell with other code than the plan's. WrongWorker: the
        difference."""
        why = ours.difference(self.here())
        if why is None and any(each != closure.first(each.entries) for each in job.code):
            why = "has other code than the plan: install this version of Hotbed and restart it"
        if why is not None:
            raise WrongWorker(f"this worker {why}")


@dataclass(frozen=True)
class Recipe:
    """Recipe of a cell on a worker. `make` must be module-level, because it is sent by name."""

    make: Make
    same: Sameness


@cache
def _here(same: Sameness) -> Code:
    parts = {
        CODE: closure.first(same.code).digest[:16],
        "python": ".".join(platform.python_version_tuple()[:2]),
        **library_versions(same.libraries),
    }
    try:
        same.ready()
        return Code(parts if same.probe is None else parts | {"arithmetic": same.probe()})
    except StoreError as error:
        return Code(parts, f"cannot use its simulator: {str(error).rstrip('.')}")


def library_versions(names: Iterable[str]) -> dict[str, str]:
    """Return versions by name; ``none`` for a missing library."""
    return {name: _version(name) for name in names}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"
