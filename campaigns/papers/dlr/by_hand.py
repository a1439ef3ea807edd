"""Open a notebook's cell: the engine's job, or a new job if the notebook is run by hand."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from campaigns.engine.campaign_file import ROOT
from campaigns.engine.estimate import timeout_s
from campaigns.engine.job import Job, read_job, utc_now, write_job
from campaigns.engine.provenance import Facts, provenance
from campaigns.engine.run_store import RunStore
from campaigns.grounds.testbed import open_ground
from campaigns.papers.dlr.cell import CellContext
from schemas.cells.dlr import DLR

BY_HAND = "by-hand"


def open_cell(
    parameters: Mapping[str, Any],
    *,
    testbed: str,
    run_folder: str = "",
    seed: int = 1,
    block: int = 0,
    time_scale: float = 1 / 6,
    ground: str = "local",
    artifacts: Path | str = "artifacts",
) -> CellContext:
    """Return the context of one cell.

    Args:
        parameters: the cell's parameters by name (see `schemas.cells.dlr`).
        testbed: name of a testbed that is up and deployed; on the ground sim, name or path of a
            spec.
        run_folder: the attempt's folder that the engine made. If it is empty, the notebook is run
            by hand, and a new folder is made below `artifacts`/by-hand.
        seed, block, time_scale: used only when run by hand; else the engine's values apply.
        ground: the ground when run by hand; ``sim`` needs no testbed.
        artifacts: folder of results when run by hand; relative paths start at Hotbed's folder.

    Raises:
        UserError: a parameter is wrong, or there is no such testbed.
    """
    typed = DLR.check(parameters, "notebook")
    if run_folder:
        folder = Path(run_folder)
        job = read_job(folder)
        if job is not None:
            spec, model = (None if name is None else Path(name) for name in (job.spec, job.model))
            opened = open_ground(job.ground, job.testbed, spec=spec, model=model)
            return CellContext(job, opened, folder)
    folder = Path(run_folder) if run_folder else _new_folder(ROOT / artifacts)
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    job = Job(
        kind="dlr",
        run_id=folder.parent.name,
        campaign=BY_HAND,
        attempt=1,
        block=block,
        order=0,
        seed=seed,
        ground=ground,
        parameters=typed.model_dump(mode="json"),
        time_scale=time_scale,
        testbed=testbed,
        notebook="",
        timeout_s=timeout_s(typed, time_scale),
        started_at=utc_now(),
        provenance=provenance(Facts(ground, {})),
    )
    context = CellContext(job, open_ground(ground, testbed), folder)
    write_job(folder, job)
    return context


def close_cell(context: CellContext) -> Path:
    """Give a by-hand run its final name, and return its folder. The engine renames its own runs."""
    if context.job.campaign != BY_HAND or not context.folder.name.startswith("."):
        return context.folder
    return RunStore(context.folder.parents[1]).commit(context.folder)


def _new_folder(artifacts: Path) -> Path:
    _, folder = RunStore(artifacts.resolve() / BY_HAND).begin(secrets.token_hex(6))
    return folder
