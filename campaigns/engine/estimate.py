"""Estimates of the cells' times: planned first, then corrected by finished cells."""

from __future__ import annotations

from collections.abc import Iterable

from campaigns.engine.plan import Cell

ENGINE_S = 5.0  # notebook process, kernel, imports
TIMEOUT_FACTOR = 3.0
TIMEOUT_SLACK_S = 180.0


def timeout_s(planned_s: float) -> float:
    """Return the seconds after which a cell counts as hung."""
    return TIMEOUT_FACTOR * planned_s + TIMEOUT_SLACK_S


class Estimator:
    """Estimator of the time left, from the planned seconds and the finished cells."""

    def __init__(self) -> None:
        self._planned = 0.0
        self._actual = 0.0

    def observe(self, cell: Cell, seconds: float) -> None:
        """Correct the estimate: `cell` took `seconds`."""
        self._planned += cell.planned_s
        self._actual += seconds

    def left(self, cells: Iterable[Cell], width: int = 1) -> float:
        """Return the seconds that `cells` will take, `width` at a time."""
        each = [cell.planned_s for cell in cells]
        ratio = self._actual / self._planned if self._planned > 0 else 1.0
        # The longest cell bounds the time, however many cells run in parallel.
        return max(sum(each) / max(1, width), max(each, default=0.0)) * ratio
