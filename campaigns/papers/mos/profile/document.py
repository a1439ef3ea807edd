"""Profile that `hotbed mos profile` writes: a JSON document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from campaigns.papers.mos.profile.calibrate import calibrated
from campaigns.papers.mos.profile.check import by_cospurf, by_simulator, cross_validated, most_of
from campaigns.papers.mos.profile.fit import fit
from campaigns.papers.mos.profile.points import (
    Points,
    from_run_folders,
    halves,
    read_points,
    reference,
    references,
)
from schemas.durable import write_file
from schemas.errors import UserError

SCHEMA = 1
FEWEST = 4
"""Least number of configurations; with fewer, none can be held out."""


def measured(source: str) -> Points:
    """Return the points of a source: a folder of runs, a JSON file of points, or the name of points
    that come with Hotbed or were kept.

    Raises:
        UserError: the source does not exist, or has too few configurations.
    """
    path = Path(source)
    if path.is_dir():
        points = from_run_folders(path)
    elif path.is_file():
        points = read_points(path)
    elif source in references():
        points = reference(source)
    else:
        raise UserError(
            f"{source}: there is no such folder of runs or JSON file of points; Hotbed comes with "
            f"{', '.join(references())}."
        )
    several = len({point.configuration for point in points.runs})
    if several < FEWEST:
        raise UserError(
            f"{source}: holds {several} configurations, and a profile needs at least {FEWEST}: "
            "some to make it of, others to hold it against."
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
    whole = fit(points.runs, most, f"{points.name}: {len(points.runs)} runs")
    return whole.to_json() | {
        "schema": SCHEMA,
        "name": points.name,
        "about": points.about,
        "replicas": points.replicas,
        "seed": seed,
        "runs": {
            "simulator": [point.source for point in judge],
            "cospurf": [point.source for point in optimiser],
        },
        "simulator": calibrated(judge, points.replicas).canonical(),
        "cospurf": cospurf.to_json(),
        "errors": {
            "simulator": _errors(points, by_simulator(points.replicas), seed),
            "cospurf": _errors(points, by_cospurf, seed),
        },
    }


def _errors(points: Points, predictions: Any, seed: int) -> list[dict[str, Any]]:
    return [one.as_json() for one in cross_validated(points.runs, predictions, seed)]


def write(profile: Mapping[str, Any], path: Path) -> None:
    """Write a profile to a new file.

    Raises:
        UserError: the file exists.
    """
    try:
        write_file(path, json.dumps(profile, indent=1) + "\n", exclusive=True)
    except FileExistsError:
        raise UserError(
            f"{path} exists: give another name, a profile is not overwritten."
        ) from None
