"""`hotbed logs`: the journal of a node's units, such as the store's daemons."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hotbed import completion
from hotbed.options import argument, option
from hotbed.output import Output, new_table
from hotbed.views import TestbedOption
from schemas.errors import unknown


def verb(
    node: Annotated[str, argument("The node's name.")],
    unit: str | None = argument(
        "Such as osd.3, mon, disturb, control-dlr; by default, list the units.",
        None,
        autocompletion=completion.units,
    ),
    *,
    follow: bool = typer.Option(False, "--follow", "-f", help="Until Ctrl-C."),
    lines: int = option("Number of lines from the end.", 100, min=0),
    testbed: TestbedOption = None,
) -> Output | None:
    """Show what a unit of Hotbed or of the store logs on a node; without UNIT, list the units."""
    from testbed.choose import choose_partly, select_one
    from testbed.overview import units_of
    from testbed.reach import run_on

    found = choose_partly(testbed)
    chosen = select_one(found, node)
    units = units_of(found, chosen)
    if unit is None:
        return Output(units, lambda: _table(units))
    meant = [row for row in units if unit in (row["unit"], row["name"], row["name"].split(".")[0])]
    if len(meant) != 1:
        names = [row["name"] for row in meant or units]
        raise unknown("unit", unit, names, where=f"node {chosen.name}")
    command = ["journalctl", "--no-pager", "--output=short-iso", f"--lines={lines}"]
    command += [*(["--follow"] if follow else []), f"--unit={meant[0]['unit']}"]

    def show(_: str, line: str, is_error: bool) -> None:
        print(line, file=sys.stderr if is_error else sys.stdout, flush=True)

    if any(run_on(found, [chosen], command, show).values()):
        raise typer.Exit(1)
    return None


def _table(units: list[dict[str, str]]) -> object:
    rows = ((row["name"], row["state"], row["about"]) for row in units)
    table = new_table(("unit", "state", "what"), rows)
    return table if units else "no units of Hotbed or of a store"
