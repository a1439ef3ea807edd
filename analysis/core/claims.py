"""Claims: declared before they are run, and computed from runs, with two answers that are never
mixed (`schemas.claim`).

**Effect**: is the statement true of our runs?

- ``confirmed``: the interval excludes no effect, on the claim's side.
- ``contradicted``: the interval excludes no effect, on the other side.
- ``inconclusive``: the interval includes no effect, or there is no interval (a single run).
- ``not run``: no run supports the claim.

The effect of counts is decided by the exact binomial test over runs, and so is that of runs that
agree exactly, if they have no interval or an equality is claimed: six runs on one side exclude
that half of all runs would be on the other. A claim of kind ``exact`` holds by
construction or not at all.

A claim that two values are the same has the rule ``within``. It is confirmed if the whole interval
is within tolerance of the paper's value, contradicted if none of it is, else inconclusive.

Claims of one family come from one sentence of the paper. Their effects are corrected for their
number by Holm's procedure (`evaluate_all`).

**Size**: is the measured size the paper's? ``within tolerance`` of the paper's value, or beyond it
for ``at_least`` and ``at_most``; else ``smaller`` or ``larger``. ``not comparable`` on a ground
that cannot vouch for sizes (`size_is_portable`), and for claims about machines on the ground
sim. ``not stated`` if the paper states no size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from analysis.core.load import LoadedRun
from analysis.core.stats import Estimate, Interval, holm, p_value, share
from schemas.claim import (
    SHARE,
    ClaimResult,
    Effect,
    GroundResult,
    Kind,
    Rule,
    Size,
    range_of,
    realness,
)

NOTE_SEPARATOR = "; "
"""Separator of the parts of a claim's note."""
SINGLE_RUN = "a single run has no confidence interval"


@dataclass(frozen=True)
class Evidence:
    """Input of a claim: the table of `analysis.core.load.table` and the runs behind it."""

    table: pd.DataFrame
    runs: Sequence[LoadedRun]

    def runs_of(self, rows: pd.DataFrame) -> list[LoadedRun]:
        """Return the runs behind rows of the table."""
        return [self.runs[int(index)] for index in rows["index"]]


@dataclass(frozen=True)
class Measured:
    """An estimate in the claim's own unit, and the ground and time scale of its runs. `portable`:
    its size holds on three disk shapes and two numbers of nodes that had no part in the
    calibration, so that it counts on the local site (design, idea 8)."""

    estimate: Estimate
    ground: str
    time_scale: float
    note: str | None = None
    portable: bool = False


@dataclass(frozen=True)
class NotRun:
    """Reason why a claim has no support."""

    why: str


Compute = Callable[[Evidence], Measured | NotRun]
"""Function that computes a claim."""


@dataclass(frozen=True)
class Claim:
    """One number or comparison; `schemas.claim.ClaimResult` describes the fields of the same names.
    `tolerance` is relative to the effect's size |paper_value - no_effect|; for the rule ``within``,
    to the paper's value. `machines`: the claim is about the behaviour of machines; False if only an
    algorithm decides."""

    id: str
    figure: str
    statement: str
    paper_value: float | None
    compute: Compute
    unit: str
    baseline: str | None = None
    kind: Kind = "ratio"
    rule: Rule = "about"
    tolerance: float = 0.25
    no_effect: float = 0.0
    larger: bool = True
    depends_on: tuple[str, ...] = ()
    sized: bool = True
    stated: bool = True
    machines: bool = True
    family: str | None = None
    unreachable: str | None = None
    store: str | None = None  # of the runs, if the claim is tested on several
    paper: str = "dlr"


