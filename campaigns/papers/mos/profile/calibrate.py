"""COSPerf's constants from measured runs: least squares on the logarithm of the rate."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from campaigns.papers.mos.profile.points import Point
from testbed.simulated.cosperf.constants import Constants
from testbed.simulated.cosperf.demand import servers
from testbed.simulated.cosperf.placement import Placed
from testbed.simulated.cosperf.response import Stations, solve

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


def calibrated(points: Sequence[Point], replicas: int) -> Constants:
    """Return the constants with which the model is nearest to the runs' rates.

    Args:
        points: measured runs.
        replicas: replicas of every object.
    """
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


def predict(points: Sequence[Point], constants: Constants) -> Array:
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


def _together(point: Point) -> Placed:
    """Return a placement of all proxies with the whole network."""
    holding = point.resources
    return Placed({"all": holding.proxy_cores}, {"all": holding.network}, holding.network)


def relative_error(predicted: float, measured: float) -> float:
    """Return the error of a prediction relative to the measurement; half and twice are equal."""
    return math.exp(abs(math.log(predicted / measured))) - 1
