"""What a process makes cells with, and whether it is what we make them with: only then are its
results ours, to the bit."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata

from campaigns.campaign_file import ROOT
from campaigns.fingerprint import digest_paths
from schemas.errors import StoreError
from testbed.simulated import sources

LIBRARIES = ("numpy", "pandas", "pyarrow", "pydantic")
PLANNER = ("controllers/prioritymeister", "controllers/jit.py")
"""What decides priorities and token buckets."""
EXPERIMENT = (
    "campaigns/prioritymeister",
    *(f"workloads/traces/{name}.py" for name in ("arrivals", "standins", "requests")),
)
"""What decides traces, SLOs and what is counted."""
NOT_RESULTS = frozenset(
    f"{name}.py"
    for name in ("session", "executor", "profiling", "placement", "code", "local_ground", "apply")
)


@dataclass(frozen=True)
class Code:
    """See `campaigns.worker_code.Code`."""

    python: str
    libraries: Mapping[str, str]
    sources: str
    simulator: str
    problem: str | None = None


@cache
def here() -> Code:
    """This process's. (Read once: what a process has imported does not change with its files.)"""
    from campaigns.prioritymeister.simulate import PROGRAM, identity

    problem = None
    try:
        sources.check(sources.built_from(PROGRAM), PROGRAM)
    except StoreError as error:
        problem = f"cannot use its simulator: {str(error).rstrip('.')}"
    return Code(
        python=".".join(platform.python_version_tuple()[:2]),
        libraries={name: metadata.version(name) for name in LIBRARIES},
        sources=" ".join(f"{k} {v[:16]}" for k, v in sorted(digests().items())),
        simulator=identity()["pmsim"][:16],
        problem=problem,
    )


def difference(ours: Code, theirs: Code) -> str | None:
    """Why results of `theirs` need not be ours, as the end of a sentence about a worker; None if
    they are the same."""
    if theirs.problem is not None:
        return theirs.problem
    if (theirs.sources, theirs.simulator) != (ours.sources, ours.simulator):
        return "has another version of Hotbed's code: install this one there and restart it"
    if theirs.python != ours.python:
        return f"runs Python {theirs.python}, and here it is {ours.python}: use the same"
    for name, version in ours.libraries.items():
        if theirs.libraries.get(name) != version:
            other = theirs.libraries.get(name)
            return f"has {name} {other}, and here it is {version}: install requirements.lock there"
    return None


def digests() -> dict[str, str]:
    """Of all that can change a cell's result but the ground: part of a run's identity."""
    experiment = [
        path
        for name in EXPERIMENT
        for path in ([ROOT / name] if (ROOT / name).is_file() else (ROOT / name).glob("*.py"))
        if path.name not in NOT_RESULTS
    ]
    return {
        "planner": digest_paths(ROOT / name for name in PLANNER),
        "experiment": digest_paths(experiment),
    }
