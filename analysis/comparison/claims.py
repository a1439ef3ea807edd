"""Claims of a comparison: each controller against the baseline, per scenario and op.

Claims are declared before the runs, all in one direction: the controller does better. So `not
reproduced` means that it does worse, and `inconclusive` that the blocks do not decide. No paper has
these claims: paper_value is null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analysis.comparison.ranking import Panel, Standing
from analysis.core.claims import Claim, Compute, Evidence, Measured, NotRun, evaluate
from analysis.core.stats import Estimate
from schemas.claim import ClaimResult

FIGURE = "comparison"
_NOUN = {
    "seq": "sequential read throughput",
    "rand": "random read IOPS",
    "write": "write throughput",
}


def claims_of(
    panels: Sequence[Panel], evidence: Evidence, *, ground: str, time_scale: float
) -> list[ClaimResult]:
    """Return every claim with its verdict, in the panels' order."""
    made: list[ClaimResult] = []
    for panel in panels:
        for standing in panel.standings:
            if standing.controller == panel.baseline:
                continue
            for claim in _claims(panel, standing, ground, time_scale):
                made.append(evaluate(claim, evidence))
    return made


def _claims(panel: Panel, standing: Standing, ground: str, time_scale: float) -> list[Claim]:
    name, baseline = standing.controller, panel.baseline
    stem = f"compare-{name}-{panel.scenario}-{panel.op}"
    against = f"against {baseline} under {panel.scenario}"
    if panel.scenario == "none":
        against = f"against {baseline} without disturbance"
    noun = _NOUN[panel.op]

    def measured(estimate: Estimate | None, function: Callable[[float], float]) -> Compute:
        return lambda _: _measured(standing, estimate, function, ground, time_scale)

    return [
        Claim(
            id=f"{stem}-throughput",
            figure=FIGURE,
            statement=f"{name} raises {noun} {against}",
            paper_value=None,
            compute=measured(standing.gain, lambda ratio: ratio - 1),
            unit="relative change",
            baseline=baseline,
            size=False,
        ),
        Claim(
            id=f"{stem}-latency",
            figure=FIGURE,
            statement=f"{name} lowers the latency of {_OPERATIONS[panel.op]} {against}",
            paper_value=None,
            compute=measured(standing.latency, lambda ratio: 1 - ratio),
            unit="relative change",
            baseline=baseline,
            size=False,
            depends_on=(f"{stem}-throughput",),
        ),
    ]


_OPERATIONS = {"seq": "sequential reads", "rand": "random reads", "write": "writes"}


def _measured(
    standing: Standing,
    estimate: Estimate | None,
    function: Callable[[float], float],
    ground: str,
    time_scale: float,
) -> Measured | NotRun:
    notes = "; ".join(standing.notes)
    if standing.state in ("failed", "inert") or estimate is None:
        return NotRun(notes or "no run that supports it")
    effect = estimate.map(function)
    if effect.low > 0:
        notes = "; ".join(filter(None, ("better", notes)))
    elif effect.high < 0:
        notes = "; ".join(filter(None, ("worse", notes)))
    return Measured(effect, ground, time_scale, notes or None)
