"""COSPerf's constants from measured runs, and the profile of a pool too large to measure.

Constants: least squares on the logarithm of the rate. The paper's authors profiled their store
"offline using an extensive stress test"; here a simulator fitted to measured runs is profiled. The
profiled simulator and the judge are fitted to different runs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from campaigns.papers.mos.profile.points import MeasuredPoint
from testbed.simulated.cosperf.demand import Stations, servers, solve
from testbed.simulated.cosperf.machines import CLASSES, Constants, Placed
from testbed.stores.microstores import Resources

Array = npt.NDArray[np.float64]

FITTED = (
    "proxy_request_s",
    "proxy_byte_s",
    "storage_request_s",
    "storage_byte_s",
    "network_efficiency",
)
STARTS = (1.0, 4.0, 12.0)
"""Multiples of `BEFORE` at which the search begins: without a limit there is no gradient."""

BEFORE = {
    "proxy_request_s": 3e-3,
    "proxy_byte_s": 3e-9,
    "storage_request_s": 3e-3,
    "storage_byte_s": 3e-9,
    "network_efficiency": 0.8,
}
BELIEF = 0.03
"""Weight of a constant `e` times that of `BEFORE`, relative to a rate `e` times the measured one.
Runs decide wherever they are informative. Otherwise storage servers are assumed to need as much CPU
as proxies (rule R4)."""

BOUNDS = dict.fromkeys(FITTED, (1e-4, 1.0)) | {
    "proxy_byte_s": (1e-11, 1e-6),
    "storage_byte_s": (1e-11, 1e-6),
    "network_efficiency": (0.3, 0.99),
}
MANY_WORKERS = 1e4
"""Least workers per server in a run that only reports a saturated store."""


def calibrated(points: Sequence[MeasuredPoint], replicas: int) -> Constants:
    """Return the constants with which the model is nearest to the runs' rates. `points`: measured
    runs. `replicas`: replicas of every object."""
    from scipy.optimize import least_squares

    wanted = np.log([point.rate for point in points])
    belief = np.log([BEFORE[name] for name in FITTED])
    low, high = (np.log([BOUNDS[name][end] for name in FITTED]) for end in (0, 1))

    def residuals(logs: Array) -> Array:
        predicted = np.log(predict(points, _constants(logs, replicas)))
        apart = logs - belief
        # R4: storage servers' constants against the proxies'.
        apart[2:4] -= apart[:2]
        return np.concatenate([predicted - wanted, BELIEF * apart])

    tried = []
    for factor in STARTS:
        start = belief + np.array([math.log(factor)] * 4 + [0.0])
        tried.append(
            least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=0.2)
        )
    best = min(tried, key=lambda found: float(found.cost))
    return _constants(best.x, replicas)


def _constants(logs: Array, replicas: int) -> Constants:
    values = dict(zip(FITTED, np.exp(logs).tolist(), strict=True))
    return Constants(replicas=replicas, **values)


def predict(points: Sequence[MeasuredPoint], constants: Constants) -> Array:
    """Return the model's requests a second for each run."""
    stations = [
        servers(point.objects, point.resources, _together(point), constants) for point in points
    ]
    service, demand, count = (
        np.stack([getattr(one, name) for one in stations])[None]
        for name in ("service", "demand", "count")
    )
    at = Stations(service, demand, count, np.full(len(points), constants.idle_s))
    workers = [
        point.workers or MANY_WORKERS * max(1.0, one.capacity)
        for point, one in zip(points, stations, strict=True)
    ]
    rates: Array = solve(np.array([workers]), np.zeros_like(at.demand), at)[0]
    return rates


def _together(point: MeasuredPoint) -> Placed:
    """Return a placement of all proxies with the whole network."""
    holding = point.resources
    return Placed({"all": holding.proxy_cores}, {"all": holding.network}, holding.network)


def relative_error(predicted: float, measured: float) -> float:
    """Return the error of a prediction relative to the measurement; half and twice are equal."""
    return math.exp(abs(math.log(predicted / measured))) - 1


# ---- Profile of a simulator ----

NOISE = 0.03
"""Relative noise of a rate from run to run."""

PARTS = (0.02, 0.06, 0.15, 0.35, 0.7, 1.0)
"""Shares of a resource's total, while every other resource is plentiful."""

MIXES = 12
"""Configurations with every resource limited, drawn at random."""

FEW = 1.0


def simulated_runs(
    constants: Constants, pool: Resources, seed: int, letters: Sequence[str] = tuple(CLASSES)
) -> list[MeasuredPoint]:
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
) -> Iterator[MeasuredPoint]:
    """Yield configurations with an unknown rate (set to 1).

    Args:
        letter: the workload.
        pool: the maximum of each resource.
        rng: draws the mixes.
        alone: shares of each resource while all others are plentiful; if empty, the idle store is
            omitted too.
        mixes: number of configurations with every resource limited.
    """

    def point(**given: float) -> MeasuredPoint:
        return MeasuredPoint.model_validate(
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
    everything = {
        "proxy_cores": pool.proxy_cores,
        "storage_cores": pool.storage_cores,
        "network": pool.network,
        "ssds": pool.ssds,
        "hdds": pool.hdds,
    }
    yield point(workers=FEW, **everything)


def _some(rng: random.Random) -> float:
    return math.exp(rng.uniform(math.log(0.02), 0.0))
