"""What `hotbed run` does: from a campaign's name to a result, or to a dry run's table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from campaigns.attempts import PAPERMILL_CELL, CellProcess, Setting
from campaigns.awake import kept_awake, site_of
from campaigns.campaign_file import Request, asked, resolve
from campaigns.carry_out import CAMPAIGN_FILE, carry_out
from campaigns.cell_parameters import CellParameters
from campaigns.dry_run import DryRunReport, report_of
from campaigns.engine import pending
from campaigns.estimate import Estimator
from campaigns.fingerprint import Identity, identifying_versions
from campaigns.grounds import open_ground
from campaigns.kinds.registry import kind_of
from campaigns.lease import Lease, asked_for, open_lease
from campaigns.lock import Lock
from campaigns.plan import Plan, make_plan
from campaigns.progress import Progress, suitable
from campaigns.provenance import provenance
from campaigns.result import CampaignResult
from campaigns.run_store import RunStore
from campaigns.services import Facts, Ground
from campaigns.validate import select, validate
from campaigns.workers import Workers, one_testbed
from controllers.registry import available, code_of
from schemas.campaign import Campaign
from schemas.errors import HotbedError, UserError
from schemas.mistakes import mistake
from testbed import closure, sites
from testbed.agent import bundle
from testbed.sites.contract import SiteError
from testbed.spec import TestbedSpec, load_spec

__all__ = [
    "Prepared",
    "Request",
    "asked",
    "dry_run",
    "dry_run_prepared",
    "prepare",
    "run",
    "run_prepared",
]

CODE = (
    *("campaigns/cell.py", "campaigns/steps/live.py", "campaigns/steps/live_open.py", *bundle.CODE),
    *(f"playbooks/roles/{name}" for name in ("base", "scratch", "fio", "ceph")),
)
"""Entry points of what runs in a cell on a deployed testbed (`testbed.closure`), besides the
controller and the site."""

GATEWAY_CODE = (
    *("campaigns/steps/live_gateway.py", "dataplane/cmd/cosdrive", "playbooks/roles/radosgw"),
)
"""Those of cells with an object gateway, in addition."""

IN_PROCESS = frozenset({"sim"})
"""Grounds whose cells may run in the engine's own process: nothing of theirs outlives it."""

OF_SITES = frozenset({"chameleon", "inventory", "local"})
"""Grounds that are testbeds of the site of the same name."""


@dataclass(frozen=True)
class Prepared:
    """A campaign that is validated and planned; nothing has been started or written."""

    campaign: Campaign
    file: Path
    spec: TestbedSpec
    spec_file: Path
    notebook: Path
    testbed: str
    plan: Plan  # what is asked for
    whole: Plan  # what the file holds
    store: RunStore
    ground: Ground | None
    facts: Facts | None
    controllers_dir: Path | None = None  # absolute
    model: Path | None = None  # absolute


def prepare(request: Request, *, need_ground: bool = True) -> Prepared:
    """Validate everything and lay out the plan.

    Args:
        request: what is asked for.
        need_ground: whether the testbed must be up; a dry run goes without, and loads no code of
            a stranger's.

    Raises:
        UserError: one sentence on the first thing that is wrong.
    """
    file, campaign = asked(request.campaign)
    spec_file = resolve(campaign.spec, file)
    spec = load_spec(spec_file)
    campaign = on_ground(campaign, request.ground or _site_of(campaign, spec))
    if request.extend_lease is not None:
        rules = campaign.lease.model_copy(update={"extend": request.extend_lease})
        campaign = campaign.model_copy(update={"lease": rules})
    site = campaign.ground if campaign.ground in OF_SITES else spec.site.kind
    notebook = resolve(campaign.notebook, file)
    extra = () if request.controllers_dir is None else (request.controllers_dir,)
    controllers = available(extra)
    cells = validate(campaign, file, controllers=controllers, spec=spec, trust_code=need_ground)
    chosen = cells if request.figure is None else select(campaign, cells, request.figure, file)
    testbed = request.testbed or spec.name
    store = RunStore(request.artifacts.resolve() / campaign.name)
    model = None if request.model is None else request.model.resolve()
    ground, facts = _ground(campaign, site, (spec_file, model), testbed, need_ground)
    versions = facts.versions if facts is not None else last_versions(store.folder)
    identity = Identity(
        spec_digest=spec.digest(),
        ground=campaign.ground,
        site=facts.site if facts is not None else site,
        time_scale=campaign.time_scale,
        versions=identifying_versions(versions),
        code=closure.first((*_code(campaign, cells, site), closure.entry(notebook))),
    )
    used = {parameters.controller for typed in cells.values() for parameters in typed}
    own = {name: code_of(controllers[name]) for name in used}
    whole, plan = (
        make_plan(campaign, wanted, identity, lambda parameters: own[parameters.controller])
        for wanted in (cells, chosen)
    )
    return Prepared(
        campaign=campaign,
        file=file,
        spec=spec,
        spec_file=spec_file,
        model=model,
        notebook=notebook,
        testbed=testbed,
        plan=plan,
        whole=whole,
        store=store,
        ground=ground,
        facts=facts,
        controllers_dir=None
        if request.controllers_dir is None
        else request.controllers_dir.resolve(),
    )


