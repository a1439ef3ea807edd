"""The typed parameters of one cell: the instance, the method, and how far it may go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from campaigns.kinds.parameters import SizedParameters
from controllers.ursa.methods import METHODS

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

_KNOWN = ", ".join([*METHODS, INPUTS])


class UrsaParameters(SizedParameters):
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

    SIZED: ClassVar[tuple[str, str]] = ("nodes", "partitions")
    SIZE_EXAMPLE: ClassVar[str] = "0.1K-0.1M"
    ALLOWED: ClassVar[Mapping[str, str]] = {"method": _KNOWN}

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
    def _with_variant(cls, values: Any) -> Any:
        """With the paper's variant (DC+LP) where none is named: one cell has one way to be
        written."""
        if not isinstance(values, Mapping) or values.get("method") != VARIED:
            return values
        program, divide = values.get("program") or "lp", values.get("divide") or "dc"
        return {**values, "program": program, "divide": divide}

    @model_validator(mode="after")
    def _together(self) -> UrsaParameters:
        if self.method != INPUTS and self.method not in METHODS:
            raise ValueError(f"method: there is no {self.method!r}; there are {_KNOWN}")
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
    def input_mib(self) -> float:
        """Memory of the instance's arrays, about."""
        each = 4 * self.replicas + BYTES_A_PARTITION
        return (self.partitions * each + 20 * self.nodes) / 2**20

    @property
    def memory_mib(self) -> float:
        """Memory that the cell needs at most, about, of who makes it."""
        return BASE_MIB + MEMORY_FACTOR * self.input_mib

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
