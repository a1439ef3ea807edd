"""Plan of a campaign file's cells: products of grids, randomized blocks, run ids."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from campaigns.engine.identity import Identity, run_id
from schemas.campaign import Campaign, Grid
from schemas.run import Stopping
from testbed.closure import Closure
from testbed.html import table

PLAN_COLUMNS = ("run", "block", "figures", "cell")


class Parameters(Protocol):
    """Interface of a cell's parameters that the engine needs, for any experiment."""

    @property
    def controller(self) -> str:
        """Name of the policy under test: a controller or a planner's method."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """Return the parameters as JSON, for hashing and storing."""

    def label(self) -> str:
        """Return a short label for people."""

    def contents(self) -> str:
        """Return a key of shared contents, such as objects in a store; equal keys run in a row."""


@dataclass(frozen=True)
class Cell:
    """One planned run. Grids that ask for the same cell share it. `planned_s`: planned seconds.
    `code`: code that cells share, and code behind the results of this cell's controller.
    `stopping`: rule of the grid that asks for precision, if one of `grids` does."""

    run_id: str
    parameters: Parameters
    block: int
    seed: int
    order: int  # position in the block's random order, from 0
    grids: tuple[str, ...]
    figures: tuple[str, ...]
    planned_s: float
    code: tuple[Closure, ...] = ()
    stopping: Stopping | None = None


@dataclass(frozen=True)
class Plan:
    """All cells of a campaign, in the order in which they run."""

    campaign: Campaign
    identity: Identity
    cells: tuple[Cell, ...]

    @property
    def simulated(self) -> bool:
        """True if no testbed makes the runs."""
        return self.campaign.ground == "sim"

    def _repr_html_(self) -> str:
        rows = [
            (cell.run_id, str(cell.block), ", ".join(cell.figures), cell.parameters.label())
            for cell in self.cells
        ]
        note = f": {len(rows)} cells"
        return table(PLAN_COLUMNS, rows, title=self.campaign.name, note=note)


def raw_cells(campaign: Campaign, grid: Grid) -> Iterator[dict[str, Any]]:
    """Yield the product of `vary` over `fixed`, minus `exclude`, with the file's parameters."""
    base = {**campaign.parameters, **grid.fixed}
    names = list(grid.vary)
    for values in itertools.product(*(grid.vary[name] for name in names)):
        cell = {**base, **dict(zip(names, values, strict=True))}
        if not any(_matches(cell, pattern) for pattern in grid.exclude):
            yield cell


def block_seed(campaign_seed: int, block: int) -> int:
    """Return the seed of all cells of a block: hot nodes, moves and arrivals are paired."""
    text = f"hotbed block {campaign_seed} {block}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big")


def make_plan(
    campaign: Campaign,
    cells: Mapping[str, Sequence[Parameters]],
    identity: Identity,
    own: Callable[[Any], Closure],
    planned_s: Callable[[Any], float],
) -> Plan:
    """Arrange validated cells (by grid name, only of the wanted grids) in randomized blocks. `own`
    returns the code of a cell's controller from the cell's parameters, `planned_s` a cell's
    seconds."""
    grids = [grid for grid in campaign.grids if grid.name in cells]
    planned: list[Cell] = []
    for block in range(max((grid.repetitions for grid in grids), default=0)):
        seed = block_seed(campaign.seed, block)
        found: dict[str, Cell] = {}
        for grid in grids:
            if block >= grid.repetitions:
                continue
            for parameters, repeat in itertools.product(cells[grid.name], range(grid.repeats)):
                code = own(parameters)
                again = {"repeat": repeat} if repeat else {}
                key = run_id(
                    identity,
                    parameters.model_dump(mode="json") | again,
                    seed=seed,
                    block=block,
                    controller=code.digest,
                )
                if key in found:
                    found[key] = _shared(found[key], grid)
                else:
                    found[key] = Cell(
                        key,
                        parameters,
                        block,
                        seed,
                        0,
                        (grid.name,),
                        tuple(grid.figures),
                        planned_s(parameters),
                        (identity.code, code),
                    )
        order = block_order(found, seed)
        planned += [replace(found[key], order=place) for place, key in enumerate(order)]
    return Plan(campaign, identity, tuple(planned))


def block_order(cells: Mapping[str, Cell], seed: int) -> list[str]:
    """Return run ids in random order, with cells that share objects in the store in a row.

    Reads of one object size share objects; writes start from an empty store. Cells that are
    compared with each other are in one group, so their order is random.
    """
    draw = random.Random(seed)
    groups: dict[str, list[str]] = {}
    # Sorted first: the order must depend only on the seed, not on the file's layout.
    for key in sorted(cells):
        groups.setdefault(cells[key].parameters.contents(), []).append(key)
    names = sorted(groups)
    draw.shuffle(names)
    for name in names:
        draw.shuffle(groups[name])
    return [key for name in names for key in groups[name]]


def _shared(cell: Cell, grid: Grid) -> Cell:
    figures = cell.figures + tuple(name for name in grid.figures if name not in cell.figures)
    return replace(cell, grids=(*cell.grids, grid.name), figures=figures)


def _matches(cell: Mapping[str, Any], pattern: Mapping[str, Any]) -> bool:
    return all(key in cell and cell[key] == value for key, value in pattern.items())
