"""The typed parameters of one cell: the instance, the method, and how far it may go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from controllers.ursa.methods import METHODS
from schemas.errors import UserError
from schemas.sizes import counts_of, size_name

Kind = Literal["s1", "s2", "s3"]
Selection = Literal["highest", "random"]
Program = Literal["lp", "ilp"]
Divide = Literal["dc", "none"]

INPUTS = "inputs"
"""The method of a cell that plans nothing and describes the instance (figures 1 and 3)."""

VARIED = "algorithm1"
"""The method that figure 9 varies."""

BYTES_A_PARTITION = 12  # beside 4 a replica: two loads, and what is primary
BASE_MIB = 400.0  # interpreter, libraries, compiled loops, a solver
MEMORY_FACTOR = 5.0  # the most that was seen beside an input's own size, and some room


class UrsaParameters(BaseModel):
    """One cell. `size` is the paper's name of nodes and partitions (``10K-10M``).

    Attributes:
        kind, nodes, partitions, replicas, tail, load_max, racks: of the instance, see
            `controllers.ursa.generate.Shape`.
        swap_success: part of the secondaries that can become primary (section 5.1: 0.9).
        method: a name of `controllers.ursa.methods.METHODS`, or ``inputs``.
        selection: which objects leave hot nodes (figure 8), for methods that are told.
        program, divide, first_radius, radius_step: the variant of Algorithm 1 (figure 9): solved as
            LP or ILP, in groups (dc) or at once (none), r_0 and delta r.
        max_move_cost: no single move costs more.
        time_limit_s: the best plan found until then counts (section 5.1 gives SA 30 minutes).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind = "s1"
    nodes: int = Field(ge=1, le=10**6)
    partitions: int = Field(ge=1, le=10**9)
    replicas: int = Field(default=3, ge=1, le=127)
    tail: float = Field(default=1.5, gt=0, le=100)
    load_max: float | None = Field(default=None, gt=1)
    racks: int = Field(default=0, ge=0, le=10**6)
    swap_success: float = Field(default=0.9, ge=0, le=1)
    method: str = "alp"
    selection: Selection = "highest"
    program: Program | None = None
    divide: Divide | None = None
    first_radius: float | None = Field(default=None, gt=0)
    radius_step: float | None = Field(default=None, gt=0)
    max_move_cost: float | None = Field(default=None, ge=0)
    time_limit_s: float = Field(default=1800, gt=0, le=7 * 86400)

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, values: Any) -> Any:
        """Without `size`, and with the paper's variant (DC+LP) where none is named: one cell has
        one way to be written."""
        if not isinstance(values, Mapping):
            return values
        plain = dict(values)
        if "size" in plain:
            if {"nodes", "partitions"} & set(plain):
                raise ValueError("size already says nodes and partitions: keep one of them")
            plain["nodes"], plain["partitions"] = counts_of(str(plain.pop("size")))
        if plain.get("method") == VARIED:
            plain["program"] = plain.get("program") or "lp"
            plain["divide"] = plain.get("divide") or "dc"
        return plain

    @model_validator(mode="after")
    def _together(self) -> UrsaParameters:
        if self.method != INPUTS and self.method not in METHODS:
            known = ", ".join([*METHODS, INPUTS])
            raise ValueError(f"method: there is no {self.method!r}; there are {known}")
        variant = (self.program, self.divide, self.first_radius, self.radius_step)
        if self.method != VARIED and any(value is not None for value in variant):
            raise ValueError(
                f"program, divide, first_radius and radius_step are {VARIED}'s, and {self.method} "
                "has none of them"
            )
        if self.selection != "highest" and not self.is_told_objects:
            raise ValueError(f"selection: {self.method} chooses the objects by itself")
        if self.replicas > self.nodes:
            raise ValueError(f"{self.replicas} replicas do not fit on {self.nodes} nodes")
        if self.racks > self.nodes:
            raise ValueError(f"racks: {self.racks} for {self.nodes} nodes: at most one a node")
        return self

    @property
    def is_told_objects(self) -> bool:
        """Whether the method is told which objects leave."""
        return self.method in METHODS and METHODS[self.method].kind == "placer"

    @property
    def controller(self) -> str:
        """The method, as the engine counts."""
        return self.method

    @property
    def osds(self) -> None:
        """There is no store."""
        return

    @property
    def size(self) -> str:
        """``10K-10M``."""
        return size_name(self.nodes, self.partitions)

    @property
    def input_mib(self) -> float:
        """Memory of the instance's arrays, about."""
        each = 4 * self.replicas + BYTES_A_PARTITION
        return (self.partitions * each + 20 * self.nodes) / 2**20

    @property
    def memory_mib(self) -> float:
        """Memory that the cell needs at most, about, of who makes it."""
        return BASE_MIB + MEMORY_FACTOR * self.input_mib

    def canonical(self) -> dict[str, Any]:
        """JSON-able, every field present: what is hashed, stored and given to a worker."""
        return self.model_dump(mode="json")

    def contents(self) -> str:
        """The instance: cells that share it follow each other, and it is made once for them."""
        shape = (self.replicas, self.tail, self.load_max, self.racks)
        return f"{self.kind} {self.size} {shape}"

    def label(self) -> str:
        """A short text for people: ``s1 10K-10M alp``."""
        parts = [self.kind, self.size, self.method]
        if (self.divide or "dc", self.program or "lp") != ("dc", "lp"):
            parts.append(f"{self.divide}+{self.program}".upper())
        if self.selection != "highest":
            parts.append(f"{self.selection} objects")
        for name in ("first_radius", "radius_step", "max_move_cost", "load_max"):
            value = getattr(self, name)
            if value is not None:
                parts.append(f"{name}={value:g}")
        if self.tail != 1.5:
            parts.append(f"tail={self.tail:g}")
        if self.racks:
            parts.append(f"{self.racks} racks")
        return " ".join(parts)


