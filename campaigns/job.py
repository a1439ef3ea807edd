"""What the engine hands to a cell's process: a file `job.json` in the attempt's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import Field

from campaigns.run_store import utc_now
from schemas.campaign import Limits
from schemas.durable import write_file
from schemas.run import Model, Provenance, Run, RunStatus

JOB_FILE = "job.json"
ERROR_FILE = "error.json"


class Job(Model):
    """Everything that an attempt is, before it is made."""

    run_id: str
    campaign: str
    attempt: int
    block: int
    order: int
    seed: int
    ground: str
    parameters: dict[str, Any]
    time_scale: float
    testbed: str
    notebook: str
    spec: str | None = None  # the testbed's file, for a ground that is made of nothing else
    model: str | None = None  # constants of the ground sim, where not the default
    timeout_s: float
    started_at: str
    limits: Limits = Limits()
    controllers_dir: str | None = None
    figures: list[str] = Field(default_factory=list)
    osd_count: int | None = None
    provenance: Provenance

    def record(
        self, status: RunStatus, reason: str | None, phases_s: dict[str, float] | None = None
    ) -> Run:
        """A record for an attempt that could not write one itself."""
        return Run.model_validate(
            {
                **self.model_dump(
                    include={
                        "run_id",
                        "campaign",
                        "attempt",
                        "block",
                        "order",
                        "seed",
                        "ground",
                        "parameters",
                        "time_scale",
                        "started_at",
                        "osd_count",
                        "provenance",
                    }
                ),
                "status": status,
                "reason": reason,
                "ended_at": utc_now(),
                "phases_s": phases_s or {},
            }
        )


def write_job(folder: Path, job: Job) -> Path:
    """Write the job into the attempt's folder; returns the file."""
    path = folder / JOB_FILE
    write_file(path, job.model_dump_json(indent=2) + "\n")
    return path


def write_error(folder: Path, error: BaseException) -> None:
    """Write what a cell raised into its folder, where the engine looks for it."""
    body = {"kind": type(error).__name__, "message": str(error) or type(error).__name__}
    (folder / ERROR_FILE).write_text(json.dumps(body) + "\n")


def read_job(folder: Path) -> Job | None:
    """The job in `folder`; None when there is none, or none that is whole."""
    from pydantic import ValidationError

    try:
        return Job.model_validate_json((folder / JOB_FILE).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return None
