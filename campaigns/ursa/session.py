"""What `hotbed run ursa-quick` does: from the campaign's file to run folders, or to a dry run."""

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
from campaigns.ursa.code import LIBRARIES, difference, here, libraries, planner_digest
from campaigns.ursa.parameters import INPUTS, UrsaParameters, check
from campaigns.validate import select
from campaigns.workers import Workers
from schemas.campaign import Campaign, PlannerCampaign
from schemas.errors import UserError
from schemas.sizes import size_name

SITE = "synthetic"
"""Stands for the kind of site in a run's provenance."""

DEFAULT = Workers(count=1)
"""One cell at a time, with all of this machine's processors: its seconds are part of the result."""

PLANNERS = Sameness(here, difference)

# Seconds of a cell, roughly; the cells that are done correct them.
FIXED_S = 0.3
GENERATE_S = 1.5e-6  # a partition
CHECK_S = 0.4e-6
METHOD_S = {"sa": 4e-6, "algorithm1": 1e-6, "joint": 5e-6, "ilp": 1e-6}
OTHER_METHOD_S = 0.2e-6
RANDOM_FACTOR = 10.0
EXACT = {"opt": 0.3}  # part of the time limit that it takes


@dataclass(frozen=True)
class Prepared:
    """A planner's campaign, validated and planned; see `campaigns.carry_out.Laid`."""

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
    assert isinstance(campaign, PlannerCampaign)
    _refuse_what_is_not_ours(request, campaign)
    cells = typed_cells(campaign, file)
    chosen = cells if request.figure is None else select(campaign, cells, request.figure, file)
    identity = Identity(
        spec_digest="",
        ground=campaign.ground,
        site=SITE,
        time_scale=campaign.time_scale,
        folders={"planner": planner_digest(), "libraries": _versions()},
    )
    methods = {parameters.method: "" for typed in cells.values() for parameters in typed}
    whole, plan = (
        make_plan(campaign, wanted, identity, methods, planned_s) for wanted in (cells, chosen)
    )
    store = RunStore(request.artifacts.resolve() / campaign.name)
    return Prepared(campaign, file, plan, whole, store)


def typed_cells(campaign: Campaign, file: Path) -> dict[str, list[UrsaParameters]]:
    """Typed cells by grid name, of all grids: a file is right or it is not."""
    found: dict[str, list[UrsaParameters]] = {}
    for grid in campaign.grids:
        where = f"{file}: grid {grid.name}"
        typed = [check(raw, where) for raw in raw_cells(campaign, grid)]
        if not typed:
            raise UserError(f"{where}: exclude leaves no cell.")
        found[grid.name] = typed
    return found


def dry_run(request: Request, *, workers: Workers | None = None) -> DryRunReport:
    """The cells that would run, the time they would take and what is done. Writes nothing."""
    prepared, workers = prepare(request), workers or DEFAULT
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
    """Run or resume a planner's campaign.

    Args:
        request: what is asked for.
        progress: who is told of it.
        workers: who computes; one process of this machine unless said otherwise.

    Raises:
        UserError: something is wrong with the file, the memory, the disk or the workers; or
            another engine works on this campaign.
    """
    prepared, workers = prepare(request), workers or DEFAULT
    plan, store = prepared.plan, prepared.store
    refuse_too_large(plan.cells, workers)
    shown = progress or suitable()
    store.prepare()
    with Lock(store.folder / ".lock", f"the campaign {prepared.campaign.name}", say=shown.message):
        setting = Setting(
            testbed=prepared.testbed,
            notebook=prepared.file,
            provenance=provenance(Facts(SITE, libraries(), calibration={"synthetic": True})),
        )
        ledger = Ledger(store.folder / LEDGER_FILE)
        processes = ProcessExecutor(plan, store, ledger, setting)

        def choose(stack: ExitStack, missing: bool) -> Executor | ParallelExecutor:
            if not missing:
                return processes
            from campaigns.ursa.executor import PlannerExecutor

            client = stack.enter_context(open_cluster(workers, PLANNERS))
            return PlannerExecutor(plan, store, ledger, setting, client)

        return make_cells(prepared, processes, ledger, shown, choose)


def planned_s(parameters: UrsaParameters) -> float:
    """Seconds that a cell takes, roughly; an instance that it shares with others included."""
    if parameters.method == INPUTS:
        return FIXED_S + (GENERATE_S + CHECK_S) * parameters.partitions
    each = METHOD_S.get(parameters.method, OTHER_METHOD_S)
    if parameters.selection == "random":
        each *= RANDOM_FACTOR
    method = each * parameters.partitions
    method += EXACT.get(parameters.method, 0.0) * parameters.time_limit_s
    shared = (GENERATE_S / 4 + 3 * CHECK_S) * parameters.partitions
    return FIXED_S + shared + min(parameters.time_limit_s, method)


def refuse_too_large(cells: Iterable[Cell], workers: Workers) -> None:
    """Refuse cells that this machine's memory does not hold, as many beside each other as there
    will be. (What a cluster's machines hold is not known here.)

    Raises:
        UserError: names the largest, what it needs and what there is.
    """
    available = available_mib()
    typed = [cell.parameters for cell in cells if isinstance(cell.parameters, UrsaParameters)]
    if not typed or not workers.processes or available is None:
        return
    largest = max(typed, key=lambda parameters: parameters.memory_mib)
    need = largest.memory_mib * workers.processes
    if need > available:
        raise UserError(
            f"{largest.label()} needs about {largest.memory_mib / 1024:.1f} GiB in each of "
            f"{workers.processes} processes, and {available / 1024:.1f} GiB are free here: choose "
            "smaller sizes or a single figure, or give --scheduler a cluster with more memory."
        )


def _notes(cells: Iterable[Cell], workers: Workers) -> tuple[str, ...]:
    typed = [cell.parameters for cell in cells if isinstance(cell.parameters, UrsaParameters)]
    notes = []
    if typed:
        largest = max(typed, key=lambda parameters: parameters.memory_mib)
        size = size_name(largest.nodes, largest.partitions)
        notes.append(
            f"the largest instance is {size}: about {largest.memory_mib / 1024:.1f} GiB of memory"
        )
        limits = sorted({f"{p.method} {p.time_limit_s:g} s" for p in typed if p.method != INPUTS})
        notes.append(f"time limits: {', '.join(limits)}")
    if workers.scheduler is not None:
        notes.append(f"the time is that of one worker; {workers.scheduler} may have many")
    elif workers.processes > 1:
        notes.append("cells beside each other slow each other down: seconds are not those of one")
    return tuple(notes)


def _refuse_what_is_not_ours(request: Request, campaign: PlannerCampaign) -> None:
    given = {
        "--ground": request.ground if request.ground != campaign.ground else None,
        "--testbed": request.testbed,
        "--controllers-dir": request.controllers_dir,
        "--model": request.model,
    }
    for option, value in given.items():
        if value is not None:
            raise UserError(
                f"{campaign.name} plans for synthetic instances, on no testbed: leave out {option}."
            )


def _versions() -> str:
    versions = libraries()
    used = [name for name in LIBRARIES if name not in ("pyarrow", "pydantic")]
    return ", ".join(f"{name} {versions[name]}" for name in used)
