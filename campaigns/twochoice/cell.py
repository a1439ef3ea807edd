"""What runs on a Dask worker: one cell, from its job to the files of its folder."""

from __future__ import annotations

import json
import time
import zlib
from dataclasses import dataclass

from campaigns.cell import Phases
from campaigns.dask_cell import Made, WrongWorker
from campaigns.job import ERROR_FILE, Job
from campaigns.run_store import RUN_FILE, utc_now
from campaigns.twochoice.code import Code, difference, here
from campaigns.twochoice.measure import curves, numbers
from campaigns.twochoice.parameters import check
from campaigns.twochoice.simulator import simulate
from schemas.run import Summary

BURSTS_FILE = "bursts.json"


@dataclass(frozen=True)
class Task:
    """A cell to be made: the attempt's job as JSON, and what it must be computed with."""

    job: str
    code: Code


def run_task(task: Task) -> Made:
    """Make the cell; what it raised is in the file `error.json`.

    Raises:
        WrongWorker: this worker simulates with something else.
    """
    why = difference(task.code, here())
    if why is not None:
        raise WrongWorker(f"this worker {why}")
    started = time.monotonic()
    job = Job.model_validate_json(task.job).model_copy(update={"started_at": utc_now()})
    try:
        files = make(job)
    except Exception as error:
        body = {"kind": type(error).__name__, "message": str(error) or type(error).__name__}
        files = {ERROR_FILE: json.dumps(body) + "\n"}
    packed = {name: zlib.compress(text.encode(), 1) for name, text in files.items()}
    return Made(packed, time.monotonic() - started)


def make(job: Job) -> dict[str, str]:
    """The files of a cell's folder, as texts by name; `run.json` among them."""
    parameters = check(job.parameters, f"run {job.run_id}")
    phases = Phases()
    with phases("simulate"):
        answer = simulate(parameters, job.seed, limit_s=job.timeout_s)
    cost = {f"cost_{name}": float(value) for name, value in answer["cost"].items()}
    summary = Summary(whole=[], steady=[], pressure_mean={}, extra=numbers(answer) | cost)
    return {
        BURSTS_FILE: json.dumps(curves(answer)) + "\n",
        "summary.json": summary.model_dump_json(indent=2) + "\n",
        RUN_FILE: job.record("done", None, phases.seconds).model_dump_json(indent=2) + "\n",
    }
