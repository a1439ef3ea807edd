"""What `hotbed run twochoice-quick` does: from the campaign's file to folders, or to a dry run."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from campaigns.carry_out import LEDGER_FILE, learn, make_cells
from campaigns.dask_cluster import Sameness, open_cluster
from campaigns.engine import CampaignResult, Engine
from campaigns.estimate import Estimator
from campaigns.executors import DryRun, Executor, ParallelExecutor
from campaigns.fingerprint import Identity
from campaigns.ledger import Ledger
from campaigns.lock import Lock
from campaigns.memory import available_mib
from campaigns.plan import Cell, Plan, make_plan, raw_cells
from campaigns.process_executor import ProcessExecutor, Setting
from campaigns.progress import Progress, Silent, suitable
from campaigns.provenance import provenance
from campaigns.run_store import RunStore
from campaigns.services import Facts
from campaigns.session import DryRunReport, Request, asked
from campaigns.twochoice.code import difference, here, result_digests, simulator_digest
from campaigns.twochoice.parameters import LEARNING, PROBING, BurstParameters, check
from campaigns.twochoice.simulator import built_from
from campaigns.validate import select
from campaigns.workers import Workers
from schemas.campaign import BurstCampaign, Campaign
from schemas.errors import UserError

SITE = "bursts"
"""Stands for the kind of site in a run's provenance."""

SIMULATIONS = Sameness(here, difference)

# Seconds of a cell on a 2-core machine, roughly; the cells that are done correct them.
FIXED_S = 0.15
WRITE_S = 0.3e-6
PROBED_S = 0.5e-6  # more, with a scheduler that asks for loads, and again with one that learns


@dataclass(frozen=True)
class Prepared:
    """A campaign of bursts, validated and planned; see `campaigns.carry_out.Laid`."""

    campaign: Campaign
    file: Path
    plan: Plan
    whole: Plan
    store: RunStore
    testbed: str = SITE


def prepare(request: Request) -> Prepared:
    """Validate every cell and lay out the plan. Nothing is started or written.

    Raises:
        UserError: one sentence on the first thing that is wrong.
    """
    file, campaign = asked(request.campaign)
    assert isinstance(campaign, BurstCampaign)
    _refuse_what_is_not_ours(request, campaign)
    cells = typed_cells(campaign, file)
    chosen = cells if request.figure is None else select(campaign, cells, request.figure, file)
    identity = Identity(
        spec_digest="",
        ground=campaign.ground,
        site=SITE,
        time_scale=campaign.time_scale,
        folders=result_digests(),
    )
    schedulers = {parameters.controller: "" for typed in cells.values() for parameters in typed}
    whole, plan = (
        make_plan(campaign, wanted, identity, schedulers, planned_s) for wanted in (cells, chosen)
    )
    store = RunStore(request.artifacts.resolve() / campaign.name)
    return Prepared(campaign, file, plan, whole, store)


def typed_cells(campaign: Campaign, file: Path) -> dict[str, list[BurstParameters]]:
    """Typed cells by grid name, of all grids: a file is right or it is not."""
    found: dict[str, list[BurstParameters]] = {}
    for grid in campaign.grids:
        where = f"{file}: grid {grid.name}"
        typed = [check(raw, where) for raw in raw_cells(campaign, grid)]
        if not typed:
            raise UserError(f"{where}: exclude leaves no cell.")
        found[grid.name] = typed
    return found


def dry_run(request: Request, *, workers: Workers | None = None) -> DryRunReport:
    """The cells that would run, the time they would take and what is done. Writes nothing."""
    prepared, workers = prepare(request), workers or Workers()
    executor = DryRun()
    Engine(prepared.plan, prepared.store, executor, Silent()).run()
    refuse_too_large(executor.cells, workers)
    estimator = Estimator(prepared.campaign.time_scale)
    learn(estimator, prepared.plan, prepared.store)
    return DryRunReport(
        campaign=prepared.campaign.name,
        testbed=prepared.testbed,
        time_scale=prepared.campaign.time_scale,
        cells=len(prepared.plan.cells),
        done=len(prepared.plan.cells) - len(executor.cells),
        pending=tuple(executor.cells),
        pending_s=estimator.left(executor.cells, max(1, workers.processes)),
        power={},
        notes=_notes(executor.cells, workers),
        planned_s={cell.run_id: estimator.left([cell]) for cell in executor.cells},
    )


