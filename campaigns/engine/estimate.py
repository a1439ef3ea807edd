"""Estimates of the cells' times: planned first, then corrected by finished cells."""

from __future__ import annotations

from collections.abc import Iterable

from campaigns.engine.plan import Cell
from schemas.cells.dlr import DlrCell

CLEAN_S = 3.0
RESTORE_S = 20.0  # a filled snapshot is restored up to HEALTH_OK
OPEN_LOOP_S = 30.0  # requests in flight end, and moved data is moved back
GATEWAY_S = 10.0  # the driver is copied to its node and started, its archive fetched
STEADY_S = 3.0  # fio reaches its steady rate
COLLECT_S = 4.0  # load and controller are stopped, files fetched
ENGINE_S = 5.0  # notebook process, kernel, imports
SIMULATED_S = 1.0  # for a virtual minute of a small testbed; finished cells correct it
SIZED_CELL_S = 1.0  # for a simulated cell with its own number of OSDs, in addition
OSD_MINUTE_S = 0.009  # CPU seconds for one OSD's virtual minute
TIMEOUT_FACTOR = 3.0
TIMEOUT_SLACK_S = 180.0


def planned_s(parameters: DlrCell, time_scale: float) -> float:
    """Return the wall time of one cell in seconds, with cleaning and settling."""
    total = CLEAN_S + COLLECT_S + ENGINE_S + parameters.lead_s(time_scale)
    total += parameters.duration_s * time_scale
    if parameters.scenario != "none":
        total += STEADY_S
    if parameters.op == "write":
        total += RESTORE_S
    if parameters.op == "open":
        total += OPEN_LOOP_S
    if parameters.op == "s3":
        total += GATEWAY_S
    return total


def timeout_s(parameters: DlrCell, time_scale: float) -> float:
    """Return the seconds after which a cell counts as hung."""
    return TIMEOUT_FACTOR * planned_s(parameters, time_scale) + TIMEOUT_SLACK_S


def experiment(cell: Cell) -> DlrCell:
    """Return the parameters of a cell of the experiment on a store."""
    assert isinstance(cell.parameters, DlrCell), cell.parameters
    return cell.parameters


def cell_timeout_s(cell: Cell, time_scale: float) -> float:
    """See `timeout_s`."""
    if cell.planned_s is not None:
        return TIMEOUT_FACTOR * cell.planned_s + TIMEOUT_SLACK_S
    return timeout_s(experiment(cell), time_scale)


class Estimator:
    """Estimator of the time left, from the plan and the finished cells."""

    def __init__(self, time_scale: float, *, simulated: bool = False) -> None:
        """Set up; `simulated`: the cells' time is virtual and costs little real time."""
        self._time_scale = time_scale
        self._simulated = simulated
        self._planned = 0.0
        self._actual = 0.0

    def planned(self, cell: Cell) -> float:
        """Return the planned seconds of one cell."""
        if cell.planned_s is not None:
            return cell.planned_s
        parameters = experiment(cell)
        if self._simulated:
            minutes = parameters.duration_s * self._time_scale / 60
            if parameters.osds is not None:
                minutes += parameters.lead_s(self._time_scale) / 60
                return SIZED_CELL_S + OSD_MINUTE_S * parameters.osds * minutes
            return ENGINE_S + SIMULATED_S * minutes
        return planned_s(parameters, self._time_scale)

    def observe(self, cell: Cell, seconds: float) -> None:
        """Correct the estimate: `cell` took `seconds`."""
        self._planned += self.planned(cell)
        self._actual += seconds

    def left(self, cells: Iterable[Cell], width: int = 1) -> float:
        """Return the seconds that `cells` will take, `width` at a time."""
        each = [self.planned(cell) for cell in cells]
        ratio = self._actual / self._planned if self._planned > 0 else 1.0
        # The longest cell bounds the time, however many cells run in parallel.
        return max(sum(each) / max(1, width), max(each, default=0.0)) * ratio
