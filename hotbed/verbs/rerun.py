"""`hotbed rerun`: run a bundle's campaign again, and compare with the bundled results."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotbed.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_NOT_COMPARED, stopped
from hotbed.options import (
    DryRunOption,
    MostGibOption,
    OtherTestbedOption,
    SchedulerOption,
    WorkersOption,
    argument,
    named,
    option,
    workers_asked,
)
from hotbed.output import Output, new_table
from hotbed.progress import progress
from hotbed.views import dry_run_output
from schemas.shown import line

if TYPE_CHECKING:
    from analysis.bundle.rerun import RerunComparison


def verb(
    bundle: Annotated[Path, argument("An archive made by hotbed bundle.")],
    *,
    campaign: str | None = option("Campaign; needed if the bundle holds several.", None),
    figure: str | None = option("Only the cells that feed this figure, such as 6 or 8a.", None),
    spec: Path | None = option("Spec of the testbed; by default the bundle's.", None),
    site: str | None = option("Kind of site, such as local; by default the spec's.", None),
    testbed: OtherTestbedOption = None,
    ground: str | None = option("Ground, such as local; by default the bundle's.", None),
    artifacts: Path | None = option("Folder for the new runs; by default artifacts-BUNDLE.", None),
    trust_code: bool = named("--trust-code", "Run the bundle's own code; read it first.", False),
    dry_run: DryRunOption = False,
    workers: WorkersOption = None,
    scheduler: SchedulerOption = None,
    most_gib: MostGibOption = 16,
) -> Output:
    """Run a bundle's campaign again and compare; exit 1 where the results contradict it, 4
    where nothing could be compared."""
    from campaigns.bundled import RerunRequest
    from hotbed.bundling import listed, unpacked

    asked = RerunRequest(bundle, campaign, figure, spec, site, testbed, ground, artifacts, most_gib)
    helpers = workers_asked(workers, scheduler)
    with ExitStack() as stack:
        with progress(f"open {bundle.name}") as report:
            ready = stack.enter_context(unpacked(asked, report))
        if dry_run:
            planned = ready.dry_run(helpers)
            notes = (*planned.notes, *(f"not loaded: {one}" for one in listed(ready.code)))
            return dry_run_output(replace(planned, notes=notes), foreign_code=ready.code)
        trusted = trust_code or (bool(ready.code) and _agrees(ready.consent))
        made = ready.run(helpers, trust_code=trusted)
    facts = {
        "ok": made.ok,
        "sentence": made.compared.sentence,
        "run": made.result.sentence,
        "comparison": made.compared,
        "outcomes": {one.id: one.outcome for one in made.compared.claims},
    }
    code = stopped(made.result)
    if code is None:
        failed = not made.result.ok or made.compared.contradicted
        code = EXIT_FAILED if failed else EXIT_DONE if made.compared.held else EXIT_NOT_COMPARED
    return Output(facts, lambda: [_table(made.compared), *_lines(made.compared)], code)


def _agrees(consent: str) -> bool:
    """Show the consent text; return True if a person at the terminal agrees."""
    print(consent, file=sys.stderr)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return str(typer.prompt("Type yes to run it", err=True, default="no")).strip() == "yes"


def _table(made: RerunComparison) -> object:
    from rich.text import Text

    from analysis.core.report import format_change, format_value

    colours = {"differs": "red", "one run": "yellow", "not run": "dim"}
    heads = ("fig.", "claim", "bundled", "again", "change", "95 % interval", "")
    table = new_table((*heads, "effect then", "now"))
    for one in made.claims:
        if one.outcome == "not run":
            continue
        estimate = one.estimate
        unit = "ratio" if one.change == "ratio" else one.unit
        table.add_row(
            one.figure,
            one.statement,
            format_value(one.bundled.measured, one.unit),
            format_value(one.again.measured, one.unit),
            "–" if estimate is None else format_change(estimate.value, unit),
            "–"
            if estimate is None
            else f"{format_change(estimate.low, unit)} … {format_change(estimate.high, unit)}",
            Text(one.outcome, style=colours.get(one.outcome, "green")),
            one.bundled.effect,
            one.again.effect,
        )
    return table


def _lines(made: RerunComparison) -> Iterator[str]:
    if made.exact and made.identical < made.matched:
        for one in made.differing:
            yield line(f"{one.file} {one.where}: in the bundle {one.bundled}, here {one.derived}")
    yield made.sentence