def run(
    request: Request, *, progress: Progress | None = None, workers: Workers | None = None
) -> CampaignResult:
    """Run or resume a campaign of bursts.

    Args:
        request: what is asked for.
        progress: who is told of it.
        workers: who simulates; a process for each of this machine's processors unless said
            otherwise. Times are virtual: who it is changes no result.

    Raises:
        UserError: something is wrong with the file, the memory, the disk or the workers; or
            another engine works on this campaign.
        StoreError: the simulator was not built from the sources that there are.
    """
    prepared, workers = prepare(request), workers or Workers()
    plan, store = prepared.plan, prepared.store
    refuse_too_large(plan.cells, workers)
    built_from()
    shown = progress or suitable()
    store.prepare()
    with Lock(store.folder / ".lock", f"the campaign {prepared.campaign.name}", say=shown.message):
        versions = {"tcsim": simulator_digest()[:12]}
        setting = Setting(
            testbed=prepared.testbed,
            notebook=prepared.file,
            provenance=provenance(Facts(SITE, versions, calibration={"synthetic": True})),
        )
        ledger = Ledger(store.folder / LEDGER_FILE)
        processes = ProcessExecutor(plan, store, ledger, setting)

        def choose(stack: ExitStack, missing: bool) -> Executor | ParallelExecutor:
            if not missing:
                return processes
            from campaigns.twochoice.executor import BurstExecutor

            client = stack.enter_context(open_cluster(workers, SIMULATIONS))
            return BurstExecutor(plan, store, ledger, setting, client)

        return make_cells(prepared, processes, ledger, shown, choose)


def planned_s(parameters: BurstParameters) -> float:
    """Seconds that a cell takes, roughly."""
    writes = parameters.processes * (parameters.rounds + parameters.learn_rounds)
    known = (parameters.scheduler in PROBING) + (parameters.scheduler in LEARNING)
    return FIXED_S + writes * (WRITE_S + known * PROBED_S)


def refuse_too_large(cells: Iterable[Cell], workers: Workers) -> None:
    """Refuse cells that this machine's memory does not hold, as many beside each other as there
    will be. (What a cluster's machines hold is not known here.)

    Raises:
        UserError: names the largest, what it needs and what there is.
    """
    available = available_mib()
    largest = _largest(cells)
    if largest is None or not workers.processes or available is None:
        return
    need = largest.memory_mib * workers.processes
    if need > available:
        raise UserError(
            f"{largest.label()} needs about {largest.memory_mib / 1024:.1f} GiB in each of "
            f"{workers.processes} processes, and {available / 1024:.1f} GiB are free here: choose "
            "smaller sizes, fewer --workers or a single figure."
        )


def _largest(cells: Iterable[Cell]) -> BurstParameters | None:
    typed = [cell.parameters for cell in cells if isinstance(cell.parameters, BurstParameters)]
    return max(typed, key=lambda parameters: parameters.memory_mib, default=None)


def _notes(cells: Iterable[Cell], workers: Workers) -> tuple[str, ...]:
    largest = _largest(cells)
    if largest is None:
        return ()
    notes = [
        f"the largest cell is {largest.size} (servers-processes): about "
        f"{largest.memory_mib:,.0f} MiB of memory"
    ]
    if workers.scheduler is not None:
        notes.append(f"the time is that of one worker; {workers.scheduler} may have many")
    return tuple(notes)


def _refuse_what_is_not_ours(request: Request, campaign: BurstCampaign) -> None:
    given = {
        "--ground": request.ground if request.ground != campaign.ground else None,
        "--testbed": request.testbed,
        "--controllers-dir": request.controllers_dir,
        "--model": request.model,
    }
    for option, value in given.items():
        if value is not None:
            raise UserError(
                f"{campaign.name} simulates bursts of writes, on no testbed: leave out {option}."
            )
