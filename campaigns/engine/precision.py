"""Blocks of grids that ask for precision, decided by `schemas.precision` from stored results.

A block counts when its cells are done. Equal stored results give an equal plan, so a campaign that
was interrupted resumes with the same blocks; ids of earlier blocks stay.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from campaigns.engine.estimate import took_s
from campaigns.engine.plan import Parameters, Plan
from campaigns.engine.store import RunStore
from schemas.campaign import METRIC, Campaign, Grid, Precision
from schemas.errors import UserError
from schemas.precision import (
    Reached,
    Rule,
    Statistic,
    binomial_interval,
    declared_looks,
    quantile,
    share,
    stein_blocks,
    two_stage,
    value_of,
)
from schemas.run import Stopping

Make = Callable[[Campaign, Mapping[str, Sequence[Any]]], Plan]
"""Function that makes the plan of a campaign from typed cells by grid."""

Claims = Callable[[Campaign, str], Statistic]
"""Function that finds a claim of a campaign's paper by its id. UserError: there is no such claim,
or no rule for it."""


@dataclass(frozen=True)
class Blocks:
    """Blocks of a campaign: those of its file, and those that precision adds.

    Attributes:
        cells, chosen: all cells by grid, and the requested ones.
        make: makes the plan.
        claims: statistics of the claims that grids name, by grid.
    """

    campaign: Campaign
    cells: Mapping[str, Sequence[Any]]
    chosen: Mapping[str, Sequence[Any]]
    make: Make
    store: RunStore
    claims: Mapping[str, Statistic] = field(default_factory=dict)

    def plans(self) -> tuple[Plan, Plan, tuple[Reached, ...]]:
        """Return the plan of the requested cells, that of all cells, and the decisions on the grids
        that ask for precision, by the stored results."""
        full, reached = self._planned(self.cells)
        plan = full if self.chosen is self.cells else self._planned(self.chosen)[0]
        return plan, full, reached

    def _planned(self, cells: Mapping[str, Sequence[Any]]) -> tuple[Plan, tuple[Reached, ...]]:
        current, asking = (
            self.campaign,
            [grid for grid in self.campaign.grids if grid.precision and grid.name in cells],
        )
        while True:
            plan = self.make(current, cells)
            reached = {
                grid.name: _decide(grid, plan, self.store, self.claims.get(grid.name))
                for grid in asking
            }
            grids = [
                grid.model_copy(update={"repetitions": reached[grid.name].blocks})
                if grid.name in reached
                else grid
                for grid in current.grids
            ]
            if grids == list(current.grids):
                break
            current = current.model_copy(update={"grids": grids})
        stopping = {
            name: Stopping(first_stage=one.first_stage, looks=one.looks)
            for name, one in reached.items()
        }
        planned = tuple(
            replace(cell, stopping=next((stopping[g] for g in cell.grids if g in stopping), None))
            for cell in plan.cells
        )
        return replace(plan, campaign=self.campaign, cells=planned), tuple(reached.values())


def statistics_of(
    campaign: Campaign, cells: Mapping[str, Sequence[Parameters]], claims: Claims | None
) -> dict[str, Statistic]:
    """Return the statistic of every grid that asks for the precision of a claim. UserError: see
    `Claims` and `require_pairs`; or a share has no `max_blocks`, or claims are not known."""
    require_pairs(campaign, cells)
    found = {}
    for grid in campaign.grids:
        if grid.precision is None or grid.precision.claim is None:
            continue
        where = f"campaign {campaign.name}, grid {grid.name}, precision"
        if claims is None:
            raise UserError("claims are not known here", where=where, do="use `hotbed run`")
        try:
            one = found[grid.name] = claims(campaign, grid.precision.claim)
        except UserError as error:
            raise error.at(f"{where}: claim") from error
        if one.rule == "looks" and grid.precision.max_blocks is None:
            raise UserError(
                "a share needs max_blocks: its looks are declared beforehand",
                where=where,
                do="give max_blocks instead of max_minutes",
            )
    return found


def require_pairs(campaign: Campaign, cells: Mapping[str, Sequence[Parameters]]) -> None:
    """Raise UserError unless every grid with precision has one cell of each controller that its
    metric needs, and a metric that a run of such a cell can report."""
    for grid in campaign.grids:
        if grid.precision is None:
            continue
        where = f"campaign {campaign.name}, grid {grid.name}, precision"
        own = [cell.controller for cell in cells[grid.name]]
        for name in grid.precision.controllers:
            if own.count(name) != 1:
                raise UserError(
                    f"needs one cell of the controller {name}, and the grid has {own.count(name)}",
                    where=where,
                    allowed=", ".join(sorted(set(own))),
                    do="give every comparison a grid of its own",
                )


def values_by_block(
    grid: Grid, plan: Plan, store: RunStore, claim: Statistic | None = None
) -> list[float | None]:
    """Return the log-ratio, or 1 or 0, of every planned block of a grid; None if a cell lacks.
    `claim`: the statistic of the claim that the grid names."""
    precision = grid.precision
    assert precision is not None
    if claim is not None:
        mine = [cell for cell in plan.cells if grid.name in cell.grids]
        there = claim.by_block(store.folder, {cell.run_id for cell in mine})
        return [there.get(block) for block in range(1 + max(cell.block for cell in mine))]
    found: dict[tuple[int, str], float | None] = {}
    for cell in plan.cells:
        if grid.name in cell.grids and cell.parameters.controller in precision.controllers:
            op = cell.parameters.model_dump(mode="json").get("op")
            summary = store.summary(cell.run_id)
            key = (cell.block, cell.parameters.controller)
            found[key] = (
                None if summary is None else value_of(summary, precision.metric or METRIC, op)
            )
    blocks = 1 + max((block for block, _ in found), default=-1)
    sides = [
        [found.get((block, name)) for name in precision.controllers] for block in range(blocks)
    ]
    return [_value(precision, values) for values in sides]


def half_width(precision: Precision, rule: Rule) -> float:
    """Return the half-width on the scale of the values: of a log-ratio, or of a share."""
    if rule == "looks":
        return precision.half_width
    return math.log1p(precision.half_width)


def _value(precision: Precision, values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    if precision.compare is None:
        return float(known[0] >= 1)
    return math.log(known[0] / known[1]) if min(known) > 0 else None


def _decide(grid: Grid, plan: Plan, store: RunStore, claim: Statistic | None) -> Reached:
    precision = grid.precision
    assert precision is not None
    values = values_by_block(grid, plan, store, claim)
    most = precision.max_blocks or _affordable(grid, plan, store)
    rule: Rule = "two-stage" if precision.share_of is None else "looks"
    if claim is not None:
        rule = claim.rule
    decide = share if rule == "looks" else two_stage
    found = decide(values, grid.repetitions, half_width(precision, rule), most)
    return found.model_copy(update={"grid": grid.name})


def _affordable(grid: Grid, plan: Plan, store: RunStore) -> int:
    """Return the blocks for which `max_minutes` suffices, by the seconds of the first stage's
    runs (the planned ones before they are done)."""
    assert grid.precision is not None and grid.precision.max_minutes is not None
    took = {run.run_id: took_s(run) for run in store.runs() if run.status == "done"}
    first = [c for c in plan.cells if grid.name in c.grids and c.block < grid.repetitions]
    a_block = sum(took.get(cell.run_id, cell.planned_s) for cell in first) / grid.repetitions
    return max(grid.repetitions, int(60 * grid.precision.max_minutes / max(a_block, 1e-3)))


# ---- What is likely to be needed, from stored results -------------------------------------------


def sentence(
    grid: Grid,
    plan: Plan,
    store: RunStore,
    reached: Reached | None,
    claim: Statistic | None = None,
) -> str:
    """Return the sentence of a dry run about the interval of a grid's comparison, or of its
    claim."""
    precision = grid.precision
    if precision is None or reached is None:
        return _fixed(grid.repetitions, *variation(grid, plan, store))
    if reached.blocks > reached.first_stage or reached.why != "blocks to run":
        return progress(grid, reached)
    first, most = reached.first_stage, reached.most
    known = "how many is not known before runs are stored"
    values = values_by_block(grid, plan, store, claim)
    there = [value for value in values if value is not None]
    if reached.rule == "looks":
        if there:
            met = sum(there) / len(there)
            known = f"about {_likely(met, first, most, precision.half_width)}, by {len(there)} "
            known += f"stored blocks with a share of {met:.2f}"
    else:
        if claim is None:
            deviation, pairs = variation(grid, plan, store)
        else:
            pairs = len(there)
            deviation = statistics.stdev(there) if pairs > 1 else None
        if deviation is not None:
            wanted = half_width(precision, reached.rule)
            likely = int(stein_blocks(deviation, first, wanted, most))
            known = f"about {likely}, by {_variation(deviation, pairs)}"
    return f"{_asked(precision, reached)}: {first} to {most} blocks; {known}"


def progress(grid: Grid, reached: Reached) -> str:
    """Return a sentence about what a grid has reached, and the blocks that it still needs."""
    precision = grid.precision
    assert precision is not None
    got = "no interval yet"
    if reached.half_width is not None:
        half, unit = reached.half_width, "points"
        if reached.rule == "two-stage":
            half, unit = math.expm1(half), "%"
        got = f"n = {reached.n} gives ±{100 * half:.1f} {unit}"
    text = f"{_asked(precision, reached)}: {got}, {reached.why}"
    return f"{text}, {reached.blocks} in all" if reached.why == "blocks to run" else text


def variation(grid: Grid, plan: Plan, store: RunStore) -> tuple[float | None, int]:
    """Return the standard deviation of the grid's paired log-ratios in stored runs, of earlier code
    too, and the number of pairs; None without two pairs. Cells that differ in the controller only
    are compared; with precision, its two controllers."""
    metric = (None if grid.precision is None else grid.precision.metric) or METRIC
    names = None if grid.precision is None else grid.precision.compare
    values: dict[str, dict[int, float]] = {}
    for run, summary in store.results():
        value = value_of(summary, metric, run.parameters.get("op"))
        if value is not None and value > 0:
            values.setdefault(_key(run.parameters), {})[run.seed] = math.log(value)
    groups: dict[str, dict[str, dict[int, float]]] = {}
    for cell in plan.cells:
        body = cell.parameters.model_dump(mode="json")
        if names is None or (grid.name in cell.grids and cell.parameters.controller in names):
            rest = {name: body[name] for name in body if not name.startswith("controller")}
            group = groups.setdefault("" if names else _key(rest), {})
            group[_key(body)] = values.get(_key(body), {})
    own = {
        _key(cell.parameters.model_dump(mode="json"))
        for cell in plan.cells
        if grid.name in cell.grids
    }
    squares, freedom, pairs = 0.0, 0, 0
    for group in groups.values():
        for one, other in itertools.combinations(group, 2):
            both = group[one].keys() & group[other].keys()
            if len(both) > 1 and {one, other} & own:
                logs = [group[one][seed] - group[other][seed] for seed in both]
                squares += statistics.variance(logs) * (len(logs) - 1)
                freedom += len(logs) - 1
                pairs += len(logs)
    return (math.sqrt(squares / freedom), pairs) if freedom else (None, 0)


def _key(parameters: Mapping[str, Any]) -> str:
    return json.dumps(parameters, sort_keys=True)


def _fixed(n: int, deviation: float | None, pairs: int) -> str:
    if n < 2:
        return f"n = {n} gives no interval: no effect of any size can be shown"
    relative = quantile(n) / math.sqrt(n)
    if deviation is None:
        return (
            f"n = {n} gives a half-width of {relative:.2f} standard deviations of the paired "
            "log-ratio; no stored runs show how large that is"
        )
    half = math.expm1(relative * deviation)
    return f"n = {n} gives about ±{100 * half:.0f} %, by {_variation(deviation, pairs)}"


def _variation(deviation: float, pairs: int) -> str:
    return f"a standard deviation of the log-ratio of {deviation:.2f} ({pairs} stored pairs)"


def _asked(precision: Precision, reached: Reached) -> str:
    unit = "points" if reached.rule == "looks" else "%"
    of = "" if precision.claim is None else f" of {precision.claim}"
    return f"asks for ±{100 * precision.half_width:g} {unit}{of}"


def _likely(met: float, first: int, most: int, asked: float) -> int:
    """Return the look after which a share of `met` has an interval as narrow as `asked`."""
    looks = declared_looks(first, most)
    for n in looks:
        low, high = binomial_interval(round(met * n), n, 1 - 0.05 / len(looks))
        if (high - low) / 2 <= asked:
            return n
    return most
