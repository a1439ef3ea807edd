"""A comparison of controllers: what was to be run, so that what is missing can be told."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from schemas.run import Model


class PlannedCell(Model):
    """One run of the comparison, made or not."""

    run_id: str
    controller: str
    scenario: str
    op: str
    block: int


class Comparison(Model):
    """`comparison.json`. A block holds every controller once for each scenario and op, with the
    same seed; `left_out` says why a controller that was asked for by `all` does not take part."""

    schema_version: int = 1
    ground: str
    testbed: str
    baseline: str
    controllers: tuple[str, ...]  # those that take part, the baseline first
    left_out: dict[str, str] = Field(default_factory=dict)  # controller -> reason
    scenarios: tuple[str, ...]
    ops: tuple[str, ...]
    blocks: int
    seed: int
    time_scale: float
    parameters: dict[str, Any] = Field(default_factory=dict)  # of every cell, where not the default
    cells: tuple[PlannedCell, ...]
