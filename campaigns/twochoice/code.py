"""What a process simulates bursts with; see `campaigns.sameness`."""

from __future__ import annotations

import hashlib
import json
from functools import cache

from campaigns.campaign_file import ROOT
from campaigns.fingerprint import digest_paths
from campaigns.kinds.cell import SOURCES
from campaigns.sameness import Code, library_versions, python_version
from campaigns.twochoice.parameters import BurstParameters
from campaigns.twochoice.simulator import built_from, simulate
from schemas.errors import StoreError
from testbed.simulated import sources

WORKER = ("campaigns/twochoice", *SOURCES)
"""What makes a cell's files on a worker, beside the simulator."""

MEASURE = ("campaigns/twochoice/measure.py",)
"""What else can change a cell's numbers."""

LIBRARIES = ("pydantic",)


@cache
def here() -> Code:
    """This process's. (Read once: what a process has imported does not change with its files.)"""
    problem, probe = None, None
    try:
        built_from()
        probe = _probe()
    except StoreError as error:
        problem = f"cannot use its simulator: {str(error).rstrip('.')}"
    return Code(
        python=python_version(),
        libraries=library_versions(LIBRARIES),
        sources=digest_paths(ROOT / name for name in WORKER)[:16],
        simulator=simulator_digest()[:16],
        problem=problem,
        probe=probe,
    )


def simulator_digest() -> str:
    """Of the simulator's sources as they are."""
    return sources.digest(program="tcsim")


def result_digests() -> dict[str, str]:
    """Of all that can change a cell's result: part of a run's identity."""
    return {
        "simulator": simulator_digest(),
        "measure": digest_paths(ROOT / name for name in MEASURE),
    }


def _probe() -> str:
    """A digest of what a small simulation with everything in it comes to."""
    parameters = BurstParameters(
        scheduler="both",
        choices="home+random",
        servers=20,
        processes=100,
        straggler_ratio=0.1,
        spread_s=0.01,
        learn_rounds=2,
        rounds=2,
        redirects=True,
    )
    answer = simulate(parameters, 7)
    told = json.dumps({name: answer[name] for name in sorted(answer) if name != "cost"})
    return hashlib.sha256(told.encode()).hexdigest()[:16]
