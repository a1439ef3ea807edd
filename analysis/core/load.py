"""Finished runs from their folders as one tidy table.

Only `run.json` and `summary.json` are read for the table, so that thousands of runs load within
seconds. Samples and journals are read when a figure needs them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import ValidationError

from schemas.cells.dlr import DLR
from schemas.errors import HotbedError, UserError
from schemas.run import Run, Summary

Floats = npt.NDArray[np.float64]
Kept = TypeVar("Kept")

SIM = "sim"
"""The ground on which everything is simulated."""


class NotKept(HotbedError):
    """A reference lacks data that a figure or a claim needs."""


@dataclass(frozen=True)
class LoadedRun:
    """One finished run. Figures and claims get data from its folder by `reduced` and `report` only,
    so that a reference keeps exactly these data (`analysis.reference`).

    Attributes:
        folder: the run's folder; None for a run of a reference.
        kept: results of `reduced` by name.
    """

    run: Run
    summary: Summary
    folder: Path | None
    kept: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def file(self, name: str) -> Path:
        """Return the path of a file of the run; raise NotKept for a run of a reference."""
        if self.folder is None:
            raise NotKept(f"run {self.run.run_id}: {name} is not in the reference; add it again")
        return self.folder / name

    def reduced(self, name: str, compute: Callable[[LoadedRun], Kept]) -> Kept:
        """Return `compute` of this run, computed once. The result has JSON types only and is small:
        a histogram or means instead of samples. `name` is unique among the run's results."""
        if name not in self.kept:
            self.kept[name] = compute(self)
        found: Kept = self.kept[name]
        return found

    def report(self, file: str) -> Mapping[str, Any]:
        """Return a run's report, which extends its summary; each used field is in `kept`."""
        return _ReportFields(self, file)

    def samples(self) -> pd.DataFrame:
        """Return samples.parquet: t_s, node, metric, value."""
        return pd.read_parquet(self.file("samples.parquet"))

    def series(self, metric: str, node: str) -> tuple[Floats, Floats]:
        """Return times (s) and values of one metric of one node in samples.parquet, in its order,
        shape (samples,) each: much quicker than filtering `samples`."""
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        table = pq.ParquetFile(self.file("samples.parquet")).read()
        mine = pc.and_(pc.equal(table["metric"], metric), pc.equal(table["node"], node))
        table = table.filter(mine)
        t_s, values = (table[name].to_numpy().astype(float) for name in ("t_s", "value"))
        return t_s, values

    def journal(self) -> list[dict[str, Any]]:
        """Return the controller's journal lines, header first; empty without a controller.

        A torn last line (a controller killed while writing) is left out.
        """
        path = self.file("journal.jsonl")
        if not path.exists():
            return []
        lines = []
        for line in path.read_text().splitlines():
            try:
                lines.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return lines


class _ReportFields(Mapping[str, Any]):
    """Fields of a run's JSON file. A field that is null counts as absent."""

    def __init__(self, loaded: LoadedRun, file: str) -> None:
        self._loaded, self._file = loaded, file

    def __getitem__(self, name: str) -> Any:
        def read(loaded: LoadedRun) -> Any:
            return read_report(loaded.file(self._file)).get(name)

        found = self._loaded.reduced(f"{self._file}: {name}", read)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(read_report(self._loaded.file(self._file)))

    def __len__(self) -> int:
        return len(read_report(self._loaded.file(self._file)))


