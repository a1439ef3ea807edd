"""Files of a cell of a kind without a Ceph testbed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from campaigns.engine.job import RUN_FILE, Job, Phases, ended
from schemas.run import Run, Summary


def write_cell(
    folder: Path,
    job: Job,
    values: Mapping[str, float],
    phases: Phases,
    *,
    spoiled: str | None = None,
    hosts: Mapping[str, Mapping[str, Any]] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Run:
    """Write a cell's results into its folder: `summary.json` and, last, `run.json`.

    Args:
        folder: the attempt's folder.
        job: the attempt's job.
        values: numbers of the summary, by name.
        phases: seconds of each phase.
        spoiled: reason if the run does not count.
        hosts: the computing machines by name, if seconds are part of the result.
        settings: the nodes' settings, as read back (`Load.settings`).
    """
    summary = Summary(whole=[], steady=[], pressure_mean={}, extra=dict(values))
    (folder / "summary.json").write_text(summary.model_dump_json(indent=2) + "\n")
    if hosts is not None:
        named = {name: dict(facts) for name, facts in hosts.items()}
        told = job.provenance.model_copy(update={"hosts": named})
        job = job.model_copy(update={"provenance": told})
    record = ended(job.with_settings(settings or {}), folder, spoiled, phases)
    # The engine syncs the file to the disk when it commits the folder.
    (folder / RUN_FILE).write_text(record.model_dump_json(indent=2) + "\n")
    return record
