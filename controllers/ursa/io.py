"""Instances and plans as .npz files; what is malformed is told in one sentence.

`docs/ursa.md` describes the arrays.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.instance import Distance, Euclidean, Float32, Instance, Int32, Racks
from controllers.ursa.results import Plan
from schemas.errors import UserError

ROWS = 1 << 20  # rows that are checked at a time
MAX_REPLICAS = 127  # a column is an int8
REQUIRED = ("replica_node", "primary_load", "secondary_load", "capacity", "fault_domain")
DISTANCES = ("node_xy", "rack", "rack_distance")
PLAN_ARRAYS = ("swap_partition", "swap_replica", "move_partition", "move_replica", "move_to")
DIMENSIONS = {1: "one dimension", 2: "two dimensions"}


def load_instance(path: Path) -> Instance:
    """Read and check an instance.

    Raises:
        UserError: the file is no .npz archive, or what it holds is no instance.
    """
    return instance_from(_arrays(path, {*REQUIRED, *DISTANCES}), str(path))


def instance_from(arrays: Mapping[str, NDArray[Any]], where: str) -> Instance:
    """The instance that these arrays are, checked; `where` is what an error names."""
    missing = [name for name in REQUIRED if name not in arrays]
    if missing:
        raise UserError(
            f"{where} lacks {_listed(missing)}: an instance holds {', '.join(REQUIRED)}, and "
            "node_xy or rack with rack_distance."
        )
    check = _Checks(where)
    replica_node = check.ids("replica_node", arrays["replica_node"], 2)
    partitions, replicas = replica_node.shape
    if not 1 <= replicas <= MAX_REPLICAS:
        raise UserError(
            f"{where}: replica_node has {replicas} columns; a partition has 1 to {MAX_REPLICAS} "
            "replicas."
        )
    capacity = check.amounts("capacity", arrays["capacity"], 1)
    nodes = len(capacity)
    if nodes == 0:
        raise UserError(f"{where}: capacity is empty; there must be at least one node.")
    made = Instance(
        replica_node=replica_node,
        primary_load=check.amounts("primary_load", arrays["primary_load"], 1),
        secondary_load=check.amounts("secondary_load", arrays["secondary_load"], 1),
        capacity=capacity,
        fault_domain=check.ids("fault_domain", arrays["fault_domain"], 1),
        distance=_distance(check, arrays, nodes),
    )
    for name, array in (("primary", made.primary_load), ("secondary", made.secondary_load)):
        check.length(f"{name}_load", array, partitions, "replica_node has as many rows")
    check.length("fault_domain", made.fault_domain, nodes, "capacity has as many nodes")
    check.below("replica_node", made.replica_node, nodes, "nodes")
    check.not_negative("fault_domain", made.fault_domain)
    check.distinct(made.replica_node)
    return made


def save_instance(instance: Instance, path: Path) -> None:
    """Write the arrays that `load_instance` reads; the file appears whole or not at all."""
    arrays = {name: getattr(instance, name) for name in REQUIRED} | vars(instance.distance)
    _save(path, arrays)


def load_plan(path: Path) -> tuple[Plan, float | None]:
    """Read a plan.

    Returns:
        The plan, and the cost that it states (None when it states none). Whether ids are of the
        instance is for `check` to say.

    Raises:
        UserError: the file is no .npz archive, or what it holds is no plan.
    """
    where = str(path)
    arrays = _arrays(path, {*PLAN_ARRAYS, "still_hot", "cost"})
    missing = [name for name in PLAN_ARRAYS if name not in arrays]
    if missing:
        raise UserError(f"{where} lacks {_listed(missing)}: a plan holds {', '.join(PLAN_ARRAYS)}.")
    check = _Checks(where)
    found = [check.ids(name, arrays[name], 1) for name in PLAN_ARRAYS]
    swap_partition, swap_replica, move_partition, move_replica, move_to = found
    check.length("swap_replica", swap_replica, len(swap_partition), "swap_partition has as many")
    check.length("move_replica", move_replica, len(move_partition), "move_partition has as many")
    check.length("move_to", move_to, len(move_partition), "move_partition has as many")
    plan = Plan(
        swap_partition=swap_partition,
        swap_replica=swap_replica,
        move_partition=move_partition,
        move_replica=move_replica,
        move_to=move_to,
        still_hot=check.ids("still_hot", arrays.get("still_hot", np.empty(0, np.int32)), 1),
    )
    cost = arrays.get("cost")
    if cost is not None and (cost.shape != () or cost.dtype.kind not in "fiu"):
        raise UserError(f"{where}: cost must be one number.")
    return plan, None if cost is None else float(cost)


def save_plan(plan: Plan, path: Path) -> None:
    """Write a plan; the file appears whole or not at all."""
    arrays: dict[str, Any] = {name: getattr(plan, name) for name in (*PLAN_ARRAYS, "still_hot")}
    if "cost" in plan.summary:
        arrays["cost"] = np.float64(plan.summary["cost"])  # type: ignore[arg-type]
    _save(path, arrays)


def _distance(check: _Checks, arrays: Mapping[str, NDArray[Any]], nodes: int) -> Distance:
    given = [name for name in DISTANCES if name in arrays]
    if given == ["node_xy"]:
        xy = check.numbers("node_xy", arrays["node_xy"], 2)
        if xy.shape != (nodes, 2):
            raise UserError(
                f"{check.where}: node_xy has shape {xy.shape}; it must be ({nodes}, 2), one point "
                "for each node of capacity."
            )
        return Euclidean(xy)
    if given == ["rack", "rack_distance"]:
        rack = check.ids("rack", arrays["rack"], 1)
        table = check.amounts("rack_distance", arrays["rack_distance"], 2)
        check.length("rack", rack, nodes, "capacity has as many nodes")
        if table.shape[0] != table.shape[1]:
            raise UserError(
                f"{check.where}: rack_distance has shape {table.shape}; it must be square, "
                "[racks, racks]."
            )
        check.below("rack", rack, len(table), "racks of rack_distance")
        return Racks(rack, table)
    raise UserError(
        f"{check.where} has {_listed(given) if given else 'no distances'}: give either node_xy, "
        "or rack and rack_distance."
    )


class _Checks:
    """Checks that are made array by array, in blocks of rows: little memory beside the input."""

    def __init__(self, where: str) -> None:
        self.where = where

    def ids(self, name: str, array: NDArray[Any], dimensions: int) -> Int32:
        """`array` as int32; UserError when it holds anything but such whole numbers."""
        self._shape(name, array, dimensions)
        if array.dtype.kind not in "iu":
            raise UserError(f"{self.where}: {name} has type {array.dtype}; it must be int32.")
        if array.dtype != np.int32:
            for rows in _blocks(array):
                part = array[rows]
                if part.size and (part.max() > 2**31 - 1 or part.min() < -(2**31)):
                    raise UserError(f"{self.where}: {name} holds numbers beyond int32.")
        return np.ascontiguousarray(array, dtype=np.int32)

    def numbers(self, name: str, array: NDArray[Any], dimensions: int) -> Float32:
        """`array` as float32; UserError when that changes a value, or one is not finite."""
        self._shape(name, array, dimensions)
        if array.dtype.kind not in "fiu":
            raise UserError(f"{self.where}: {name} has type {array.dtype}; it must be float32.")
        if array.dtype != np.float32:
            for rows in _blocks(array):
                part = array[rows]
                with np.errstate(over="ignore", invalid="ignore"):
                    same = (part.astype(np.float32) == part) | (part != part)  # noqa: PLR0124
                if not same.all():
                    raise UserError(
                        f"{self.where}: {name} has type {array.dtype} and values that float32 "
                        "cannot hold exactly; store it as float32."
                    )
        made = np.ascontiguousarray(array, dtype=np.float32)
        for rows in _blocks(made):
            if not (finite := np.isfinite(made[rows])).all():
                self._complain(name, made, rows, ~finite, "finite")
        return made

    def amounts(self, name: str, array: NDArray[Any], dimensions: int) -> Float32:
        """`numbers` that are at least 0."""
        made = self.numbers(name, array, dimensions)
        for rows in _blocks(made):
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
        for rows in _blocks(array):
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
        for rows in _blocks(replica_node):
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

    def _shape(self, name: str, array: NDArray[Any], dimensions: int) -> None:
        if array.ndim != dimensions:
            raise UserError(
                f"{self.where}: {name} has shape {array.shape}; it must have "
                f"{DIMENSIONS[dimensions]}."
            )

    def _complain(
        self, name: str, array: NDArray[Any], rows: slice, bad: NDArray[np.bool_], allowed: str
    ) -> None:
        place = np.argwhere(bad)[0]
        value = array[rows][tuple(place)]
        place[0] += rows.start
        index = ", ".join(str(i) for i in place)
        raise UserError(f"{self.where}: {name}[{index}] is {value}; it must be {allowed}.")


def _blocks(array: NDArray[Any]) -> Iterator[slice]:
    for first in range(0, len(array), ROWS):
        yield slice(first, min(first + ROWS, len(array)))


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _arrays(path: Path, wanted: set[str]) -> dict[str, NDArray[Any]]:
    if not path.exists():
        raise UserError(f"{path}: there is no such file.")
    if not path.is_file():
        raise UserError(f"{path}: this is not a file.")
    if not zipfile.is_zipfile(path):
        raise UserError(f"{path}: this is no .npz archive (numpy.savez writes them).")
    try:
        with np.load(path, allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files if name in wanted}
    except MemoryError:
        raise UserError(f"{path}: its arrays do not fit into memory.") from None
    except Exception as error:  # damaged archives make zipfile, zlib and numpy raise many kinds
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{path} cannot be read: {reason.rstrip('.')}.") from None
    for name, array in found.items():
        if not isinstance(array, np.ndarray):
            raise UserError(f"{path}: {name} is no array (numpy.savez writes them).")
    return found


def _save(path: Path, arrays: Mapping[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from None
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **arrays)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
