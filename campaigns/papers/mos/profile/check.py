"""Prediction errors of a profile on configurations that it was not fitted to."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from campaigns.papers.mos.profile.calibrate import calibrated, predict, relative_error
from campaigns.papers.mos.profile.fit import fit
from campaigns.papers.mos.profile.points import Point
from controllers.microstores.performance import PiecewiseLinear, WorkloadClass
from testbed.stores.microstores import Resources

FOLDS = 5
RESAMPLES = 2000
CONFIDENCE = 0.95

Predict = Callable[[Sequence[Point], Sequence[Point]], list[float]]
"""Function of runs to fit and runs to predict; returns the latter's requests a second."""


@dataclass(frozen=True)
class Errors:
    """Relative errors of one workload on held-out configurations: median, its interval (a bootstrap
    over configurations; NaN for one), worst, and number of configurations."""

    workload: str
    median: float
    low: float
    high: float
    worst: float
    configurations: int

    def as_json(self) -> dict[str, Any]:
        """Return the errors as JSON; a missing interval is null."""
        interval = None if math.isnan(self.low) else [self.low, self.high]
        return {
            "workload": self.workload,
            "median": self.median,
            "ci95": interval,
            "worst": self.worst,
            "configurations": self.configurations,
        }


def by_cospurf(fitted: Sequence[Point], held_out: Sequence[Point]) -> list[float]:
    """Return the predictions of the piecewise linear cospurf."""
    model = fit(fitted, most_of([*fitted, *held_out]), "")
    return [cospurf_rate(model, point) for point in held_out]


def by_simulator(replicas: int) -> Predict:
    """Return a function for the predictions of COSPerf."""

    def predictions(fitted: Sequence[Point], held_out: Sequence[Point]) -> list[float]:
        return [float(rate) for rate in predict(held_out, calibrated(fitted, replicas))]

    return predictions


def cospurf_rate(model: PiecewiseLinear, point: Point) -> float:
    """Return a cospurf's requests a second for a run. For a workload without a table, the most
    similar table predicts."""
    objects = point.objects
    workload = WorkloadClass(point.workload, objects.payload, 1 - objects.read)
    table = model.table(workload)
    parts = table.parts(point.resources)
    limited = {
        "proxy_cores": "proxy_cpu",
        "storage_cores": "storage_cpu",
        "network": "network",
        "disks": "disk",
    }
    counted = [parts[limited[name]] for name in point.limited_by]
    if point.workers is not None:
        counted.append(point.workers / table.idle_s)
    return max(min(counted, default=table.most()), 1e-9)


def most_of(points: Sequence[Point]) -> Resources:
    """Return the most of each resource in any run that limited the resource."""

    def most(name: str) -> float:
        return max((float(getattr(p, name)) for p in points if getattr(p, name)), default=1.0)

    return Resources(
        most("proxy_cores"),
        most("storage_cores"),
        most("network"),
        int(most("ssds")),
        int(most("hdds")),
    )


def cross_validated(points: Sequence[Point], predictions: Predict, seed: int = 0) -> list[Errors]:
    """Return errors by workload; each configuration is predicted by a fit to the other folds.

    Folds consist of configurations, not runs: repetitions of one are held out together.
    """
    runs: dict[tuple[object, ...], list[Point]] = {}
    for point in points:
        runs.setdefault(point.configuration, []).append(point)
    order = sorted(runs, key=repr)
    random.Random(f"folds-{seed}").shuffle(order)
    folds = min(FOLDS, len(order))
    found: dict[str, list[float]] = {}
    for fold in range(folds if folds > 1 else 0):
        held = [point for key in order[fold::folds] for point in runs[key]]
        rest = [
            p for at in range(folds) if at != fold for key in order[at::folds] for p in runs[key]
        ]
        known = {point.workload for point in rest}
        tested = [point for point in held if point.workload in known]
        if not tested:  # no other run of this workload is left to predict from
            continue
        errors: dict[tuple[object, ...], list[float]] = {}
        for point, rate in zip(tested, predictions(rest, tested), strict=True):
            errors.setdefault(point.configuration, []).append(relative_error(rate, point.rate))
        for key, values in errors.items():
            found.setdefault(runs[key][0].workload, []).append(statistics.fmean(values))
    return [_errors(workload, values) for workload, values in sorted(found.items())]


def _errors(workload: str, values: Sequence[float]) -> Errors:
    median = statistics.median(values)
    low = high = math.nan
    if len(values) > 1:
        rng = random.Random(f"bootstrap-{workload}")
        medians = sorted(
            statistics.median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES)
        )
        tail = (1 - CONFIDENCE) / 2
        low, high = (medians[int(part * (RESAMPLES - 1))] for part in (tail, 1 - tail))
    return Errors(workload, median, low, high, max(values), len(values))
