"""Load of two tenants over time (section 8.1, figures 11 and 12), as layers of workers that each
run without a break.

Large objects (workload C) dominate stage 1. At 40 minutes small objects (A) spike and then shift
down until about 200 minutes, while C drops and slowly rises again. At 230 minutes A spikes once
more and C drops by half. The paper gives no numbers of processes: these are Hotbed's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Steps = Sequence[tuple[float, int]]
"""Minutes of the paper, rising from 0, each with the number of workers from then on."""


@dataclass(frozen=True)
class Course:
    """Numbers of workers of A and C, and the beginnings of the stages, in the paper's minutes."""

    steps: Mapping[str, Steps]
    stages: tuple[float, float, float]
    ends: float


COURSES: Mapping[str, Course] = {
    "paper": Course(
        steps={
            "A": ((0, 2), (40, 24), (80, 18), (110, 12), (140, 8), (170, 4), (230, 32)),
            "C": ((0, 12), (40, 2), (80, 4), (110, 6), (140, 8), (170, 12), (230, 6)),
        },
        stages=(0, 40, 230),
        ends=280,
    ),
    "short": Course(
        steps={
            "A": ((0, 2), (10, 24), (19, 18), (23, 12), (27, 8), (30, 4), (33, 32)),
            "C": ((0, 12), (10, 2), (19, 4), (23, 6), (27, 8), (30, 12), (33, 6)),
        },
        stages=(0, 10, 33),
        ends=42,
    ),
}
"""``paper`` has the paper's lengths of stages; ``short`` omits most of the time without changes.
A's first spike lasts three epochs of 3 minutes. A controller sees the spike in one of them, and its
second half is measured."""


@dataclass(frozen=True)
class Layer:
    """Workers that begin and end together; times are minutes of the paper."""

    workers: int
    begins: float
    ends: float


def layers(steps: Steps, ends: float) -> tuple[Layer, ...]:
    """Return the fewest layers of workers with the numbers of workers in `steps`.

    Raises:
        ValueError: `steps` do not begin at 0 or do not rise.
    """
    times = [at for at, _ in steps] + [ends]
    if not steps or times[0] != 0 or any(b <= a for a, b in pairwise(times)):
        raise ValueError(f"steps must begin at 0 and rise to the end, not {list(steps)!r}")
    found: dict[tuple[float, float], int] = {}
    for level in range(1, max(count for _, count in steps) + 1):
        for stretch in _stretches(steps, ends, level):
            found[stretch] = found.get(stretch, 0) + 1
    return tuple(Layer(count, *stretch) for stretch, count in sorted(found.items()))


def _stretches(steps: Steps, ends: float, level: int) -> list[tuple[float, float]]:
    """Return the periods with at least `level` workers."""
    found: list[tuple[float, float]] = []
    since: float | None = None
    for at, count in steps:
        if count >= level and since is None:
            since = at
        elif count < level and since is not None:
            found.append((since, at))
            since = None
    return found if since is None else [*found, (since, ends)]


def workers_at(steps: Steps, minute: float) -> int:
    """Return the number of workers at a minute."""
    return next(count for at, count in reversed(steps) if at <= minute)
