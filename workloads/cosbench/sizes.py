"""COSBench's number expressions and object sizes, typed, as they are written into a workload."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from schemas.errors import UserError

UNITS = {"B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3}
"""COSBench's units are decimal."""

LARGEST = 2**31 - 1
"""COSBench's numbers are Java's ints."""

Bound = Annotated[int, Field(ge=1, le=LARGEST)]


class _Numbers(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Constant(_Numbers):
    """``c(value)``: always the same."""

    kind: Literal["constant"] = "constant"
    value: Bound

    def text(self) -> str:
        """As COSBench reads it."""
        return f"c({self.value})"

    @property
    def mean(self) -> float:
        """Expected value."""
        return float(self.value)


class _Between(_Numbers):
    low: Bound
    high: Bound

    @model_validator(mode="after")
    def _ordered(self) -> _Between:
        if self.high < self.low:
            raise ValueError(f"high ({self.high}) is below low ({self.low})")
        return self

    @property
    def mean(self) -> float:
        """Expected value."""
        return (self.low + self.high) / 2


class Uniform(_Between):
    """``u(low,high)``: whole numbers drawn evenly, both bounds included."""

    kind: Literal["uniform"] = "uniform"

    def text(self) -> str:
        """As COSBench reads it."""
        return f"u({self.low},{self.high})"


class Range(_Between):
    """``r(low,high)``: one after the other, of each worker its own part."""

    kind: Literal["range"] = "range"

    def text(self) -> str:
        """As COSBench reads it."""
        return f"r({self.low},{self.high})"


class Sequence(_Between):
    """``s(low,high)``: one after the other, all workers from one cursor."""

    kind: Literal["sequence"] = "sequence"

    def text(self) -> str:
        """As COSBench reads it."""
        return f"s({self.low},{self.high})"


class Part(_Between):
    """A part of a `Weighted`: evenly between its bounds, drawn as often as `weight` says."""

    weight: Annotated[int, Field(ge=1, lt=2**31)]


class Weighted(_Numbers):
    """``h(low|high|weight,...)``: a part is drawn by weight, then evenly within it."""

    kind: Literal["weighted"] = "weighted"
    parts: tuple[Part, ...] = Field(min_length=1)

    def text(self) -> str:
        """As COSBench reads it."""
        return f"h({','.join(f'{p.low}|{p.high}|{p.weight}' for p in self.parts)})"

    @property
    def mean(self) -> float:
        """Expected value."""
        total = sum(part.weight for part in self.parts)
        return sum(part.mean * part.weight for part in self.parts) / total


Distribution = Annotated[
    Constant | Uniform | Range | Sequence | Weighted, Field(discriminator="kind")
]


class Sizes(_Numbers):
    """Object sizes: whole numbers of a unit, such as ``u(1,128)KB`` of workloads A and B."""

    numbers: Distribution
    unit: Literal["B", "KB", "MB", "GB"] = "KB"

    def text(self) -> str:
        """As COSBench reads it."""
        return f"{self.numbers.text()}{self.unit}"

    @property
    def mean_bytes(self) -> float:
        """Expected size."""
        return self.numbers.mean * UNITS[self.unit]

    def __str__(self) -> str:
        return self.text()


_SIZES = re.compile(r"^\s*(\d{1,10})\s*(?:-\s*(\d{1,10}))?\s*([KMG]?B)\s*$")


def parse_sizes(text: str) -> Sizes:
    """Sizes from ``64KB`` (all the same) or ``1-128KB`` (evenly in between).

    Raises:
        UserError: it is neither.
    """
    match = _SIZES.match(text)
    low = int(match[1]) if match else 0
    high = int(match[2] or match[1]) if match else 0
    if match is None or not 1 <= low <= high <= LARGEST:
        raise UserError(
            f"{text!r} is no object size: write 64KB, or 1-128KB for whole KB drawn evenly; "
            f"units are {', '.join(UNITS)} (of 1000), numbers go from 1 to {LARGEST}."
        )
    numbers = Constant(value=low) if low == high else Uniform(low=low, high=high)
    return Sizes.model_validate({"numbers": numbers, "unit": match[3]})
