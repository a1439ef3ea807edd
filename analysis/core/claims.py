"""Claims: declared before they are run, computed from runs, and given a verdict.

The verdicts (schemas.claim.Verdict):

- ``reproduced``: the estimate is within tolerance of the paper's value (or beyond it, for
  ``at_least`` and ``at_most``) and the interval excludes no effect.
- ``direction``: the interval excludes no effect on the paper's side; the size differs, or the
  ground cannot vouch for sizes (see `size_is_portable`). On the ground sim, a claim about machines
  gets at most this verdict: simulated results show only the behaviour of a model.
- ``inconclusive``: the interval includes no effect, or there is no interval (a single run).
- ``not reproduced``: the interval excludes no effect, on the other side.
- ``not run``: no run supports the claim.

A claim that two values are the same has the kind ``within``. It is reproduced if the whole interval
is within tolerance of the paper's value, not reproduced if none of it is, else inconclusive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from analysis.core.load import LoadedRun
from analysis.core.stats import Estimate
from schemas.claim import ClaimResult, Kind, Verdict

NOTE_SEPARATOR = "; "
"""Separator of the parts of a claim's note."""
SINGLE_RUN = "a single run has no confidence interval"


@dataclass(frozen=True)
class Evidence:
    """Input of a claim: the table of `analysis.core.load.table` and the runs behind it."""

    table: pd.DataFrame
    runs: Sequence[LoadedRun]


@dataclass(frozen=True)
class Measured:
    """An estimate in the claim's own unit, and the ground and time scale of its runs."""

    estimate: Estimate
    ground: str
    time_scale: float
    note: str | None = None


@dataclass(frozen=True)
class NotRun:
    """Reason why a claim has no support."""

    why: str


Compute = Callable[[Evidence], Measured | NotRun]
"""Function that computes a claim."""


@dataclass(frozen=True)
class Claim:
    """One number or comparison. `no_effect` is the value without an effect (1 for a ratio, 0 for a
    relative change); `larger` is True if the statement is about values above it. `tolerance` is
    relative to the effect's size |paper_value - no_effect|; for ``within``, to the paper's
    value."""

    id: str
    figure: str
    statement: str
    paper_value: float | None
    compute: Compute
    unit: str
    baseline: str | None = None
    kind: Kind = "about"
    tolerance: float = 0.25
    no_effect: float = 0.0
    larger: bool = True
    depends_on: tuple[str, ...] = ()
    size: bool = True  # True if a size, not only a direction, is claimed
    machines: bool = True  # about the behaviour of machines; False if only an algorithm decides
    paper: str = "dlr"


def declared(
    name: str,
    figure: str,
    statement: str,
    compute: Compute,
    *,
    prefix: str = "",
    value: float | None = None,
    unit: str = "ratio",
    no_effect: float = 1.0,
    size: bool = True,
    **more: Any,
) -> Claim:
    """Return a claim of a catalogue, with `more` fields of `Claim`; `functools.partial` sets the
    common parts of its claims. Its id is `prefix`, if any, and `name`; a size is claimed only if
    the paper states a `value`."""
    id_ = f"{prefix}-{name}" if prefix else name
    sized = size and value is not None
    return Claim(
        id_, figure, statement, value, compute, unit, no_effect=no_effect, size=sized, **more
    )


def size_is_portable(ground: str) -> bool:
    """Return True if a ground vouches for sizes. The calibrated local disk and the simulator do
    not, unless three disk shapes and two node counts agree (design, idea 8)."""
    return not {"local", "sim", "fake"}.intersection(ground.split("+"))


def is_simulated(ground: str) -> bool:
    """Return True if any run was simulated (several grounds are joined by ``+``)."""
    return "sim" in ground.split("+")


def verdict(claim: Claim, estimate: Estimate, ground: str) -> Verdict:
    """Return the verdict on one estimate."""
    if claim.kind == "within":
        return _same(claim, estimate, ground)
    if math.isnan(estimate.low) or estimate.low <= claim.no_effect <= estimate.high:
        return "inconclusive"
    if (estimate.value > claim.no_effect) is not claim.larger:
        return "not reproduced"
    if claim.machines and is_simulated(ground):
        return "direction"
    if claim.paper_value is None or not claim.size:
        return "reproduced"
    effect = abs(estimate.value - claim.no_effect)
    stated = abs(claim.paper_value - claim.no_effect)
    close = {
        "about": abs(effect - stated) <= claim.tolerance * stated,
        "at_least": effect >= (1 - claim.tolerance) * stated,
        "at_most": effect <= (1 + claim.tolerance) * stated,
    }[claim.kind]
    vouched = not claim.machines or size_is_portable(ground)
    return "reproduced" if close and vouched else "direction"


def _same(claim: Claim, estimate: Estimate, ground: str) -> Verdict:
    """Return the verdict on a claim of equality."""
    assert claim.paper_value is not None, claim.id
    room = claim.tolerance * abs(claim.paper_value)
    low, high = claim.paper_value - room, claim.paper_value + room
    if math.isnan(estimate.low):
        return "inconclusive"
    if estimate.high < low or estimate.low > high:
        return "not reproduced"
    if not low <= estimate.low <= estimate.high <= high:
        return "inconclusive"
    return "direction" if claim.machines and is_simulated(ground) else "reproduced"


def _note(claim: Claim, measured: Measured, result: Verdict) -> str | None:
    parts = [measured.note] if measured.note else []
    if result == "direction" and claim.machines and is_simulated(measured.ground):
        parts.append("simulated: a claim about machines cannot count as reproduced")
    elif result == "direction" and claim.machines and not size_is_portable(measured.ground):
        parts.append(
            "the disks are modelled and calibrated, so the size cannot count as reproduced here"
        )
    if math.isnan(measured.estimate.low):
        parts.append(SINGLE_RUN)
    return NOTE_SEPARATOR.join(parts) or None


def evaluate(claim: Claim, evidence: Evidence) -> ClaimResult:
    """Compute one claim and its verdict."""
    measured = claim.compute(evidence)
    stated = {
        name: value for name, value in vars(claim).items() if name in ClaimResult.model_fields
    }
    found: dict[str, Any] = {"measured": None, "ci95": None, "n": 0, "ground": None}
    if isinstance(measured, NotRun):
        found |= {"verdict": "not run", "note": measured.why}
    else:
        estimate = measured.estimate
        result = verdict(claim, estimate, measured.ground)
        found = {
            "measured": estimate.value,
            "ci95": None if math.isnan(estimate.low) else (estimate.low, estimate.high),
            "n": estimate.n,
            "ground": measured.ground,
            "time_scale": measured.time_scale,
            "verdict": result,
            "note": _note(claim, measured, result),
        }
    return ClaimResult.model_validate(stated | found)


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
