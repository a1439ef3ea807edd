"""Claim: a paper's statement as a test, declared before it is run, and the measured result."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.run import Model

Kind = Literal["at_least", "about", "at_most", "within"]
Verdict = Literal["reproduced", "direction", "inconclusive", "not reproduced", "not run"]


class ClaimResult(Model):
    """Entry of `claims.json`. `paper_value` is None for claims beyond the paper. `no_effect` is the
    value without an effect, `larger` the side of it that the claim states, and `size` True if the
    size is judged too, not only the side (all three None in older files)."""

    id: str
    paper: str
    figure: str
    statement: str
    paper_value: float | None
    measured: float | None
    ci95: tuple[float, float] | None
    n: int
    ground: str | None
    verdict: Verdict
    kind: Kind
    tolerance: float
    no_effect: float | None = None
    larger: bool | None = None
    size: bool | None = None
    unit: str
    baseline: str | None = None
    time_scale: float | None = None
    note: str | None = None
    depends_on: list[str] = Field(default_factory=list)
