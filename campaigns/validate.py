"""Validation of every cell's parameters before anything starts."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from campaigns.engine.plan import raw_cells
from controllers.decider import declared
from controllers.registry import Controller, no_controller
from schemas import extensions
from schemas.campaign import Campaign
from schemas.cells import cells_of
from schemas.cells.dlr import DlrCell, OtherWorkload
from schemas.errors import UserError, unknown
from testbed.simulated import scaled
from testbed.spec import TestbedSpec

P = TypeVar("P")

SIZED_GROUND = "sim"
"""Ground on which a cell may set the number of OSDs."""


def typed_cells(campaign: Campaign, file: Path) -> dict[str, list[Any]]:
    """Return typed cells by grid name for all grids, because a file must be valid as a whole.
    UserError: file, grid, key, and the allowed values."""
    cells = cells_of(campaign.kind, campaign.ground)
    found = {}
    for grid in campaign.grids:
        where = f"{file}: grid {grid.name}"
        for key in (key for entry in grid.exclude for key in entry):
            if key not in cells.names:
                raise unknown("parameter", key, cells.names, where=f"{where}: exclude")
        found[grid.name] = [cells.check(raw, where) for raw in raw_cells(campaign, grid)]
        if not found[grid.name]:
            raise UserError("exclude leaves no cell", where=where)
    return found


def validate(
    campaign: Campaign,
    file: Path,
    *,
    controllers: Mapping[str, Controller],
    spec: TestbedSpec | None = None,
    trust_code: bool = True,
) -> dict[str, list[DlrCell]]:
    """Return typed cells by grid name for all grids, because a file must be valid as a whole;
    checked against `spec`, if given. Without `trust_code`, no controller from a bundle is loaded,
    and its parameters are not checked. UserError: file, grid, key, and the allowed values."""
    _refuse_unknown(campaign, file, controllers)
    cells: dict[str, list[DlrCell]] = {}
    accepted: set[str] = set()
    unread = frozenset(c.name for c in controllers.values() if c.foreign and not trust_code)
    for name, plain in typed_cells(campaign, file).items():
        where = f"{file}: grid {name}"
        typed = [
            _with_controller(_with_size(cell, campaign), controllers, where, accepted, unread)
            for cell in plain
        ]
        for parameters in typed:
            _check_size(parameters, campaign.ground, where)
            _check_op(parameters, campaign.ground, spec, where)
            if spec is not None:
                _check_against(parameters, spec, where)
        sizes = {parameters.osds for parameters in typed if parameters.osds is not None}
        if spec is not None:
            for osds in sorted(sizes):
                _check_scaled(spec, osds, where)
        cells[name] = typed
    return cells


def figures_of(campaign: Campaign) -> list[str]:
    """Return the campaign's figures in the file's order."""
    return list(dict.fromkeys(figure for grid in campaign.grids for figure in grid.figures))


def select(
    campaign: Campaign, cells: Mapping[str, list[P]], figure: str, file: Path
) -> dict[str, list[P]]:
    """Return the cells of the grids for `figure` (``6`` means 6a to 6c), or of the grid named so.
    UserError: no grid has this figure; the message lists the figures."""
    # "1" means 1a to 1d, "fig6" means 6a to 6c; a grid's own name works too.
    wanted = figure.lower().removeprefix("figure").removeprefix("fig").strip(" .")
    chosen = {
        grid.name: cells[grid.name]
        for grid in campaign.grids
        if figure == grid.name or any(_same_figure(wanted, name.lower()) for name in grid.figures)
    }
    if not chosen:
        raise unknown("figure", figure, figures_of(campaign), where=file)
    return chosen


def _same_figure(wanted: str, name: str) -> bool:
    return name == wanted or (name.startswith(wanted) and name[len(wanted) :].isalpha())


def _with_controller(
    parameters: DlrCell,
    known: Mapping[str, Controller],
    where: str,
    accepted: set[str],
    unread: Collection[str],
) -> DlrCell:
    """Return `parameters` with the controller's canonical name, after the controller has accepted
    its parameters. `accepted` caches accepted ones; controllers in `unread` are not asked."""
    name = parameters.controller.replace("_", "-")
    if name not in known:
        raise no_controller(parameters.controller, known, f"{where}: controller")
    asked = json.dumps([name, parameters.controller_parameters], sort_keys=True)
    if asked not in accepted and name not in unread:
        try:
            declared(known[name], parameters.controller_parameters)
        except UserError as error:
            raise error.at(f"{where}: controller_parameters") from error
        accepted.add(asked)
    return parameters.model_copy(update={"controller": name})


def _with_size(parameters: DlrCell, campaign: Campaign) -> DlrCell:
    """Return `parameters` with the controller's parameters per OSD, multiplied by the cell's OSDs.
    A cell with the testbed's own size is unchanged. The cell's own parameters take precedence."""
    shares = campaign.controller_parameters_per_osd.get(parameters.controller.replace("_", "-"))
    if parameters.osds is None or not shares:
        return parameters
    grown = {name: share * parameters.osds for name, share in shares.items()}
    return parameters.model_copy(
        update={"controller_parameters": grown | parameters.controller_parameters}
    )


def _refuse_unknown(campaign: Campaign, file: Path, known: Collection[str]) -> None:
    for name in campaign.controller_parameters_per_osd:
        if name not in known:
            raise no_controller(name, known, f"{file}: controller_parameters_per_osd")


def _check_size(parameters: DlrCell, ground: str, where: str) -> None:
    if parameters.osds is not None and ground != SIZED_GROUND:
        raise UserError(
            f"on the ground {ground} a store has the OSDs of its testbed",
            where=f"{where}: osds",
            do=(
                f"leave it out, or run the campaign on {SIZED_GROUND}, which makes stores of "
                "any size"
            ),
        )


def _check_op(parameters: DlrCell, ground: str, spec: TestbedSpec | None, where: str) -> None:
    if parameters.op not in {"s3", "other"}:
        return
    if ground == SIZED_GROUND:
        what = "Ceph's object gateway" if parameters.op == "s3" else "a package's workload"
        raise UserError(
            f"{parameters.op} is {what}, which the ground {ground} has no model of",
            where=f"{where}: op",
            do="run the campaign on a testbed",
        )
    if isinstance(parameters, OtherWorkload):
        try:
            extensions.make("workload", parameters.workload, dict(parameters.options))
        except UserError as error:
            raise error.at(f"{where}: options") from error
        return
    if spec is not None and not spec.ceph().tenants:
        raise UserError(
            f"s3 needs a user of the object gateway, and the spec {spec.name!r} names none in "
            "store.tenants",
            where=f"{where}: op",
            do="take testbed/specs/dlr-gateway.yaml, or name one there",
        )


def _check_against(parameters: DlrCell, spec: TestbedSpec, where: str) -> None:
    osd_nodes = parameters.osds or _osd_nodes(spec)
    if parameters.hot_count(osd_nodes) > osd_nodes:
        where_from = "the cell" if parameters.osds else f"the spec {spec.name!r}"
        has = f"{where_from} has {osd_nodes} OSD nodes"
        hot = parameters.hot_count(osd_nodes)
        raise UserError(f"{hot} is not allowed; {has}", where=f"{where}: hot_nodes")


def _check_scaled(spec: TestbedSpec, osds: int, where: str) -> None:
    try:
        scaled(spec, osds)
    except UserError as error:
        raise error.at(f"{where}: osds") from error


def _osd_nodes(spec: TestbedSpec) -> int:
    """Return the number of OSD nodes of a spec."""
    return sum(group.count for group in spec.groups if "osd" in group.roles)
