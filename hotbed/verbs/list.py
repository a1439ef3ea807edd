"""`hotbed list`: names to give to other commands, with what each stands for."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hotbed import completion
from hotbed.options import ControllersDirOption, argument, option
from hotbed.output import JsonFlag, emit, new_table
from hotbed.verbs import status

group = typer.Typer(no_args_is_help=True, help="List campaigns, figures, controllers and more.")

PaperArgument = Annotated[
    str | None,
    argument("Only this paper's, such as dlr.", autocompletion=completion.papers),
]


@group.command()
def campaigns(paper: PaperArgument = None, as_json: JsonFlag = False) -> None:
    """List the campaigns that `hotbed run` takes."""
    from campaigns.engine.campaign_file import FILES, load_campaign
    from campaigns.engine.plan import raw_cells
    from campaigns.validate import figures_of

    rows = []
    for name in sorted(completion.campaigns(f"{_known(paper)}-" if paper else "")):
        file = FILES / f"{name}.yaml"
        made = load_campaign(file)
        cells = (
            sum(1 for _ in raw_cells(made, grid)) * grid.repetitions * grid.repeats
            for grid in made.grids
        )
        facts = {"campaign": name, "ground": made.ground, "cells": sum(cells)}
        facts |= {"figures": figures_of(made), "about": _about(file), "spec": made.spec}
        rows.append(facts | {"file": str(file)})
    _emit(rows, as_json, "campaign ground cells figures about")


@group.command()
def papers(as_json: JsonFlag = False) -> None:
    """List the papers that `hotbed report` takes, with their figures and claims."""
    from analysis.core.papers import SHORT_NAMES
    from analysis.core.papers import paper as paper_of

    rows = []
    for made in map(paper_of, SHORT_NAMES):
        claims = sum(len(part.claims) for part in made.parts)
        facts = {"paper": made.short, "title": made.title, "figures": len(made.figures)}
        rows.append(facts | {"claims": claims})
    _emit(rows, as_json, "paper title figures claims")


@group.command()
def figures(paper: PaperArgument = None, as_json: JsonFlag = False) -> None:
    """List the figures, with the command that makes the runs of each."""
    from analysis.core.papers import SHORT_NAMES
    from analysis.core.papers import paper as paper_of

    rows = []
    for made in map(paper_of, SHORT_NAMES if paper is None else (paper,)):
        commands = made.commands(simulated=False)
        for entry in made.figures:
            facts = {"paper": made.short, "figure": entry.id, "title": entry.title}
            rows.append(facts | {"command": commands[entry.id], "caption": entry.caption})
    _emit(rows, as_json, "paper figure title command")


@group.command()
def controllers(controllers_dir: ControllersDirOption = None, as_json: JsonFlag = False) -> None:
    """List the controllers; `hotbed control list` also shows the values of parameters."""
    from controllers.registry import available

    found = available(() if controllers_dir is None else (controllers_dir,))
    rows = []
    for name, one in sorted(found.items()):
        about = ast.get_docstring(ast.parse((one.folder / "policy.py").read_bytes())) or ""
        first = " ".join(about.partition("\n\n")[0].split())
        rows.append({"controller": name, "about": first, "folder": str(one.folder)})
    _emit(rows, as_json, "controller about")


@group.command()
def specs(as_json: JsonFlag = False) -> None:
    """List the specs of testbeds that `hotbed up` takes."""
    from testbed.spec import SPECS, load_spec

    rows = []
    for file in sorted(SPECS.glob("*.yaml")):
        made = load_spec(file)
        nodes = sum(each.count for each in made.groups)
        facts = {"spec": file.stem, "site": made.site.kind, "nodes": nodes}
        store = "" if made.store is None else made.store.kind
        rows.append(facts | {"store": store, "file": str(file).removeprefix(f"{Path.cwd()}/")})
    _emit(rows, as_json, "spec site nodes store file")


@group.command()
def runs(
    artifacts: Annotated[Path, option("Folder of the runs.")] = Path("artifacts"),
    as_json: JsonFlag = False,
) -> None:
    """List the campaigns with runs: finished cells, the last run's end, and the report's path."""
    from campaigns.engine.store import RunStore
    from schemas.durable import read_json

    rows: list[dict[str, Any]] = []
    for file in sorted(artifacts.glob("*/campaign.json")):
        body, report = read_json(file), file.with_name("report.html")
        found = [run for run in RunStore(file.parent).runs() if run.status == "done"]
        planned = {cell["run_id"] for cell in body["cells"]}
        done = len(planned & {run.run_id for run in found})
        last = max((run.ended_at for run in found), default="")
        facts = {"campaign": file.parent.name, "ground": body["campaign"]["ground"]}
        facts |= {"done": done, "cells": len(planned), "last run": last}
        rows.append(facts | {"report": str(report) if report.exists() else ""})
    _emit(rows, as_json, "campaign ground done cells last+run report")


@group.command()
def testbeds(as_json: JsonFlag = False) -> None:
    """List the testbeds, as `hotbed status` does."""
    status.verb(None, as_json)


def _known(paper: str) -> str:
    """Return the name of a paper. UserError: there is no such paper."""
    from schemas.errors import unknown

    if paper not in completion.papers(""):
        raise unknown("paper", paper, completion.papers(""))
    return paper


def _about(file: Path) -> str:
    """Return the beginning of the comment that a campaign file begins with."""
    lines = itertools.takewhile(lambda line: line[:1] == "#", file.read_text().splitlines())
    own = (line for line in lines if "yaml-language-server:" not in line)
    text = " ".join(" ".join(own).replace("#", "").split())
    return re.split(r"[.:;?](?:\s|$)|\s\(", text)[0]


def _emit(rows: Sequence[Mapping[str, Any]], as_json: bool, columns: str) -> None:
    """Print rows; the table has the columns, the JSON all facts."""
    names = [each.replace("+", " ") for each in columns.split()]

    def table() -> object:
        if not rows:
            return "nothing yet; `hotbed run CAMPAIGN` makes runs"
        made = new_table(*names)
        for row in rows:
            cells = (row[name] for name in names)
            made.add_row(*(", ".join(one) if isinstance(one, list) else str(one) for one in cells))
        return made

    emit(list(rows), as_json, table)
