"""Campaigns of the planner Ursa (``planner: ursa``), declared for `campaigns.engine.kind`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from campaigns.engine.identity import Recipe, Sameness
from campaigns.engine.kind import Computed, Kind
from campaigns.papers.ursa.cell import make
from controllers.ursa.run import warm_instances
from schemas.campaign import Campaign
from schemas.cells.ursa import INPUTS, Placing, UrsaCell

# Approximate seconds of a cell.
FIXED_S = 0.2
GENERATE_S = 0.6e-6  # per partition
CHECK_S = 0.15e-6
METHOD_S = {"sa": 4e-6, "alp": 1.5e-7, "algorithm1-pruned": 5e-7, "joint": 5e-6, "ilp": 1e-6}
OTHER_METHOD_S = 0.2e-6
RANDOM_FACTOR = 5.0
EXACT = {"opt": 0.3}  # share of the time limit that it needs


def planned_s(parameters: UrsaCell) -> float:
    """Return the estimated seconds of a cell, including its share of a shared instance."""
    if parameters.method == INPUTS:
        return FIXED_S + (GENERATE_S + CHECK_S) * parameters.partitions
    each = METHOD_S.get(parameters.method, OTHER_METHOD_S)
    if isinstance(parameters, Placing) and parameters.selection == "random":
        each *= RANDOM_FACTOR
    method = each * parameters.partitions
    method += EXACT.get(parameters.method, 0.0) * parameters.time_limit_s
    shared = (GENERATE_S / 4 + 3 * CHECK_S) * parameters.partitions
    return FIXED_S + shared + min(parameters.time_limit_s, method)


def notes(pending: Sequence[UrsaCell], _campaign: Campaign) -> Sequence[str]:
    """Return a dry run's notes on the largest instance and the time limits."""
    largest = max(pending, key=lambda parameters: parameters.memory_mib)
    limits = sorted({f"{p.method} {p.time_limit_s:g} s" for p in pending if p.method != INPUTS})
    return (
        f"the largest instance is {largest.size}: about {largest.memory_mib / 1024:.1f} GiB of "
        "memory",
        f"time limits: {', '.join(limits)}",
    )


def _probe() -> str:
    sha = hashlib.sha256()
    for made in warm_instances():
        for array in (made.replica_node, made.primary_load, made.capacity):
            sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()[:16]


LIBRARIES = ("numpy", "scipy", "numba", "highspy")
"""Libraries with versions that decide the plans. (Seconds depend on the machine that makes the
cell; the run's record names it.)"""

SAME = Sameness(
    code=("campaigns/papers/ursa/cell.py",),
    libraries=(*LIBRARIES, "pyarrow", "pydantic"),
    probe=_probe,
)

KIND = Kind(
    does="plans for synthetic instances",
    grounds={
        "sim": Computed(
            site="synthetic",
            code=SAME.code,
            libraries=LIBRARIES,
            planned_s=planned_s,
            recipe=Recipe(make, SAME),
            seconds_count=True,
        )
    },
    notes=notes,
)
