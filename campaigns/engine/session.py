"""Run or resume a campaign of any kind, or report the cells that would run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, get_args
from zlib import crc32

from pydantic import ValidationError

from campaigns.engine.attempts import (
    PAPERMILL_CELL,
    AttemptRecords,
    CellProcess,
    Executor,
    InProcess,
    OneAtATime,
    Runner,
)
from campaigns.engine.campaign_file import find_campaign, load_campaign, renamed, resolve
from campaigns.engine.dask import DaskExecutor, Workers, open_cluster
from campaigns.engine.display import CampaignResult, Progress, suitable
from campaigns.engine.engine import Engine, pending
from campaigns.engine.estimate import (
    ENGINE_S,
    NOT_MEASURED,
    DryRunReport,
    Estimator,
    report_of,
    took_s,
)
from campaigns.engine.identity import Identity, Recipe, identifying_versions, library_versions
from campaigns.engine.kind import Computed, Ground, Kind, OnStore, OnTestbed, Prepared
from campaigns.engine.lease import Lease, asked_for, open_lease
from campaigns.engine.lock import Lock
from campaigns.engine.plan import Cell, Plan, make_plan
from campaigns.engine.precision import Blocks, Claims, progress, sentence, statistics_of
from campaigns.engine.provenance import Facts, provenance
from campaigns.engine.store import Ledger, Reserve, RunStore, read_run, require_room
from campaigns.grounds.cores import warnings
from campaigns.grounds.testbed import OTHER
from campaigns.papers.dlr.cell import StoreGround, make_cell
from campaigns.papers.registry import kind_of
from campaigns.validate import select, typed_cells, validate
from controllers.decider import declared as needs_of
from controllers.registry import available, code_of, find, refuse_unoffered
from schemas import extensions
from schemas.campaign import Campaign
from schemas.cells import CellParameters, cells_of
from schemas.durable import write_file
from schemas.errors import HotbedError, UserError, unknown
from schemas.mistakes import mistake
from schemas.run import Provenance
from testbed import closure
from testbed.checks import EngineMachine, available_memory
from testbed.closure import Closure
from testbed.faults import FaultInForceError
from testbed.sites import code_of as code_of_site
from testbed.sites import kinds, open_site
from testbed.sites.contract import AwakeSite, Site, SiteError
from testbed.spec import TestbedSpec, load_spec

OF_SITES = frozenset({"chameleon", "inventory", "local"})
"""Grounds that are testbeds of the site with the same name."""

CAMPAIGN_FILE = "campaign.json"
LEDGER_FILE = "ledger.jsonl"


@dataclass(frozen=True)
class Request:
    """Request of the command line: a campaign by name or file, or one made in memory. `claims`
    finds the claims that its grids name; without it they may name none."""

    campaign: str | Campaign
    figure: str | None = None
    testbed: str | None = None
    artifacts: Path = Path("artifacts")
    controllers_dir: Path | None = None
    ground: str | None = None  # overrides the campaign's; results get their own folder
    model: Path | None = None  # constants of the ground sim
    extend_lease: bool | None = None  # overrides the campaign's `lease.extend`
    spec: Path | None = None  # replaces the campaign's spec; results get their own folder
    claims: Claims | None = None


def prepare(request: Request, *, need_ground: bool = True) -> Prepared:
    """Validate everything and make the plan. Nothing is started or written. A dry run (without
    `need_ground`) needs no testbed and loads no untrusted code. UserError: one sentence about the
    first mistake."""
    file, campaign = _found(request.campaign, request.spec)
    kind = kind_of(campaign)
    _refuse_options(request, campaign, kind)
    computed = isinstance(kind.grounds.get(campaign.ground), Computed)
    spec_file = None if computed else resolve(campaign.spec, file)
    spec = None if spec_file is None else load_spec(spec_file)
    if spec is not None and "--ground" in kind.options:
        campaign = on_ground(campaign, request.ground or _site_of(campaign, spec))
    if request.extend_lease is not None:
        rules = campaign.lease.model_copy(update={"extend": request.extend_lease})
        campaign = campaign.model_copy(update={"lease": rules})
    ground = kind.grounds[campaign.ground]
    cells, code_of_cell, outside = _cells(campaign, file, request, spec, trust_code=need_ground)
    claims = statistics_of(campaign, cells, request.claims)
    chosen = cells if request.figure is None else select(campaign, cells, request.figure, file)
    store = RunStore(request.artifacts.resolve() / campaign.name)
    notebook = resolve(campaign.notebook, file) if campaign.notebook else file
    testbed = request.testbed or (spec.name if spec is not None else "")
    opened: StoreGround | None = None
    facts: Facts | None = None
    absent: Exception | None = None
    site = "" if spec is None else spec.site.kind
    versions: Mapping[str, str] = {}
    libraries: tuple[str, ...] = ()
    if isinstance(ground, OnStore):
        assert spec_file is not None
        site = campaign.ground if campaign.ground in OF_SITES else site
        try:
            opened = ground.open(testbed, site, spec_file, _absolute(request.model))
            facts = opened.facts()
        except (HotbedError, SiteError, OSError) as error:
            if need_ground:
                raise
            opened, absent = None, error
        entries = (
            *ground.code(cells, site),
            *(extensions.code("store", testbed) if campaign.ground == OTHER else ()),
            closure.entry(notebook),
        )
        site = site if facts is None else facts.site
        versions = last_versions(store.folder) if facts is None else facts.versions
    elif isinstance(ground, Computed):
        entries, libraries, site = ground.code, ground.libraries, ground.site
        testbed = testbed or site
    else:
        entries = (*ground.code, *code_of_site(site))
    identity = Identity(
        spec_digest="" if spec is None else spec.digest(),
        ground=campaign.ground,
        site=site,
        time_scale=campaign.time_scale,
        versions=identifying_versions(versions),
        code=closure.first(entries),
        libraries=library_versions(libraries),
    )
    left_out, cells, chosen = _served(campaign, opened, request.controllers_dir, cells, chosen)
    planned_s = ground.planned_s
    if isinstance(ground, OnStore):
        planned_s = partial(ground.planned_s, time_scale=campaign.time_scale)
    blocks = Blocks(
        campaign,
        cells,
        chosen,
        partial(make_plan, identity=identity, own=code_of_cell, planned_s=planned_s),
        store,
        claims,
    )
    plan, full_plan, reached = blocks.plans()
    return Prepared(
        campaign=campaign,
        file=file,
        plan=plan,
        full_plan=full_plan,
        reached=reached,
        blocks=blocks,
        store=store,
        testbed=testbed,
        notebook=notebook,
        spec=spec,
        spec_file=spec_file,
        ground=opened,
        facts=facts,
        outside=outside,
        model=_absolute(request.model),
        left_out=left_out,
        blocked=str(absent) if isinstance(absent, FaultInForceError) else "",
    )


_ByGrid = Mapping[str, list[Any]]


def _served(
    campaign: Campaign,
    ground: StoreGround | None,
    own: Path | None,
    cells: _ByGrid,
    chosen: _ByGrid,
) -> tuple[dict[str, str], _ByGrid, _ByGrid]:
    """Return the reasons why optional controllers cannot run on the ground's store, by name, and
    both mappings of cells by grid without theirs. A ground that is not up serves everything."""
    left_out: dict[str, str] = {}
    if ground is None or not campaign.optional:
        return left_out, cells, chosen
    offers = ground.offers()
    for name in campaign.optional:
        needs, _ = needs_of(find(name, () if own is None else (own,)), {})
        try:
            refuse_unoffered(name, needs, offers, campaign.ground)
        except UserError as error:
            left_out[name] = str(error).removesuffix(".")

    def kept(these: _ByGrid) -> _ByGrid:
        return {
            name: [cell for cell in typed if cell.controller not in left_out]
            for name, typed in these.items()
        }

    served = kept(cells)
    return left_out, served, served if chosen is cells else kept(chosen)


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.resolve()


def _cells(
    campaign: Campaign, file: Path, request: Request, spec: TestbedSpec | None, *, trust_code: bool
) -> tuple[Mapping[str, list[Any]], Callable[[Any], Closure], Mapping[str, Path]]:
    """Return the typed cells by grid, a function for the code of a cell's controller, and the
    folders of controllers from outside Hotbed by name."""
    _, ground = declared(campaign)
    if not isinstance(ground, OnStore):
        entries = ground.own
        return typed_cells(campaign, file), lambda cell: closure.first(entries(cell)), {}
    own = request.controllers_dir
    controllers = available(() if own is None else (own,))
    cells = validate(campaign, file, controllers=controllers, spec=spec, trust_code=trust_code)
    used = {cell.controller for typed in cells.values() for cell in typed}
    code = {name: code_of(controllers[name]) for name in used}
    folders = {name: controllers[name].folder for name in used if controllers[name].outside}
    return cells, lambda cell: code[cell.controller], folders


def _found(campaign: str | Campaign, spec: Path | None) -> tuple[Path, Campaign]:
    """Return the campaign and its file. A campaign made in memory has its name as its file, in
    messages and for relative paths (in the current folder). `spec`: see `with_spec`."""
    if isinstance(campaign, Campaign):
        return Path(campaign.name), with_spec(campaign, spec)
    file = find_campaign(campaign)
    return file, with_spec(load_campaign(file), spec)


def declared(campaign: Campaign) -> tuple[Kind[Any], Ground[Any]]:
    """Return the declarations of the campaign's kind and of its ground."""
    kind = kind_of(campaign)
    return kind, kind.grounds[campaign.ground]


