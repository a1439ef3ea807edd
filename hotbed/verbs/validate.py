"""`hotbed validate`: error of the ground sim's model against real runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotbed.output import JsonFlag, emit

if TYPE_CHECKING:
    from rich.table import Table

    from analysis.validation import Validation


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def validate(
        *,
        artifacts: Annotated[
            list[Path] | None,
            typer.Option(
                help="A folder of campaigns (./artifacts by default) or one campaign's; repeat for "
                "several, such as one with the runs of each ground."
            ),
        ] = None,
        ground: Annotated[
            str, typer.Option(help="The real ground that the model is compared with.")
        ] = "local",
        out: Annotated[
            Path | None,
            typer.Option(help="Folder for figures and tables; by default artifacts/validation."),
        ] = None,
        as_json: JsonFlag = False,
    ) -> None:
        """Compare figures 6 and 8 on sim with a real ground, with the model's error of every cell.

        Cells that ran on both with the same parameters and seed are compared: run a campaign on
        both grounds (`hotbed run dlr-quick`, `hotbed run dlr-quick --ground sim`).
        """
        from analysis.validation import build

        folders = artifacts or [Path("artifacts")]
        made = build(folders, out or folders[0] / "validation", real=ground)
        facts = {
            "sentence": made.sentence,
            "cells": made.rows(),
            "figures": [path.resolve() for path in made.figures],
        }
        emit(facts, as_json, lambda: _table(made))
        if not as_json:
            print(made.sentence)
            for path in made.figures:
                print(f"Figure: {path.resolve()}")


def _table(made: Validation) -> Table:
    from rich import box
    from rich.table import Table

    from analysis.validation import error_text

    table = Table(
        *("scenario", "op", "controller", "n", made.real, "simulated"),
        *("error [95 %]", "finding", "effects"),
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for cell in made.cells:
        if cell.metric == "latency_s":
            continue
        name = f"{cell.controller} ({cell.setting})" if cell.setting else cell.controller
        table.add_row(
            cell.scenario,
            cell.op,
            name,
            str(cell.error.n),
            f"{cell.measured.value:.1f} {cell.unit}",
            f"{cell.simulated.value:.1f}",
            error_text(cell.error),
            cell.word,
            cell.agreement,
        )
    return table
