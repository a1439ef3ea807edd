"""`hotbed list`: names to give to other commands, with what each stands for."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from hotbed import completion
from hotbed.options import ControllersDirOption, argument, option
from hotbed.output import Output, Verbs, new_table
from hotbed.verbs import status
from schemas.errors import unknown

group = Verbs(help="List campaigns, figures, controllers and more.")

PaperArgument = Annotated[
    str | None, argument("Only this paper's, such as dlr.", autocompletion=completion.papers)
]


@group.command()
def campaigns(paper: PaperArgument = None) -> Output:
    """List the campaigns that `hotbed run` takes."""
    from campaigns.engine.campaign_file import FILES, campaign_names, load_campaign
    from campaigns.engine.plan import raw_cells
    from campaigns.validate import figures_of

    found = [
        name for name in campaign_names() if paper is None or f"{name}-".startswith(f"{paper}-")
    ]
    if not found:
        raise unknown("paper", str(paper), completion.papers(""))
    rows = []
    for file in (FILES / f"{name}.yaml" for name in found):
        made = load_campaign(file)
        blocks = [(grid.repetitions * grid.repeats, raw_cells(made, grid)) for grid in made.grids]
        count = sum(times * len(list(cells)) for times, cells in blocks)
        rows.append((made.name, made.ground, count, figures_of(made), _about(file), str(file)))
    return _output("campaign ground cells figures about", rows, "file")


@group.command()
def papers() -> Output:
    """List the papers that `hotbed report` takes, with their figures and claims."""
    from analysis.core.papers import SHORT_NAMES
    from analysis.core.papers import paper as paper_of

    rows = [
        (made.short, made.title, len(made.figures), sum(len(part.claims) for part in made.parts))
        for made in map(paper_of, SHORT_NAMES)
    ]
    return _output("paper title figures claims", rows)


@group.command()
def figures(paper: PaperArgument = None) -> Output:
    """List the figures, with the command that makes the runs of each."""
    from analysis.core.papers import SHORT_NAMES
    from analysis.core.papers import paper as paper_of

    rows = [
        (made.short, one.id, one.title, made.commands(simulated=False)[one.id], one.caption)
        for made in map(paper_of, SHORT_NAMES if paper is None else (paper,))
        for one in made.figures
    ]
    return _output("paper figure title command", rows, "caption")


@group.command()
def controllers(controllers_dir: ControllersDirOption = None) -> Output:
    """List the controllers; `hotbed control list` also shows the values of parameters."""
    from controllers.registry import available

    rows = []
    for name, one in sorted(available((controllers_dir,) if controllers_dir else ()).items()):
        about = ast.get_docstring(ast.parse((one.folder / "policy.py").read_bytes())) or ""
        rows.append((name, " ".join(about.partition("\n\n")[0].split()), str(one.folder)))
    return _output("controller about", rows, "folder")


@group.command()
def specs() -> Output:
    """List the specs of testbeds that `hotbed up` takes."""
    from testbed.spec import SPECS, load_spec

    rows = []
    for file in sorted(SPECS.glob("*.yaml")):
        made, shown = load_spec(file), str(file).removeprefix(f"{Path.cwd()}/")
        store = "" if made.store is None else made.store.kind
        rows.append((file.stem, made.site.kind, len(made.node_names()), store, shown))
    return _output("spec site nodes store file", rows)


@group.command()
def runs(
    artifacts: Path = option("Folder of the runs.", Path("artifacts")),
) -> Output:
    """List the campaigns with runs: finished cells, the last run's end, and the report's path."""
    from campaigns.engine.store import RunStore
    from schemas.durable import read_json

    rows = []
    for file in sorted(artifacts.glob("*/campaign.json")):
        body, report = read_json(file), file.with_name("report.html")
        ended = {
            run.run_id: run.ended_at for run in RunStore(file.parent).runs() if run.status == "done"
        }
        planned = {cell["run_id"] for cell in body["cells"]}
        progress = (len(planned & set(ended)), len(planned), max(ended.values(), default=""))
        path = str(report) if report.exists() else ""
        rows.append((file.parent.name, body["campaign"]["ground"], *progress, path))
    return _output("campaign ground done cells last_run report", rows)


@group.command()
def testbeds() -> Output:
    """List the testbeds, as `hotbed status` does."""
    return status.verb(None)


def _about(file: Path) -> str:
    """Return the beginning of the comment that a campaign file begins with."""
    lines = itertools.takewhile(lambda line: line[:1] == "#", file.read_text().splitlines())
    own = (line.strip("# ") for line in lines if "yaml-language-server:" not in line)
    return re.split(r"[.:;?](?:\s|$)|\s\(", " ".join(own))[0]


def _output(columns: str, rows: Iterable[tuple[object, ...]], more: str = "") -> Output:
    """Return rows as a table with the columns; programs also get the columns `more`."""
    names = f"{columns} {more}".split()
    facts = [dict(zip(names, row, strict=True)) for row in rows]

    def table() -> object:
        heads = columns.split()
        shown = ([row[name] for name in heads] for row in facts)
        cells = ((", ".join(one) if isinstance(one, list) else one for one in row) for row in shown)
        return new_table((name.replace("_", " ") for name in heads), cells)

    return Output(
        facts, table if facts else lambda: "nothing yet; `hotbed run CAMPAIGN` makes runs"
    )
