"""Claim: a paper's statement as a test, declared before it is run, and the measured result."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, model_validator

from schemas.model import Model

Kind = Literal["ratio", "share", "count", "order", "seconds", "exact"]
"""Kind of a measured quantity. ``ratio``: a quotient, or a relative change. ``share``: in [0, 1].
``count``: a number of things, not negative. ``order``: which of two goes first, as a share of the
blocks, a difference of shares, or a rank correlation. ``seconds``: a time. ``exact``: holds by
construction, so that it has no interval."""
Rule = Literal["at_least", "about", "at_most", "within"]
"""Relation of a claim to the paper's value: a lower bound, a size, an upper bound, equality."""
Effect = Literal["confirmed", "contradicted", "inconclusive", "not run"]
Size = Literal["within tolerance", "smaller", "larger", "not comparable", "not stated"]

SHARE = "share"
"""Unit of shares."""
GROUNDS = ("chameleon", "inventory", "other", "local", "fake", "sim", "computed")
"""Grounds of runs, the most real first: the first one that ran decides a claim."""


def realness(ground: str | None) -> int:
    """Return the place of a ground in `GROUNDS`; several grounds, joined by ``+``, count as the
    least real one, and an unknown one or None as the last."""
    order = {name: place for place, name in enumerate(GROUNDS)}
    return max(order.get(part, len(order)) for part in (ground or "").split("+"))


class GroundResult(Model):
    """Result of a claim on one ground.

    Attributes:
        ground: ground of the runs; None if none ran.
        store: store of the runs, if the claim is tested on several.
        effect: True to the statement, or not: `confirmed` if the interval excludes the opposite.
        size: place of the measured size relative to the paper's; `not comparable` on a ground that
            cannot vouch for sizes.
        measured: estimate in the claim's unit.
        ci95: 95 % interval; None for kind exact, a single run, and runs that agree exactly.
        n: number of runs, or of blocks with both runs.
        held: number of runs or blocks in which the statement holds; None if not counted.
        counted: number of runs or blocks that `held` refers to.
    """

    ground: str | None = None
    store: str | None = None
    effect: Effect
    size: Size
    measured: float | None = None
    ci95: tuple[float, float] | None = None
    n: int = 0
    held: int | None = None
    counted: int | None = None
    time_scale: float | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _sound(self) -> GroundResult:
        if self.effect == "not run" and (self.measured is not None or self.n or self.ci95):
            raise ValueError("a claim that was not run has no measured value, n or interval")
        if self.effect in ("confirmed", "contradicted") and self.measured is None:
            raise ValueError(f"an effect is {self.effect} by a measured value")
        if self.ci95 is not None:
            low, high = self.ci95
            if self.measured is None or not low < high:
                raise ValueError("an interval is about a measured value and has a width")
            if not low <= self.measured <= high:
                raise ValueError(f"{self.measured} is outside of its interval {low} to {high}")
        return self


class ClaimResult(GroundResult):
    """Entry of `claims.json`: a statement, and its result on the ground that decides.

    Attributes:
        statement: the claim in words.
        stated: True if the paper makes the statement, with or without a number.
        kind: kind of the quantity; see `Kind`.
        rule: relation to the paper's value; see `Rule`.
        baseline: registered name of the controller or method that the claim compares with, or
            another short name; None if there is none.
        unreachable: reason why no machine of ours can run it; None if one can.
        paper_value: the paper's number; None if it states none.
        tolerance: allowed difference from the paper's effect, relative to it.
        no_effect: the value without an effect (None in older files).
        larger: True if the statement is about values above it.
        sized: True if a size is claimed, not only its side.
        family: name of the sentence from which several claims come; their effects are corrected
            together.
        grounds: results of the same statement on other grounds, the most real first.
    """

    id: str
    paper: str
    figure: str
    statement: str
    stated: bool
    kind: Kind
    rule: Rule
    unit: str
    baseline: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9.+-]*$")
    unreachable: str | None = None
    paper_value: float | None
    tolerance: float
    no_effect: float | None = None
    larger: bool | None = None
    sized: bool = False
    family: str | None = None
    depends_on: list[str] = Field(default_factory=list)
    grounds: list[GroundResult] = Field(default_factory=list)

    @property
    def reproduced(self) -> bool:
        """True if the effect is confirmed, and the size within tolerance or not stated."""
        return self.effect == "confirmed" and self.size in ("within tolerance", "not stated")

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest value that the quantity can have."""
        return range_of(self.kind, self.unit, compared=self.baseline is not None)

    @model_validator(mode="after")
    def _in_range(self) -> ClaimResult:
        if self.kind == "share" and self.unit != SHARE:
            raise ValueError(f"the unit of a share is {SHARE}, not {self.unit}")
        if self.unreachable is not None and self.effect != "not run":
            raise ValueError("a claim that cannot be reached was not run")
        low, high = self.range
        for one in (self, *self.grounds):
            if self.kind == "exact" and one.ci95 is not None:
                raise ValueError("what holds by construction has no interval")
            for value in (one.measured, *(one.ci95 or ())):
                if value is not None and not low - 1e-9 <= value <= high + 1e-9:
                    raise ValueError(f"{value} is no {self.kind} ({low} to {high})")
        return self


def range_of(kind: Kind, unit: str, *, compared: bool) -> tuple[float, float]:
    """Return the range of a quantity; `compared`: it may be a difference from a baseline."""
    if unit == SHARE:
        return 0.0, 1.0
    if kind == "order":
        return -1.0, 1.0
    if kind == "count" or (kind == "ratio" and unit == "ratio"):
        return 0.0, math.inf
    if kind == "seconds" and not compared:
        return 0.0, math.inf
    return -math.inf, math.inf
