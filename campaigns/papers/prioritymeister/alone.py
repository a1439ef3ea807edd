"""Latencies of workloads that run alone, each measured once; SLOs are based on them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from campaigns.papers.prioritymeister.experiment import Experiment
from campaigns.papers.prioritymeister.ground import Ground
from campaigns.papers.prioritymeister.outcome import BEYOND, PERCENTILES
from schemas.durable import write_file
from schemas.errors import HotbedError, UserError
from workloads.traces.reader import TraceReader

LONGEST = "100"
"""Percentile of the longest latency."""
MOST = 256
"""Number of measurements kept in memory."""
ATTEMPTS = 3
"""Attempts at a measurement while attempts are spoiled."""


_LONGER = "give longer traces (seconds) or a lower slo_percentile."


def needed(percent: float) -> int:
    """Return the requests that give ten beyond a percentile; one for the longest latency."""
    return math.ceil(BEYOND / (1 - percent / 100) - 1e-6) if percent < 100 else 1


def require_requests(experiment: Experiment, percent: float, where: str) -> None:
    """Raise if an experiment's one workload sends too few requests in the half that counts; call
    this before measuring.

    Args:
        experiment: of a workload alone.
        percent: the percentile of its SLO.
        where: start of the error's sentence.

    Raises:
        UserError: it sends too few.
    """
    ((name, sent),) = experiment.replays.items()
    begin = experiment.measured_from_s * 1e9
    count = sum(int(np.count_nonzero(one.time_ns >= begin)) for one in TraceReader(sent.file))
    if count < needed(percent):
        raise UserError(
            f"{where}: workload {name} sends {count:,} requests in the half that counts, and an "
            f"SLO made of the {percent:g}th percentile needs {needed(percent):,}: {_LONGER}"
        )


class Alone:
    """Percentiles of workloads alone, by experiment. They are kept in memory and, with a folder, on
    disk, because a measurement on a real testbed takes as long as a run."""

    def __init__(
        self, folder: Path | None = None, *, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        """Set up; `tell` is called with a sentence before each measurement."""
        self._folder = folder
        self._tell = tell
        self._known: dict[str, dict[str, float]] = {}

    def percentile(self, ground: Ground, experiment: Experiment, percent: float) -> float:
        """Return the latency, in seconds, at a percentile of an experiment with one workload.

        Raises:
            UserError: there are too few requests for this percentile.
            HotbedError: the measurement failed.
        """
        (name,) = experiment.replays
        key = f"{ground.name}-{experiment.digest()}"
        if key not in self._known:
            while len(self._known) >= MOST:
                self._known.pop(next(iter(self._known)))
            self._known[key] = self._read(key) or self._measure(ground, experiment, name, key)
        known = self._known[key]
        found = known.get(f"{percent:g}")
        if found is None:
            raise UserError(
                f"workload {name}: {known['requests']:,.0f} requests counted alone, and an "
                f"SLO made of the {percent:g}th percentile needs {needed(percent):,} that are "
                f"answered: {_LONGER}"
            )
        return found

    def _measure(
        self, ground: Ground, experiment: Experiment, name: str, key: str
    ) -> dict[str, float]:
        for _ in range(ATTEMPTS):
            self._tell(
                f"measuring what workload {name} has alone, {experiment.seconds:.0f} s, for its SLO"
            )
            outcome = ground.carry_out(experiment)
            if outcome.spoiled is None:
                break
        else:
            raise HotbedError(f"workload {name} alone was not measured: {outcome.spoiled}.")
        result = outcome.results[name]
        found = {"requests": float(result.requests)}
        for percent in PERCENTILES:
            value = result.percentile(percent)
            if value is not None and math.isfinite(value):
                found[f"{percent:g}"] = value
        if result.requests and not result.unfinished and math.isfinite(result.max_s):
            found[LONGEST] = result.max_s
        if self._folder is not None:
            (self._folder / key).mkdir(parents=True, exist_ok=True)
            for file, text in outcome.logs.items():
                write_file(self._folder / key / file, text)
            write_file(self._folder / f"{key}.json", json.dumps(found) + "\n")
        return found

    def _read(self, key: str) -> dict[str, float] | None:
        if self._folder is None:
            return None
        try:
            data = json.loads((self._folder / f"{key}.json").read_text())
            return {str(name): float(value) for name, value in data.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return None
