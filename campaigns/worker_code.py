"""What a worker computes simulated cells of a store with; see `campaigns.sameness`."""

from __future__ import annotations

import hashlib
from functools import cache

from campaigns.campaign_file import ROOT
from campaigns.fingerprint import digest_paths
from campaigns.sameness import Code, library_versions, python_version
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
        python=python_version(),
        libraries=library_versions(LIBRARIES),
        sources=_sources()[:16],
        simulator=code_digests()["simulator"][:16],
        problem=problem,
        probe=probe,
    )


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
