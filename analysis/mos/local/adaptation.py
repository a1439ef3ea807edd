"""What microstores held over time (figure 12), from the controller's journal as a run keeps it.

A run's report has ``held``: a line for every decision, ``t_s`` from the load's beginning and what
each microstore held then; ``pool``; and ``course``: when the stages begin, seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from analysis.claims import Compute, Evidence, Measured, NotRun
from analysis.mos.local.measured import measured
from analysis.mos.local.runs import MOS_PP, cells, report
from analysis.stats import mean

SMALL, LARGE = "small", "large"
Held = Sequence[Mapping[str, Any]]

_NO_COURSE = "no run of MOS++ with a load that changes tells what was held"


def at(held: Held, t_s: float) -> Mapping[str, Mapping[str, float]]:
    """What microstores held at a time: the last line that is not later, else the first."""
    before = [line for line in held if line["t_s"] <= t_s]
    found: Mapping[str, Mapping[str, float]] = (before[-1] if before else held[0])["stores"]
    return found


def share(told: Mapping[str, Any], t_s: float, store: str, name: str) -> float:
    """What part of the pool a microstore held."""
    total = float(told["pool"][name])
    return float(at(told["held"], t_s)[store][name]) / total if total else 0.0


def free(told: Mapping[str, Any], t_s: float, name: str) -> float:
    """What part of the pool nobody held."""
    return 1.0 - sum(share(told, t_s, store, name) for store in at(told["held"], t_s))


def _of_each(
    value: Callable[[Mapping[str, Any]], float | None], note: str | None = None
) -> Compute:
    """Mean over MOS++'s runs of a value of their reports."""

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
    """C's largest share of the network in stage 1."""
    begins, ends = told["course"]["stages"][:2]
    times = [begins, *(line["t_s"] for line in told["held"] if begins <= line["t_s"] < ends)]
    return max(share(told, t_s, LARGE, "network") for t_s in times)


def _after(told: Mapping[str, Any]) -> tuple[float, float]:
    """When stage 2 begins, and when A's spike ends."""
    return float(told["course"]["stages"][1]), float(told["course"]["spike_ends"])


def _freed(told: Mapping[str, Any]) -> float:
    """The most that was free after stage 2 had begun, less what was free before."""
    begins, ends = _after(told)
    times = [line["t_s"] for line in told["held"] if begins <= line["t_s"] <= ends] or [ends]
    return max(free(told, t_s, "network") for t_s in times) - free(told, begins - 1e-6, "network")


def _given(told: Mapping[str, Any]) -> float:
    """What A's microstore gained of the network by the end of the spike."""
    begins, ends = _after(told)
    return share(told, ends, SMALL, "network") - share(told, begins - 1e-6, SMALL, "network")


def _hardware(told: Mapping[str, Any]) -> float | None:
    """C's largest share of the HDDs; None where the pool has none to give."""
    if not told["pool"].get("hdds"):
        return None
    return max(share(told, line["t_s"], LARGE, "hdds") for line in told["held"])


network_most = _of_each(_most, "largest share in stage 1")
network_freed = _of_each(_freed, "largest free share until the spike ends, less that before it")
network_given = _of_each(_given, "by the end of the spike")
hardware_share = _of_each(_hardware)