def parameter_names() -> tuple[str, ...]:
    """Every parameter that a campaign file may name."""
    return ("size", *UrsaParameters.model_fields)


def check(values: Mapping[str, Any], where: str) -> UrsaParameters:
    """`values` as typed parameters.

    Raises:
        UserError: file, grid, key, what is allowed.
    """
    for key, value in values.items():
        if key not in parameter_names():
            known = ", ".join(parameter_names())
            raise UserError(f"{where}: unknown parameter {key!r}; a cell has {known}.")
        if isinstance(value, bool):  # YAML's yes/no would pass for 1/0
            raise UserError(f"{where}: {key}: {value!r} is not allowed; {_allowed(key)}.")
    try:
        return UrsaParameters.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else ""
        if not key:
            message = str(first["msg"]).removeprefix("Value error, ")
            raise UserError(f"{where}: {message}.") from error
        found = values.get(key, "nothing")
        raise UserError(f"{where}: {key}: {found!r} is not allowed; {_allowed(key)}.") from error


_LITERALS: dict[str, Any] = {
    "kind": Kind,
    "selection": Selection,
    "program": Program,
    "divide": Divide,
}


def _allowed(key: str) -> str:
    """What the field `key` may hold, in words."""
    if key in _LITERALS:
        return f"allowed: {', '.join(get_args(_LITERALS[key]))}"
    if key == "size":
        return "allowed: nodes-partitions, such as 0.1K-0.1M"
    if key == "method":
        return f"allowed: {', '.join([*METHODS, INPUTS])}"
    field = UrsaParameters.model_fields[key]
    words = (("ge", "at least"), ("gt", "above"), ("le", "at most"))
    bounds = [
        f"{word} {getattr(rule, attribute):,}"
        for rule in field.metadata
        for attribute, word in words
        if getattr(rule, attribute, None) is not None
    ]
    kind = "a whole number" if field.annotation is int else "a number"
    return f"allowed: {kind} {' and '.join(bounds)}".rstrip()
