"""Results derived from a bundle's runs, with the same code for maker and reader: claims, figures
and the data behind them (`derive`), and the experiments with their times (`ran`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from analysis.core import style
from analysis.core.load import run_folders
from schemas.claim import ClaimResult
from schemas.comparison import Comparison
from schemas.errors import UserError
from schemas.run import Run

Progress = Callable[[str, float], None]

DATA = "data"
"""Folder of the data behind each figure."""


@dataclass(frozen=True)
class Figure:
    """A figure of the report. `name` is the file's name without its ending, or None if it could not
    be drawn (`missing` says why); `command` makes its runs."""

    id: str
    title: str
    name: str | None
    missing: str | None
    command: str | None


@dataclass(frozen=True)
class Derived:
    """Claims, figures and the data that they show. `folder` holds claims.json, figures/ and the
    rest; `commands` maps a claim's figure to the command that makes its runs."""

    title: str
    claims: tuple[ClaimResult, ...]
    figures: tuple[Figure, ...]
    shown: Mapping[str, Any]
    folder: Path
    runs: int
    commands: Mapping[str, str] = field(default_factory=dict)

    @property
    def tested(self) -> tuple[ClaimResult, ...]:
        """The claims with runs."""
        return tuple(claim for claim in self.claims if claim.verdict != "not run")


def derive(
    artifacts: Path, report: str, *, comparison: bool, progress: Progress, pdf: bool = True
) -> Derived:
    """Make the report `report` from the runs in `artifacts`, and write the data of its figures.

    Args:
        artifacts: the folder of campaigns.
        report: see `analysis.core.report.build`.
        comparison: True if the report is one of `hotbed compare`.
        progress: called with each figure.
        pdf: True to draw figures as PDF too.

    Raises:
        UserError: there is no such report, or no run in it.
    """
    with style.recorded(pdf=pdf) as shown:
        if comparison:  # one figure, written before another process could start
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
    from analysis.core.papers import paper
    from analysis.core.report import build

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


# ---- experiments ---------------------------------------------------------------------------------

KICK_S = 20 * 60
"""Maximum machine time, in seconds, that fits into a first half hour."""


@dataclass(frozen=True)
class Experiment:
    """A grid of a campaign. `machine_s` is the total time of all attempts at its cells, including
    spoiled and failed attempts. Cells in several grids count for each grid."""

    campaign: str
    grid: str
    figures: tuple[str, ...]
    cells: int
    finished: int
    attempts: int
    machine_s: float


@dataclass(frozen=True)
class FigureCells:
    """The cells that `--figure` selects: all cells of a figure, from any grid."""

    campaign: str
    figure: str
    cells: int
    attempts: int
    machine_s: float


@dataclass(frozen=True)
class Ran:
    """A campaign: its experiments and all its attempts; `parts` by the names of their figures."""

    campaign: str
    ground: str
    site: str
    spec: str
    experiments: tuple[Experiment, ...]
    attempts: int
    finished: int
    machine_s: float
    started_at: str
    ended_at: str
    commits: tuple[str, ...]
    parts: tuple[FigureCells, ...]

    def option(self, figure: str) -> str | None:
        """Return the argument of `hotbed run --figure` for the figure of a claim, or None. The
        report calls a figure of runs on machines ``7-local``. A claim may name a panel (``7a``) of
        a figure that a campaign has only as a whole (7)."""
        plain = figure.removesuffix("-local")
        for name in (figure, plain, plain.rstrip("abcd")):
            if any(name in (part.figure, part.figure.rstrip("abcd")) for part in self.parts):
                return name
        return None


