"""Fourteen hours in four stages: the changing load of workloads A to D (section 8.2).

The paper's text lacks the pictures of figures 14 and 15 and numbers of clients. The model keeps
what the text says. A and B grow steadily in stage 1. C and D grow from the beginning of stage 2,
abruptly and then gradually. In stage 3 all four grow until about minute 500, beyond the pool's
capacity; then C and D fall. In stage 4 A and B grow further. Levels are shares of the whole pool's
capacity for a workload alone. The seed draws them around `LEVELS`, and the times of changes. Noise
with a memory of ten minutes is added."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

MINUTE = 60.0
STAGE_MINUTES = (0.0, 210.0, 420.0, 630.0, 840.0)
"""Beginnings of the stages, and the end of the last. The paper has four in about 14 hours; its
events (minute 310 in stage 2, minute 500 in stage 3) fit four of the same length."""

FALL_MINUTE = 500.0
"""Minute when C and D decrease (section 8.2: "after 500 min")."""

ABRUPT_MINUTES = 2.0
LEVELS: Mapping[str, Sequence[tuple[float, float]]] = {
    "A": ((0, 0.06), (210, 0.24), (420, 0.26), (422, 0.36), (500, 0.42), (630, 0.42), (632, 0.50)),
    "B": ((0, 0.05), (210, 0.20), (420, 0.22), (422, 0.28), (500, 0.34), (630, 0.34), (632, 0.40)),
    "C": ((0, 0.10), (210, 0.10), (212, 0.18), (420, 0.30), (422, 0.36), (500, 0.44), (502, 0.14)),
    "D": ((0, 0.08), (210, 0.08), (212, 0.16), (420, 0.26), (422, 0.32), (500, 0.40), (502, 0.12)),
}
"""Minute and level, with straight lines between. Two minutes apart: an abrupt change."""

LAST: Mapping[str, float] = {"A": 0.62, "B": 0.52, "C": 0.14, "D": 0.12}
"""Levels at the end."""

LEVEL_SPREAD = 0.08
TIME_SPREAD_MINUTES = 6.0
NOISE = 0.05
NOISE_MINUTES = 10.0


@dataclass(frozen=True)
class LoadCurve:
    """One workload's level over time: `times_s` and `levels`, with straight lines between, and the
    logarithm of the noise in steps of `noise_s`."""

    times_s: tuple[float, ...]
    levels: tuple[float, ...]
    noise: tuple[float, ...] = ()
    noise_s: float = MINUTE

    def at(self, times_s: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the levels at these times."""
        plain = np.interp(times_s, self.times_s, self.levels)
        if not self.noise:
            return plain
        found: npt.NDArray[np.float64] = plain * np.exp(
            np.interp(times_s, np.arange(len(self.noise)) * self.noise_s, self.noise)
        )
        return found


def paper_stages(seed: int, *, minutes: float = STAGE_MINUTES[-1]) -> dict[str, LoadCurve]:
    """Return the loads of A to D. `seed`: seed of levels, times and noise. `minutes`: total length,
    to which everything is scaled; the paper's is 840."""
    rng = random.Random(f"stages-{seed}")
    stretch = minutes / STAGE_MINUTES[-1]
    shifts = {at: rng.uniform(-1, 1) * TIME_SPREAD_MINUTES for at in (420.0, FALL_MINUTE)}
    return {
        letter: _load([*LEVELS[letter], (STAGE_MINUTES[-1], LAST[letter])], shifts, stretch, rng)
        for letter in LEVELS
    }


def _load(
    points: Sequence[tuple[float, float]],
    shifts: Mapping[float, float],
    stretch: float,
    rng: random.Random,
) -> LoadCurve:
    times, levels = [], []
    for at, level in points:
        # Both ends of an abrupt change move together.
        shift = next((by for near, by in shifts.items() if 0 <= at - near <= ABRUPT_MINUTES), 0.0)
        times.append((at + shift) * stretch * MINUTE)
        levels.append(level * math.exp(rng.gauss(0, LEVEL_SPREAD)))
    assert all(a < b for a, b in pairwise(times)), times
    return LoadCurve(tuple(times), tuple(levels), _noise(times[-1], rng))


def _noise(ends_s: float, rng: random.Random) -> tuple[float, ...]:
    """Return an autoregressive series of order one, with a value for each minute."""
    keep = math.exp(-1 / NOISE_MINUTES)
    fresh = NOISE * math.sqrt(1 - keep**2)
    found = [rng.gauss(0, NOISE)]
    while len(found) * MINUTE <= ends_s:
        found.append(keep * found[-1] + rng.gauss(0, fresh))
    return tuple(found)


def stage_of(minute: float, minutes: float = STAGE_MINUTES[-1]) -> int:
    """Return the stage, 1 to 4, of a minute out of `minutes`."""
    scaled = minute * STAGE_MINUTES[-1] / minutes
    return min(4, 1 + sum(scaled >= begins for begins in STAGE_MINUTES[1:]))
