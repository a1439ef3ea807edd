"""What `hotbed run pm-quick` does: from the campaign's file to run folders, or to a dry run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from campaigns import power
from campaigns.campaign_file import resolve
from campaigns.carry_out import LEDGER_FILE, learn, make_cells
from campaigns.dask_cluster import Sameness, open_cluster
from campaigns.engine import CampaignResult, Engine
from campaigns.estimate import Estimator
from campaigns.executors import DryRun, Executor, ParallelExecutor
from campaigns.fingerprint import Identity
from campaigns.ledger import Ledger
from campaigns.lock import Lock
from campaigns.plan import Cell, Plan, make_plan, raw_cells
from campaigns.prioritymeister.cell import Maker
from campaigns.prioritymeister.cell_parameters import INPUTS, PmParameters, check
from campaigns.prioritymeister.code import LIBRARIES, difference, digests, here
from campaigns.prioritymeister.rule import measured_alone
from campaigns.process_executor import ProcessExecutor, Setting
from campaigns.progress import Progress, Silent, suitable
from campaigns.provenance import provenance
from campaigns.run_store import RunStore
from campaigns.services import Facts
from campaigns.session import DryRunReport, Request, asked
from campaigns.validate import select
from campaigns.workers import Workers
from schemas.campaign import Campaign, ReplayCampaign
from schemas.errors import UserError
from testbed.spec import load_spec

SIM = "sim"
MODEL = "modelled"
"""Stands for the kind of site in a simulated run's provenance."""
ALONE_FOLDER = ".alone"
"""Beside the runs of a real testbed: what workloads have alone."""

SIMULATIONS = Sameness(here, difference)

# Seconds of a cell, roughly; the cells that are done correct them.
FIXED_S = 0.5
REQUEST_S = {"network": 15e-6, "levels": 15e-6}
OTHER_REQUEST_S = 5e-6
RATES = {"disk": 400, "burst": 230, "misbehave": 180, "network": 1500, "levels": 1500}
SETTLE_S = 20.0
"""On a testbed, beside the traces' time."""


@dataclass(frozen=True)
class Prepared:
    """A campaign, validated and planned; see `campaigns.carry_out.Laid`."""

    campaign: ReplayCampaign
    file: Path
    plan: Plan
    whole: Plan
    store: RunStore
    testbed: str
    spec_file: Path | None


def prepare(request: Request) -> Prepared:
    """Validate every cell and lay out the plan. Nothing is started or written.

    Raises:
        UserError: one sentence on the first thing that is wrong.
    """
    file, campaign = asked(request.campaign)
    assert isinstance(campaign, ReplayCampaign)
    _refuse_what_is_not_ours(request, campaign)
    cells = typed_cells(campaign, file)
    chosen = cells if request.figure is None else select(campaign, cells, request.figure, file)
    spec_file = None if campaign.ground == SIM else resolve(campaign.spec, file)
    spec = None if spec_file is None else load_spec(spec_file)
    identity = Identity(
        spec_digest="" if spec is None else spec.digest(),
        ground=campaign.ground,
        site=MODEL if spec is None else spec.site.kind,
        time_scale=campaign.time_scale,
        folders={**digests(), **_ground_digests(campaign.ground)},
    )
    policies = {parameters.controller: "" for typed in cells.values() for parameters in typed}
    seconds = planned_s if campaign.ground == SIM else live_s
    whole, plan = (
        make_plan(campaign, wanted, identity, policies, seconds) for wanted in (cells, chosen)
    )
    store = RunStore(request.artifacts.resolve() / campaign.name)
    testbed = request.testbed or (MODEL if spec is None else spec.name)
    return Prepared(campaign, file, plan, whole, store, testbed, spec_file)


def typed_cells(campaign: Campaign, file: Path) -> dict[str, list[PmParameters]]:
    """Typed cells by grid name, of all grids: a file is right or it is not."""
    found: dict[str, list[PmParameters]] = {}
    for grid in campaign.grids:
        where = f"{file}: grid {grid.name}"
        typed = [check(raw, where) for raw in raw_cells(campaign, grid)]
        if not typed:
            raise UserError(f"{where}: exclude leaves no cell.")
        found[grid.name] = typed
    return found


def dry_run(request: Request, *, workers: Workers | None = None) -> DryRunReport:
    """The cells that would run, the time they would take and what is done. Writes nothing."""
    prepared = prepare(request)
    width = _width(prepared.campaign, workers)
    executor = DryRun()
    Engine(prepared.plan, prepared.store, executor, Silent()).run()
    estimator = Estimator(prepared.campaign.time_scale)
    learn(estimator, prepared.plan, prepared.store)
    return DryRunReport(
        campaign=prepared.campaign.name,
        testbed=prepared.testbed,
        time_scale=prepared.campaign.time_scale,
        cells=len(prepared.plan.cells),
        done=len(prepared.plan.cells) - len(executor.cells),
        pending=tuple(executor.cells),
        pending_s=estimator.left(executor.cells, width) + alone_s(executor.cells, prepared),
        power={
            grid.name: power.sentence(grid.repetitions)
            for grid in prepared.campaign.grids
            if any(grid.name in cell.grids for cell in prepared.plan.cells)
        },
        notes=_notes(executor.cells, prepared.campaign),
        planned_s={cell.run_id: estimator.left([cell]) for cell in executor.cells},
    )


