"""Numbers of a changing load: by stage, at the spike, and shares of time within SLAs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from campaigns.papers.mos.course import COURSES
from campaigns.papers.mos.live.results import MEGA, Floats, Sent
from campaigns.papers.mos.loads import length_s, loads_of
from schemas.cells.mos import Adaptation

SLA_WINDOW_MINUTES = 2.0


def course_of(parameters: Adaptation) -> dict[str, Any]:
    """Return the beginnings of the stages, the end of A's first spike and the end, in seconds."""
    course, minute = COURSES[parameters.course], parameters.minute_s
    return {
        "stages": [minute * at for at in course.stages],
        "spike_ends": minute * spike_of(parameters)[1],
        "ends": minute * course.ends,
    }


def spike_of(parameters: Adaptation) -> tuple[float, float]:
    """Return the beginning of A's spike and of its first shift down, in the paper's minutes."""
    course = COURSES[parameters.course]
    begins = course.stages[1]
    return begins, next(at for at, _ in course.steps["A"] if at > begins)


def numbers_of(parameters: Adaptation, sent: Mapping[str, Sent]) -> dict[str, float]:
    """Return A's QPS and mean latency and C's bandwidth by stage, and shares of time within SLAs.
    A's QPS of the spike is of its second half, after the controller could react."""
    course = course_of(parameters)
    small, large = sent["A"], sent["C"]
    found: dict[str, float] = {}
    edges = [*course["stages"], course["ends"]]
    for number, (begins, ends) in enumerate(pairwise(edges), start=1):
        first, last = round(begins), round(ends)
        found[f"A_qps_stage{number}"] = float(small.ops[first:last].mean())
        found[f"C_mb_s_stage{number}"] = float(large.bytes[first:last].mean() / MEGA)
        mean = small.mean_s(first, last)
        if mean is not None:
            found[f"A_mean_s_stage{number}"] = mean
    begins, ends = course["stages"][1], course["spike_ends"]
    found["A_qps_spike"] = float(small.ops[round((begins + ends) / 2) : round(ends)].mean())
    found["A_sla_met"] = _latency_held(small, parameters)
    found["C_sla_met"] = _bandwidth_held(large, parameters)
    return found


def _windows(values: Any, parameters: Adaptation) -> Any:
    width = max(1, round(SLA_WINDOW_MINUTES * parameters.minute_s))
    whole = len(values) // width * width
    return np.asarray(values[:whole]).reshape(-1, width).sum(axis=1), width


def _latency_held(sent: Sent, parameters: Adaptation) -> float:
    """Return the share of windows with reads and a mean read latency within the SLA."""
    total, _ = _windows(sent.read_s, parameters)
    count, _ = _windows(sent.reads, parameters)
    within = (count > 0) & (total <= parameters.latency_sla_ms / 1e3 * count)
    return float(within.mean())


def promised(parameters: Adaptation) -> Floats:
    """Return the bytes promised to workload C in each second, in proportion to its workers."""
    seconds = np.arange(int(np.ceil(length_s(parameters)))) + 0.5
    workers = np.zeros(len(seconds))
    for load in loads_of(parameters):
        if load.letter == "C":
            workers += load.workers * ((load.begins_s <= seconds) & (seconds < load.ends_s))
    return workers * parameters.bandwidth_sla_mb_s * MEGA


def _bandwidth_held(sent: Sent, parameters: Adaptation) -> float:
    """Return the share of windows with the promised bandwidth."""
    got, _ = _windows(sent.bytes, parameters)
    wanted, _ = _windows(promised(parameters), parameters)
    return float((got >= wanted).mean())