EVERY: Mapping[str, Any] = {"unit": SHARE, "value": 1.0, "rule": "at_least", "tolerance": 0.0}
"""Fields of a claim that a statement always holds. It is confirmed if it holds in more than half of
all runs: at least six of six."""
CHANGE = "difference of shares"
RANK = "rank correlation"
KINDS: dict[str, Kind] = {
    SHARE: "share",
    CHANGE: "order",
    RANK: "order",
    "s": "seconds",
    "ms": "seconds",
    "servers": "count",
    "writes": "count",
}
"""Kind of a quantity by its unit, if it is no ratio."""
NO_EFFECT = {SHARE: 0.5, CHANGE: 0.0, RANK: 0.0, "relative change": 0.0, "relative loss": 0.0}
"""Value of a quantity without an effect by its unit, if it is not 1."""


def declared(
    name: str,
    figure: str,
    statement: str,
    compute: Compute | str,
    *,
    prefix: str = "",
    value: float | None = None,
    unit: str = "ratio",
    kind: Kind | None = None,
    no_effect: float | None = None,
    size: bool = True,
    **more: Any,
) -> Claim:
    """Return a claim of a catalogue, with `more` fields of `Claim`; `functools.partial` sets the
    common parts of its claims. Its id is `prefix`, if any, and `name`; a size is claimed only if
    the paper states a `value`. `kind` follows from the unit unless it is given, and so does
    `no_effect` (`NO_EFFECT`, else 1). `compute` may be the reason why no campaign has the runs. The
    claim's baseline is that of `compute`, if it names one and no other is given."""
    id_ = f"{prefix}-{name}" if prefix else name
    sized = size and value is not None
    kind = kind or KINDS.get(unit, "ratio")
    if no_effect is None:
        no_effect = NO_EFFECT.get(unit, 1.0)
    against = getattr(compute, "against", None)
    if against is not None:
        more.setdefault("baseline", against)
    return Claim(
        id_,
        figure,
        statement,
        value,
        _lacks(compute) if isinstance(compute, str) else compute,
        unit,
        kind=kind,
        no_effect=no_effect,
        sized=sized,
        **more,
    )


def unreachable(name: str, figure: str, statement: str, why: str, **more: Any) -> Claim:
    """Return a claim that no machine of ours can run, for the reason `why`."""
    return declared(name, figure, statement, why, unreachable=why, **more)


def by_column(
    claim: Callable[..., Claim],
    name: str,
    figure: str,
    statement: str,
    compute: Callable[[str], Compute],
    *columns: tuple[str, str, str, bool],
    **more: Any,
) -> Iterator[Claim]:
    """Yield a claim for each of `columns`: end of its id, words for ``{}`` in the statement, the
    column, and True if the column rises. `claim`: see `declared`."""
    for end, words, column, larger in columns:
        said = statement.format(words)
        yield claim(f"{name}-{end}", figure, said, compute(column), larger=larger, **more)


def _lacks(why: str) -> Compute:
    """Compute nothing, for the reason `why`."""
    return lambda _: NotRun(why)


def size_is_portable(ground: str, portable: bool = False) -> bool:
    """Return True if a ground vouches for sizes. The calibrated local disk does not, unless the
    estimate is `portable` (`Measured`); the simulator never does, nor what Hotbed does not know."""
    parts = ground.split("+")
    if {"sim", "other"}.intersection(parts):
        return False
    return portable or not {"local", "fake"}.intersection(parts)


def is_simulated(ground: str) -> bool:
    """Return True if any run was simulated (several grounds are joined by ``+``)."""
    return "sim" in ground.split("+")


def _room(claim: Claim) -> Interval:
    """Return the values that a claim of equality accepts."""
    assert claim.paper_value is not None, claim.id
    room = claim.tolerance * abs(claim.paper_value)
    return claim.paper_value - room - 1e-9, claim.paper_value + room + 1e-9


def supports(claim: Claim, value: float) -> bool:
    """Return True if a value is on the claim's side; for a claim of equality, within tolerance."""
    if claim.rule == "within":
        low, high = _room(claim)
        return low <= value <= high
    return value > claim.no_effect if claim.larger else value < claim.no_effect


def opposes(claim: Claim, value: float) -> bool:
    """Return True if a value is on the other side; for a claim of equality, outside tolerance."""
    if claim.rule == "within":
        return not supports(claim, value)
    return value < claim.no_effect if claim.larger else value > claim.no_effect


