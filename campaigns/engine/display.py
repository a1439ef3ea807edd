"""Jupyter views of runs and campaigns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from campaigns.engine.campaign_file import ROOT
from campaigns.engine.run_store import RunStore, read_run
from schemas.cells import cells_of
from schemas.errors import UserError
from schemas.run import Run, Summary
from testbed.html import table
from testbed.spec.quantities import format_s


@dataclass(frozen=True)
class RunView:
    """View of a run with its summary."""

    run: Run
    summary: Summary | None
    folder: Path

    def _repr_html_(self) -> str:
        run = self.run
        rows = [
            ("run", f"{run.campaign} / {run.run_id} / attempt {run.attempt}"),
            ("cell", f"{_label(run)} (block {run.block}, seed {run.seed})"),
            ("ground", f"{run.ground}, site {run.provenance.site}"),
            ("status", run.status + (f": {run.reason}" if run.reason else "")),
            ("time scale", f"{run.time_scale:g}"),
            ("phases", ", ".join(f"{k} {format_s(v)}" for k, v in run.phases_s.items())),
            ("folder", str(self.folder)),
        ]
        rows += [(op, text) for op, text in _operations(self.summary)]
        return table((), rows, status=run.status)


@dataclass(frozen=True)
class CampaignView:
    """View of all attempts of a campaign."""

    name: str
    runs: tuple[Run, ...]

    def _repr_html_(self) -> str:
        rows = [
            (
                run.run_id,
                str(run.attempt),
                str(run.block),
                _label(run),
                run.status,
                run.reason or "",
            )
            for run in self.runs
        ]
        columns = ("run", "attempt", "block", "cell", "status", "why")
        return table(columns, rows, title=self.name, note=f": {_counts(self.runs)}")


def _label(run: Run) -> str:
    """Return the cell's label; if its parameters are no longer allowed, return them as text."""
    with contextlib.suppress(UserError):
        return str(cells_of(run.kind, run.ground).check(run.parameters, "run").label())
    return ", ".join(f"{name}={value}" for name, value in run.parameters.items())


def show_run(folder: Path | str) -> RunView:
    """Return a view of the run in `folder` (``.../attempt-N``).

    Raises:
        UserError: the folder has no run.
    """
    path = Path(folder)
    run = read_run(path)
    if run is None:
        raise UserError(f"{path}: holds no run.json of a run; give an attempt's folder.")
    file = path / "summary.json"
    summary = Summary.model_validate_json(file.read_bytes()) if file.is_file() else None
    return RunView(run, summary, path)


def show_campaign(name: str, artifacts: Path | str = "artifacts") -> CampaignView:
    """Return a view of all attempts of the campaign `name` below `artifacts`. A relative path
    starts at Hotbed's folder.

    Raises:
        UserError: the campaign has no attempts.
    """
    folder = ROOT / artifacts / name
    runs = tuple(sorted(RunStore(folder).runs(), key=lambda run: run.started_at))
    if not runs:
        raise UserError(f"{folder}: holds no runs yet; start with: hotbed run {name}")
    return CampaignView(name, runs)


def _operations(summary: Summary | None) -> Iterable[tuple[str, str]]:
    for operation in summary.whole if summary is not None else ():
        parts = []
        if operation.throughput_mb_s is not None:
            parts.append(f"{operation.throughput_mb_s:.1f} MB/s")
        if operation.latency_mean_s is not None:
            parts.append(f"mean latency {operation.latency_mean_s:.3f} s")
        if operation.latency_max_s is not None:
            parts.append(f"max {operation.latency_max_s:.3f} s")
        yield operation.op, ", ".join(parts)


def _counts(runs: Sequence[Run]) -> str:
    counts: dict[str, int] = {}
    for run in runs:
        counts[run.status] = counts.get(run.status, 0) + 1
    return ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