def with_spec(campaign: Campaign, spec_file: Path | None) -> Campaign:
    """Return `campaign` on the testbed of another spec, with the spec's name in its own, and a seed
    of its own: testbeds with the same draws would not be independent. None keeps the campaign's
    spec. UserError: the file is no spec."""
    if spec_file is None:
        return campaign
    name = load_spec(spec_file).name
    seed = (campaign.seed + crc32(name.encode())) % 2**32
    changes = {"name": f"{campaign.name}-{name}", "spec": str(spec_file.resolve()), "seed": seed}
    return campaign.model_copy(update=changes)


def on_ground(campaign: Campaign, ground: str | None) -> Campaign:
    """Return `campaign` on another ground, with another name (``dlr-quick-sim``), so that runs of
    different grounds are in different folders. UserError: there is no such ground."""
    grounds = get_args(Campaign.model_fields["ground"].annotation)
    if ground not in grounds and ground in kinds():  # a site of an installed package
        ground = OTHER
    if ground is None or ground == campaign.ground:
        return campaign
    body = campaign.model_dump() | {"ground": ground, "name": f"{campaign.name}-{ground}"}
    try:
        return Campaign.model_validate(body)
    except ValidationError as error:
        known = [name for name in grounds if name != "fake"]
        if ground not in known:
            raise unknown("ground", ground, known, where="--ground") from error
        raise mistake(error, Campaign).error(f"--ground {ground}") from error


