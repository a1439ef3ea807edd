"""`hotbed compare`: compare controllers, including your own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hotbed import completion
from hotbed.exit_codes import code_of, stopped, unfinished
from hotbed.options import (
    ControllersDirOption,
    DryRunOption,
    ModelOption,
    OtherTestbedOption,
    SchedulerOption,
    WorkersOption,
    name_values,
    names,
    option,
    workers_asked,
)
from hotbed.output import Output, new_table
from hotbed.views import dry_run_output

if TYPE_CHECKING:
    from analysis.comparison.build import Ranking


def verb(
    *,
    controllers: list[str] | None = option(
        "Names, separated by commas; by default all that can run.",
        None,
        autocompletion=completion.controllers,
    ),
    controllers_dir: ControllersDirOption = None,
    ground: str = option("sim (modelled, no testbed needed), local, or another.", "sim"),
    baseline: str = option("The baseline; it always runs.", "default"),
    scenario: list[str] | None = option(
        "heterogeneity (the default), interference, none, mix, spread.", None
    ),
    op: list[str] | None = option("seq, rand (both by default), write.", None),
    blocks: int | None = option("Repetitions; 6 on the ground sim, 3 elsewhere.", None),
    parameter: list[str] | None = typer.Option(
        None, "--parameter", "-p", help="Parameter of every cell, NAME=VALUE; may be repeated."
    ),
    time_scale: float = option("Multiplies all of the paper's times; 1 keeps them.", 1 / 6),
    seed: int = option("Seed for hot nodes, moves and the order of cells.", 1),
    spec: Path | None = option("Spec of the testbed; by default testbed/specs/dlr.yaml.", None),
    testbed: OtherTestbedOption = None,
    model: ModelOption = None,
    workers: WorkersOption = None,
    scheduler: SchedulerOption = None,
    artifacts: Path = option("Folder for the runs.", Path("artifacts")),
    out: Path | None = option(
        "Folder for figure, table and claims; by default next to the runs.", None
    ),
    dry_run: DryRunOption = False,
) -> Output:
    """Compare controllers: paired blocks, a ranking with intervals, figure, table, claims.

    The same command resumes; one more controller runs only what is new. Exit 1 when a run is
    missing in the end.
    """
    from campaigns import comparison

    ask = comparison.Ask(
        controllers=names(controllers or [comparison.ALL]),
        ground=ground,
        baseline=baseline,
        scenarios=names(scenario or ["heterogeneity"]),
        ops=names(op or ["seq", "rand"]),
        blocks=blocks,
        parameters=name_values(parameter or [], "hot_nodes=2"),
        time_scale=time_scale,
        seed=seed,
        spec=spec,
        testbed=testbed,
        artifacts=artifacts,
        controllers_dir=controllers_dir,
        model=model,
    )
    helpers = workers_asked(workers, scheduler)
    if dry_run:
        return dry_run_output(comparison.dry_run(ask, workers=helpers))
    made = comparison.compare(ask, workers=helpers)
    result = made.result
    if stopped(result) is not None:
        return unfinished(result)
    from analysis.comparison.build import build

    ranking = build(made.folder, made.comparison, out)
    facts = {
        "ok": result.ok,
        "sentence": result.sentence,
        "comparison": made.comparison.model_dump(mode="json", exclude={"cells"}),
        "ranking": ranking.rows,
        "claims": list(ranking.claims),
        "figure": ranking.figure.resolve(),
        "claims_json": ranking.claims_path.resolve(),
        "runs": made.folder,
    }
    lines = [f"Left out: {why}." for why in made.comparison.left_out.values()]
    lines += [result.sentence] if result.ok else []
    lines += [f"Figure: {facts['figure']}", f"Claims: {facts['claims_json']}"]
    return Output(facts, lambda: [ranking_table(ranking), *lines], code_of(result))


_COLOURS = {"better": "green", "worse": "red", "inconclusive": "yellow", "failed": "red"}


def ranking_table(ranking: Ranking) -> object:
    """Return the ranking for a terminal; columns with one value appear once, above."""
    from rich.text import Text

    from analysis.comparison.build import heads, texts

    named = heads(ranking.comparison.baseline)
    single = {
        column
        for column in ("scenario", "op")
        if len({getattr(panel, column) for panel in ranking.panels}) == 1
    }
    shown = [column for column in named if column not in single]
    panel = ranking.panels[0]
    about = ", ".join(getattr(panel, column) for column in ("scenario", "op") if column in single)
    table = new_table(
        (named[column] for column in shown),
        title=": ".join(filter(None, (about, ranking.sentence))),
    )
    for panel in ranking.panels:
        for standing in panel.standings:
            row = texts(panel, standing)
            colours = {"verdict": _COLOURS.get(standing.state, "")}
            table.add_row(*(Text(row[column], style=colours.get(column, "")) for column in shown))
        table.add_section()
    return table
