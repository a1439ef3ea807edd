"""Campaigns of simulated bursts (``simulation: twochoice``), declared for `campaigns.engine.kind`.
Times are virtual, so the simulating machine changes no result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from campaigns.engine.identity import Recipe, Sameness
from campaigns.engine.kind import Computed, Kind
from campaigns.papers.twochoice.cell import PROGRAM, make, simulate
from schemas.campaign import Campaign
from schemas.cells.twochoice import BURSTS, Asking, Burst, Learning

# Approximate seconds of a cell on a 2-core machine.
FIXED_S = 0.15
WRITE_S = 0.3e-6
PROBED_S = 0.5e-6  # extra, for a scheduler that probes loads, and again for one that learns


def planned_s(parameters: Burst) -> float:
    """Return the estimated seconds of a cell."""
    rounds = parameters.rounds
    known = isinstance(parameters, Asking) + isinstance(parameters, Learning)
    if isinstance(parameters, Learning):
        rounds += parameters.learn_rounds
    writes = parameters.processes * rounds
    return FIXED_S + writes * (WRITE_S + known * PROBED_S)


def notes(pending: Sequence[Burst], _campaign: Campaign) -> Sequence[str]:
    """Return a dry run's note on the largest cell."""
    largest = max(pending, key=lambda parameters: parameters.memory_mib)
    return (
        f"the largest cell is {largest.size} (servers-processes): about "
        f"{largest.memory_mib:,.0f} MiB of memory",
    )


def _probe() -> str:
    """Return a digest of a small simulation that contains every part of a cell."""
    parameters = BURSTS.of(
        scheduler="both",
        choices="home+random",
        servers=20,
        processes=100,
        straggler_ratio=0.1,
        spread_s=0.01,
        learn_rounds=2,
        rounds=2,
        redirects=True,
    )
    answer = simulate(parameters, 7)
    text = json.dumps({name: answer[name] for name in sorted(answer) if name != "cost"})
    return hashlib.sha256(text.encode()).hexdigest()[:16]


CODE = ("campaigns/papers/twochoice/cell.py", "dataplane/cmd/tcsim")

KIND = Kind(
    does="simulates bursts of writes",
    grounds={
        "sim": Computed(
            site="bursts",
            code=CODE,
            planned_s=planned_s,
            recipe=Recipe(make, Sameness(CODE, ("pydantic",), PROGRAM.name, _probe)),
        )
    },
    notes=notes,
)
