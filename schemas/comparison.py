"""Comparison of controllers: the planned cells, so that missing ones can be reported."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from schemas.model import Model


class PlannedCell(Model):
    """Planned run of the comparison, made or not."""

    run_id: str
    controller: str
    scenario: str
    op: str
    block: int


class Comparison(Model):
    """Content of `comparison.json`. A block holds every controller once for each scenario and op,
    with the same seed; `left_out` gives the reason why a controller of `all` does not take part."""

    schema_version: int = 1
    ground: str
    testbed: str
    baseline: str
    controllers: tuple[str, ...]  # taking part, the baseline first
    left_out: dict[str, str] = Field(default_factory=dict)  # controller -> reason
    scenarios: tuple[str, ...]
    ops: tuple[str, ...]
    blocks: int
    seed: int
    time_scale: float
    parameters: dict[str, Any] = Field(default_factory=dict)  # of every cell, if not the default
    cells: tuple[PlannedCell, ...]
