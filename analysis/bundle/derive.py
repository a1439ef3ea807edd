"""Everything of a bundle that is computed from its runs, by the same code for who packs it and for
who checks it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from analysis import style
from schemas.claim import ClaimResult
from schemas.comparison import Comparison
from schemas.errors import UserError

Progress = Callable[[str, float], None]

DATA = "data"
"""The folder of what each figure shows, beside the figures."""


@dataclass(frozen=True)
class Figure:
    """A figure of the report: `name` is its file's without the ending, None where it could not be
    drawn (`missing` says why); `command` makes its runs."""

    id: str
    title: str
    name: str | None
    missing: str | None
    command: str | None


@dataclass(frozen=True)
class Derived:
    """Claims, figures and what they show. `folder` holds claims.json, figures/ and the rest;
    `commands` make the runs behind a claim, by the figure that it names."""

    title: str
    claims: tuple[ClaimResult, ...]
    figures: tuple[Figure, ...]
    shown: Mapping[str, Any]
    folder: Path
    runs: int
    commands: Mapping[str, str] = field(default_factory=dict)

    @property
    def tested(self) -> tuple[ClaimResult, ...]:
        """The claims that runs tell of."""
        return tuple(claim for claim in self.claims if claim.verdict != "not run")


def derive(
    artifacts: Path, report: str, *, comparison: bool, progress: Progress, pdf: bool = True
) -> Derived:
    """Make the report `report` of the runs in `artifacts`, and write what its figures show.

    Args:
        artifacts: the folder of campaigns.
        report: see `analysis.report.build`.
        comparison: whether it is one of `hotbed compare`.
        progress: told of each figure.
        pdf: whether figures are drawn as PDF too.

    Raises:
        UserError: there is no such report, or no run in it.
    """
    with style.recorded(pdf=pdf) as shown:
        if comparison:  # one figure, written before another process is there
            made = _compare(artifacts / report)
        else:
            with style.shared():
                made = _report(artifacts, report, progress)
    folder = made.folder / "figures" / DATA
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in shown.items():
        text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text + "\n")
    return replace(made, shown=shown)


def _report(artifacts: Path, name: str, progress: Progress) -> Derived:
    from analysis.papers import paper
    from analysis.report import build

    made = build(artifacts, name, progress=progress)
    short = made.paper
    chosen = paper(short)
    commands = chosen.commands(simulated=made.simulated)
    figures = tuple(
        Figure(
            id=drawn.entry.id,
            title=drawn.entry.title,
            name=None if drawn.path is None else drawn.path.stem,
            missing=drawn.missing,
            command=commands[drawn.entry.id],
        )
        for drawn in made.figures
    )
    folder = made.path.parent
    return Derived(chosen.title, made.claims, figures, {}, folder, made.runs, commands)


def _compare(folder: Path) -> Derived:
    from analysis.comparison.build import NAME, build

    try:
        comparison = Comparison.model_validate_json((folder / f"{NAME}.json").read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / NAME}.json: is no comparison that can be read.") from error
    made = build(folder, comparison)
    title = f"Comparison of {', '.join(comparison.controllers)}"
    figure = Figure(NAME, title, NAME, None, None)
    return Derived(title, made.claims, (figure,), {}, made.folder, made.runs)
