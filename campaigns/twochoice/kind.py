"""Campaigns of simulated bursts (``simulation: twochoice``), as `campaigns.kinds` runs them. Times
are virtual: who simulates changes no result."""

from __future__ import annotations

from collections.abc import Sequence

from campaigns.kinds.cell import Recipe
from campaigns.kinds.kind import Computed, Kind
from campaigns.sameness import Sameness
from campaigns.twochoice.cell import make
from campaigns.twochoice.code import here, result_digests, simulator_digest
from campaigns.twochoice.parameters import LEARNING, PROBING, BurstParameters
from campaigns.twochoice.simulator import built_from
from schemas.campaign import Campaign

# Seconds of a cell on a 2-core machine, roughly.
FIXED_S = 0.15
WRITE_S = 0.3e-6
PROBED_S = 0.5e-6  # more, with a scheduler that asks for loads, and again with one that learns


def planned_s(parameters: BurstParameters) -> float:
    """Seconds that a cell takes, roughly."""
    writes = parameters.processes * (parameters.rounds + parameters.learn_rounds)
    known = (parameters.scheduler in PROBING) + (parameters.scheduler in LEARNING)
    return FIXED_S + writes * (WRITE_S + known * PROBED_S)


def versions() -> dict[str, str]:
    """What simulates, for the record."""
    return {"tcsim": simulator_digest()[:12]}


def ready() -> None:
    """StoreError where the simulator was not built from the sources that there are."""
    built_from()


def notes(pending: Sequence[BurstParameters], _campaign: Campaign) -> Sequence[str]:
    """What a dry run tells: the largest cell."""
    largest = max(pending, key=lambda parameters: parameters.memory_mib)
    return (
        f"the largest cell is {largest.size} (servers-processes): about "
        f"{largest.memory_mib:,.0f} MiB of memory",
    )


KIND = Kind(
    parameters=BurstParameters,
    does="simulates bursts of writes",
    grounds={
        "sim": Computed(
            site="bursts",
            digests=result_digests,
            planned_s=planned_s,
            recipe=Recipe(make, Sameness(here)),
            versions=versions,
            ready=ready,
        )
    },
    notes=notes,
)
