"""What a bundle's campaigns held and how long that took, from the runs' own times."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from analysis.load import run_folders
from schemas.run import Run

KICK_S = 20 * 60
"""The longest part of a campaign, in seconds of a machine, that a first half hour has room for."""


@dataclass(frozen=True)
class Experiment:
    """A grid of a campaign. `machine_s` is the time of all attempts at its cells together, spoiled
    and failed ones included; cells that grids share count for each of them."""

    campaign: str
    grid: str
    figures: tuple[str, ...]
    cells: int
    finished: int
    attempts: int
    machine_s: float


@dataclass(frozen=True)
class Part:
    """What `--figure` chooses of a campaign: the cells that feed a figure, whatever their grids."""

    campaign: str
    figure: str
    cells: int
    attempts: int
    machine_s: float


@dataclass(frozen=True)
class Ran:
    """A campaign: its experiments and all its attempts; `parts` by their figures' names."""

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
    parts: tuple[Part, ...]

    def option(self, figure: str) -> str | None:
        """What `hotbed run --figure` finds the cells by that feed the figure which a claim names;
        None where it finds none. The report calls a figure of runs on machines ``7-local``, and a
        claim may be of a panel (``7a``) of what a campaign has as a whole (7)."""
        plain = figure.removesuffix("-local")
        for name in (figure, plain, plain.rstrip("abcd")):
            if any(name in (part.figure, part.figure.rstrip("abcd")) for part in self.parts):
                return name
        return None


def ran(campaign: Path) -> Ran:
    """What a campaign's folder tells. A folder without a plan has no experiments."""
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
) -> tuple[Part, ...]:
    feeding: dict[str, dict[str, None]] = {}
    for cell in cells:
        for figure in cell.get("figures", ()):
            feeding.setdefault(str(figure), {})[str(cell["run_id"])] = None
    return tuple(
        Part(
            campaign=campaign,
            figure=figure,
            cells=len(mine),
            attempts=sum(len(seconds.get(name, ())) for name in mine),
            machine_s=sum(sum(seconds.get(name, ())) for name in mine),
        )
        for figure, mine in feeding.items()
    )


def first_look(campaigns: Sequence[Ran], claimed: Collection[str] = ()) -> Part | None:
    """The figure whose cells can be run again soonest, within the first half hour. One that needs
    no testbed goes before; then one of which claims tell, without which nothing can be said of
    cells of machines.

    Args:
        campaigns: those of the bundle.
        claimed: figures that are named by claims with an interval.
    """
    found = [
        (one.ground != "sim", _without_claims(one, part, claimed), part.machine_s, part)
        for one in campaigns
        for part in one.parts
        if part.attempts and part.machine_s <= KICK_S
    ]
    return min(found, key=lambda entry: entry[:3])[3] if found else None


def _without_claims(ran: Ran, part: Part, claimed: Collection[str]) -> int:
    """0: a claim is of the figure; 1: of the whole that it is a panel of; 2: none is."""
    options = {ran.option(figure) for figure in claimed}
    if part.figure in options:
        return 0
    return 1 if part.figure.rstrip("abcd") in options else 2


def duration(seconds: float) -> str:
    """``42 s``, ``3 min``, ``2 h 10 min`` for people."""
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
