"""`hotbed scale`: controllers on large simulated stores, and where each stops helping."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hotbed import completion
from hotbed.exit_codes import code_of, stopped, unfinished
from hotbed.options import (
    ControllersDirOption,
    DryRunOption,
    SchedulerOption,
    WorkersOption,
    named,
    names,
    numbers,
    option,
    workers_of,
)
from hotbed.output import Output, new_table
from hotbed.verbs.report import claims_table
from hotbed.views import dry_run_output

if TYPE_CHECKING:
    from analysis.core.report import Report


def verb(
    *,
    osds: list[str] | None = option("Numbers of OSDs, such as 100,1000.", None),
    hot: list[str] | None = option("Shares of hot nodes, such as 0.01,0.1,0.5.", None),
    move: list[str] | None = option(
        "Seconds between moves of the hotspots, such as 5,60,600.", None
    ),
    controllers: list[str] | None = option(
        "Names, separated by commas; or all.", None, autocompletion=completion.controllers
    ),
    controllers_dir: ControllersDirOption = None,
    op: list[str] | None = option("rand (the default), seq, write.", None),
    blocks: int | None = option("Repetitions of every cell.", None),
    figure: str | None = option("Only the sweep of this figure: osds, hot or move.", None),
    quick: bool = named("--quick", "Run a small sweep of minutes: up to 128 OSDs.", False),
    workers: WorkersOption = None,
    scheduler: SchedulerOption = None,
    artifacts: Path = option("Folder for the runs.", Path("artifacts")),
    dry_run: DryRunOption = False,
) -> Output:
    """Sweep simulated stores: gain against OSDs, share of hot nodes, how often hotspots move.

    Without axes it is the campaign dlr-scale. The same command resumes; cells that are there
    are used. Exit 1 when a run is missing in the end.
    """
    from campaigns import scale as sweep
    from campaigns.engine import session

    request = sweep.request(
        sweep.ScaleRequest(
            osds=numbers("--osds", osds, int),
            hot=numbers("--hot", hot, float),
            move=numbers("--move", move, float),
            controllers=None if controllers is None else names(controllers),
            ops=None if op is None else names(op),
            blocks=blocks,
            figure=figure,
            quick=quick,
            artifacts=artifacts,
            controllers_dir=controllers_dir,
        )
    )
    helpers = workers_of(workers, scheduler)
    if dry_run:
        return dry_run_output(session.dry_run(request, workers=helpers, in_process=True))
    result = session.run(request, in_process=True, workers=helpers)
    if stopped(result) is not None or not (result.ran or result.already_done):
        return unfinished(result)
    from analysis.core.report import build

    made = build(artifacts, result.campaign)
    facts = {
        "ok": result.ok,
        "sentence": result.sentence,
        "report": made.path.resolve(),
        "figures": {f.entry.id: f.path for f in made.figures if f.path is not None},
        "tables": {table.id: table.as_json() for table in made.tables},
        "claims_json": made.claims_path.resolve(),
        "claims": list(made.claims),
    }
    lines = [result.sentence] if result.ok else []
    lines.append(f"Report: {facts['report']}")
    return Output(facts, lambda: [*_tables(made), *lines], code_of(result))


def _tables(made: Report) -> Iterator[object]:
    """Yield the report's tables and its claims, for a terminal."""
    for found in made.tables:
        yield new_table(found.heads, found.rows, title=found.title)
    yield claims_table(made.claims)
