"""Declaration of a paper's campaigns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from campaigns.engine.display import Progress
from campaigns.engine.identity import Recipe, Sameness
from campaigns.engine.job import Make
from campaigns.engine.plan import Cell, Parameters, Plan
from campaigns.engine.precision import Blocks
from campaigns.engine.provenance import Facts
from campaigns.engine.store import RunStore
from campaigns.papers.dlr.cell import StoreGround
from schemas.campaign import Campaign
from schemas.precision import Reached
from testbed.spec import TestbedSpec

P = TypeVar("P", bound=Parameters)

SYNTHETIC: Mapping[str, Any] = {"synthetic": True}


@dataclass(frozen=True)
class Prepared:
    """A campaign that is validated and planned; nothing has been started or written.

    Attributes:
        file: the campaign's file.
        plan, full_plan: the requested cells, and all cells of the file.
        reached: decisions on the grids that ask for precision.
        blocks: makes the plan with the blocks that the present results ask for.
        spec, spec_file: the testbed's spec and its file, if there is a testbed.
        notebook: runs a cell; the campaign's file for a kind without notebooks.
        ground, facts: for kinds with a ground that must be open before planning; None if it is not
            up.
        outside: folders of the campaign's controllers from outside Hotbed, by name.
        model: absolute path; see `campaigns.engine.session.Request`.
        left_out: reasons why the campaign's optional controllers do not run, by name.
        blocked: the fault by hand that is in force on the testbed, and the command that undoes it.
    """

    campaign: Campaign
    file: Path
    plan: Plan
    full_plan: Plan
    store: RunStore
    testbed: str
    notebook: Path
    spec: TestbedSpec | None = None
    spec_file: Path | None = None
    ground: StoreGround | None = None
    facts: Facts | None = None
    outside: Mapping[str, Path] = field(default_factory=dict)
    model: Path | None = None
    reached: tuple[Reached, ...] = ()
    blocks: Blocks | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    blocked: str = ""


@dataclass(frozen=True, kw_only=True)
class Computed(Generic[P]):
    """A ground on which Dask workers compute cells in parallel.

    Attributes:
        site: site kind in a run's provenance and identity.
        code: entry points of a cell's code (`testbed.closure`), part of a run's identity.
        own: further entry points by a cell's parameters, such as its controller's. If they change,
            results of other cells stay valid.
        libraries: libraries with versions that are part of a run's identity.
        planned_s: estimated seconds of a cell; finished cells correct the estimate.
        recipe: recipe of a cell on a worker.
        calibration: the data to which a model was fitted, for the record.
        seconds_count: True if a cell's seconds are part of its result. Cells then run one at a time
            with all of this machine's processors, unless workers are requested.
    """

    site: str
    code: tuple[str, ...]
    planned_s: Callable[[P], float]
    recipe: Recipe
    own: Callable[[P], tuple[str, ...]] = lambda _: ()
    libraries: tuple[str, ...] = ()
    calibration: Mapping[str, Any] = field(default_factory=lambda: SYNTHETIC)
    seconds_count: bool = False


@dataclass(frozen=True, kw_only=True)
class OnTestbed(Generic[P]):
    """A ground on which cells run one after another, on the testbed of the campaign's spec. The
    engine's process makes the cells, because it only waits for the testbed.

    Attributes:
        code, own, planned_s: as in `Computed`.
        open: opens the testbed for a call, and yields its facts and the maker of a cell.
        additional_s: estimated time in addition to the pending cells, in seconds.
    """

    code: tuple[str, ...]
    planned_s: Callable[[P], float]
    open: Callable[[Prepared, Progress], AbstractContextManager[tuple[Facts, Make]]]
    additional_s: Callable[[Sequence[Cell], RunStore], float] = lambda _cells, _store: 0.0
    own: Callable[[P], tuple[str, ...]] = lambda _: ()


@dataclass(frozen=True, kw_only=True)
class OnStore:
    """A ground with cells that are steps on a store (`campaigns.papers.dlr.cell.Services`). Each
    cell has its own process with the campaign's notebook.

    Attributes:
        code: entry points of the cells' code (by grid) on a kind of site, without those of the
            controller and the notebook.
        open: opens the ground: (testbed, site, spec file, file of the model's constants).
        planned_s: estimated seconds of a cell at a time scale; finished cells correct the estimate.
        same: requirements on workers, if cells may also run on workers or in the engine's process,
            because nothing of the cells outlives the process.
    """

    code: Callable[[Mapping[str, Sequence[Any]], str], tuple[str, ...]]
    open: Callable[[str, str, Path, Path | None], StoreGround]
    planned_s: Callable[..., float]
    same: Sameness | None = None


Ground = Computed[P] | OnTestbed[P] | OnStore


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[P]):
    """A kind of campaigns.

    Attributes:
        does: the activity of such a campaign, for sentences: ``replays traces``.
        grounds: the allowed grounds by name.
        require: raises if pending cells cannot be made because files that they name are unsuitable.
        notes: sentences of a dry run about the pending cells.
        resolves: True if a dry run reports the width of intervals for every grid, not only for
            those that ask for precision.
        options: options of `hotbed run` that the kind takes in addition to the common ones.
    """

    does: str
    grounds: Mapping[str, Ground[P]]
    require: Callable[[Sequence[Cell], Campaign], None] = lambda _pending, _campaign: None
    notes: Callable[[Sequence[P], Campaign], Sequence[str]] = lambda _pending, _campaign: ()
    resolves: bool = False
    options: frozenset[str] = frozenset()
