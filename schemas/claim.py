"""A claim is a test: what a paper states, declared before it is run, and what was measured."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.run import Model

Kind = Literal["at_least", "about", "at_most", "within"]
Verdict = Literal["reproduced", "direction", "inconclusive", "not reproduced", "not run"]


class ClaimResult(Model):
    """One entry of `claims.json`. `paper_value` is None for what goes beyond the paper; `no_effect`
    is the value at which there is no effect, `larger` on which side of it the statement lies, and
    `size` whether a size is judged, not the side alone (all three None in files of before)."""

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