def on_ground(campaign: Campaign, ground: str | None) -> Campaign:
    """`campaign` on another ground than its own, under a name of its own (``dlr-quick-sim``): runs
    of different grounds lie in different folders.

    Raises:
        UserError: there is no such ground.
    """
    if ground is None or ground == campaign.ground:
        return campaign
    body = campaign.model_dump() | {"ground": ground, "name": f"{campaign.name}-{ground}"}
    try:
        return Campaign.model_validate(body)
    except ValidationError as error:
        known = ", ".join(
            name for name in get_args(Campaign.model_fields["ground"].annotation) if name != "fake"
        )
        if ground not in known.split(", "):
            raise UserError(
                f"--ground {ground}: there is no such ground; there are {known}."
            ) from error
        raise UserError(mistake(error, Campaign).sentence(f"--ground {ground}")) from error


def _site_of(campaign: Campaign, spec: TestbedSpec) -> str | None:
    """The ground that the spec's site is, where the campaign is for another site: a campaign goes
    where its testbed is. None: the campaign's own."""
    grounds = {campaign.ground, spec.site.kind}
    return spec.site.kind if grounds <= OF_SITES else None


def dry_run(request: Request, *, workers: Workers | None = None) -> DryRunReport:
    """The cells that would run, the time they would take and what is done. Writes nothing."""
    if kind_of(asked(request.campaign)[1]) is not None:
        from campaigns.kinds import session as kinds

        return kinds.dry_run(request, workers=workers)
    return dry_run_prepared(prepare(request, need_ground=False), workers=workers)


def dry_run_prepared(prepared: Prepared, *, workers: Workers | None = None) -> DryRunReport:
    """See `dry_run`."""
    cells = pending(prepared.plan, prepared.store)
    if workers is not None:
        _inside(prepared.campaign, True, workers)
    notes = []
    if prepared.facts is None:
        known = "those of the last run" if prepared.plan.identity.versions else "none"
        notes.append(
            f"testbed {prepared.testbed!r} is not up: run ids assume store versions as known "
            f"({known}), so what counts as done may change"
        )
    if workers is not None and workers.scheduler is not None:
        notes.append(f"the time is that of one worker; {workers.scheduler} may have many")
    lease = None
    if prepared.facts is not None:
        try:
            lease = _lease(prepared)
        except HotbedError as error:
            notes.append(f"the lease of testbed {prepared.testbed!r} cannot be told: {error}")
    report = report_of(
        prepared,
        cells,
        Estimator(prepared.campaign.time_scale, simulated=prepared.campaign.ground == "sim"),
        width=1 if workers is None else max(1, workers.processes),
        resolves=True,
        notes=notes,
        lease=lease,
    )
    if prepared.facts is not None or prepared.spec.site.kind != prepared.campaign.ground:
        return report
    told = asked_for(prepared.spec, report.pending_s, prepared.campaign.lease.margin_s)
    return report if told is None else replace(report, notes=(*report.notes, told))


