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

_IDENTIFYING_TOOLS = (
    *("ceph", "fio", "rados", "swift", "nfs-ganesha", "packages", "hotbedsim", "deployer"),
)
"""Tools with versions that are part of a run's identity; versions of Python and the kernel are only
recorded. `packages` are the exact versions of the distribution's packages. A deployer has a version
only if it is not Hotbed's own."""


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


OTHER = "has other code or libraries"
"""Reason why a worker's results may differ from this machine's."""
INSTALL = (
    "install this version of Hotbed with its requirements.lock there (`make setup`) and restart it"
)
"""Remedy for a worker that is refused."""


class WrongWorker(HotbedError):
    """A worker with results that may differ from this machine's."""


@dataclass(frozen=True)
class Sameness:
    """Requirements on a worker. Functions must be module-level, because they are sent by name.

    Attributes:
        code: entry points of a cell's code (`testbed.closure`).
        libraries: libraries that must have the same versions on the worker.
        program: name of the simulator.
        probe: returns the digest of a small computation, equal on every machine with the same
            arithmetic.
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

    def digest(self) -> str:
        """Return the digest of code, Python, libraries and probe in this process, read once because
        imports do not change. StoreError: see `ready`."""
        return _digest(self)

    def require(self, planned: str, job: Job) -> None:
        """Raise WrongWorker if this process would make a cell with other code than the plan's: its
        digest is not the `planned` one, or its simulator is not `ready`."""
        try:
            same = planned == self.digest()
        except StoreError as error:
            raise WrongWorker(f"this worker: {str(error).rstrip('.')}") from error
        if not same or any(each != closure.first(each.entries) for each in job.code):
            raise WrongWorker(f"this worker {OTHER}: {INSTALL}")


@dataclass(frozen=True)
class Recipe:
    """Recipe of a cell on a worker. `make` must be module-level, because it is sent by name."""

    make: Make
    same: Sameness


@cache
def _digest(same: Sameness) -> str:
    same.ready()
    parts = {
        "code": closure.first(same.code).digest,
        "python": platform.python_version_tuple()[:2],
        "libraries": library_versions(same.libraries),
        "arithmetic": None if same.probe is None else same.probe(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def library_versions(names: Iterable[str]) -> dict[str, str]:
    """Return versions by name; ``none`` for a missing library."""
    return {name: _version(name) for name in names}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"