def _decides(claim: Claim, interval: Interval) -> Effect:
    """Return the effect that an interval shows."""
    low, high = interval
    if math.isnan(low):
        return "inconclusive"
    if supports(claim, low) and supports(claim, high):
        return "confirmed"
    if claim.rule == "within":
        least, most = _room(claim)
        return "contradicted" if high < least or low > most else "inconclusive"
    return "contradicted" if opposes(claim, low) and opposes(claim, high) else "inconclusive"


def _tested(claim: Claim, estimate: Estimate) -> tuple[Effect, float]:
    """Return the effect of one claim, and the smallest error rate at which it is decided if the
    claim is of a family."""
    if claim.kind == "exact":
        return ("confirmed" if supports(claim, estimate.value) else "contradicted"), 0.0
    alike = estimate.agreed and (claim.rule == "within" or not estimate.low < estimate.high)
    if claim.kind == "count" or alike:
        return _over_runs(claim, estimate)
    found = _decides(claim, (estimate.low, estimate.high))
    if found == "inconclusive" or claim.family is None:
        return found, 1.0
    return found, p_value(estimate, lambda interval: _decides(claim, interval) == found)


def _over_runs(claim: Claim, estimate: Estimate) -> tuple[Effect, float]:
    """Return the effect by the exact binomial test over runs: those that support the claim, among
    those that are on either side."""
    sides = [supports(claim, one) for one in estimate.runs if one != claim.no_effect]
    if claim.rule == "within":
        sides = [supports(claim, one) for one in estimate.runs]
    if not sides:
        return "inconclusive", 1.0
    half = replace(claim, kind="share", rule="at_least", no_effect=0.5, larger=True)
    return _tested(half, share(sides))


def effect(claim: Claim, estimate: Estimate) -> Effect:
    """Return the effect that one estimate shows, without a correction for a family."""
    return _tested(claim, estimate)[0]


def size(claim: Claim, estimate: Estimate, ground: str, portable: bool = False) -> Size:
    """Return the place of an estimate relative to the paper's size. `portable`: see `Measured`."""
    if claim.machines and is_simulated(ground):
        return "not comparable"
    if not claim.sized or claim.paper_value is None:
        return "not stated"
    value, stated = estimate.value, claim.paper_value
    if claim.rule == "within":
        if supports(claim, value):
            return "within tolerance"
        return "larger" if value > stated else "smaller"
    always = claim.kind == "share" and stated in (0.0, 1.0)  # depends on no disk's speed
    if claim.machines and not always and not size_is_portable(ground, portable):
        return "not comparable"
    sign = 1 if claim.larger else -1
    measured = sign * (value - claim.no_effect)
    expected = abs(stated - claim.no_effect)
    room = claim.tolerance * expected + 1e-9
    if measured < 0 or (measured < expected - room and claim.rule != "at_most"):
        return "smaller"
    return (
        "larger" if measured > expected + room and claim.rule != "at_least" else "within tolerance"
    )


def _note(claim: Claim, measured: Measured, found: Size) -> str | None:
    estimate = measured.estimate
    parts = [measured.note] if measured.note else []
    if found == "not comparable" and is_simulated(measured.ground):
        parts.append("simulated: sizes are those of a model")
    elif found == "not comparable":
        parts.append("the disks are modelled and calibrated, so the size cannot be compared here")
    if claim.kind != "exact" and not estimate.low < estimate.high:
        agreed = f"the same value in all {len(estimate.runs)} runs, so their spread has no interval"
        parts.append(agreed if estimate.agreed else SINGLE_RUN)
    return NOTE_SEPARATOR.join(parts) or None


def evaluate(claim: Claim, evidence: Evidence) -> ClaimResult:
    """Compute one claim, without a correction for its family."""
    return evaluate_all([claim], evidence)[0]


