"""`hotbed report`: figures, claims and the report page from the existing runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hotbed import completion
from hotbed.options import argument, named, option
from hotbed.output import Output, new_table
from schemas.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from schemas.claim import ClaimResult


def verb(
    name: Annotated[
        str,
        argument(
            "A paper (dlr: all its campaigns on a real ground; dlr-sim: the simulated "
            "ones; ursa, pm, twochoice, mos: all of its) or a campaign (dlr-quick).",
            autocompletion=completion.reports,
        ),
    ],
    figure: str | None = option(
        "Draw only this figure with its claims, such as 6a or 6, into report-fig6a.html.",
        None,
        autocompletion=completion.figures,
    ),
    ground: str | None = option("Ground of the runs; needed if there are several.", None),
    artifacts: Path = option("Folder of the runs.", Path("artifacts")),
    reference: bool = named(
        "--reference", "Draw a paper's references (artifacts/reference) instead.", False
    ),
) -> Output:
    """Regenerate a paper's figures with effect and size of every claim."""
    from analysis.core.report import build

    stale: list[str] = []
    if reference:
        if ground is not None:
            raise UserError("has no meaning for references", where="--ground", do="leave it out")
        from analysis.reference import report
        from testbed.closure import digest

        target = artifacts / f"{name}-reference"
        made, drawn = report(artifacts / "reference", name, target, digest, only=figure)
        stale = [one.reference.figure for one in drawn if one.stale]
    else:
        made = build(artifacts, name, only=figure, ground=ground)
    facts = {
        "report": made.path,
        "claims_json": made.claims_path,
        "runs": made.runs,
        "figures": {f.entry.id: f.path for f in made.figures if f.path is not None},
        "missing": {f.entry.id: f.missing for f in made.figures if f.missing is not None},
        "stale": stale,
        "claims": list(made.claims),
        "other_claims": made.others,
    }
    lines = []
    if missing := [one.entry.id for one in made.figures if one.missing is not None]:
        lines.append(f"Figures without runs (the report says which): {', '.join(missing)}.")
    if stale:
        lines.append(f"Stale, as their code has changed since: {', '.join(stale)}.")
    if made.others.count:
        lines.append(f"{made.others.sentence}: {'; '.join(made.others.commands)}.")
    lines.append(f"Report: {made.path.resolve()}")
    return Output(facts, lambda: [claims_table(made.claims), *lines])


def claims_table(claims: Sequence[ClaimResult]) -> Table:
    """Return the claims that have runs as a table for a terminal, and the number of the others."""
    from rich.text import Text

    from analysis.core.report import format_interval, format_value

    colours = {"confirmed": "green", "inconclusive": "yellow", "contradicted": "red"}
    heads = ("fig.", "claim", "paper", "measured", "95 % interval", "n", "effect", "size")
    tested = [claim for claim in claims if claim.effect != "not run"]
    idle = len(claims) - len(tested)
    table = new_table(heads, caption=f"{idle} not run" if idle else "")
    for claim in tested:
        table.add_row(
            claim.figure,
            claim.statement,
            format_value(claim.paper_value, claim.unit),
            format_value(claim.measured, claim.unit),
            format_interval(claim.ci95, claim.unit),
            str(claim.n),
            Text(claim.effect, style=colours[claim.effect]),
            claim.size,
        )
    return table
