"""What a process simulates with, and whether it is what we simulate with: only then are its results
ours, to the bit."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata

from campaigns.campaign_file import ROOT
from campaigns.fingerprint import digest_paths
from campaigns.twochoice.parameters import BurstParameters
from campaigns.twochoice.simulator import built_from, simulate
from schemas.errors import StoreError
from testbed.simulated import sources

WORKER = ("campaigns/twochoice", "campaigns/dask_cell.py", "schemas")
"""What makes a cell's files on a worker, beside the simulator."""

MEASURE = ("campaigns/twochoice/measure.py",)
"""What else can change a cell's numbers."""

LIBRARIES = ("pydantic",)


@dataclass(frozen=True)
class Code:
    """Digests of what decides a result; `problem` as in `campaigns.worker_code.Code`. `probe` is of
    a small simulation, which is the same on every machine."""

    python: str
    libraries: Mapping[str, str]
    sources: str
    simulator: str
    problem: str | None = None
    probe: str | None = None


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
        python=".".join(platform.python_version_tuple()[:2]),
        libraries={name: metadata.version(name) for name in LIBRARIES},
        sources=digest_paths(ROOT / name for name in WORKER)[:16],
        simulator=simulator_digest()[:16],
        problem=problem,
        probe=probe,
    )


def difference(ours: Code, theirs: Code) -> str | None:
    """Why results of `theirs` need not be ours, as the end of a sentence about a worker; None if
    they are the same."""
    if (theirs.sources, theirs.simulator) != (ours.sources, ours.simulator):
        return "has another version of Hotbed's code: install this one there and restart it"
    if theirs.problem is not None:
        return theirs.problem
    if theirs.probe != ours.probe:
        return "has a simulator that computes something else than ours: run `make setup` there"
    if theirs.python != ours.python:
        return f"runs Python {theirs.python}, and here it is {ours.python}: use the same"
    for name, version in ours.libraries.items():
        if theirs.libraries.get(name) != version:
            other = theirs.libraries.get(name)
            return f"has {name} {other}, and here it is {version}: install requirements.lock there"
    return None


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
