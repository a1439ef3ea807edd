"""Demand of a trace at each stage: its r-b curves, and the columns of Table 2."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from controllers.prioritymeister.curve import CurveBuilder, RbCurve
from controllers.prioritymeister.estimators import STAGES, Requests, StageCosts
from schemas.errors import UserError

_NS = 1e-9
_MOST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class TraceDemand:
    """Demand of a trace at the requested stages.

    `seconds` is from the first to the last arrival; `largest` is the most work of any request at a
    stage. `scv` is the squared coefficient of variation of the times between arrivals, None if
    there are fewer than three requests or all come at one instant.
    """

    requests: int
    reads: int
    bytes: int
    largest_bytes: int
    seconds: float
    scv: float | None
    work: dict[str, float]
    largest: dict[str, float]
    curves: dict[str, RbCurve]

    def load(self, stage: str, bandwidth: float = 1.0) -> float | None:
        """Return mean work per second as a share of `bandwidth`; None for a one-instant trace."""
        return self.work[stage] / self.seconds / bandwidth if self.seconds > 0 else None


def measure(
    blocks: Iterable[Requests],
    costs: StageCosts,
    stages: Sequence[str] = STAGES,
    *,
    curves: bool = True,
) -> TraceDemand:
    """Read a trace once, block by block in order of time.

    Args:
        blocks: requests; times never fall, within a block and between blocks.
        costs: estimators.
        stages: the stages to measure.
        curves: compute r-b curves too; without them memory does not grow with the trace.

    Raises:
        UserError: the trace holds no request, or a stage cannot be estimated.
    """
    estimators = {stage: costs.estimator(stage) for stage in stages}
    builders = {stage: CurveBuilder(_NS) for stage in stages} if curves else {}
    work, largest = dict.fromkeys(stages, 0.0), dict.fromkeys(stages, 0.0)
    gaps = _RunningVariance()
    count = reads = size = biggest = 0
    first = last = 0
    for block in blocks:
        times = block.time_ns
        if not len(times):
            continue
        first = first if count else int(times[0])
        gaps.add(np.diff(times, prepend=last) if count else np.diff(times))
        last = int(times[-1])
        count += len(times)
        reads += int(np.count_nonzero(block.read))
        biggest = max(biggest, int(block.size.max()))
        # Sizes of exabytes may add up to more than 64 bits, and would overflow silently.
        fits = biggest <= _MOST // len(times)
        size += int(block.size.sum()) if fits else sum(block.size.tolist())
        for stage, estimator in estimators.items():
            with np.errstate(over="ignore"):
                each = estimator.work(block)
                work[stage] += float(each.sum())
            if not math.isfinite(work[stage]):
                raise UserError(
                    f"at the stage {stage} requests add up to more work than a number can hold: "
                    "correct the profile, or the sizes"
                )
            largest[stage] = max(largest[stage], float(each.max()))
            if curves:
                builders[stage].add(times - first, each)
    if not count:
        raise UserError("the trace holds no request")
    return TraceDemand(
        requests=count,
        reads=reads,
        bytes=size,
        largest_bytes=biggest,
        seconds=(last - first) * _NS,
        scv=gaps.scv(),
        work=work,
        largest=largest,
        curves={stage: builder.curve() for stage, builder in builders.items()},
    )


class _RunningVariance:
    """Mean and variance of values added block by block (Chan, Golub and LeVeque)."""

    def __init__(self) -> None:
        self._count = 0
        self._mean = self._squares = 0.0

    def add(self, values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        if not len(values):
            return
        mean = float(values.mean())
        squares = float(((values - mean) ** 2).sum())
        step, whole = mean - self._mean, self._count + len(values)
        self._squares += squares + step * step * self._count * len(values) / whole
        self._mean += step * len(values) / whole
        self._count = whole

    def scv(self) -> float | None:
        """Return the variance by squared mean."""
        if self._count < 2 or self._mean <= 0:
            return None
        return self._squares / self._count / self._mean**2
