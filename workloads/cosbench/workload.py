"""Workloads A to D of the MOS paper (Table 1), typed, and the COSBench XML that they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Literal
from xml.sax.saxutils import quoteattr

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from schemas.errors import UserError
from schemas.mistakes import mistake
from workloads.cosbench.access import AuthAccess, MockStorage, NoAuth, StorageAccess
from workloads.cosbench.sizes import LARGEST, Constant, Part, Sizes, Uniform, Weighted

STAGES = ("init", "prepare", "main", "cleanup", "dispose")


class _Typed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Step(_Typed):
    """A stretch of a load that changes: so many workers for so long, seconds."""

    workers: int = Field(ge=1, le=100_000)
    runtime_s: int = Field(ge=1, le=10_000_000)


class Workload(_Typed):
    """One tenant's load.

    Percentages of operations sum to 100. There are `containers` containers. Reads draw evenly from
    `objects` objects of each, which `prepare` writes. Writes and deletes draw from a range of their
    own, the next `objects` numbers: a read never misses, and deletes meet what writes wrote. (A
    delete of what is not there counts as success, in COSBench as in Swift's clients.)

    `workers` operations are in flight (closed loop) for `runtime_s` seconds after `rampup_s`, or
    until there were `total_ops`; both given, whatever comes first. `steps` has the main stage
    repeated with other workers and times in place of both. `interval_s` is that of the series.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")
    letter: Literal["A", "B", "C", "D"] | None = None
    sizes: Sizes
    read: int = Field(ge=0, le=100)
    write: int = Field(ge=0, le=100)
    delete: int = Field(ge=0, le=100)
    workers: int = Field(default=32, ge=1, le=100_000)
    containers: int = Field(default=4, ge=1, le=1_000_000)
    objects: int = Field(default=50, ge=1, le=100_000_000)
    runtime_s: int | None = Field(default=900, ge=1, le=10_000_000)
    rampup_s: int = Field(default=0, ge=0, le=1_000_000)
    rampdown_s: int = Field(default=0, ge=0, le=1_000_000)
    total_ops: int | None = Field(default=None, ge=1)
    steps: tuple[Step, ...] = ()
    interval_s: int = Field(default=5, ge=1, le=3600)
    prepare_workers: int = Field(default=4, ge=1, le=10_000)
    prefix: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")
    storage: StorageAccess = Field(default_factory=MockStorage)
    auth: AuthAccess = Field(default_factory=NoAuth)

    @model_validator(mode="after")
    def _sound(self) -> Workload:
        if self.read + self.write + self.delete != 100:
            mix = f"{self.read} + {self.write} + {self.delete}"
            raise ValueError(f"read, write and delete must sum to 100, not {mix}")
        if self.runtime_s is None and self.total_ops is None and not self.steps:
            raise ValueError("give runtime_s or total_ops: one of them ends the main stage")
        if self.steps and self.total_ops is not None:
            raise ValueError("steps end by time: give no total_ops with them")
        # COSBench divides them among the workers in whole numbers, and takes 0 for no limit.
        if self.total_ops is not None and self.total_ops < self.workers:
            raise ValueError(
                f"total_ops ({self.total_ops}) cannot be divided among {self.workers} workers: "
                "make it as many at least"
            )
        return self

    def with_(self, **changes: Any) -> Workload:
        """A copy with other values, checked like a new one.

        Raises:
            UserError: the values make no workload; one sentence says why.
        """
        try:
            return Workload.model_validate(dict(self) | changes)
        except ValidationError as error:
            raise UserError(mistake(error, Workload).sentence(f"workload {self.name}")) from error

    @property
    def container_prefix(self) -> str:
        """What containers are called, a number after it: `prefix`, or made of the name; three
        characters and more with the number, as S3 wants it."""
        if self.prefix is not None:
            return self.prefix
        made = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")
        return made[:40] if len(made) > 1 else f"load-{made}-"

    @property
    def prepared_bytes(self) -> float:
        """What `prepare` writes, expected."""
        return self.containers * self.objects * self.sizes.mean_bytes


def _table_1() -> Mapping[str, Workload]:
    small = Sizes(numbers=Uniform(low=1, high=128), unit="KB")
    large = Sizes(numbers=Uniform(low=1, high=128), unit="MB")
    mixes = {"A": (small, 90, 5), "B": (small, 5, 90), "C": (large, 90, 5), "D": (large, 5, 90)}
    made = {}
    for letter, (sizes, read, write) in mixes.items():
        made[letter] = Workload.model_validate(
            {"name": f"workload{letter}", "letter": letter, "sizes": sizes}
            | {"read": read, "write": write, "delete": 5}
        )
    return MappingProxyType(made)


TABLE_1: Mapping[str, Workload] = _table_1()
"""Table 1: A web hosting, B online game hosting, C online video sharing, D enterprise backup.
Sizes, mix and 15 minutes (section 1) are the paper's; it does not tell workers, containers and
objects."""


def scaled(workload: Workload, factor: float) -> Workload:
    """The workload with smaller or larger objects: upper bounds of sizes times `factor`.

    `scaled(TABLE_1["C"], 1 / 8)` has 1-16 MB, what a machine with two cores can carry.

    Raises:
        UserError: bounds would be no whole numbers of their unit, or below the lower ones.
    """
    share = Fraction(factor).limit_denominator(10_000)
    numbers = workload.sizes.numbers

    def upper(low: int, high: int) -> int:
        value = high * share
        if value.denominator != 1 or not low <= value <= LARGEST:
            raise UserError(
                f"{workload.sizes} scaled by {factor:g} ends at {float(value):g} "
                f"{workload.sizes.unit}: choose a factor that gives a whole number, "
                f"{low} or more{f' and at most {LARGEST}' if value > LARGEST else ''}."
            )
        return int(value)

    made: Any
    if isinstance(numbers, Constant):
        made = Constant(value=upper(1, numbers.value))
    elif isinstance(numbers, Weighted):
        parts = [Part(low=p.low, high=upper(p.low, p.high), weight=p.weight) for p in numbers.parts]
        made = Weighted(parts=tuple(parts))
    else:
        made = type(numbers)(low=numbers.low, high=upper(numbers.low, numbers.high))
    return workload.with_(sizes=Sizes(numbers=made, unit=workload.sizes.unit))


def to_xml(workload: Workload, stages: Sequence[str] = STAGES, *, masked: bool = False) -> str:
    """COSBench's XML, with each secret in plain unless `masked`.

    Args:
        workload: what to write.
        stages: which, of init, prepare, main, cleanup and dispose; they come in this order.
        masked: secrets as ``***``.

    Raises:
        UserError: a stage is unknown, or there is none.
    """
    unknown = [stage for stage in stages if stage not in STAGES]
    if unknown or not stages:
        raise UserError(
            f"stages {', '.join(unknown) or 'are missing'}: choose from {', '.join(STAGES)}."
        )
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    attributes = {"name": workload.name, "description": _description(workload)}
    lines.append(f"<workload{_written(attributes)}>")
    for tag, access in (("auth", workload.auth), ("storage", workload.storage)):
        config = access.config(masked=masked)
        written = {"type": access.type} | ({"config": config} if config else {})
        lines.append(f"  <{tag}{_written(written)}/>")
    lines.append("  <workflow>")
    for stage in STAGES:
        if stage in stages:
            lines += _stage(workload, stage)
    lines += ["  </workflow>", "</workload>", ""]
    return "\n".join(lines)


def _description(workload: Workload) -> str:
    mix = f"{workload.read}% read, {workload.write}% write, {workload.delete}% delete"
    table = f" (MOS, Table 1, {workload.letter})" if workload.letter else ""
    return f"{workload.sizes}, {mix}{table}"


def _written(attributes: Mapping[str, object]) -> str:
    return "".join(f" {name}={quoteattr(str(value))}" for name, value in attributes.items())


def _stage(workload: Workload, stage: str) -> list[str]:
    if stage != "main":
        attributes = {"type": stage, "workers": 1, "config": _special(workload, stage)}
        if stage in ("prepare", "cleanup"):
            attributes["workers"] = workload.prepare_workers
        return _workstage(stage, [f"      <work{_written(attributes)}/>"])
    if not workload.steps:
        return _workstage("main", _main(workload, "main", workload.workers, workload.runtime_s))
    lines = []
    for number, step in enumerate(workload.steps, 1):
        name = f"main-{number}"
        lines += _workstage(name, _main(workload, name, step.workers, step.runtime_s))
    return lines


def _workstage(name: str, works: list[str]) -> list[str]:
    return [f"    <workstage{_written({'name': name})}>", *works, "    </workstage>"]


def _special(workload: Workload, stage: str) -> str:
    parts = [f"cprefix={workload.container_prefix}", f"containers=r(1,{workload.containers})"]
    if stage == "prepare":
        parts += [f"objects=r(1,{workload.objects})", f"sizes={workload.sizes}"]
    elif stage == "cleanup":
        parts += [f"objects=r(1,{2 * workload.objects})"]
    return ";".join(parts)


def _main(workload: Workload, name: str, workers: int, runtime_s: int | None) -> list[str]:
    work: dict[str, object] = {"name": name, "workers": workers, "interval": workload.interval_s}
    if runtime_s is not None:
        work["runtime"] = runtime_s
    work |= {"rampup": workload.rampup_s, "rampdown": workload.rampdown_s}
    if workload.total_ops is not None:
        work["totalOps"] = workload.total_ops
    drawn = f"cprefix={workload.container_prefix};containers=u(1,{workload.containers})"
    read = f"{drawn};objects=u(1,{workload.objects})"
    other = f"{drawn};objects=u({workload.objects + 1},{2 * workload.objects})"
    operations = (
        ("read", workload.read, read),
        ("write", workload.write, f"{other};sizes={workload.sizes}"),
        ("delete", workload.delete, other),
    )
    lines = [f"      <work{_written(work)}>"]
    for kind, ratio, config in operations:
        if ratio:
            attributes = {"type": kind, "ratio": ratio, "config": config}
            lines.append(f"        <operation{_written(attributes)}/>")
    return [*lines, "      </work>"]
