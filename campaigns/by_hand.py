"""Make one run in a notebook: the engine's, or a new one if the notebook is executed by hand."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from campaigns.engine.job import Job, read_job, utc_now, write_job, write_run
from campaigns.engine.store import RESULTS
from campaigns.grounds.testbed import open_ground
from campaigns.papers.dlr.cell import CellContext, run_cell
from schemas.campaign import Kind
from schemas.cells import cells_of
from schemas.errors import UserError, not_allowed

if TYPE_CHECKING:
    from campaigns.engine.kind import Computed, Ground, OnStore

BY_HAND = "by-hand"


def make_run(
    cell: Mapping[str, Any] | str,
    *,
    kind: Kind = "dlr",
    ground: str = "local",
    testbed: str = "dlr",
    time_scale: float = 1 / 6,
    seed: int = 1,
    block: int = 0,
    run_folder: str = "",
    artifacts: Path | str = "artifacts",
) -> Path:
    """Make one run and return its folder.

    Args:
        cell: the cell's parameters by name (`schemas.cells`); missing ones have their defaults. A
            text is JSON, as ``papermill -p cell`` passes it.
        kind: the kind of the cell.
        ground: a ground of the kind on which one cell can run: ``sim``, or for ``dlr`` the site of
            a testbed that is up and deployed.
        testbed: the testbed's name; on the ground sim of ``dlr``, name or path of a spec.
        time_scale, seed, block: stored with the run.
        run_folder: the attempt's folder if the engine executes the notebook; the engine's job in it
            then replaces the other arguments. If empty, a new folder is made below
            `artifacts`/by-hand.
        artifacts: folder of results when run by hand; relative paths start at Hotbed's folder.

    Raises:
        UserError: a parameter is wrong, or there is no such ground or testbed.
    """
    job = read_job(Path(run_folder)) if run_folder else None
    if job is not None:
        spec, model = (None if name is None else Path(name) for name in (job.spec, job.model))
        opened = open_ground(job.ground, job.testbed, spec=spec, model=model)
        run_cell(CellContext(job, opened, Path(run_folder)))
        return Path(run_folder)
    # Each of the engine's cells has a new kernel, which needs none of these.
    from campaigns.engine.attempts import with_faults
    from campaigns.engine.estimate import timeout_s
    from campaigns.engine.kind import Computed, OnStore
    from campaigns.engine.provenance import Facts, provenance
    from campaigns.engine.store import RunStore

    if run_folder:
        raise UserError("has no job.json", where=run_folder, do="leave run_folder empty by hand")
    chosen = _ground(kind, ground)
    typed = cells_of(kind, ground).check(_named(cell), "cell")
    if isinstance(chosen, OnStore):
        store, facts = open_ground(ground, testbed), Facts(ground, {})
        limit_s = timeout_s(chosen.planned_s(typed, time_scale))
    else:
        store, testbed = None, chosen.site
        versions = chosen.recipe.same.versions()
        facts = Facts(chosen.site, versions, calibration=chosen.calibration)
        limit_s = timeout_s(chosen.planned_s(typed))
    runs = RunStore((RESULTS / artifacts).resolve() / BY_HAND)
    _, folder = runs.begin(secrets.token_hex(6))
    job = Job(
        kind=kind,
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
        timeout_s=limit_s,
        started_at=utc_now(),
        provenance=provenance(facts),
    )
    write_job(folder, job)
    if isinstance(chosen, Computed):
        chosen.recipe.make(job, folder)
    elif store is not None:
        run = run_cell(CellContext(job, store, folder))
        lock = store.lock_path()
        if lock is not None:
            write_run(folder, with_faults(run, lock.parent))
    return runs.commit(folder)


def _named(cell: Mapping[str, Any] | str) -> Mapping[str, Any]:
    with suppress(ValueError):
        cell = json.loads(cell) if isinstance(cell, str) else cell
    if not isinstance(cell, Mapping):
        raise not_allowed("cell", cell, 'parameters by name, such as {"op": "rand"}')
    return cell


def _ground(kind: Kind, name: str) -> OnStore | Computed[Any]:
    """Return the ground `name` of a kind, if one cell can run on it by hand."""
    from campaigns.engine.kind import Computed, OnStore
    from campaigns.papers.registry import kind_named

    if kind not in get_args(Kind):
        raise not_allowed("kind", kind, ", ".join(get_args(Kind)))
    grounds: Mapping[str, Ground[Any]] = kind_named(kind).grounds
    known = [key for key, one in grounds.items() if isinstance(one, (OnStore, Computed))]
    found = grounds.get(name)
    if isinstance(found, (OnStore, Computed)):
        return found
    if known:
        raise UserError(f"ground {name!r}: a cell of {kind} runs by hand on {', '.join(known)}")
    raise UserError(f"a cell of {kind} runs only in a campaign", do="give it to `hotbed run`")
