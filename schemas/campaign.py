"""Campaign file: what varies, how often, on which testbed, by which notebook."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from schemas.model import Model

Kind = Literal["dlr", "ursa", "twochoice", "twochoice-objects", "prioritymeister", "mos"]
"""Kinds of campaigns, and of their runs: a kind has models of its cells and of their results."""

FIRST_STAGE = 5
"""Least number of blocks in the first stage of a grid that asks for precision."""

METRIC = "throughput_mb_s"
"""Metric of a comparison that names none."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


class Precision(Model):
    """Precision that a grid asks for: the engine adds whole blocks until the interval is as narrow
    (`schemas.precision`).

    Attributes:
        claim: id of a claim of the campaign's paper, computed from the grid's runs: a ratio within
            blocks, or a share of runs.
        metric: instead of a claim, a field of `schemas.run.OpSummary` (by default `METRIC`), or a
            name in a summary's `extra`, with `compare` or `share_of`.
        compare: controllers A and B of one cell each: the metric's ratio A / B within blocks.
        share_of: controller of one cell: the share of blocks in which its metric is 1, not 0.
        half_width: of the interval. Of a ratio relative: 0.1 if the limits are 1.1 times the
            estimate and the estimate over 1.1.
        max_blocks, max_minutes: largest number of blocks, or longest time of the grid's cells.
    """

    claim: str | None = None
    metric: str | None = None
    compare: tuple[str, str] | None = None
    share_of: str | None = None
    half_width: float = Field(gt=0, lt=1)
    max_blocks: int | None = Field(default=None, ge=1, le=1000)
    max_minutes: float | None = Field(default=None, gt=0, le=100_000)

    @model_validator(mode="after")
    def _one_of_each(self) -> Precision:
        if [self.claim, self.compare, self.share_of].count(None) != 2:
            raise ValueError("give one of claim, compare (two controllers) and share_of (one)")
        if self.claim is not None and self.metric is not None:
            raise ValueError("give claim or metric, not both")
        if (self.max_blocks is None) == (self.max_minutes is None):
            raise ValueError("give max_blocks or max_minutes, not both")
        if self.share_of is not None and self.max_blocks is None:
            raise ValueError("share_of needs max_blocks: its looks are declared beforehand")
        if self.compare is not None and self.compare[0] == self.compare[1]:
            raise ValueError("compare names the same controller twice")
        return self

    @property
    def controllers(self) -> tuple[str, ...]:
        """Controllers that the metric needs; none for a claim."""
        return self.compare or (() if self.share_of is None else (self.share_of,))


class Grid(Model):
    """Named set of cells: the product of `vary` over `fixed`. A randomized block holds every cell
    of the grid `repeats` times. `figures` names the figures that use it; `exclude` lists partial
    cells to leave out; `repetitions` is the number of blocks, with `precision` that of the first
    stage."""

    name: str
    figures: tuple[str, ...]
    vary: dict[str, list[Any]] = Field(min_length=1)
    fixed: dict[str, Any] = Field(default_factory=dict)
    exclude: list[dict[str, Any]] = Field(default_factory=list)
    repetitions: int = Field(default=3, ge=1, le=1000)
    repeats: int = Field(default=1, ge=1, le=100)
    precision: Precision | None = None

    @model_validator(mode="after")
    def _sound(self) -> Grid:
        if self.precision is not None:
            most = self.precision.max_blocks
            if self.repetitions < FIRST_STAGE:
                raise ValueError(
                    f"repetitions is {self.repetitions}; with precision it is the first stage, at "
                    f"least {FIRST_STAGE} blocks"
                )
            if most is not None and most < self.repetitions:
                raise ValueError(f"precision.max_blocks is {most}, below repetitions")
        for key, values in self.vary.items():
            if not values:
                raise ValueError(f"vary.{key} is empty: list at least one value")
            if any(value in values[:index] for index, value in enumerate(values)):
                raise ValueError(f"vary.{key} names a value twice")
            if key in self.fixed:
                raise ValueError(f"{key} is both varied and fixed: keep one of them")
        if any(not entry for entry in self.exclude):
            raise ValueError("an entry of exclude is empty and would leave out every cell")
        return self


class Limits(Model):
    """Limits beyond which a run is spoiled: redone, and counted in the report. `steal`: share of
    the machine's time that its host gave to others; `outside_cores`: cores used outside the
    testbed; `client_share`: share of the load generator's CPUs; `stalled`: share of the time
    without the recorder."""

    steal: float = Field(default=0.02, gt=0, le=1)
    outside_cores: float = Field(default=0.3, gt=0)
    client_share: float = Field(default=0.8, gt=0, le=1)
    stalled: float = Field(default=0.05, gt=0, le=1)


class LeaseRules(Model):
    """Rules for a testbed with a lease. `extend` lets the campaign ask for more time if the rest of
    the lease does not suffice. No cell starts that would end less than `margin_s` before the lease:
    the margin is for restoring the testbed, fetching files, and a late cell."""

    extend: bool = False
    margin_s: float = Field(default=180, ge=30, le=86400)


