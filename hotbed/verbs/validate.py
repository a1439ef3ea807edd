"""`hotbed validate`: error of the ground sim's model against real runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hotbed.options import option
from hotbed.output import Output, new_table

if TYPE_CHECKING:
    from analysis.validation import Validation


def verb(
    *,
    artifacts: list[Path] | None = option(
        "A folder of campaigns (./artifacts by default) or one campaign's; repeat for "
        "several, such as one with the runs of each ground.",
        None,
    ),
    ground: str = option("The real ground that the model is compared with.", "local"),
    out: Path | None = option(
        "Folder for figures and tables; by default artifacts/validation.", None
    ),
) -> Output:
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
    lines = [made.sentence, *(f"Figure: {path.resolve()}" for path in made.figures)]
    return Output(facts, lambda: [_table(made), *lines])


def _table(made: Validation) -> object:
    from analysis.validation import effects_text, error_text

    heads = ("scenario", "op", "controller", "n", made.real, "simulated", "error [95 %]")
    table = new_table((*heads, "finding", "effects"))
    for cell in made.throughput:
        table.add_row(
            cell.scenario,
            cell.op,
            cell.name,
            str(cell.error.n),
            f"{cell.measured.value:.1f} {cell.unit}",
            f"{cell.simulated.value:.1f}",
            error_text(cell.error),
            cell.word,
            effects_text(cell),
        )
    return table
