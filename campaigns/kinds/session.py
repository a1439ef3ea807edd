"""What `hotbed run` does for a campaign of another kind: from its file to run folders, or to a dry
run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from campaigns.attempts import AttemptRecords, InProcess, OneAtATime, Setting
from campaigns.awake import kept_awake
from campaigns.campaign_file import Request, asked, resolve
from campaigns.carry_out import LEDGER_FILE, OnWorkers, make_cells
from campaigns.dry_run import DryRunReport, report_of
from campaigns.engine import pending
from campaigns.estimate import Estimator
from campaigns.fingerprint import Identity
from campaigns.kinds.kind import Computed, Kind, OnTestbed, Prepared
from campaigns.kinds.parameters import KindParameters, check
from campaigns.kinds.registry import kind_of
from campaigns.ledger import Ledger
from campaigns.lock import Lock
from campaigns.memory import available_mib
from campaigns.plan import Cell, make_plan, raw_cells
from campaigns.progress import Progress, suitable
from campaigns.provenance import provenance
from campaigns.result import CampaignResult
from campaigns.run_store import RunStore
from campaigns.sameness import library_versions
from campaigns.services import Facts
from campaigns.validate import select
from campaigns.workers import Workers, one_testbed
from schemas.campaign import Campaign
from schemas.errors import UserError
from testbed import closure
from testbed.sites import code_of, open_site
from testbed.spec import load_spec


def prepare(request: Request) -> Prepared:
    """Validate every cell and lay out the plan. Nothing is started or written.

    Raises:
        UserError: one sentence on the first thing that is wrong.
    """
    file, campaign = asked(request.campaign)
    _, ground = declared(campaign)
    _refuse_what_is_not_ours(request, campaign)
    cells = typed_cells(campaign, file)
    chosen = cells if request.figure is None else select(campaign, cells, request.figure, file)
    spec_file = resolve(campaign.spec, file) if isinstance(ground, OnTestbed) else None
    spec = None if spec_file is None else load_spec(spec_file)
    site = ground.site if isinstance(ground, Computed) else ""
    identity = Identity(
        spec_digest="" if spec is None else spec.digest(),
        ground=campaign.ground,
        site=site if spec is None else spec.site.kind,
        time_scale=campaign.time_scale,
        code=closure.first((*ground.code, *(() if spec is None else code_of(spec.site.kind)))),
        libraries=library_versions(ground.libraries if isinstance(ground, Computed) else ()),
    )
    whole, plan = (
        make_plan(
            campaign,
            wanted,
            identity,
            lambda parameters: closure.first(ground.own(parameters)),
            ground.planned_s,
        )
        for wanted in (cells, chosen)
    )
    store = RunStore(request.artifacts.resolve() / campaign.name)
    testbed = request.testbed or (site if spec is None else spec.name)
    return Prepared(campaign, file, plan, whole, store, testbed, spec_file)


def declared(campaign: Campaign) -> tuple[Kind[Any], Computed[Any] | OnTestbed[Any]]:
    """What the campaign's kind says of itself, and of the campaign's ground."""
    kind = kind_of(campaign)
    assert kind is not None, campaign
    return kind, kind.grounds[campaign.ground]


def typed_cells(campaign: Campaign, file: Path) -> dict[str, list[Any]]:
    """Typed cells by grid name, of all grids: a file is right or it is not.

    Raises:
        UserError: file, grid, key, what is allowed.
    """
    kind, _ = declared(campaign)
    found = {}
    for grid in campaign.grids:
        where = f"{file}: grid {grid.name}"
        model = kind.parameters_on(campaign.ground)
        typed = [check(model, raw, where) for raw in raw_cells(campaign, grid)]
        if not typed:
            raise UserError(f"{where}: exclude leaves no cell.")
        found[grid.name] = typed
    return found


def dry_run(request: Request, *, workers: Workers | None = None) -> DryRunReport:
    """The cells that would run, the time they would take and what is done. Writes nothing."""
    prepared = prepare(request)
    kind, ground = declared(prepared.campaign)
    who = _workers(prepared, workers)
    cells = pending(prepared.plan, prepared.store)
    refuse_too_large(cells, who)
    _refuse_what_cannot_be(prepared, cells, who)
    beside_s = ground.beside_s(cells, prepared.store) if isinstance(ground, OnTestbed) else 0.0
    return report_of(
        prepared,
        cells,
        Estimator(prepared.campaign.time_scale),
        width=max(1, who.processes),
        beside_s=beside_s,
        resolves=kind.resolves,
        notes=_notes(prepared, cells, who),
    )


def run(
    request: Request, *, progress: Progress | None = None, workers: Workers | None = None
) -> CampaignResult:
    """Run or resume a campaign.

    Args:
        request: what is asked for.
        progress: who is told of it.
        workers: who computes; a process for each of this machine's processors unless said
            otherwise, or a single one where a cell's seconds are part of its result.

    Raises:
        UserError: something is wrong with the file, the memory, the disk, the workers or the
            testbed; or another engine works on this campaign.
        HotbedError: cells cannot be computed here.
    """
    prepared = prepare(request)
    _, ground = declared(prepared.campaign)
    who = _workers(prepared, workers)
    refuse_too_large(prepared.plan.cells, who)
    _refuse_what_cannot_be(prepared, pending(prepared.plan, prepared.store), who)
    if isinstance(ground, Computed):
        ground.recipe.same.ready()
    store, shown = prepared.store, progress or suitable()
    store.prepare()
    with ExitStack() as stack:
        what = f"the campaign {prepared.campaign.name}"
        stack.enter_context(Lock(store.folder / ".lock", what, say=shown.message))
        if isinstance(ground, Computed):
            return _compute(prepared, ground, shown, who)
        assert prepared.spec_file is not None
        site = open_site(load_spec(prepared.spec_file).site.kind)
        awake = stack.enter_context(kept_awake(site, shown.message))
        facts, make = stack.enter_context(ground.open(prepared, shown))
        setting = Setting(
            prepared.testbed, prepared.file, provenance(facts, awake), prepared.spec_file
        )
        attempts = _attempts(prepared, setting)
        return make_cells(prepared, attempts, OneAtATime(attempts, InProcess(make)), shown)


def _compute(
    prepared: Prepared, ground: Computed[Any], shown: Progress, workers: Workers
) -> CampaignResult:
    facts = Facts(ground.site, ground.recipe.same.versions(), calibration=ground.calibration)
    setting = Setting(prepared.testbed, prepared.file, provenance(facts))
    attempts = _attempts(prepared, setting)
    return make_cells(prepared, attempts, OnWorkers(workers, ground.recipe), shown)


def _attempts(prepared: Prepared, setting: Setting) -> AttemptRecords:
    ledger = Ledger(prepared.store.folder / LEDGER_FILE)
    return AttemptRecords(prepared.plan, prepared.store, ledger, setting)


def refuse_too_large(cells: Iterable[Cell], workers: Workers) -> None:
    """Refuse cells that this machine's memory does not hold, as many beside each other as there
    will be. (What a cluster's machines hold is not known here.)

    Raises:
        UserError: names the largest, what it needs and what there is.
    """
    largest = max(_typed(cells), key=memory_of, default=None)
    if largest is None or not workers.processes or not memory_of(largest):
        return
    need, available = memory_of(largest), available_mib()
    if available is not None and need * workers.processes > available:
        fewer = ", fewer --workers" if workers.processes > 1 else ""
        raise UserError(
            f"{largest.label()} needs about {need / 1024:.1f} GiB in each of "
            f"{workers.processes} processes, and {available / 1024:.1f} GiB are free here: choose "
            f"smaller sizes{fewer} or a single figure, or give --scheduler a cluster with more "
            "memory."
        )


def _refuse_what_cannot_be(prepared: Prepared, cells: Sequence[Cell], workers: Workers) -> None:
    """Refuse cells whose files cannot be used. (A cluster's machines have their own.)

    Raises:
        UserError: one sentence on the first.
    """
    kind, _ = declared(prepared.campaign)
    if workers.processes:
        kind.require(cells, prepared.campaign)


def memory_of(parameters: KindParameters) -> float:
    """MiB that a cell needs at most, about; 0 for hardly any."""
    return parameters.memory_mib or 0.0


def _typed(cells: Iterable[Cell]) -> list[Any]:
    return [cell.parameters for cell in cells if isinstance(cell.parameters, KindParameters)]


def _workers(prepared: Prepared, asked_for: Workers | None) -> Workers:
    """Who makes the cells.

    Raises:
        UserError: workers were asked for and there is one testbed.
    """
    _, ground = declared(prepared.campaign)
    if isinstance(ground, Computed):
        return asked_for or Workers(count=1 if ground.seconds_count else None)
    if asked_for is not None:
        raise one_testbed(prepared.campaign)
    return Workers(count=1)


def _notes(prepared: Prepared, cells: Sequence[Cell], workers: Workers) -> tuple[str, ...]:
    kind, ground = declared(prepared.campaign)
    if not cells:
        return ()
    notes = list(kind.notes(_typed(cells), prepared.campaign))
    if workers.scheduler is not None:
        notes.append(f"the time is that of one worker; {workers.scheduler} may have many")
    elif isinstance(ground, Computed) and ground.seconds_count and workers.processes > 1:
        notes.append("cells beside each other slow each other down: seconds are not those of one")
    return tuple(notes)


def _refuse_what_is_not_ours(request: Request, campaign: Campaign) -> None:
    kind, ground = declared(campaign)
    computed = isinstance(ground, Computed)
    given = {
        "--ground": request.ground if request.ground != campaign.ground else None,
        "--testbed": request.testbed if computed else None,
        "--controllers-dir": request.controllers_dir,
        "--model": request.model,
        "--extend-lease": request.extend_lease,
    }
    where = "on no testbed" if computed else f"on the ground {campaign.ground}"
    for option, value in given.items():
        if value is not None:
            raise UserError(f"{campaign.name} {kind.does}, {where}: leave out {option}.")