@lru_cache(maxsize=1024)
def read_report(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. A finished run's folder never changes."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@dataclass(frozen=True)
class Attempts:
    """Contents of a campaign's folders: usable runs, and attempts that support nothing."""

    runs: tuple[LoadedRun, ...]
    spoiled: int
    failed: int
    interrupted: int
    unreadable: tuple[str, ...]
    outdated: int = 0  # done, but the campaign no longer holds the cell in this form


def run_folders(campaign: Path) -> Iterator[Path]:
    """Yield every attempt folder of a campaign, by run and attempt."""
    yield from sorted(path.parent for path in campaign.glob("*/attempt-*/run.json"))


def planned_runs(campaign: Path) -> frozenset[str] | None:
    """Return run ids of the campaign's cells as last planned; None if no plan is kept."""
    try:
        plan = json.loads((campaign / "campaign.json").read_bytes())
        return frozenset(str(cell["run_id"]) for cell in plan["cells"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def claims_of(campaign: Path) -> tuple[str, ...]:
    """Return the ids of claims, or prefixes of ids that end with ``*``, that a campaign was made
    for; none if its file lists none."""
    return tuple(_stated(campaign).get("claims") or ())


def is_listed(claim: str, listed: Collection[str]) -> bool:
    """Return True if a list of ids and prefixes (see `claims_of`) has the claim."""
    return any(
        claim.startswith(one.removesuffix("*")) if one.endswith("*") else claim == one
        for one in listed
    )


def repeats_cells(campaign: Path) -> bool:
    """Return True if blocks of a campaign hold a cell several times, to measure its variation."""
    return any(grid.get("repeats", 1) > 1 for grid in _stated(campaign).get("grids") or ())


def _stated(campaign: Path) -> dict[str, Any]:
    """Return a campaign's file as it was last planned; nothing if no file is kept."""
    try:
        return dict(json.loads((campaign / "campaign.json").read_bytes())["campaign"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def ground_of(campaign: Path) -> str | None:
    """Return the ground of a campaign's runs (a campaign folder has one), or None if unknown."""
    if (ground := _stated(campaign).get("ground")) is not None:
        return str(ground)
    for record in campaign.glob("*/attempt-*/run.json"):
        try:
            return Run.model_validate_json(record.read_bytes()).ground
        except (OSError, ValidationError):
            continue
    return None


def paper_of(campaign: Path) -> str | None:
    """Return the paper that a campaign's file names; None if no file is kept."""
    named = _stated(campaign).get("paper")
    return None if named is None else str(named)


def load_campaign(campaign: Path, only: Collection[str] | None = None) -> Attempts:
    """Load `artifacts/<campaign>`; the last attempt that is done counts for each run id. A changed
    controller, workload or spec gives its cells new run ids. Runs with old ids stay in the folder,
    are counted as outdated and are not used. `only`: the run ids that count, by default those of
    the campaign as last planned. UserError: the folder does not exist."""
    if not campaign.is_dir():
        raise UserError("no such campaign", where=campaign, do="run it first with `hotbed run`")
    done: dict[str, LoadedRun] = {}
    counts = {"spoiled": 0, "failed": 0, "interrupted": 0}
    unreadable = []
    current = planned_runs(campaign) if only is None else frozenset(only)
    outdated = 0
    for folder in run_folders(campaign):
        try:
            run = Run.model_validate_json((folder / "run.json").read_bytes())
            if run.status != "done":
                counts[run.status] += 1
                continue
            if current is not None and run.run_id not in current:
                outdated += 1
                continue
            summary = Summary.model_validate_json((folder / "summary.json").read_bytes())
        except (OSError, ValidationError) as error:
            unreadable.append(f"{folder.parent.name}/{folder.name}: {type(error).__name__}")
            continue
        earlier = done.get(run.run_id)
        if earlier is None or earlier.run.attempt < run.attempt:
            done[run.run_id] = LoadedRun(run, summary, folder)
    runs = tuple(done.values())
    return Attempts(runs, unreadable=tuple(unreadable), outdated=outdated, **counts)


def last_attempt(campaign: Path, run_id: str) -> Run | None:
    """Return the record of the last attempt at a run, with any result; None if there is none."""
    found = None
    for path in sorted((campaign / run_id).glob("attempt-*/run.json"), key=_attempt):
        try:
            found = Run.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            continue
    return found


def _attempt(record: Path) -> int:
    return int(record.parent.name.removeprefix("attempt-"))


def _hot_share(run: Run) -> float | None:
    """Return the share of nodes disturbed at a time, or None if the scenario has no hot nodes."""
    share, count = run.parameters.get("hot_share"), run.parameters.get("hot_nodes")
    if run.parameters.get("scenario") not in ("heterogeneity", "interference"):
        return None
    if share is None and count and run.osd_count:
        return float(count) / run.osd_count
    return None if share is None else float(share)


ORIGIN = ("index", "run_id", "campaign", "block", "seed", "ground", "added", "looks")


def origin(index: int, run: Run) -> dict[str, Any]:
    """Return the columns `ORIGIN` of a table's row; ``index`` is into the runs, ``added`` is True
    in a block beyond the first stage of a grid that asked for precision, ``looks`` the number of
    declared looks at its share."""
    return {
        "index": index,
        "run_id": run.run_id,
        "campaign": run.campaign,
        "block": run.block,
        "seed": run.seed,
        "ground": run.ground,
        "looks": 1 if run.stopping is None else run.stopping.looks,
        "added": run.stopping is not None and run.block >= run.stopping.first_stage,
    }


def last_runs(
    rows: Sequence[Mapping[str, Any]],
    keys: Sequence[str],
    *,
    more: Sequence[str] = (),
    order: Sequence[str] = ("run_id",),
) -> pd.DataFrame:
    """Return rows of runs as a table. Of rows with equal `keys` and seed the last by `order` stays,
    which must not depend on folders. `more`: further columns of a table without rows."""
    if not rows:
        return pd.DataFrame(columns=[*ORIGIN, *more, *keys])
    found = pd.DataFrame(rows).sort_values(list(order), kind="stable")
    found = found.drop_duplicates([*keys, "seed"], keep="last")
    return found.sort_values("index").reset_index(drop=True)


def table(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """Return a table with one row per run.

    Columns: run_id, campaign, block, ground, time_scale, the cell parameters, ``variant`` (the
    controller's parameters as text), hot_share, throughput_mb_s, iops, latency_s, pressure_mean
    and pressure_sd (over nodes, percent), inert, signal_used, osds and ``index`` into `runs`.
    """
    rows = []
    for index, loaded in enumerate(runs):
        run, summary = loaded.run, loaded.summary
        parameters = run.parameters
        row: dict[str, Any] = {
            **{name: value for name, value in origin(index, run).items() if name != "seed"},
            "time_scale": run.time_scale,
            "osds": run.osd_count,
            "inert": bool(summary.inert),
            "signal_used": run.provenance.signal,
            "variant": json.dumps(parameters.get("controller_parameters") or {}, sort_keys=True),
        }
        row = {**DLR.row(parameters), **row, "hot_share": _hot_share(run)}
        del row["controller_parameters"]  # a mapping; `variant` is its text
        op = next((one for one in summary.whole if one.op == parameters.get("op")), None)
        row["throughput_mb_s"] = op.throughput_mb_s if op else None
        row["iops"] = op.iops if op else None
        row["latency_s"] = op.latency_mean_s if op else None
        pressures = pd.Series(summary.pressure_mean, dtype=float)
        row["pressure_mean"] = float(pressures.mean()) if len(pressures) else None
        row["pressure_sd"] = float(pressures.std(ddof=0)) if len(pressures) else None
        row |= {f"controller_{name}": value for name, value in summary.controller.items()}
        rows.append(row)
    columns = [name for name in ORIGIN if name != "seed"] + ["time_scale", "osds", "inert"]
    columns += ["signal_used", "variant", *(name for name in DLR.fields if name not in columns)]
    columns += ["throughput_mb_s", "iops", "latency_s"]
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=columns)
