"""What a paper says of its campaigns, and all that it has to say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from campaigns.job import Make
from campaigns.plan import Cell, Parameters, Plan
from campaigns.progress import Progress
from campaigns.run_store import RunStore
from campaigns.sameness import Recipe, Sameness
from campaigns.services import Facts
from campaigns.services import Ground as CellGround
from schemas.campaign import Campaign
from testbed.spec import TestbedSpec

P = TypeVar("P", bound=Parameters)

SYNTHETIC: Mapping[str, Any] = {"synthetic": True}


@dataclass(frozen=True)
class Prepared:
    """A campaign that is validated and planned; nothing has been started or written.

    Attributes:
        file: the campaign's.
        plan, whole: cells that are asked for, and all that the file holds.
        spec, spec_file: the testbed's, where there is one.
        notebook: runs a cell; the campaign's file for a kind without notebooks.
        ground, facts: of the kinds whose ground must be there before cells are planned; None if it
            is not up.
        controllers_dir, model: absolute; see `campaigns.session.Request`.
    """

    campaign: Campaign
    file: Path
    plan: Plan
    whole: Plan
    store: RunStore
    testbed: str
    notebook: Path
    spec: TestbedSpec | None = None
    spec_file: Path | None = None
    ground: CellGround | None = None
    facts: Facts | None = None
    controllers_dir: Path | None = None
    model: Path | None = None


def _none_of_its_own(_parameters: Any) -> tuple[str, ...]:
    return ()


def _no_seconds(_cells: Sequence[Cell], _store: RunStore) -> float:
    return 0.0


@dataclass(frozen=True, kw_only=True)
class Computed(Generic[P]):
    """A ground on which cells are computed, beside each other, on Dask workers.

    Attributes:
        site: stands for the kind of site in a run's provenance and identity.
        code: entry points of what runs in a cell (`testbed.closure`), part of a run's identity.
        own: further ones by a cell's parameters, such as those of its controller: when they
            change, the results of others stay.
        libraries: those whose versions are part of a run's identity.
        planned_s: seconds that a cell takes, roughly; the cells that are done correct them.
        recipe: how a worker makes a cell.
        calibration: for the record, what a model was fitted to.
        seconds_count: a cell's seconds are part of its result: one at a time, with all of this
            machine's processors, unless something else is asked for.
    """

    site: str
    code: tuple[str, ...]
    planned_s: Callable[[P], float]
    recipe: Recipe
    own: Callable[[P], tuple[str, ...]] = _none_of_its_own
    libraries: tuple[str, ...] = ()
    calibration: Mapping[str, Any] = field(default_factory=lambda: SYNTHETIC)
    seconds_count: bool = False


@dataclass(frozen=True, kw_only=True)
class OnTestbed(Generic[P]):
    """A ground on which cells run one after another, on the testbed of the campaign's spec. They
    are made in the engine's process, which only waits for it.

    Attributes:
        code, own, planned_s: as of `Computed`.
        open: the testbed for the time of a call: its facts, and what makes a cell on it.
        beside_s: seconds that pass beside the cells that are still to be made.
    """

    code: tuple[str, ...]
    planned_s: Callable[[P], float]
    open: Callable[[Prepared, Progress], AbstractContextManager[tuple[Facts, Make]]]
    beside_s: Callable[[Sequence[Cell], RunStore], float] = _no_seconds
    own: Callable[[P], tuple[str, ...]] = _none_of_its_own


@dataclass(frozen=True, kw_only=True)
class OnStore:
    """A ground whose cells are steps on a store (`campaigns.services`), each in a process of its
    own with the campaign's notebook.

    Attributes:
        code: entry points of what runs in the cells (by grid) on a kind of site; the controller's
            and the notebook's come in addition.
        open: opens the ground: (testbed, site, spec file, file of the model's constants).
        validate: checks the campaign's cells against controllers and spec; returns them by grid.
        same: requirements on workers, where cells may also run in the engine's own process or on
            workers, since nothing of theirs outlives it.
    """

    code: Callable[[Mapping[str, Sequence[Any]], str], tuple[str, ...]]
    open: Callable[[str, str, Path, Path | None], CellGround]
    validate: Callable[..., Mapping[str, list[Any]]]
    same: Sameness | None = None


Ground = Computed[P] | OnTestbed[P] | OnStore


def _require_nothing(_pending: Sequence[Cell], _campaign: Campaign) -> None:
    """Every cell can be made."""


def _no_notes(_pending: Sequence[P], _campaign: Campaign) -> Sequence[str]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[P]):
    """Campaigns of a kind.

    Attributes:
        does: what such a campaign does, for sentences: ``replays traces``.
        grounds: by name, those on which it may run.
        require: raises where cells that are still to be made cannot be, as files that they name are
            not what they need.
        notes: what a dry run tells of the cells that are still to be made, in sentences.
        resolves: a dry run also tells the smallest effect that the repetitions resolve.
        options: those of `hotbed run` that it takes in addition to what every kind takes.
    """

    does: str
    grounds: Mapping[str, Ground[P]]
    require: Callable[[Sequence[Cell], Campaign], None] = _require_nothing
    notes: Callable[[Sequence[P], Campaign], Sequence[str]] = _no_notes
    resolves: bool = False
    options: frozenset[str] = frozenset()
