"""Gains of one controller over another in one setting: the quantity of most DLR claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from analysis.core.claims import Compute, Evidence, Measured, NotRun
from analysis.papers.dlr.compare import effect_of

Cells = Mapping[str, object]
HETEROGENEITY: Cells = {"scenario": "heterogeneity"}
INTERFERENCE: Cells = {"scenario": "interference"}


def with_controller(scenario: Cells, controller: str) -> Cells:
    """Return the cells of `scenario` under a controller."""
    return {**scenario, "controller": controller}


def mapped(measured: Measured | NotRun, function: Callable[[float], float]) -> Measured | NotRun:
    """Apply `function` to `measured`; return a `NotRun` unchanged."""
    if isinstance(measured, NotRun):
        return measured
    return Measured(
        measured.estimate.map(function), measured.ground, measured.time_scale, measured.note
    )


def gain(
    scenario: Cells, op: str, what: str, controller: str = "dlr", against: str = "default"
) -> Compute:
    """Compute throughput: T/T_baseline - 1, or latency: 1 - L/L_baseline."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        measured = effect_of(
            evidence,
            op=op,
            what=what,
            treated=with_controller(scenario, controller),
            baseline=with_controller(scenario, against),
        )
        return mapped(measured, (lambda r: r - 1) if what == "throughput" else (lambda r: 1 - r))

    return compute
