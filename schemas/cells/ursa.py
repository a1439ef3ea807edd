"""Cells of Ursa's planner: the instance, the method, and the limits of the method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from schemas.cells.base import Cells, SizedCell

Kind = Literal["s1", "s2", "s3"]

INPUTS = "inputs"
"""The method of a cell that plans nothing and describes the instance (figures 1 and 3)."""

BYTES_A_PARTITION = 12  # and 4 per replica: two loads, and the primary
BASE_MIB = 400.0  # interpreter, libraries, compiled loops, a solver
MEMORY_FACTOR = 5.0  # the highest measured factor on the input's own size


class UrsaCell(SizedCell):
    """One cell. `size` is the paper's notation of nodes and partitions (``10K-10M``).

    Attributes:
        kind, nodes, partitions, replicas, tail, load_max, racks: see
            `controllers.ursa.generate.InstanceShape`.
        swap_success: share of the secondaries that can become primary (section 5.1: 0.9).
        method: a name of `controllers.ursa.methods.METHODS`, or ``inputs``. ``algorithm1`` is kept
            as ``alp``, the paper's name.
        max_move_cost: the highest cost of a single move.
        time_limit_s: the best plan by then counts (section 5.1 gives SA 30 minutes).
    """

    SIZED: ClassVar[tuple[str, str]] = ("nodes", "partitions")
    SIZE_EXAMPLE: ClassVar[str] = "0.1K-0.1M"

    kind: Kind = "s1"
    nodes: int = Field(ge=1, le=10**6)
    partitions: int = Field(ge=1, le=10**9)
    replicas: int = Field(default=3, ge=1, le=127)
    tail: float = Field(default=1.5, gt=0, le=100)
    load_max: float | None = Field(default=None, gt=1)
    racks: int = Field(default=0, ge=0, le=10**6)
    swap_success: float = Field(default=0.9, ge=0, le=1)
    method: str
    max_move_cost: float | None = Field(default=None, ge=0)
    time_limit_s: float = Field(default=1800, gt=0, le=7 * 86400)

    @model_validator(mode="before")
    @classmethod
    def _one_name(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and values.get("method") == "algorithm1":
            return {**values, "method": "alp"}
        return values

    @model_validator(mode="after")
    def _fits(self) -> UrsaCell:
        if self.replicas > self.nodes:
            raise ValueError(f"{self.replicas} replicas do not fit on {self.nodes} nodes")
        if self.racks > self.nodes:
            raise ValueError(f"racks: {self.racks} for {self.nodes} nodes: at most one a node")
        return self

    @property
    def controller(self) -> str:
        return self.method

    @property
    def input_mib(self) -> float:
        """Rough memory of the instance's arrays."""
        each = 4 * self.replicas + BYTES_A_PARTITION
        return (self.partitions * each + 20 * self.nodes) / 2**20

    @property
    def memory_mib(self) -> float:
        return BASE_MIB + MEMORY_FACTOR * self.input_mib

    def contents(self) -> str:
        """Return the instance: it is made once for the cells that share it."""
        shape = (self.replicas, self.tail, self.load_max, self.racks)
        return f"{self.kind} {self.size} {shape}"

    def label(self) -> str:
        """Return a short text for people: ``s1 10K-10M alp-fast``."""
        parts = [self.kind, self.size, self.method, *self._details()]
        for name in ("first_radius", "radius_step", "max_move_cost", "load_max"):
            value = getattr(self, name, None)
            if value is not None:
                parts.append(f"{name}={value:g}")
        if self.tail != 1.5:
            parts.append(f"tail={self.tail:g}")
        if self.racks:
            parts.append(f"{self.racks} racks")
        return " ".join(parts)

    def _details(self) -> list[str]:
        return []


class Placing(UrsaCell):
    """Cell of a method that places given objects; `selection` chooses the objects that leave hot
    nodes (figure 8)."""

    method: Literal["alp-fast", "ilp", "nearest", "alp", "algorithm1", "algorithm1-pruned"] = (
        "alp-fast"
    )
    selection: Literal["highest", "random"] = "highest"

    def _details(self) -> list[str]:
        return [] if self.selection == "highest" else [f"{self.selection} objects"]


class Placer(Placing):
    """Cell of a placing method without variants."""

    method: Literal["alp-fast", "ilp", "nearest"] = "alp-fast"


class Algorithm1(Placing):
    """Cell of Algorithm 1, the paper's ALP, which figure 9 varies: solved as LP or ILP, in groups
    (dc) or at once (none), with the radii r_0 and delta r. `program`: the program that is solved:
    linear (lp) or integer (ilp); `divide`: dc solves groups one after another, none everything at
    once; `first_radius`, `radius_step`: radii r_0 and delta r of the search for destinations."""

    method: Literal["alp", "algorithm1", "algorithm1-pruned"]
    program: Literal["lp", "ilp"] = "lp"
    divide: Literal["dc", "none"] = "dc"
    first_radius: float | None = Field(default=None, gt=0)
    radius_step: float | None = Field(default=None, gt=0)

    def _details(self) -> list[str]:
        usual = (self.divide, self.program) == ("dc", "lp")
        variant = [] if usual else [f"{self.divide}+{self.program}".upper()]
        return variant + super()._details()


class Mover(UrsaCell):
    """Cell of a method that also chooses the objects."""

    method: Literal["opt", "joint", "htoc", "sa"]


class UrsaInputs(UrsaCell):
    """Cell that describes the instance."""

    method: Literal["inputs"]


URSA: Cells[UrsaCell] = Cells(Placer, Algorithm1, Mover, UrsaInputs, by=("method",))
