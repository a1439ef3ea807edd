"""Profile that `hotbed mos profile` writes: a JSON document with the profile's prediction errors on
configurations that it was not fitted to.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from campaigns.papers.mos.profile.fit import cospurf_rate, fit, most_of
from campaigns.papers.mos.profile.points import (
    MeasuredPoint,
    Points,
    from_run_folders,
    halves,
    read_points,
    reference,
    references,
)
from campaigns.papers.mos.profile.simulator import calibrated, predict, relative_error
from controllers.microstores.performance import PiecewiseLinear
from schemas.durable import write_file
from schemas.errors import UserError

SCHEMA = 1
FEWEST = 4
"""Least number of configurations; with fewer, none can be held out."""


def points_of(source: str) -> Points:
    """Return the points of a source: a folder of runs, a JSON file of points, or the name of points
    that come with Hotbed or were kept. UserError: the source does not exist, or has too few
    configurations."""
    path = Path(source)
    if path.is_dir():
        points = from_run_folders(path)
    elif path.is_file():
        points = read_points(path)
    elif source in references():
        points = reference(source)
    else:
        raise UserError(
            "no such folder of runs or JSON file of points",
            where=source,
            allowed=f"a path, or {', '.join(references())}",
        )
    several = len({point.configuration for point in points.runs})
    if several < FEWEST:
        raise UserError(
            f"{several} configurations are too few: some make the profile, others test it",
            where=source,
            allowed=f"at least {FEWEST}",
        )
    return points


def document(points: Points, seed: int) -> dict[str, Any]:
    """Return the profile: a model from all runs, for exactly the measured store, which controllers
    and `hotbed mos plan` can read.

    It also has ``cospurf``, from one half of the configurations, and ``simulator``, COSPerf's
    constants from the other. ``errors`` are relative, on held-out configurations, by workload.

    Args:
        points: measured runs.
        seed: selects the halves and draws the folds.
    """
    judge, optimiser = halves(points.runs, seed)
    most = most_of(points.runs)
    cospurf = fit(optimiser, most, f"{points.name}: {len(optimiser)} runs")
    return model_of(points).to_json() | {
        "schema": SCHEMA,
        "name": points.name,
        "about": points.about,
        "replicas": points.replicas,
        "seed": seed,
        "runs": {
            "simulator": [point.source for point in judge],
            "cospurf": [point.source for point in optimiser],
        },
        "simulator": calibrated(judge, points.replicas).model_dump(),
        "cospurf": cospurf.to_json(),
        "errors": {
            "simulator": cross_validated(points.runs, by_simulator(points.replicas), seed),
            "cospurf": cross_validated(points.runs, by_cospurf, seed),
        },
    }


def model_of(points: Points) -> PiecewiseLinear:
    """Return the model from all runs."""
    return fit(points.runs, most_of(points.runs), f"{points.name}: {len(points.runs)} runs")


def write(profile: Mapping[str, Any], path: Path) -> None:
    """Write a profile to a new file. UserError: the file exists."""
    write_file(path, json.dumps(profile, indent=1) + "\n", exclusive=True)


# ---- Errors on held-out configurations ----

FOLDS = 5
RESAMPLES = 2000
CONFIDENCE = 0.95

Predict = Callable[[Sequence[MeasuredPoint], Sequence[MeasuredPoint]], list[float]]
"""Function of runs to fit and runs to predict; returns the latter's requests a second."""


def by_cospurf(fitted: Sequence[MeasuredPoint], held_out: Sequence[MeasuredPoint]) -> list[float]:
    """Return the predictions of the piecewise linear cospurf."""
    model = fit(fitted, most_of([*fitted, *held_out]), "")
    return [cospurf_rate(model, point) for point in held_out]


def by_simulator(replicas: int) -> Predict:
    """Return a function for the predictions of COSPerf."""

    def predictions(
        fitted: Sequence[MeasuredPoint], held_out: Sequence[MeasuredPoint]
    ) -> list[float]:
        return [float(rate) for rate in predict(held_out, calibrated(fitted, replicas))]

    return predictions


def cross_validated(
    points: Sequence[MeasuredPoint], predictions: Predict, seed: int = 0
) -> list[dict[str, Any]]:
    """Return relative errors by workload; each configuration is predicted by a fit to the other
    folds: ``median``, ``ci95`` (a bootstrap over configurations; None for one), ``worst``, and the
    number of ``configurations``.

    Folds consist of configurations, not runs: repetitions of one are held out together.
    """
    runs: dict[tuple[object, ...], list[MeasuredPoint]] = {}
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
    return [_summarised(workload, values) for workload, values in sorted(found.items())]


def _summarised(workload: str, values: Sequence[float]) -> dict[str, Any]:
    interval = None
    if len(values) > 1:
        rng = random.Random(f"bootstrap-{workload}")
        medians = sorted(
            statistics.median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES)
        )
        tail = (1 - CONFIDENCE) / 2
        interval = [medians[int(part * (RESAMPLES - 1))] for part in (tail, 1 - tail)]
    return {
        "workload": workload,
        "median": statistics.median(values),
        "ci95": interval,
        "worst": max(values),
        "configurations": len(values),
    }
