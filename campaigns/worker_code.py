"""What a worker computes with, and whether it is what we compute with: only then are its results
ours, to the bit."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata

from campaigns.campaign_file import ROOT
from campaigns.fingerprint import digest_paths
from campaigns.sim_ground import code_digests
from schemas.errors import StoreError
from testbed.simulated import Benchmark, SimulatedCeph
from testbed.simulated.process import PROGRAM
from testbed.spec import load_spec

FOLDERS = (
    *("campaigns", "campaigns/steps", "controllers", "schemas"),
    *("testbed", "testbed/simulated", "testbed/stores", "testbed/stores/ceph", "workloads"),
)
"""Whose Python files every simulated cell is made with; the controller that a cell has is told by a
digest of its own (`campaigns.dask_cell.Task`)."""

LIBRARIES = ("numpy", "pandas", "pyarrow", "pydantic")
"""Their versions are written into the files of a run, or make them."""


@dataclass(frozen=True)
class Code:
    """Digests of what decides a simulated result, short enough to be shown.

    `problem` says why the simulator cannot be used, as the end of a sentence (it has not been
    built, or from other sources than are there); None where it can. `probe` is what it makes of a
    small simulation, which is the same on every machine.
    """

    python: str
    libraries: Mapping[str, str]
    sources: str
    simulator: str
    problem: str | None
    probe: str | None


@cache
def here() -> Code:
    """This process's. (Read once: what a process has imported does not change with its files.)"""
    problem, probe = None, None
    if not PROGRAM.is_file():
        problem = "has no simulator: run `make setup` there and restart it"
    else:
        try:
            probe = _probe()
        except StoreError as error:
            problem = f"cannot use its simulator: {str(error).rstrip('.')}"
    return Code(
        python=".".join(platform.python_version_tuple()[:2]),
        libraries={name: _version(name) for name in LIBRARIES},
        sources=_sources()[:16],
        simulator=code_digests()["simulator"][:16],
        problem=problem,
        probe=probe,
    )


def difference(ours: Code, theirs: Code) -> str | None:
    """Why results of `theirs` need not be ours, as the end of a sentence about a worker; None if
    they are the same."""
    if theirs.sources != ours.sources or theirs.simulator != ours.simulator:
        return "has another version of Hotbed's code: install this one there and restart it"
    if theirs.problem is not None:
        return theirs.problem
    if theirs.probe != ours.probe:
        return (
            "has a simulator that computes something else than ours in a small simulation: run "
            "`make setup` there and here, and restart it"
        )
    if theirs.python != ours.python:
        return f"runs Python {theirs.python}, and here it is {ours.python}: use the same"
    for name, version in ours.libraries.items():
        if theirs.libraries.get(name) != version:
            other = theirs.libraries.get(name)
            return f"has {name} {other}, and here it is {version}: install requirements.lock there"
    return None


def _sources() -> str:
    """Digest of `FOLDERS`, each by itself: files of one name lie in several."""
    sha = hashlib.sha256()
    for name in FOLDERS:
        sha.update(f"{name} {digest_paths((ROOT / name).glob('*.py'))}\n".encode())
    return sha.hexdigest()


def _probe() -> str:
    """A digest of a small simulation with everything in it that a cell has."""
    with SimulatedCeph(load_spec(ROOT / "testbed" / "specs" / "dlr.yaml"), seed=7) as ceph:
        ceph.prefill(200, 2**22)
        ceph.start_disturbance([(0.0, {ceph.nodes[0]: None}), (1.0, {ceph.nodes[1]: 0.5})])
        ceph.start_benchmark(Benchmark("rand", duration_s=2.0), in_s=1.0)
        result = ceph.run_benchmark()
    text = f"{result.seconds!r} {result.latency_mean_s!r} {result.histogram} {result.fio_reads}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"
