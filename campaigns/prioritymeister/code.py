"""What a process makes cells with; see `campaigns.sameness`."""

from __future__ import annotations

from functools import cache

from campaigns.campaign_file import ROOT
from campaigns.fingerprint import digest_paths
from campaigns.kinds.cell import SOURCES
from campaigns.sameness import Code, library_versions, python_version
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
    for name in (
        "kind",
        "profiling",
        "placement",
        "code",
        "local_ground",
        "local_testbed",
        "apply",
        "foreseen",
    )
)
WORKER = ("campaigns/prioritymeister/kind.py", *SOURCES)
"""What else makes a cell on a worker."""


@cache
def here() -> Code:
    """This process's. (Read once: what a process has imported does not change with its files.)"""
    from campaigns.prioritymeister.simulate import PROGRAM, identity

    made_with = {**digests(), "worker": digest_paths(ROOT / name for name in WORKER)}
    problem = None
    try:
        sources.check(sources.built_from(PROGRAM), PROGRAM)
    except StoreError as error:
        problem = f"cannot use its simulator: {str(error).rstrip('.')}"
    return Code(
        python=python_version(),
        libraries=library_versions(LIBRARIES),
        sources=" ".join(f"{k} {v[:16]}" for k, v in sorted(made_with.items())),
        simulator=identity()["pmsim"][:16],
        problem=problem,
    )


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
