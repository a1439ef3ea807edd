"""Claims that say beside another result than the paper's what the best explanation of it is."""

from __future__ import annotations

from dataclasses import replace

from analysis.claims import NOTE_SEPARATOR, Claim, Evidence, Measured, NotRun
from analysis.stats import Estimate


def differs(claim: Claim, estimate: Estimate) -> bool:
    """Whether an estimate is not what the claim says, whatever its interval."""
    if claim.kind == "within":
        assert claim.paper_value is not None, claim.id
        room = claim.tolerance * abs(claim.paper_value)
        return abs(estimate.value - claim.paper_value) > room + 1e-9
    return estimate.value == claim.no_effect or (estimate.value > claim.no_effect) != claim.larger


def explained(claim: Claim, why: str | None) -> Claim:
    """A claim that says beside another result than the paper's what the best explanation is; the
    claim itself where there is none."""
    if why is None:
        return claim

    def compute(evidence: Evidence) -> Measured | NotRun:
        found = claim.compute(evidence)
        if isinstance(found, NotRun) or not differs(claim, found.estimate):
            return found
        parts = [found.note] if found.note else []
        return replace(found, note=NOTE_SEPARATOR.join([*parts, f"best explanation: {why}"]))

    return replace(claim, compute=compute)
