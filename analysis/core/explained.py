"""Claims that add the best explanation if the result differs from the paper's."""

from __future__ import annotations

from dataclasses import replace

from analysis.core.claims import NOTE_SEPARATOR, Claim, Evidence, Measured, NotRun
from analysis.core.stats import Estimate


def differs(claim: Claim, estimate: Estimate) -> bool:
    """Return True if an estimate differs from the claim, whatever its interval."""
    if claim.kind == "within":
        assert claim.paper_value is not None, claim.id
        room = claim.tolerance * abs(claim.paper_value)
        return abs(estimate.value - claim.paper_value) > room + 1e-9
    return estimate.value == claim.no_effect or (estimate.value > claim.no_effect) != claim.larger


def explained(claim: Claim, why: str | None) -> Claim:
    """Return a claim that notes the best explanation if its result differs from the paper's; return
    the claim itself if `why` is None."""
    if why is None:
        return claim

    def compute(evidence: Evidence) -> Measured | NotRun:
        found = claim.compute(evidence)
        if isinstance(found, NotRun) or not differs(claim, found.estimate):
            return found
        parts = [found.note] if found.note else []
        return replace(found, note=NOTE_SEPARATOR.join([*parts, f"best explanation: {why}"]))

    return replace(claim, compute=compute)
