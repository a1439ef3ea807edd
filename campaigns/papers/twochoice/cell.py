"""Cell on a Dask worker, from its job to the files of its folder."""

from __future__ import annotations

import json
from pathlib import Path

from campaigns.engine.job import Job, Phases
from campaigns.engine.write_cell import write_cell
from campaigns.papers.twochoice.measure import curves, numbers
from campaigns.papers.twochoice.simulator import simulate
from schemas.cells.twochoice import BURSTS
from schemas.run import Run

BURSTS_FILE = "bursts.json"


def make(job: Job, folder: Path) -> Run:
    """Make the cell and write its folder."""
    parameters = BURSTS.check(job.parameters, f"run {job.run_id}")
    phases = Phases()
    with phases("simulate"):
        answer = simulate(parameters, job.seed, limit_s=job.timeout_s)
    (folder / BURSTS_FILE).write_text(json.dumps(curves(answer)) + "\n")
    cost = {f"cost_{name}": float(value) for name, value in answer["cost"].items()}
    return write_cell(folder, job, numbers(answer) | cost, phases)
