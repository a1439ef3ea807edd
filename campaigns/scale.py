"""`hotbed scale`: the sweeps of the campaign dlr-scale along the requested axes.

The sweeps are the campaign's own grids with other values on their axes. The engine runs them in the
campaign's own folder, so a finished cell is reused, whatever sweep made it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from campaigns.comparison import ALL
from campaigns.engine import session
from campaigns.engine.campaign_file import find_campaign, load_campaign
from controllers.registry import available, create
from schemas.campaign import Campaign, Grid
from schemas.errors import UserError, not_allowed
from schemas.mistakes import checked
from testbed.stores.microstores import MICROSTORES

CAMPAIGN = "dlr-scale"
QUICK = "dlr-scale-quick"
BASELINE = "default"

T = TypeVar("T")


@dataclass(frozen=True)
class ScaleRequest:
    """Request for sweeps; None keeps the campaign's values of an axis.

    Attributes:
        osds: numbers of OSDs.
        hot: shares of hot nodes, above 0 to 1.
        move: seconds after which the hotspots move.
        controllers: names, or ``all``; default Ceph is always included.
        ops: write, seq, rand.
        blocks: repetitions of every cell.
        figure: only osds, hot or move.
        quick: True for the small sweep, which takes minutes.
    """

    osds: Sequence[int] | None = None
    hot: Sequence[float] | None = None
    move: Sequence[float] | None = None
    controllers: Sequence[str] | None = None
    ops: Sequence[str] | None = None
    blocks: int | None = None
    figure: str | None = None
    quick: bool = False
    artifacts: Path = Path("artifacts")
    controllers_dir: Path | None = None


def request(ask: ScaleRequest) -> session.Request:
    """Return the requested campaign for `session.run` or `session.dry_run`. UserError: an axis is
    empty, or a value has the wrong type. `session.prepare` checks the cells."""
    campaign = load_campaign(find_campaign(QUICK if ask.quick else CAMPAIGN))
    return session.Request(
        vary(campaign, ask),
        figure=ask.figure,
        artifacts=ask.artifacts,
        controllers_dir=ask.controllers_dir,
    )


def vary(campaign: Campaign, ask: ScaleRequest) -> Campaign:
    """Return `campaign` with the values of `ask` on the axes of its grids.

    A grid keeps its own requested values. A value that no grid of a figure has joins the grid with
    the nearest value, because its duration and blocks fit best. A grid without values is dropped.
    Controllers, ops and blocks apply to every grid.
    """
    grids = list(campaign.grids)
    for option, name, wanted in (
        ("--osds", "osds", ask.osds),
        ("--hot", "hot_share", ask.hot),
        ("--move", "move_every_s", ask.move),
    ):
        if wanted is not None:
            grids = _along(grids, name, _values(option, wanted))
    changes: dict[str, Any] = {}
    if ask.controllers is not None:
        changes["controller"] = _controllers(ask)
    if ask.ops is not None:
        changes["op"] = _values("--op", ask.ops)
    if ask.blocks is not None and not 1 <= ask.blocks <= 1000:
        raise not_allowed("--blocks", ask.blocks, "1 to 1000")
    grids = [_changed(grid, changes, ask.blocks) for grid in grids]
    body = campaign.model_dump() | {"grids": [grid.model_dump() for grid in grids]}
    return checked(Campaign, body, campaign.name)


def _along(grids: Sequence[Grid], name: str, wanted: Sequence[float]) -> list[Grid]:
    """Return the grids with `wanted` on the axis `name`."""
    kept: dict[str, list[float]] = {}
    for figure in dict.fromkeys(figure for grid in grids for figure in grid.figures):
        having = [grid for grid in grids if figure in grid.figures and name in grid.vary]
        for value in wanted:
            owner = [grid for grid in having if value in grid.vary[name]]
            if not owner and having:
                owner = [min(having, key=lambda grid: _distance(grid.vary[name], value))]
            for grid in owner:
                kept.setdefault(grid.name, []).append(value)
    return [
        _with(grid, {name: list(dict.fromkeys(kept[grid.name]))}) if name in grid.vary else grid
        for grid in grids
        if name not in grid.vary or grid.name in kept
    ]


def _distance(values: Sequence[float], value: float) -> float:
    """Return the ratio (as a logarithm) of `value` to the nearest of `values`."""
    if not (value > 0 and math.isfinite(value)):
        return 0.0  # not allowed: the cell's check raises
    return min(abs(math.log(value / own)) for own in values)


def _changed(grid: Grid, changes: dict[str, Any], blocks: int | None) -> Grid:
    changed = _with(grid, changes)
    return changed if blocks is None else changed.model_copy(update={"repetitions": blocks})


def _with(grid: Grid, values: dict[str, Any]) -> Grid:
    fixed = {name: value for name, value in grid.fixed.items() if name not in values}
    return grid.model_copy(update={"vary": {**grid.vary, **values}, "fixed": fixed})


def _controllers(ask: ScaleRequest) -> list[str]:
    """Return the requested controllers, default Ceph first; `all` means every controller."""
    dirs = () if ask.controllers_dir is None else (ask.controllers_dir.resolve(),)
    assert ask.controllers is not None
    names: list[str] = [BASELINE]
    for name in _values("--controllers", [n.strip().replace("_", "-") for n in ask.controllers]):
        names += sorted(_of_ceph(dirs)) if name == ALL else [name]
    return list(dict.fromkeys(names))


def _of_ceph(dirs: Sequence[Path]) -> list[str]:
    """Return all controllers except the built-in ones for microstores (not simulated here)."""
    return [
        name
        for name, controller in available(dirs).items()
        if controller.outside or MICROSTORES not in create(controller, {}, 0).needs.senses
    ]


def _values(option: str, given: Sequence[T]) -> list[T]:
    found = list(dict.fromkeys(given))
    if not found:
        raise UserError(f"{option} is empty", do="name at least one")
    return found
