"""What arrays of a file have to hold, told in one sentence where they do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.instance import Float32, Int32
from schemas.errors import UserError

ROWS = 1 << 20  # rows that are checked at a time
DIMENSIONS = {1: "one dimension", 2: "two dimensions"}
ONE_OR_TWO = (1, 2)


class Checks:
    """Checks that are made array by array, in blocks of rows: little memory beside the input."""

    def __init__(self, where: str) -> None:
        self.where = where

    def ids(self, name: str, array: NDArray[Any], dimensions: int | tuple[int, ...]) -> Int32:
        """`array` as int32; UserError when it holds anything but such whole numbers."""
        self._shape(name, array, dimensions)
        if array.dtype.kind not in "iu":
            raise UserError(f"{self.where}: {name} has type {array.dtype}; it must be int32.")
        if array.dtype != np.int32:
            for rows in blocks(array):
                part = array[rows]
                if part.size and (part.max() > 2**31 - 1 or part.min() < -(2**31)):
                    raise UserError(f"{self.where}: {name} holds numbers beyond int32.")
        return np.ascontiguousarray(array, dtype=np.int32)

    def numbers(self, name: str, array: NDArray[Any], dimensions: int | tuple[int, ...]) -> Float32:
        """`array` as float32; UserError when that changes a value, or one is not finite."""
        self._shape(name, array, dimensions)
        if array.dtype.kind not in "fiu":
            raise UserError(f"{self.where}: {name} has type {array.dtype}; it must be float32.")
        if array.dtype != np.float32:
            for rows in blocks(array):
                part = array[rows]
                with np.errstate(over="ignore", invalid="ignore"):
                    same = (part.astype(np.float32) == part) | (part != part)  # noqa: PLR0124
                if not same.all():
                    raise UserError(
                        f"{self.where}: {name} has type {array.dtype} and values that float32 "
                        "cannot hold exactly; store it as float32."
                    )
        made = np.ascontiguousarray(array, dtype=np.float32)
        for rows in blocks(made):
            if not (finite := np.isfinite(made[rows])).all():
                self._complain(name, made, rows, ~finite, "finite")
        return made

    def amounts(self, name: str, array: NDArray[Any], dimensions: int | tuple[int, ...]) -> Float32:
        """`numbers` that are at least 0."""
        made = self.numbers(name, array, dimensions)
        for rows in blocks(made):
            if (negative := made[rows] < 0).any():
                self._complain(name, made, rows, negative, "at least 0")
        return made

    def length(self, name: str, array: NDArray[Any], wanted: int, why: str) -> None:
        """UserError when `array` has another number of rows."""
        if len(array) != wanted:
            raise UserError(
                f"{self.where}: {name} has {len(array)} entries; it must have {wanted} ({why})."
            )

    def below(self, name: str, array: Int32, count: int, what: str) -> None:
        """UserError when an id is not 0 to `count` - 1."""
        for rows in blocks(array):
            part = array[rows]
            # As unsigned numbers the negative ones are the largest: one comparison.
            if (outside := part.view(np.uint32) >= count).any():
                allowed = f"0 to {count - 1} (there are {count} {what})"
                self._complain(name, array, rows, outside, allowed)

    def not_negative(self, name: str, array: Int32) -> None:
        """UserError when an id is negative."""
        if (negative := array < 0).any():
            self._complain(name, array, slice(0, len(array)), negative, "at least 0")

    def distinct(self, replica_node: Int32) -> None:
        """UserError when a partition has two replicas on one node."""
        for rows in blocks(replica_node):
            part = replica_node[rows]
            for second in range(1, part.shape[1]):
                for first in range(second):
                    same = part[:, first] == part[:, second]
                    if same.any():
                        row = int(np.argmax(same))
                        raise UserError(
                            f"{self.where}: replica_node has node {part[row, first]} twice in "
                            f"partition {rows.start + row}; replicas must be on different nodes."
                        )

    def _shape(self, name: str, array: NDArray[Any], dimensions: int | tuple[int, ...]) -> None:
        allowed = (dimensions,) if isinstance(dimensions, int) else dimensions
        if array.ndim not in allowed:
            listed = " or ".join(DIMENSIONS[count] for count in allowed)
            raise UserError(f"{self.where}: {name} has shape {array.shape}; it must have {listed}.")

    def _complain(
        self, name: str, array: NDArray[Any], rows: slice, bad: NDArray[np.bool_], allowed: str
    ) -> None:
        place = np.argwhere(bad)[0]
        value = array[rows][tuple(place)]
        place[0] += rows.start
        index = ", ".join(str(i) for i in place)
        raise UserError(f"{self.where}: {name}[{index}] is {value}; it must be {allowed}.")


def blocks(array: NDArray[Any]) -> Iterator[slice]:
    """Its rows, ROWS at a time."""
    for first in range(0, len(array), ROWS):
        yield slice(first, min(first + ROWS, len(array)))
