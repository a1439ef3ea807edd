"""What a process plans with; see `campaigns.sameness`. (Seconds are those of the machine that makes
the cell; the run's record names it.)"""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np

from campaigns import sameness
from campaigns.campaign_file import ROOT
from campaigns.fingerprint import digest_paths
from campaigns.kinds.cell import SOURCES
from campaigns.sameness import Code, library_versions, python_version
from controllers.ursa.run import warm_instances

LIBRARIES = ("numpy", "scipy", "numba", "highspy", "pyarrow", "pydantic")
"""Their versions decide what plans come out, or write the files of a run."""

PLANNER = ("controllers/ursa", "controllers/jit.py", "campaigns/ursa/measure.py")
"""What can change a cell's result."""

WORKER = ("campaigns/ursa", *SOURCES)
"""What else makes a cell on a worker."""


OTHER_ARITHMETIC = "generates other instances than we do: its processor's arithmetic differs"


@cache
def here() -> Code:
    """This process's. (Read once: what a process has imported does not change with its files.)"""
    return Code(
        python=python_version(),
        libraries=libraries(),
        sources=digest_paths(ROOT / name for name in (*PLANNER, *WORKER))[:16],
        probe=_probe(),
    )


def difference(ours: Code, theirs: Code) -> str | None:
    """See `campaigns.sameness.difference`; the probe is of small instances."""
    return sameness.difference(ours, theirs, probed=OTHER_ARITHMETIC)


def identity() -> dict[str, str]:
    """Digests of all that can change a cell's result: part of a run's identity."""
    versions = libraries()
    used = [name for name in LIBRARIES if name not in ("pyarrow", "pydantic")]
    return {
        "planner": digest_paths(ROOT / name for name in PLANNER),
        "libraries": ", ".join(f"{name} {versions[name]}" for name in used),
    }


def libraries() -> dict[str, str]:
    """Versions by name; ``none`` for what is not installed."""
    return library_versions(LIBRARIES)


def _probe() -> str:
    sha = hashlib.sha256()
    for made in warm_instances():
        for array in (made.replica_node, made.primary_load, made.capacity):
            sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()[:16]