def _site_of(campaign: Campaign, spec: TestbedSpec) -> str | None:
    """Return the ground of the spec's site if the campaign names another site, because a campaign
    runs on its testbed. None keeps the campaign's ground."""
    if campaign.ground not in OF_SITES:
        return None
    return spec.site.kind if spec.site.kind in OF_SITES else OTHER


def dry_run(
    asked: Request | Prepared, *, workers: Workers | None = None, in_process: bool = False
) -> DryRunReport:
    """Return the cells that would run, their time and the finished cells. Write nothing. The
    arguments are those of `run`."""
    prepared = asked if isinstance(asked, Prepared) else prepare(asked, need_ground=False)
    kind, ground = declared(prepared.campaign)
    cells = pending(prepared.plan, prepared.store)
    who = _workers(prepared.campaign, ground, workers)
    _refuse_too_large(cells, who)
    if who is None or who.processes:  # a cluster's machines have their own files
        kind.require(cells, prepared.campaign)
    note = renamed(prepared.campaign.notebook, prepared.notebook)
    notes = [] if note is None else [note]
    notes += [f"left out: {why}" for why in prepared.left_out.values()]
    notes += [f"no cell runs before this ends: {prepared.blocked}"] if prepared.blocked else []
    if cells:
        notes += kind.notes([cell.parameters for cell in cells], prepared.campaign)
    if cells and isinstance(ground, OnTestbed) and prepared.spec is not None:
        notes += warnings(open_site(prepared.spec.site.kind), prepared.spec)
    if prepared.facts is None and isinstance(ground, OnStore):
        known = "those of the last run" if prepared.plan.identity.versions else "none"
        why = "has a fault by hand" if prepared.blocked else "is not up"
        testbed = f"testbed {prepared.testbed!r} {why}"
        lacking = "the simulator is not built" if prepared.plan.simulated else testbed
        notes.append(
            f"{lacking}: run ids assume store versions as known "
            f"({known}), so what counts as done may change"
        )
    if cells and who is not None:
        if who.scheduler is not None:
            notes.append(f"the time is that of one worker; {who.scheduler} may have many")
        elif isinstance(ground, Computed) and ground.seconds_count and who.processes > 1:
            notes.append("cells in parallel slow each other down: seconds are not those of one")
    lease = None
    if prepared.facts is not None:
        try:
            lease = _lease(prepared)
        except HotbedError as error:
            notes.append(f"the lease of testbed {prepared.testbed!r} is unknown: {error}")
    report = report_of(
        prepared.plan,
        _estimator(prepared, who is None and not in_process),
        cells,
        testbed=None if prepared.plan.simulated else prepared.testbed,
        width=1 if who is None else max(1, who.processes),
        additional_s=ground.additional_s(cells, prepared.store)
        if isinstance(ground, OnTestbed)
        else 0.0,
        power=_intervals(prepared, kind),
        notes=notes,
        lease=lease,
    )
    up = prepared.facts is not None or prepared.blocked
    if up or not isinstance(ground, OnStore) or prepared.spec is None:
        return report
    if prepared.spec.site.kind != prepared.campaign.ground:
        return report
    note = asked_for(prepared.spec, report.pending_s, prepared.campaign.lease.margin_s)
    return report if note is None else replace(report, notes=(*report.notes, note))