class Campaign(Model):
    """Content of a YAML file under campaigns/files/, named <short name>-<profile>; its cells are of
    the kind `kind`.

    Attributes:
        name: <short name>-<profile>; results are in artifacts/<name>.
        paper: short name of the paper: dlr, prioritymeister, twochoice, mos or ursa.
        profile: quick takes minutes, full has every figure that two cores carry, and paper has the
            paper's sizes.
        ground: where cells run: on the modelled store (sim), on this machine (local), on other
            machines, or on a store or site of an installed package (other).
        spec: file of the testbed's spec, next to this file or in Hotbed's folder.
        notebook: notebook of a cell, next to this file or in Hotbed's folder.
        time_scale: factor on all of the paper's times.
        seed: seed of the order of cells and of everything random.
        retries: number of times that a failed cell runs again.
        spoiled_retries: number of times that a spoiled cell runs again.
        spoiled_within_s: seconds for the whole campaign, if spoiled cells run again.
        limits: limits beyond which a run is spoiled.
        lease: rules for a testbed with a lease.
        optional: controllers that are left out, with the reason, if the store cannot serve them.
        parameters: parameters of every cell.
        controller_parameters_per_osd: by controller and parameter, amount per OSD (with `osds`).
        grids: sets of cells, in the order in which they run.
        claims: ids of the claims in the report, or prefixes that end with *; all claims if empty.
    """

    kind: ClassVar[Kind] = "dlr"

    name: str
    paper: str
    profile: Literal["quick", "paper", "full"]
    ground: Literal["local", "sim", "chameleon", "inventory", "other", "fake"]
    spec: str
    notebook: str
    time_scale: float = Field(gt=0, le=10)
    seed: int = Field(default=1, ge=0, lt=2**32)
    retries: int = Field(default=1, ge=0, le=10)
    spoiled_retries: int = Field(default=2, ge=0, le=10)
    spoiled_within_s: float | None = Field(default=None, gt=0, le=1e7)
    limits: Limits = Limits()
    lease: LeaseRules = LeaseRules()
    optional: tuple[str, ...] = ()
    parameters: dict[str, Any] = Field(default_factory=dict)
    controller_parameters_per_osd: dict[str, dict[str, int | float]] = Field(default_factory=dict)
    grids: list[Grid] = Field(min_length=1)
    claims: tuple[str, ...] = ()

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError("a name is lower-case letters, digits and -, at most 40 characters")
        return name

    @model_validator(mode="after")
    def _distinct(self) -> Campaign:
        names = [grid.name for grid in self.grids]
        if len(set(names)) != len(names):
            raise ValueError("two grids have the same name")
        return self


class SyntheticCampaign(Campaign):
    """Campaign with self-contained cells: no testbed, no notebook."""

    ground: Literal["sim"] = "sim"
    spec: str = Field(default="", max_length=0)
    notebook: str = Field(default="", max_length=0)
    time_scale: float = Field(default=1, ge=1, le=1)


class PlannerCampaign(SyntheticCampaign):
    """Campaign with cells that make an instance and plan for it (the file says ``planner: ursa``).
    Times are those of the planning processor."""

    kind: ClassVar[Kind] = "ursa"

    planner: Literal["ursa"]


class BurstCampaign(SyntheticCampaign):
    """Campaign with cells that simulate bursts of writes; times are virtual. The file says
    ``simulation: twochoice``."""

    kind: ClassVar[Kind] = "twochoice"

    simulation: Literal["twochoice"]


class SystemCampaign(Campaign):
    """Campaign with cells that are simulated, or run on a testbed of `spec`. There is no notebook
    and no time scale."""

    ground: Literal["sim", "local"] = "sim"
    spec: str = ""
    notebook: str = Field(default="", max_length=0)
    time_scale: float = Field(default=1, ge=1, le=1)

    @model_validator(mode="after")
    def _on_something(self) -> SystemCampaign:
        if self.ground == "local" and not self.spec:
            raise ValueError("spec is missing: on the ground local it names the testbed's file")
        return self


class ReplayCampaign(SystemCampaign):
    """Campaign with cells that replay traces of competing workloads, in the traces' own time (the
    file says ``system: prioritymeister``)."""

    kind: ClassVar[Kind] = "prioritymeister"

    system: Literal["prioritymeister"]


class ObjectCampaign(Campaign):
    """Campaign with cells that write bursts to the two-choice scheduler's object servers on a
    testbed of `spec` (the file says ``objects: twochoice``). There is no notebook and no time
    scale."""

    kind: ClassVar[Kind] = "twochoice-objects"

    objects: Literal["twochoice"]
    ground: Literal["local"] = "local"
    notebook: str = Field(default="", max_length=0)
    time_scale: float = Field(default=1, ge=1, le=1)


class MosCampaign(SystemCampaign):
    """Campaign with cells that run COSBench's workloads on microstores (the file says ``system:
    mos``), or that COSPerf computes. The time scale is a parameter of the cells."""

    kind: ClassVar[Kind] = "mos"

    system: Literal["mos"]
    ground: Literal["sim", "local"] = "local"
