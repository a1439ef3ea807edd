"""Profile of a pool too large to measure: runs on a simulator fitted to measured runs.

The paper's authors profiled their store "offline using an extensive stress test"; here a model of
the store is profiled. The model and the judge are fitted to different runs."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

import numpy as np

from campaigns.papers.mos.profile.calibrate import predict
from campaigns.papers.mos.profile.points import Point
from testbed.simulated.cosperf.classes import CLASSES
from testbed.simulated.cosperf.constants import Constants
from testbed.stores.microstores import Resources

NOISE = 0.03
"""Relative noise of a rate from run to run."""

PARTS = (0.02, 0.06, 0.15, 0.35, 0.7, 1.0)
"""Shares of a resource's total, while every other resource is plentiful."""

MIXES = 12
"""Configurations with every resource limited, drawn at random."""

FEW = 1.0


def simulated_runs(
    constants: Constants, pool: Resources, seed: int, letters: Sequence[str] = tuple(CLASSES)
) -> list[Point]:
    """Return runs at many configurations of the pool: each resource alone, disks of each class,
    random mixes, and one worker on an idle store."""
    rng = random.Random(f"profile-{seed}")
    asked = [point for letter in letters for point in configurations(letter, pool, rng)]
    rates = predict(asked, constants) * np.exp([rng.gauss(0, NOISE) for _ in asked])
    return [
        point.model_copy(
            update={
                "requests_s": float(rate),
                "latency_s": point.workers / float(rate) if point.workers else None,
            }
        )
        for point, rate in zip(asked, rates, strict=True)
    ]


def configurations(
    letter: str,
    pool: Resources,
    rng: random.Random,
    *,
    alone: Sequence[float] = PARTS,
    mixes: int = MIXES,
) -> Iterator[Point]:
    """Yield configurations with an unknown rate (set to 1).

    Args:
        letter: the workload.
        pool: the maximum of each resource.
        rng: draws the mixes.
        alone: shares of each resource while all others are plentiful; if empty, the idle store is
            omitted too.
        mixes: number of configurations with every resource limited.
    """

    def point(**given: float) -> Point:
        return Point.model_validate(
            {
                "workload": letter,
                "sizes": "paper",
                "requests_s": 1.0,
                "source": "simulated profile",
                **given,
            }
        )

    for part in alone:
        yield point(proxy_cores=part * pool.proxy_cores)
        yield point(storage_cores=part * pool.storage_cores)
        yield point(network=part * pool.network)
        yield point(ssds=max(1, round(part * pool.ssds)))
        yield point(hdds=max(1, round(part * pool.hdds)))
    for _ in range(mixes):
        yield point(
            proxy_cores=_some(rng) * pool.proxy_cores,
            storage_cores=_some(rng) * pool.storage_cores,
            network=_some(rng) * pool.network,
            ssds=math.ceil(_some(rng) * pool.ssds),
            hdds=math.ceil(_some(rng) * pool.hdds),
        )
    if not alone:
        return
    whole = {
        "proxy_cores": pool.proxy_cores,
        "storage_cores": pool.storage_cores,
        "network": pool.network,
        "ssds": pool.ssds,
        "hdds": pool.hdds,
    }
    yield point(workers=FEW, **whole)


def _some(rng: random.Random) -> float:
    return math.exp(rng.uniform(math.log(0.02), 0.0))