def _estimator(prepared: Prepared, notebooks: bool) -> Estimator:
    """Return an estimator with the finished runs of the campaign's kind and ground among its
    results. Simulated cells count if they were made in the same way, with or without
    `notebooks`."""
    campaign = prepared.campaign
    _, ground = declared(campaign)
    either = not isinstance(ground, OnStore) or ground.same is None
    estimator = Estimator(0.0 if either or not notebooks else ENGINE_S)
    for folder in prepared.store.folder.parent.glob("*/"):
        for path in folder.glob("*/attempt-*"):
            run = read_run(path)
            if run is None or run.status != "done":
                continue
            if (run.kind, run.ground) != (campaign.kind, campaign.ground):
                break  # a campaign has one kind and ground
            if not either and notebooks != (path / "notebook.ipynb").exists():
                continue
            with suppress(UserError):
                typed = cells_of(run.kind, run.ground).check(run.parameters, "run")
                scale = {"time_scale": run.time_scale} if isinstance(ground, OnStore) else {}
                planned_s: Callable[..., float] = ground.planned_s
                estimator.observe(typed.label(), planned_s(typed, **scale), took_s(run))
    return estimator


def _intervals(prepared: Prepared, kind: Kind[Any]) -> dict[str, str]:
    """Return a sentence about the interval of each planned grid."""
    plan, reached = prepared.plan, {one.grid: one for one in prepared.reached}
    there = {name for cell in plan.cells for name in cell.grids}
    claims = {} if prepared.blocks is None else prepared.blocks.claims
    return {
        grid.name: sentence(
            grid, plan, prepared.store, reached.get(grid.name), claims.get(grid.name)
        )
        for grid in prepared.campaign.grids
        if grid.name in there and (kind.resolves or grid.precision is not None)
    }


def run(
    asked: Request | Prepared,
    *,
    progress: Progress | None = None,
    command: tuple[str, ...] = PAPERMILL_CELL,
    in_process: bool = False,
    workers: Workers | None = None,
) -> CampaignResult:
    """Run or resume a campaign.

    Args:
        asked: the request, or the prepared campaign with its open ground.
        progress: the progress display; by default on the terminal.
        command: the process of one cell, for a kind with notebooks.
        in_process: run such cells in this process, without the notebook, if the ground allows it
            (`sim`). That saves seconds per cell; the files are the same except `notebook.ipynb`.
        workers: Dask workers that compute cells in parallel; the results are the same. Computed
            kinds always use workers: one process per processor of this machine, or one if a cell's
            seconds are part of its result.

    Raises:
        UserError: the file, the testbed, the memory, the disk or the workers are unsuitable, or
            another engine works on this campaign or testbed.
        HotbedError: cells cannot be computed here.
    """
    prepared = asked if isinstance(asked, Prepared) else prepare(asked)
    kind, ground = declared(prepared.campaign)
    store, shown = prepared.store, progress or suitable()
    who = _workers(prepared.campaign, ground, workers)
    _refuse_too_large(prepared.plan.cells, who)
    if who is None or who.processes:  # a cluster's machines have their own files
        kind.require(pending(prepared.plan, store), prepared.campaign)
    if isinstance(ground, Computed):
        ground.recipe.same.ready()
    store.prepare()
    note = renamed(prepared.campaign.notebook, prepared.notebook)
    if note is not None:
        shown.message(note)
    for why in prepared.left_out.values():
        shown.message(f"left out: {why}")
    how: Runner | OnWorkers
    with ExitStack() as stack:
        what = f"the campaign {prepared.campaign.name}"
        lock = stack.enter_context(Lock(store.folder / ".lock", what, say=shown.message))
        if isinstance(ground, Computed):
            versions = ground.recipe.same.versions()
            facts = Facts(ground.site, versions, calibration=ground.calibration)
            made_by, lease = provenance(facts), None
            how = OnWorkers(who or Workers(), ground.recipe)
        elif isinstance(ground, OnTestbed):
            assert prepared.spec is not None
            site = open_site(prepared.spec.site.kind)
            awake = stack.enter_context(kept_awake(site, shown.message))
            facts, make = stack.enter_context(ground.open(prepared, shown))
            made_by, lease = provenance(facts, awake), None
            how = InProcess(make)
        else:
            assert prepared.ground is not None
            held = [lock.handle]
            path = prepared.ground.lock_path()
            if path is not None:
                what = f"the testbed {prepared.testbed}"
                held.append(stack.enter_context(Lock(path, what, say=shown.message)).handle)
            assert prepared.facts is not None
            awake = stack.enter_context(kept_awake(prepared.ground.site, shown.message))
            made_by = provenance(prepared.facts, awake)
            lease = _lease(prepared, shown.message)
            make = partial(make_cell, prepared.ground)
            if who is not None and ground.same is not None:
                how = OnWorkers(who, Recipe(make, ground.same))
            elif in_process and ground.same is not None:
                how = InProcess(make)
            else:
                how = process = CellProcess(command, tuple(held))
                stack.callback(process.close)
        return make_cells(prepared, made_by, how, shown, lease)


