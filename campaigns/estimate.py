"""How long cells take: first by plan, then corrected by the cells that have finished."""

from __future__ import annotations

from collections.abc import Iterable

from campaigns.plan import Cell
from schemas.cells.dlr import DlrCell

CLEAN_S = 3.0
RESTORE_S = 20.0  # a filled snapshot brought back up to HEALTH_OK
OPEN_LOOP_S = 30.0  # what is in flight at its end, and data that was moved is moved back
GATEWAY_S = 10.0  # the driver brought to its node and started, its archive fetched
STEADY_S = 3.0  # fio up to its steady rate
COLLECT_S = 4.0  # load and controller stopped, files fetched
ENGINE_S = 5.0  # notebook process, kernel, imports
SIMULATED_S = 1.0  # of a small testbed's minute; the cells that are done correct it
SIZED_CELL_S = 1.0  # of a simulated cell of its own size, beside
OSD_MINUTE_S = 0.009  # a processor's seconds for one OSD's virtual minute
TIMEOUT_FACTOR = 3.0
TIMEOUT_SLACK_S = 180.0


def planned_s(parameters: DlrCell, time_scale: float) -> float:
    """Wall time of one cell, seconds, cleaning and settling included."""
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
    """When a cell is taken for hung."""
    return TIMEOUT_FACTOR * planned_s(parameters, time_scale) + TIMEOUT_SLACK_S


def experiment(cell: Cell) -> DlrCell:
    """The parameters of a cell of the experiment on a store."""
    assert isinstance(cell.parameters, DlrCell), cell.parameters
    return cell.parameters


def cell_timeout_s(cell: Cell, time_scale: float) -> float:
    """See `timeout_s`."""
    if cell.planned_s is not None:
        return TIMEOUT_FACTOR * cell.planned_s + TIMEOUT_SLACK_S
    return timeout_s(experiment(cell), time_scale)


class Estimator:
    """Time left, from the plan and from the cells finished so far."""

    def __init__(self, time_scale: float, *, simulated: bool = False) -> None:
        """`simulated`: the cells' own time is virtual and costs next to nothing."""
        self._time_scale = time_scale
        self._simulated = simulated
        self._planned = 0.0
        self._actual = 0.0

    def planned(self, cell: Cell) -> float:
        """Planned seconds of one cell."""
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
        """A cell took `seconds`."""
        self._planned += self.planned(cell)
        self._actual += seconds

    def left(self, cells: Iterable[Cell], width: int = 1) -> float:
        """Seconds that `cells` will take, `width` at a time."""
        each = [self.planned(cell) for cell in cells]
        ratio = self._actual / self._planned if self._planned > 0 else 1.0
        # However many run beside each other, the longest takes its time.
        return max(sum(each) / max(1, width), max(each, default=0.0)) * ratio
