"""`hotbed compare`: a campaign that runs every controller in every block.

The campaign is made in memory, and the engine runs it like any other. Its runs are in
`artifacts/compare-<ground>/`; they are resumed and never overwritten. A finished run (same cell,
same code) is reused. An added controller, block or operation runs only new cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from campaigns.engine import session
from campaigns.engine.campaign_file import EXPERIMENT, ROOT
from campaigns.engine.dask import Workers
from campaigns.engine.display import CampaignResult, Progress
from campaigns.engine.estimate import DryRunReport
from campaigns.engine.kind import Prepared
from campaigns.engine.plan import Cell
from campaigns.engine.store import RunStore
from controllers.decider import declared
from controllers.registry import Controller, available, no_controller, refuse_unoffered
from schemas.campaign import Campaign, Limits
from schemas.cells.dlr import DLR, DlrCell
from schemas.comparison import Comparison, PlannedCell
from schemas.errors import UserError, not_allowed, unknown
from schemas.mistakes import checked
from testbed.spec import no_spec
from testbed.stores.contract import Needs

ALL = "all"
GRID = "comparison"
SPEC = "testbed/specs/dlr.yaml"
TIME_SCALE = 1 / 6
SIM_BLOCKS = 6
BLOCKS = 3
"""A block takes minutes on a real testbed and seconds on `sim`."""

_VARIED = ("controller", "op", "scenario")
_OPTIONS = {"op": "--op", "scenario": "--scenario", "controller": "--controllers"}


@dataclass(frozen=True)
class Ask:
    """Request for a comparison. Times are the paper's.

    `controllers`: names, or ``all`` for every controller that the ground's store can serve.
    `parameters`: for every cell (`schemas.cells.dlr`), where they differ from the default.
    `blocks`: None means 6 on the ground sim and 3 elsewhere. `model`: a file of constants of the
    ground sim.
    """

    controllers: tuple[str, ...] = (ALL,)
    ground: str = "sim"
    baseline: str = "default"
    scenarios: tuple[str, ...] = ("heterogeneity",)
    ops: tuple[str, ...] = ("seq", "rand")
    blocks: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    time_scale: float = TIME_SCALE
    seed: int = 1
    spec: Path | None = None
    testbed: str | None = None
    artifacts: Path = Path("artifacts")
    controllers_dir: Path | None = None
    model: Path | None = None
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Planned:
    """A comparison that is validated and planned; nothing has been started or written."""

    comparison: Comparison
    prepared: Prepared


@dataclass(frozen=True)
class Compared:
    """A comparison after the engine has run it; `folder` has the runs."""

    comparison: Comparison
    result: CampaignResult
    folder: Path

    def runs_of(self, controller: str) -> list[Path]:
        """Return the folders of the finished runs of `controller`, by block."""
        store = RunStore(self.folder)
        cells = [cell for cell in self.comparison.cells if cell.controller == controller]
        found = [(cell, store.done(cell.run_id)) for cell in cells]
        return [
            self.folder / cell.run_id / f"attempt-{attempt}"
            for cell, attempt in sorted(found, key=lambda pair: pair[0].block)
            if attempt is not None
        ]

    def _repr_html_(self) -> str:
        return self.result._repr_html_()


@dataclass(frozen=True)
class _Chosen:
    """Controllers in order with their needs, and the excluded controllers with the reasons."""

    needs: Mapping[str, Needs]
    left_out: Mapping[str, str]
    by_name: frozenset[str]  # named one by one, not through `all`


def plan(ask: Ask, *, need_ground: bool = True) -> Planned:
    """Validate the request and plan the comparison. Without `need_ground`, the testbed need not be
    up, and every controller is planned. UserError: one sentence about the first error."""
    chosen = _choose(ask)
    prepared = _prepare(ask, chosen, need_ground)
    if prepared.ground is not None:
        offered = _offered(chosen, prepared.ground.offers(), ask.ground)
        if len(offered.needs) < len(chosen.needs):
            chosen = offered
            prepared = _prepare(ask, chosen, need_ground)
    campaign = prepared.campaign
    cells = tuple(map(_planned, prepared.plan.cells))
    comparison = Comparison(
        ground=campaign.ground,
        testbed=prepared.testbed,
        baseline=next(iter(chosen.needs)),
        controllers=tuple(chosen.needs),
        left_out=dict(chosen.left_out),
        scenarios=tuple(campaign.grids[0].vary["scenario"]),
        ops=tuple(campaign.grids[0].vary["op"]),
        blocks=campaign.grids[0].repetitions,
        seed=campaign.seed,
        time_scale=campaign.time_scale,
        parameters=dict(campaign.parameters),
        cells=cells,
    )
    return Planned(comparison, prepared)


def dry_run(ask: Ask, *, workers: Workers | None = None) -> DryRunReport:
    """Return the cells that would run, their time and the finished cells. Write nothing."""
    planned = plan(ask, need_ground=False)
    report = session.dry_run(planned.prepared, workers=workers, in_process=True)
    left_out = (f"left out: {why}" for why in planned.comparison.left_out.values())
    return replace(report, notes=(*report.notes, *left_out))


def compare(
    ask: Ask,
    *,
    progress: Progress | None = None,
    workers: Workers | None = None,
) -> Compared:
    """Run or resume the comparison. If a controller fails, only its own cells fail. Simulated cells
    run in this process, where hundreds take minutes, or in parallel on `workers`. The results are
    the same. UserError: the request, the testbed, the workers or the disk is unsuitable, or another
    engine works on this comparison or testbed."""
    planned = plan(ask)
    result = session.run(planned.prepared, progress=progress, in_process=True, workers=workers)
    return Compared(planned.comparison, result, planned.prepared.store.folder)


def _prepare(ask: Ask, chosen: _Chosen, need_ground: bool) -> Prepared:
    if len(chosen.needs) < 2:
        raise UserError(
            f"there is nothing to compare with {ask.baseline}",
            do="name another controller with --controllers, or all",
        )
    request = session.Request(
        _campaign(ask, tuple(chosen.needs)),
        testbed=ask.testbed,
        artifacts=ask.artifacts,
        controllers_dir=ask.controllers_dir,
        model=ask.model,
    )
    return session.prepare(request, need_ground=need_ground)


def _campaign(ask: Ask, controllers: Sequence[str]) -> Campaign:
    for name in ask.parameters:
        if name in _VARIED:
            raise UserError(
                "has an option", where=f"--parameter {name}", do=f"give {_OPTIONS[name]} instead"
            )
        if name not in DLR.names:
            known = (known for known in DLR.names if known not in _VARIED)
            raise unknown("parameter", name, known, where="--parameter")
    scenarios, ops = _list(ask.scenarios, "--scenario"), _list(ask.ops, "--op")
    blocks = ask.blocks
    if blocks is None:
        blocks = SIM_BLOCKS if ask.ground == "sim" else BLOCKS
    _within("--blocks", blocks, 1, 1000)
    _within("--seed", ask.seed, 0, 2**32 - 1)
    _within("--time-scale", ask.time_scale, 0.001, 10)
    grounds = get_args(Campaign.model_fields["ground"].annotation)
    if ask.ground not in grounds:
        known = (name for name in grounds if name != "fake")
        raise unknown("ground", ask.ground, known, where="--ground")
    if ask.spec is not None and not ask.spec.is_file():
        raise no_spec(ask.spec).at("--spec")
    body = {
        "name": f"compare-{ask.ground}",
        "paper": "dlr",
        "profile": "full",
        "ground": ask.ground,
        "spec": str(ROOT / SPEC if ask.spec is None else ask.spec.resolve()),
        "notebook": str(EXPERIMENT),
        "time_scale": ask.time_scale,
        "seed": ask.seed,
        # A simulated cell fails the same way every time.
        "retries": 0 if ask.ground == "sim" else 1,
        "limits": ask.limits.model_dump(),
        "parameters": dict(ask.parameters),
        "grids": [
            {
                "name": GRID,
                "figures": (GRID,),
                "vary": {"scenario": scenarios, "op": ops, "controller": list(controllers)},
                "repetitions": blocks,
            }
        ],
    }
    return checked(Campaign, body, "compare")


def _choose(ask: Ask) -> _Chosen:
    """Return the requested controllers, baseline first; leave out those that cannot be created."""
    dirs = () if ask.controllers_dir is None else (ask.controllers_dir.resolve(),)
    known = available(dirs)
    if ask.baseline.strip() == ALL:
        raise UserError(
            "all is not allowed", where="--baseline", allowed="one controller, such as default"
        )
    by_name = [
        _known(name, known) for name in (ask.baseline, *ask.controllers) if name.strip() != ALL
    ]
    if ALL in (name.strip() for name in ask.controllers):
        # Outside controllers come last, because they are compared with the built-in ones.
        everyone = sorted(known, key=lambda name: (known[name].outside, name))
    elif ask.controllers:
        everyone = []
    else:
        raise UserError("--controllers is empty", do="name controllers, or all")
    needs: dict[str, Needs] = {}
    left_out: dict[str, str] = {}
    for name in dict.fromkeys([*by_name, *everyone]):
        try:
            needs[name], _ = declared(known[name], {})
        except UserError as error:
            if name in by_name:
                raise
            left_out[name] = str(error).removesuffix(".")
    return _Chosen(needs, left_out, frozenset(by_name))


def _known(name: str, known: Mapping[str, Controller]) -> str:
    found = name.strip().replace("_", "-")
    if found not in known:
        raise no_controller(name.strip(), known)
    return found


def _offered(chosen: _Chosen, offers: Needs, ground: str) -> _Chosen:
    """Leave out controllers that the store cannot serve; raise for one that was named."""
    needs: dict[str, Needs] = {}
    left_out = dict(chosen.left_out)
    for name, wanted in chosen.needs.items():
        try:
            refuse_unoffered(name, wanted, offers, ground)
        except UserError as error:
            if name in chosen.by_name:
                raise
            left_out[name] = str(error).removesuffix(".")
        else:
            needs[name] = wanted
    return _Chosen(needs, left_out, chosen.by_name)


def _list(values: Iterable[str], option: str) -> list[str]:
    found = list(dict.fromkeys(value.strip() for value in values if value.strip()))
    if not found:
        raise UserError(f"{option} is empty", do="name at least one")
    return found


def _planned(cell: Cell) -> PlannedCell:
    parameters = cell.parameters
    assert isinstance(parameters, DlrCell), parameters
    return PlannedCell(
        run_id=cell.run_id,
        controller=parameters.controller,
        scenario=parameters.scenario,
        op=parameters.op,
        block=cell.block,
    )


def _within(option: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # also refuses NaN
        raise not_allowed(option, value, f"{low:g} to {high:g}")