def _lease(prepared: Prepared, say: Callable[[str], None] = lambda text: None) -> Lease | None:
    """Return the lease of the testbed, if it ends. HotbedError: the site cannot report its
    status."""
    ground = prepared.ground
    if ground is None:
        return None
    return open_lease(ground.site, ground.name, prepared.campaign.lease, say=say)


def _workers(campaign: Campaign, ground: Ground[Any], asked_for: Workers | None) -> Workers | None:
    """Return the workers that compute the cells; None if a testbed or this process makes them.
    UserError: workers were requested, but cells run one after another."""
    if isinstance(ground, Computed):
        return asked_for or Workers(count=1 if ground.seconds_count else None)
    if asked_for is not None and (isinstance(ground, OnTestbed) or ground.same is None):
        raise UserError(
            f"cells run one after another on the ground {campaign.ground}, so that --workers and "
            "--scheduler are not possible",
            where=campaign.name,
            do="simulate with --ground sim" if isinstance(ground, OnStore) else "leave them out",
        )
    return asked_for


def _refuse_too_large(cells: Iterable[Cell], workers: Workers | None) -> None:
    """Raise if this machine's memory is too small for the cells that will run in parallel. The
    memory of a cluster's machines is unknown here. UserError: the largest cell, its memory and the
    free memory."""
    processes = 0 if workers is None else workers.processes
    typed = (cell.parameters for cell in cells if isinstance(cell.parameters, CellParameters))
    largest = max(typed, key=lambda parameters: parameters.memory_mib, default=None)
    if largest is None or not processes or not largest.memory_mib:
        return
    need, available_here = largest.memory_mib, available_memory(EngineMachine()) / 2**20
    if available_here and need * processes > available_here:
        fewer = ", fewer --workers" if processes > 1 else ""
        raise UserError(
            f"{largest.label()} needs about {need / 1024:.1f} GiB in each of {processes} "
            f"processes, and {available_here / 1024:.1f} GiB are free here",
            do=(
                f"choose smaller sizes{fewer} or a single figure, or give --scheduler a "
                "cluster with more memory"
            ),
        )


def _refuse_options(request: Request, campaign: Campaign, kind: Kind[Any]) -> None:
    computed = isinstance(kind.grounds.get(campaign.ground), Computed)
    given = {
        "--ground": request.ground if request.ground != campaign.ground else None,
        "--testbed": request.testbed if computed else None,
        "--controllers-dir": request.controllers_dir,
        "--model": request.model,
        "--extend-lease": request.extend_lease,
        "--spec": request.spec,
    }
    for option, value in given.items():
        if value is not None and option not in kind.options:
            raise UserError(
                f"{campaign.name} {kind.does} on the ground {campaign.ground}",
                do=f"leave out {option}",
            )


