"""Files of a cell's folder: `samples.parquet`, `latency.parquet`, `summary.json` and, last,
`run.json`. The engine syncs the tables to the disk when it commits the folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaigns.engine.job import Job, Phases, checked, write_run
from controllers.journal import controller_summary, decided, is_inert
from schemas.durable import write_file
from schemas.run import Run, RunStatus, Summary

if TYPE_CHECKING:
    import pandas as pd

SAMPLES = {"t_s": "float64", "node": "str", "metric": "str", "value": "float64"}
LATENCIES = {
    **{"t_s": "float64", "op": "str", "tenant": "str", "node": "str"},
    **{"low_ns": "int64", "high_ns": "int64", "count": "int64"},
}
SampleRow = tuple[float, str, str, float]
LatencyRow = tuple[float, str, str, str, int, int, int]


def write_cell(
    folder: Path,
    job: Job,
    found: Summary | Mapping[str, float],
    phases: Phases,
    *,
    spoiled: str | None = None,
    hosts: Mapping[str, Mapping[str, Any]] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Run:
    """Write a cell's results into its folder, and return the record: `summary.json` and, last,
    `run.json`; see `summarize`."""
    record = summarize(folder, job, found, phases, spoiled=spoiled, hosts=hosts, settings=settings)
    write_run(folder, record)
    return record


def summarize(
    folder: Path,
    job: Job,
    found: Summary | Mapping[str, float],
    phases: Phases,
    *,
    spoiled: str | None = None,
    hosts: Mapping[str, Mapping[str, Any]] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Run:
    """Write `summary.json`, and return the record for `run.json`: done, spoiled, or failed (see
    `checked`). `found`: the summary without a controller's numbers, or all numbers by name.
    `spoiled`: reason if the run does not count. `hosts`: the computing machines, if seconds are
    part of the result. `settings`: the nodes' settings, as read back
    (`campaigns.engine.judge.MachineLoad`)."""
    wrong, journal = checked(job, folder, phases)
    if not isinstance(found, Summary):
        found = Summary(whole=[], steady=[], pressure_mean={}, extra=dict(found))
    elif journal is not None:
        numbers = {"controller": controller_summary(journal), "inert": is_inert(journal)}
        found = found.model_copy(update=numbers | {"extra": found.extra | decided(journal)})
    write_file(folder / "summary.json", found.model_dump_json(indent=2) + "\n")
    if hosts is not None:
        named = {name: dict(facts) for name, facts in hosts.items()}
        computed = job.provenance.model_copy(update={"hosts": named})
        job = job.model_copy(update={"provenance": computed})
    status: RunStatus = "failed" if wrong else "spoiled" if spoiled else "done"
    return job.with_settings(settings or {}).record(status, wrong or spoiled, phases.seconds)


def write_samples(folder: Path, rows: Iterable[SampleRow]) -> pd.DataFrame:
    """Write and return `samples.parquet`: one row for each time, node and metric, in this order."""
    import pandas as pd

    ordered = sorted(rows, key=lambda row: row[:3])
    table = pd.DataFrame(ordered, columns=list(SAMPLES)).astype(SAMPLES)
    table.to_parquet(folder / "samples.parquet", index=False)
    return table


def write_latency(folder: Path, rows: Iterable[LatencyRow]) -> None:
    """Write `latency.parquet`: histograms of latencies, one row for each bucket."""
    import pandas as pd

    table = pd.DataFrame(rows, columns=list(LATENCIES)).astype(LATENCIES)
    table.to_parquet(folder / "latency.parquet", index=False)
