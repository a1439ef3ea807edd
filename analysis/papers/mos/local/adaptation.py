"""Resources held by microstores over time (figure 12), from the controller's journal of a run.

A run's report has ``held``: a line for every decision, with ``t_s`` from the start of the load and
the resources of each microstore; ``pool``; and ``course``: start times of the stages, seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from analysis.core.claims import Compute, Evidence, Measured, NotRun
from analysis.core.stats import mean
from analysis.papers.mos.local.measured import measured
from analysis.papers.mos.local.runs import MOS_PP, cells, report

SMALL, LARGE = "small", "large"
Held = Sequence[Mapping[str, Any]]

_NO_COURSE = "no run of MOS++ with a load that changes tells what was held"


def at(held: Held, t_s: float) -> Mapping[str, Mapping[str, float]]:
    """Return the resources held at a time: the last line that is not later, else the first."""
    before = [line for line in held if line["t_s"] <= t_s]
    found: Mapping[str, Mapping[str, float]] = (before[-1] if before else held[0])["stores"]
    return found


def share(told: Mapping[str, Any], t_s: float, store: str, name: str) -> float:
    """Return the share of the pool that a microstore held."""
    total = float(told["pool"][name])
    return float(at(told["held"], t_s)[store][name]) / total if total else 0.0


def free(told: Mapping[str, Any], t_s: float, name: str) -> float:
    """Return the share of the pool that no microstore held."""
    return 1.0 - sum(share(told, t_s, store, name) for store in at(told["held"], t_s))


def _of_each(
    value: Callable[[Mapping[str, Any]], float | None], note: str | None = None
) -> Compute:
    """Compute the mean of a value over the reports of MOS++'s runs."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        rows = cells(evidence.table, "adaptation", setup=MOS_PP)
        found = []
        for index in rows["index"]:
            told = report(evidence.runs[int(index)].folder)
            one = value(told) if told.get("held") else None
            if one is not None:
                found.append(one)
        if not found:
            return NotRun(_NO_COURSE)
        return measured(mean(found), rows, _NO_COURSE, note)

    return compute


def _most(told: Mapping[str, Any]) -> float:
    """Return C's largest share of the network in stage 1."""
    begins, ends = told["course"]["stages"][:2]
    times = [begins, *(line["t_s"] for line in told["held"] if begins <= line["t_s"] < ends)]
    return max(share(told, t_s, LARGE, "network") for t_s in times)


def _after(told: Mapping[str, Any]) -> tuple[float, float]:
    """Return the start of stage 2 and the end of A's spike."""
    return float(told["course"]["stages"][1]), float(told["course"]["spike_ends"])


def _freed(told: Mapping[str, Any]) -> float:
    """Return the largest free share after the start of stage 2, minus the free share before."""
    begins, ends = _after(told)
    times = [line["t_s"] for line in told["held"] if begins <= line["t_s"] <= ends] or [ends]
    return max(free(told, t_s, "network") for t_s in times) - free(told, begins - 1e-6, "network")


def _given(told: Mapping[str, Any]) -> float:
    """Return the share of the network that A's microstore gained by the end of the spike."""
    begins, ends = _after(told)
    return share(told, ends, SMALL, "network") - share(told, begins - 1e-6, SMALL, "network")


def _hardware(told: Mapping[str, Any]) -> float | None:
    """Return C's largest share of the HDDs; None if the pool has no HDDs."""
    if not told["pool"].get("hdds"):
        return None
    return max(share(told, line["t_s"], LARGE, "hdds") for line in told["held"])


network_most = _of_each(_most, "largest share in stage 1")
network_freed = _of_each(_freed, "largest free share until the spike ends, less that before it")
network_given = _of_each(_given, "by the end of the spike")
hardware_share = _of_each(_hardware)