def last_versions(folder: Path) -> Mapping[str, str]:
    """Return the store and tool versions of the engine's last call; empty if there was none."""
    try:
        data = json.loads((folder / CAMPAIGN_FILE).read_text())
        return {str(key): str(value) for key, value in data["identity"]["versions"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


@dataclass(frozen=True)
class OnWorkers:
    """Dask workers that make cells by `recipe`; they are started only if a cell is pending."""

    workers: Workers
    recipe: Recipe


def make_cells(
    prepared: Prepared,
    made_by: Provenance,
    how: Runner | OnWorkers,
    shown: Progress,
    lease: Lease | None = None,
) -> CampaignResult:
    """Recover the attempts of a dead engine, and make every pending cell of a campaign with held
    locks."""
    store = prepared.store
    ledger = Ledger(store.folder / LEDGER_FILE)
    attempts = AttemptRecords(prepared, ledger, made_by, lease)
    attempts.recover()
    grown = Grown(prepared, ledger, shown)
    plan = grown.again()  # with the results of recovered attempts
    missing = pending(plan, store)
    require_room(store.folder, len(missing), islice(store.folder.glob("*/attempt-*"), 50))
    with ExitStack() as stack:
        executor: Executor
        if not isinstance(how, OnWorkers):
            executor = OneAtATime(attempts, how)
        elif not missing:
            executor = OneAtATime(attempts, InProcess(how.recipe.make))
        else:
            client = stack.enter_context(open_cluster(how.workers, how.recipe.same))
            executor = DaskExecutor(attempts, how.recipe, client)
        engine = Engine(plan, store, executor, shown, lease=lease, grow=grown.again)
        engine.estimator = _estimator(prepared, isinstance(how, CellProcess))
        engine.estimator.queued = int(isinstance(executor, DaskExecutor))
        if missing and not engine.estimator.runs:
            shown.message(f"the time is {NOT_MEASURED}")
        Reserve(store.folder).take()
        grown.write()
        ledger.append("campaign-started", cells=len(plan.cells), pending=len(missing))
        result = engine.run()
    try:
        ledger.append("campaign-ended", ok=result.ok, sentence=result.sentence)
    finally:
        Reserve(store.folder).release()
    return result


class Grown:
    """Plan of a campaign that grows by blocks while precision asks for more of them."""

    def __init__(self, prepared: Prepared, ledger: Ledger, shown: Progress) -> None:
        self._prepared = prepared
        self._ledger = ledger
        self._shown = shown
        self._written = False

    def again(self) -> Plan:
        """Return the plan that the stored results ask for; record and show new decisions."""
        before = self._prepared
        if not before.reached or before.blocks is None:
            return before.plan
        plan, full_plan, reached = before.blocks.plans()
        self._prepared = replace(before, plan=plan, full_plan=full_plan, reached=reached)
        if self._written and self._prepared.reached != before.reached:
            self.write()
            grids = {grid.name: grid for grid in before.campaign.grids}
            for one in self._prepared.reached:
                self._ledger.append("precision", **one.model_dump())
                self._shown.message(f"{one.grid} {progress(grids[one.grid], one)}")
        return self._prepared.plan

    def write(self) -> None:
        """Write campaign.json."""
        self._written = True
        write_file(self._prepared.store.folder / CAMPAIGN_FILE, _description(self._prepared))


def _description(prepared: Prepared) -> str:
    """Return the text of campaign.json. `cells` are all current cells of the campaign, so that runs
    of earlier code or an earlier file can be recognized."""
    identity = prepared.plan.identity
    body = {
        "campaign": prepared.campaign.model_dump(mode="json"),
        "testbed": prepared.testbed,
        "identity": {**vars(identity), "code": identity.code.digest},
        "cells": [
            {
                "run_id": cell.run_id,
                "grids": cell.grids,
                "figures": cell.figures,
                "block": cell.block,
                "label": cell.parameters.label(),
                "planned_s": round(cell.planned_s, 1),
            }
            for cell in prepared.full_plan.cells
        ],
        "precision": [one.model_dump() for one in prepared.reached],
        "left_out": dict(prepared.left_out),
    }
    return json.dumps(body, indent=2) + "\n"


@contextmanager
def kept_awake(site: Site | None, say: Callable[[str], None]) -> Iterator[bool | None]:
    """Keep the machine of `site` (None for a simulated testbed) awake, if it can fall asleep. Yield
    True if the CPUs are kept awake, False if not, None if the site cannot tell. UserError:
    HOTBED_AWAKE has a value that is not allowed."""
    if not isinstance(site, AwakeSite):
        yield None
        return
    with site.kept_awake() as awake:
        if awake:
            say("processors are kept awake meanwhile; HOTBED_AWAKE=no leaves them alone")
        yield awake