def evaluate_all(claims: Sequence[Claim], evidence: Evidence) -> list[ClaimResult]:
    """Compute claims from the runs of one ground. Effects of the claims of one family that have
    runs are corrected by Holm's procedure."""
    measured = [claim.compute(evidence) for claim in claims]
    tested = {
        index: _tested(claims[index], found.estimate)
        for index, found in enumerate(measured)
        if isinstance(found, Measured)
    }
    undecided: dict[int, int] = {}
    families: dict[str, list[int]] = {}
    for index in tested:
        if (family := claims[index].family) is not None:
            families.setdefault(family, []).append(index)
    for members in families.values():
        kept = holm([tested[index][1] for index in members])
        undecided |= {
            index: len(members)
            for index, holds in zip(members, kept, strict=True)
            if not holds and tested[index][0] != "inconclusive"
        }
    return [
        _result(claim, found, tested.get(index, ("not run", 1.0))[0], undecided.get(index, 0))
        for index, (claim, found) in enumerate(zip(claims, measured, strict=True))
    ]


def evaluate_some(
    claims: Sequence[Claim], wanted: Collection[str], evidence: Evidence
) -> list[ClaimResult]:
    """Compute the claims with the ids `wanted`, corrected as `evaluate_all` corrects them."""
    families = {one.family for one in claims if one.id in wanted} - {None}
    needed = [one for one in claims if one.id in wanted or one.family in families]
    return [one for one in evaluate_all(needed, evidence) if one.id in wanted]


def _result(claim: Claim, found: Measured | NotRun, shown: Effect, family: int) -> ClaimResult:
    stated = {
        name: value for name, value in vars(claim).items() if name in ClaimResult.model_fields
    }
    if isinstance(found, NotRun):
        none = "not comparable" if claim.sized else "not stated"
        return ClaimResult.model_validate(
            stated | {"effect": "not run", "size": none, "note": found.why}
        )
    estimate = found.estimate
    measured_size = size(claim, estimate, found.ground, found.portable)
    note = _note(claim, found, measured_size)
    if family:
        text = f"not decided after Holm's correction for the {family} claims of one sentence"
        note, shown = NOTE_SEPARATOR.join(filter(None, (note, text))), "inconclusive"
    exact = claim.kind == "exact" or not estimate.low < estimate.high
    runs = estimate.runs
    return ClaimResult.model_validate(
        stated
        | {
            "ground": found.ground,
            "effect": shown,
            "size": measured_size,
            "measured": estimate.value,
            "ci95": None if exact else within_range(claim, (estimate.low, estimate.high)),
            "n": estimate.n,
            "held": sum(supports(claim, value) for value in runs) if runs else None,
            "counted": len(runs) or None,
            "time_scale": found.time_scale,
            "note": note,
        }
    )


def within_range(claim: Claim, interval: Interval) -> Interval:
    """Return an interval without the last digits that leave the range of the quantity."""
    low, high = range_of(claim.kind, claim.unit, compared=claim.baseline is not None)
    slip = 1e-9
    first, last = interval
    return (
        low if low - slip <= first < low else first,
        high if high < last <= high + slip else last,
    )


def merged(results: Iterable[ClaimResult]) -> tuple[ClaimResult, ...]:
    """Return one result a claim, in the order of the first of each: that of the most real ground
    that ran, with the results on other grounds below it."""
    by_id: dict[str, list[ClaimResult]] = {}
    for one in results:
        by_id.setdefault(one.id, []).append(one)
    found = []
    for same in by_id.values():
        first, *others = sorted(
            same, key=lambda one: (one.effect == "not run", realness(one.ground))
        )
        names = set(GroundResult.model_fields)
        rest = [
            GroundResult.model_validate(one.model_dump(include=names))
            for one in others
            if one.effect != "not run"
        ]
        found.append(first.model_copy(update={"grounds": rest}))
    return tuple(found)


def differs(claim: Claim, estimate: Estimate) -> bool:
    """Return True if an estimate differs from the claim, whatever its interval."""
    return not supports(claim, estimate.value)


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