def run(
    request: Request, *, progress: Progress | None = None, workers: Workers | None = None
) -> CampaignResult:
    """Run or resume a campaign.

    Args:
        request: what is asked for.
        progress: who is told of it.
        workers: who simulates; a process for each of this machine's processors unless said.

    Raises:
        UserError: something is wrong with the file, the disk, the workers or the testbed; or
            another engine works on this campaign.
    """
    prepared = prepare(request)
    _width(prepared.campaign, workers)
    store, shown = prepared.store, progress or suitable()
    store.prepare()
    with ExitStack() as outer:
        lock = Lock(store.folder / ".lock", f"the campaign {store.folder.name}", say=shown.message)
        outer.enter_context(lock)
        if prepared.campaign.ground == SIM:
            return _simulate(prepared, shown, workers or Workers())
        return _on_testbed(prepared, shown, outer)


def _simulate(prepared: Prepared, shown: Progress, workers: Workers) -> CampaignResult:
    facts = Facts(MODEL, _versions(), calibration={"disk": "disk7200.json"})
    setting = Setting(prepared.testbed, prepared.file, provenance(facts))
    plan, store = prepared.plan, prepared.store
    ledger = Ledger(store.folder / LEDGER_FILE)
    processes = ProcessExecutor(plan, store, ledger, setting)

    def choose(stack: ExitStack, missing: bool) -> Executor | ParallelExecutor:
        if not missing:
            return processes
        from campaigns.prioritymeister.executor import SimulatedExecutor

        client = stack.enter_context(open_cluster(workers, SIMULATIONS))
        return SimulatedExecutor(plan, store, ledger, setting, client)

    return make_cells(prepared, processes, ledger, shown, choose)


def _on_testbed(prepared: Prepared, shown: Progress, stack: ExitStack) -> CampaignResult:
    from campaigns.prioritymeister.executor import OneTestbedExecutor
    from campaigns.prioritymeister.local_ground import facts_of, open_ground

    assert prepared.spec_file is not None
    limits = prepared.campaign.limits
    ground = stack.enter_context(
        open_ground(prepared.testbed, prepared.spec_file, limits=limits, tell=shown.message)
    )
    plan, store = prepared.plan, prepared.store
    ledger = Ledger(store.folder / LEDGER_FILE)
    setting = Setting(prepared.testbed, prepared.file, provenance(facts_of(ground)))
    maker = Maker(ground, remembered=store.folder / ALONE_FOLDER)
    stack.callback(maker.close)
    executor = OneTestbedExecutor(plan, store, ledger, setting, maker)
    return make_cells(prepared, executor, ledger, shown, lambda _stack, _missing: executor)


def planned_s(parameters: PmParameters) -> float:
    """Seconds that a simulated cell takes, roughly, its share of the traces included."""
    requests = RATES.get(parameters.scenario, 300) * parameters.seconds
    if parameters.policy == INPUTS:
        return FIXED_S + 2000 * parameters.seconds * OTHER_REQUEST_S
    return FIXED_S + requests * REQUEST_S.get(parameters.scenario, OTHER_REQUEST_S)


def live_s(parameters: PmParameters) -> float:
    """Seconds of a cell on a testbed, without what workloads have alone."""
    return SETTLE_S + parameters.seconds


def alone_s(cells: Iterable[Cell], prepared: Prepared) -> float:
    """Seconds on a testbed in which workloads run alone, each once a block: nobody else's SLO."""
    if prepared.campaign.ground == SIM:
        return 0.0
    known = prepared.store.folder / ALONE_FOLDER
    if known.is_dir() and any(known.iterdir()):
        return 0.0
    rounds = {
        (cell.block, where.contents(), name): live_s(where)
        for cell in cells
        if isinstance(cell.parameters, PmParameters)
        for name, where in measured_alone(cell.parameters)
    }
    return sum(rounds.values())


def _width(campaign: Campaign, workers: Workers | None) -> int:
    if campaign.ground == SIM:
        return max(1, (workers or Workers()).processes)
    if workers is not None:
        raise UserError(
            f"{campaign.name}: on the ground {campaign.ground} cells run one after another on one "
            "testbed: --workers and --scheduler are for simulated ones."
        )
    return 1


def _ground_digests(ground: str) -> Mapping[str, str]:
    """Of what simulates; a testbed's programs are told by its versions."""
    if ground != SIM:
        from campaigns.prioritymeister import local_ground

        return local_ground.digests()
    from campaigns.prioritymeister.simulate import identity

    return dict(identity())


def _versions() -> dict[str, str]:
    code = here()
    return {**{name: code.libraries[name] for name in LIBRARIES}, "pmsim": code.simulator[:24]}


def _notes(cells: Iterable[Cell], campaign: Campaign) -> tuple[str, ...]:
    if campaign.ground == SIM:
        return ()
    typed = [cell.parameters for cell in cells if isinstance(cell.parameters, PmParameters)]
    if not typed:
        return ()
    return ("each workload also runs alone once a block, before the first cell that needs it",)


def _refuse_what_is_not_ours(request: Request, campaign: ReplayCampaign) -> None:
    given = {
        "--ground": request.ground if request.ground != campaign.ground else None,
        "--testbed": request.testbed if campaign.ground == SIM else None,
        "--controllers-dir": request.controllers_dir,
        "--model": request.model,
    }
    for option, value in given.items():
        if value is not None:
            raise UserError(
                f"{campaign.name} replays traces on the ground {campaign.ground}: leave out "
                f"{option}."
            )