def run(
    request: Request,
    *,
    progress: Progress | None = None,
    command: tuple[str, ...] = PAPERMILL_CELL,
    in_process: bool = False,
    workers: Workers | None = None,
) -> CampaignResult:
    """Run or resume a campaign.

    Args:
        request: what is asked for.
        progress: who is told of it.
        command: the process of one cell.
        in_process: run the cells in this process, without the notebook, where the ground lets
            them (`sim`): seconds less a cell, the same files but for `notebook.ipynb`.
        workers: run them so, but beside each other on Dask workers; the same results.

    Raises:
        UserError: something is wrong with the file, the testbed or the disk; or another engine
            works on this campaign or testbed.
    """
    if kind_of(asked(request.campaign)[1]) is not None:
        from campaigns.kinds import session as kinds

        return kinds.run(request, progress=progress, workers=workers)
    return run_prepared(
        prepare(request),
        progress=progress,
        command=command,
        in_process=in_process,
        workers=workers,
    )


def run_prepared(
    prepared: Prepared,
    *,
    progress: Progress | None = None,
    command: tuple[str, ...] = PAPERMILL_CELL,
    in_process: bool = False,
    workers: Workers | None = None,
) -> CampaignResult:
    """See `run`; the ground must be there (`prepare` with `need_ground`)."""
    ground, facts = prepared.ground, prepared.facts
    assert ground is not None
    assert facts is not None
    inside = ground if _inside(prepared.campaign, in_process, workers) else None
    shown = progress or suitable()
    prepared.store.prepare()
    with ExitStack() as stack:
        locks = [
            stack.enter_context(Lock(path, what, say=shown.message))
            for path, what in (
                (prepared.store.folder / ".lock", f"the campaign {prepared.campaign.name}"),
                (ground.lock_path(), f"the testbed {prepared.testbed}"),
            )
            if path is not None
        ]
        awake = stack.enter_context(kept_awake(site_of(ground), shown.message))
        setting = Setting(
            testbed=prepared.testbed,
            notebook=prepared.notebook,
            provenance=provenance(facts, awake),
            spec=prepared.spec_file,
            model=prepared.model,
            osd_count=facts.osd_count,
            controllers_dir=prepared.controllers_dir,
            lease=_lease(prepared, shown.message),
        )
        process = CellProcess(command, tuple(lock.handle for lock in locks))
        return carry_out(prepared, setting, process, shown, inside=inside, workers=workers)


def _lease(prepared: Prepared, say: Callable[[str], None] = lambda text: None) -> Lease | None:
    """Of the testbed, where it ends.

    Raises:
        HotbedError: the site cannot tell.
    """
    tenure = None if prepared.ground is None else prepared.ground.tenure()
    return open_lease(tenure, prepared.campaign.lease, say=say)


def _inside(campaign: Campaign, in_process: bool, workers: Workers | None) -> bool:
    """Whether the cells run without processes of their own.

    Raises:
        UserError: workers were asked for and the ground has real machines.
    """
    if workers is not None and campaign.ground not in IN_PROCESS:
        raise one_testbed(campaign, " (--ground sim)")
    return (in_process or workers is not None) and campaign.ground in IN_PROCESS


def last_versions(folder: Path) -> Mapping[str, str]:
    """Store and tool versions that the last call of the engine saw; empty when there was none."""
    try:
        data = json.loads((folder / CAMPAIGN_FILE).read_text())
        return {str(key): str(value) for key, value in data["identity"]["versions"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _code(
    campaign: Campaign, cells: Mapping[str, Sequence[CellParameters]], site: str
) -> tuple[str, ...]:
    """Entry points of what runs in the campaign's cells, whichever controller they have."""
    if campaign.ground in IN_PROCESS:
        from campaigns.sim_ground import CODE as SIMULATED

        return SIMULATED
    gateway = any(parameters.op == "s3" for typed in cells.values() for parameters in typed)
    of_site = sites.code_of(site) if site in sites.kinds() else ()
    return (*CODE, *(GATEWAY_CODE if gateway else ()), *of_site)


def _ground(
    campaign: Campaign,
    site: str,
    files: tuple[Path, Path | None],
    testbed: str,
    needed: bool,
) -> tuple[Ground | None, Facts | None]:
    try:
        ground = open_ground(campaign.ground, testbed, site, *files)
        return ground, ground.facts()
    except (HotbedError, SiteError, OSError):
        if needed:
            raise
        return None, None
