"""Parameters of MOS++; defaults are from the paper's evaluation (section 8.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controllers.common.parameters import choice, flag, number, structure
from controllers.microstores.optimiser import COST, EXACT, OBJECTIVES, SOLVERS

INTENT, PRINTED = "intent", "printed"
KEEP, PLAN = "keep", "plan"
HIGH, LOW = "high", "low"


@dataclass(frozen=True)
class Parameters:
    """Parameters; the epoch is the control interval (3 minutes in the paper)."""

    util_low: float = number(0.65, 0, 1, "utilization below which a container is given back")
    util_high: float = number(0.85, 0, 1, "utilization above which a container is added")
    util_thresh: float = number(
        0.8, 0, 1, "part of an epoch within the band that meets an SLA, whatever the performance"
    )
    either: bool = flag(True, "an SLA is met by its utilization too (section 6); false: not so")
    reading: str = choice(INTENT, (INTENT, PRINTED), "how Algorithm 2's listing is read")
    initial: str = choice(KEEP, (KEEP, PLAN), "what microstores begin with (plan: the optimiser's)")
    headroom: float = number(1.1, 1, 3, "times the throughput that an SLA's low needs")
    reclaim: bool = flag(True, "what the free pool lacks comes from who has more than is planned")
    remove_to: str = choice(
        HIGH, (HIGH, LOW), "which of the SLA's bounds is left to who exceeds it (low: equation 2's)"
    )
    guard: bool = flag(True, "give nothing back that would push utilization out of the band's top")
    learn: float = number(0.5, 0, 1, "how fast what is measured corrects the model; 0: never")
    solver: str = choice(EXACT, SOLVERS, "of the optimiser; highs needs highspy where it runs")
    objective: str = choice(COST, OBJECTIVES, "of plans (value: performance per price, by highs)")
    tenants: Mapping[str, object] = structure("{TENANT: {workload, sla, weight}}")
    model: Mapping[str, object] = structure("cospurf: tables of a profile (docs/mos.md)")
    prices: Mapping[str, object] = structure("an hour's price of each resource, {} for none")
    detect: Mapping[str, object] = structure("detect and map: bands of sizes, {} for none")
    restore_on_stop: bool = flag(True, "put the store back when the controller is stopped")