def ran(campaign: Path) -> Ran:
    """Return the contents of a campaign. A folder without a plan has no experiments."""
    runs = _runs(campaign)
    body = _plan(campaign)
    file = body.get("campaign", {})
    seconds: dict[str, list[float]] = {}
    done = set()
    for run in runs:
        seconds.setdefault(run.run_id, []).append(_seconds(run))
        if run.status == "done":
            done.add(run.run_id)
    cells = [cell for cell in body.get("cells", []) if isinstance(cell, dict)]
    experiments = []
    for grid in file.get("grids", []):
        mine = [str(cell["run_id"]) for cell in cells if grid["name"] in cell["grids"]]
        if not mine:
            continue
        experiments.append(
            Experiment(
                campaign=campaign.name,
                grid=str(grid["name"]),
                figures=tuple(map(str, grid["figures"])),
                cells=len(mine),
                finished=len(done.intersection(mine)),
                attempts=sum(len(seconds.get(name, ())) for name in mine),
                machine_s=sum(sum(seconds.get(name, ())) for name in mine),
            )
        )
    return Ran(
        campaign=campaign.name,
        ground=", ".join(sorted({run.ground for run in runs})),
        site=", ".join(sorted({run.provenance.site for run in runs})),
        spec=str(file.get("spec") or ""),
        experiments=tuple(experiments),
        attempts=len(runs),
        finished=len(done),
        machine_s=sum(map(sum, seconds.values())),
        started_at=min((run.started_at for run in runs), default=""),
        ended_at=max((run.ended_at for run in runs), default=""),
        commits=tuple(sorted({_commit(run) for run in runs})),
        parts=_parts(campaign.name, cells, seconds),
    )


def _parts(
    campaign: str, cells: Sequence[dict[str, Any]], seconds: Mapping[str, Sequence[float]]
) -> tuple[FigureCells, ...]:
    feeding: dict[str, dict[str, None]] = {}
    for cell in cells:
        for figure in cell.get("figures", ()):
            feeding.setdefault(str(figure), {})[str(cell["run_id"])] = None
    return tuple(
        FigureCells(
            campaign=campaign,
            figure=figure,
            cells=len(mine),
            attempts=sum(len(seconds.get(name, ())) for name in mine),
            machine_s=sum(sum(seconds.get(name, ())) for name in mine),
        )
        for figure, mine in feeding.items()
    )


def first_look(campaigns: Sequence[Ran], claimed: Collection[str] = ()) -> FigureCells | None:
    """Return the figure with the quickest cells, among the figures within the first half hour.
    Simulated ones come first, then ones with claims, because measured cells are compared by claims.

    Args:
        campaigns: campaigns of the bundle.
        claimed: figures named by claims with an interval.
    """
    found = [
        (one.ground != "sim", _without_claims(one, part, claimed), part.machine_s, part)
        for one in campaigns
        for part in one.parts
        if part.attempts and part.machine_s <= KICK_S
    ]
    return min(found, key=lambda entry: entry[:3])[3] if found else None


def _without_claims(ran: Ran, part: FigureCells, claimed: Collection[str]) -> int:
    """Return 0 if a claim is about the figure, 1 if about its whole (for a panel), 2 otherwise."""
    options = {ran.option(figure) for figure in claimed}
    if part.figure in options:
        return 0
    return 1 if part.figure.rstrip("abcd") in options else 2


def duration(seconds: float) -> str:
    """Format a duration for people: ``42 s``, ``3 min``, ``2 h 10 min``."""
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    if whole < 5400:
        return f"{round(whole / 60)} min"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _runs(campaign: Path) -> list[Run]:
    found = []
    for folder in run_folders(campaign):
        try:
            found.append(Run.model_validate_json((folder / "run.json").read_bytes()))
        except (OSError, ValidationError):
            continue
    return found


def _plan(campaign: Path) -> dict[str, Any]:
    try:
        body = json.loads((campaign / "campaign.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}


def _seconds(run: Run) -> float:
    start, end = map(datetime.fromisoformat, (run.started_at, run.ended_at))
    return max(0.0, (end - start).total_seconds())


def _commit(run: Run) -> str:
    commit = (run.provenance.commit or "unknown")[:12]
    return f"{commit} with changes" if run.provenance.dirty else commit
