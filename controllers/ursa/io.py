"""Instances and plans as .npz files, plans also as CSV and JSON (docs/ursa.md), one sentence a
mistake.

Loads of several dimensions and nested fault domains are columns of the arrays that every instance
has; names of dimensions, groups and bytes are arrays of their own.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.instance import (
    Distance,
    Euclidean,
    Float32,
    Instance,
    Int32,
    MigrationPlan,
    Racks,
    RoundBudget,
    between,
)
from schemas.errors import UserError

ROWS = 1 << 20  # rows that are checked at a time
DIMENSIONS = {1: "one dimension", 2: "two dimensions"}


class Checks:
    """Checks of one array after the other, in blocks of rows: they need little memory."""

    def __init__(self, where: str) -> None:
        self.where = where

    def ids(self, name: str, array: NDArray[Any], *dimensions: int) -> Int32:
        """Return `array` as int32; raise UserError if it holds other numbers."""
        self._shape(name, array, dimensions)
        if array.dtype.kind not in "iu":
            raise UserError(f"{name} has type {array.dtype}", where=self.where, allowed="int32")
        if array.dtype != np.int32:
            for rows in blocks(array):
                part = array[rows]
                if part.size and (part.max() > 2**31 - 1 or part.min() < -(2**31)):
                    raise UserError(f"{name} holds numbers beyond int32", where=self.where)
        return np.ascontiguousarray(array, dtype=np.int32)

    def numbers(self, name: str, array: NDArray[Any], *dimensions: int) -> Float32:
        """Return `array` as float32; raise UserError if a value would change or is not finite."""
        self._shape(name, array, dimensions)
        if array.dtype.kind not in "fiu":
            raise UserError(f"{name} has type {array.dtype}", where=self.where, allowed="float32")
        if array.dtype != np.float32:
            for rows in blocks(array):
                part = array[rows]
                with np.errstate(over="ignore", invalid="ignore"):
                    same = (part.astype(np.float32) == part) | (part != part)  # noqa: PLR0124
                if not same.all():
                    raise UserError(
                        f"{name} has type {array.dtype} and values that float32 cannot hold "
                        "exactly",
                        where=self.where,
                        do="store it as float32",
                    )
        made = np.ascontiguousarray(array, dtype=np.float32)
        for rows in blocks(made):
            if not (finite := np.isfinite(made[rows])).all():
                self._complain(name, made, rows, ~finite, "finite")
        return made

    def amounts(self, name: str, array: NDArray[Any], *dimensions: int) -> Float32:
        """Return `numbers` that are at least 0."""
        made = self.numbers(name, array, *dimensions)
        for rows in blocks(made):
            if (negative := made[rows] < 0).any():
                self._complain(name, made, rows, negative, "at least 0")
        return made

    def length(self, name: str, array: NDArray[Any], wanted: int, other: str) -> None:
        """Raise UserError if `array` has another number of rows than the array `other`."""
        if len(array) != wanted:
            raise UserError(
                f"{name} has {len(array)} entries",
                where=self.where,
                allowed=f"{wanted}, as {other} has",
            )

    def below(self, name: str, array: Int32, count: int, what: str) -> None:
        """Raise UserError if an id is not 0 to `count` - 1."""
        for rows in blocks(array):
            part = array[rows]
            # As unsigned numbers the negative ones are the largest: one comparison.
            if (outside := part.view(np.uint32) >= count).any():
                allowed = f"0 to {count - 1} (there are {count} {what})"
                self._complain(name, array, rows, outside, allowed)

    def not_negative(self, name: str, array: Int32) -> None:
        """Raise UserError if an id is negative."""
        if (negative := array < 0).any():
            self._complain(name, array, slice(0, len(array)), negative, "at least 0")

    def distinct(self, replica_node: Int32) -> None:
        """Raise UserError if a partition has two replicas on one node."""
        for rows in blocks(replica_node):
            part = replica_node[rows]
            for second in range(1, part.shape[1]):
                for first in range(second):
                    same = part[:, first] == part[:, second]
                    if same.any():
                        row = int(np.argmax(same))
                        raise UserError(
                            f"replica_node has node {part[row, first]} twice in partition "
                            f"{rows.start + row}; replicas must be on different nodes",
                            where=self.where,
                        )

    def _shape(self, name: str, array: NDArray[Any], dimensions: tuple[int, ...]) -> None:
        if array.ndim not in dimensions:
            listed = " or ".join(DIMENSIONS[count] for count in dimensions)
            raise UserError(f"{name} has shape {array.shape}", where=self.where, allowed=listed)

    def _complain(
        self, name: str, array: NDArray[Any], rows: slice, bad: NDArray[np.bool_], allowed: str
    ) -> None:
        place = np.argwhere(bad)[0]
        value = array[rows][tuple(place)]
        place[0] += rows.start
        index = ", ".join(str(i) for i in place)
        raise UserError(f"{name}[{index}] is {value}", where=self.where, allowed=allowed)


def blocks(array: NDArray[Any]) -> Iterator[slice]:
    """Yield the rows, ROWS at a time."""
    for first in range(0, len(array), ROWS):
        yield slice(first, min(first + ROWS, len(array)))


MAX_REPLICAS = 127  # a column is an int8
REASON = 160  # characters of a library's message on a damaged archive, which may quote all of it
REQUIRED = ("replica_node", "primary_load", "secondary_load", "capacity", "fault_domain")
LOADS = ("primary_load", "secondary_load", "capacity")
OPTIONAL = ("dimension", "group", "bytes")
DISTANCES = ("node_xy", "rack", "rack_distance")
LIMITS = {"max_moves": "max_moves", "budget": "size", "node_budget": "node_size"}
"""Numbers in a plan's file: fields of `RoundBudget`."""
ACTION_COLUMNS = ("action", "partition", "role", "from", "to", "cost", "bytes", "round")
CHANGES = ("partition", "primary_load", "secondary_load")
PLAN_ARRAYS = ("swap_partition", "swap_replica", "move_partition", "move_replica", "move_to")


def load_instance(path: Path) -> Instance:
    """Read and check an instance; raise UserError if the file holds none."""
    return instance_from(_arrays(path, (), (*REQUIRED, *DISTANCES, *OPTIONAL)), str(path))


def instance_from(arrays: Mapping[str, NDArray[Any]], where: str) -> Instance:
    """Return the checked instance of these arrays; `where` names it in errors."""
    missing = [name for name in REQUIRED if name not in arrays]
    if missing:
        raise UserError(
            f"lacks {_listed(missing)}: an instance holds {', '.join(REQUIRED)}, and node_xy "
            "or rack with rack_distance",
            where=where,
        )
    check = Checks(where)
    replica_node = check.ids("replica_node", arrays["replica_node"], 2)
    partitions, replicas = replica_node.shape
    if not 1 <= replicas <= MAX_REPLICAS:
        raise UserError(
            f"replica_node has {replicas} columns; a partition has 1 to {MAX_REPLICAS} replicas",
            where=where,
        )
    loads = {name: check.amounts(name, arrays[name], 1, 2) for name in LOADS}
    nodes = len(loads["capacity"])
    if nodes == 0:
        raise UserError("capacity is empty", where=where, allowed="at least one node")
    domain = check.ids("fault_domain", arrays["fault_domain"], 1, 2)
    distance = _distance(check, arrays, nodes)
    for name in ("primary_load", "secondary_load"):
        check.length(name, loads[name], partitions, "replica_node")
    check.length("fault_domain", domain, nodes, "capacity")
    check.below("replica_node", replica_node, nodes, "nodes")
    check.not_negative("fault_domain", domain)
    check.distinct(replica_node)
    _same_dimensions(check, loads, domain)
    if domain.ndim == 2:
        _nested(domain, check)
    single: dict[str, Any] = {name: _flat(array) for name, array in loads.items()}
    made = Instance(replica_node, fault_domain=_flat(domain), distance=distance, **single)
    size = None
    if "bytes" in arrays:
        size = check.amounts("bytes", arrays["bytes"], 1)
        check.length("bytes", size, partitions, "replica_node")
    return replace(
        made,
        dimension=_names(made, check, arrays.get("dimension")),
        group=_groups(made, check, arrays.get("group")),
        size=size,
    )


def _flat(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of one column without that axis; other arrays as they are."""
    return array[:, 0].copy() if array.ndim == 2 and array.shape[1] == 1 else array


def save_instance(instance: Instance, path: Path) -> None:
    """Write an instance, whole or not at all; raise UserError if `path` exists or is refused."""
    refuse_existing(path)
    _save_arrays(path, arrays_of(instance))


def arrays_of(instance: Instance) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file that holds `instance`."""
    found = {name: getattr(instance, name) for name in REQUIRED} | vars(instance.distance)
    optional = {"group": instance.group, "bytes": instance.size}
    if instance.dimension:
        optional["dimension"] = np.array(instance.dimension)
    return found | {name: array for name, array in optional.items() if array is not None}


def load_plan(path: Path) -> tuple[MigrationPlan, float | None]:
    """Return a plan and the cost that it states, or None; whether its ids are right is for `check`.

    Raises:
        UserError: the file is no .npz archive, or holds no plan.
    """
    where = str(path)
    arrays = _arrays(path, PLAN_ARRAYS, ("still_hot", "cost", "move_round", *LIMITS))
    check = Checks(where)
    found: dict[str, Any] = {name: check.ids(name, arrays[name], 1) for name in PLAN_ARRAYS}
    if "move_round" in arrays:
        found["move_round"] = check.ids("move_round", arrays["move_round"], 1)
    for name, array in found.items():
        whole = "swap_partition" if name.startswith("swap") else "move_partition"
        check.length(name, array, len(found[whole]), whole)
    still_hot = check.ids("still_hot", arrays.get("still_hot", np.empty(0, np.int32)), 1)
    plan = MigrationPlan(**found, still_hot=still_hot)
    if plan.move_round is not None:
        limits = {LIMITS[name]: _number(name, arrays, where) for name in LIMITS}
        plan = replace(plan, budget=RoundBudget(**limits))  # type: ignore[arg-type]
    return plan, _number("cost", arrays, where)


def _number(name: str, arrays: Mapping[str, NDArray[Any]], where: str) -> float | None:
    found = arrays.get(name)
    if found is not None and (found.shape != () or found.dtype.kind not in "fiu"):
        raise UserError(f"{name} must be one number", where=where)
    return None if found is None else float(found)


def save_plan(
    plan: MigrationPlan, path: Path, more: Mapping[str, NDArray[Any]] | None = None
) -> None:
    """Write a plan, with `more` arrays, whole or not at all; as CSV (its actions) or JSON (its
    summary) if `path` ends in .csv or .json.

    Raises:
        UserError: `path` exists and is no plan, or cannot be written.
    """
    refuse_existing(path, plans=True)
    if path.suffix in (".csv", ".json"):
        _save(path, lambda file: file.write(_text(plan, path.suffix).encode()))
        return
    arrays: dict[str, Any] = {name: getattr(plan, name) for name in (*PLAN_ARRAYS, "still_hot")}
    if "cost" in plan.summary:
        arrays["cost"] = np.float64(plan.summary["cost"])  # type: ignore[arg-type]
    if plan.move_round is not None:
        arrays["move_round"] = plan.move_round
        for name, field in LIMITS.items():
            if (limit := getattr(plan.budget, field)) is not None:
                arrays[name] = np.float64(limit)
    _save_arrays(path, arrays | dict(more or {}))


def _text(plan: MigrationPlan, suffix: str) -> str:
    if suffix == ".json":
        return json.dumps(plan.summary, indent=1) + "\n"
    text = StringIO()
    writer = csv.DictWriter(text, ACTION_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(cast("list[dict[str, object]]", plan.summary["actions"]))
    return text.getvalue()


def actions_of(instance: Instance, plan: MigrationPlan) -> list[dict[str, object]]:
    """Return what to do, in the order of application: rows with `ACTION_COLUMNS`, by name."""
    partitions = instance.partition_names or range(instance.partitions)
    nodes = instance.node_names or range(instance.nodes)
    place = instance.replica_node
    rows: list[dict[str, object]] = []

    def add(action: str, at: int, role: str, source: int, to: int, **more: float) -> None:
        what = {"action": action, "partition": partitions[at], "role": role}
        rows.append({**what, "from": nodes[source], "to": nodes[to], **more})

    primary: dict[int, int] = {}
    for at, column in zip(plan.swap_partition.tolist(), plan.swap_replica.tolist(), strict=True):
        add("swap", at, "primary", place[at, primary.get(at, 0)], place[at, column], cost=0.0)
        primary[at] = column
    moved = plan.move_partition, plan.move_replica
    costs = between(instance.distance, instance.sender(*moved), plan.move_to)
    for number, (at, column, to) in enumerate(zip(*moved, plan.move_to, strict=True)):
        more = {"cost": float(costs[number])}
        if instance.size is not None:
            more["bytes"] = float(instance.size[at])
        if plan.move_round is not None:
            more["round"] = int(plan.move_round[number])
        role = "primary" if primary.get(int(at), 0) == column else "secondary"
        add("move", at, role, place[at, column], to, **more)
    return rows


def load_changes(path: Path) -> tuple[Int32, Float32, Float32]:
    """Read new loads: partitions [C], primary and secondary loads; raise UserError without."""
    return changes_from(_arrays(path, CHANGES), str(path))


def changes_from(
    arrays: Mapping[str, NDArray[Any]], where: str, partitions: int | None = None
) -> tuple[Int32, Float32, Float32]:
    """Return checked new loads; `partitions` is the number of an instance's, if it is known."""
    check = Checks(where)
    found = check.ids("partition", arrays["partition"], 1)
    primary = check.amounts("primary_load", arrays["primary_load"], 1)
    secondary = check.amounts("secondary_load", arrays["secondary_load"], 1)
    check.length("primary_load", primary, len(found), "partition")
    check.length("secondary_load", secondary, len(found), "partition")
    if partitions is not None:
        check.below("partition", found, partitions, "partitions")
    return found, primary, secondary


def _distance(check: Checks, arrays: Mapping[str, NDArray[Any]], nodes: int) -> Distance:
    given = [name for name in DISTANCES if name in arrays]
    if given == ["node_xy"]:
        xy = check.numbers("node_xy", arrays["node_xy"], 2)
        if xy.shape != (nodes, 2):
            raise UserError(
                f"node_xy has shape {xy.shape}",
                where=check.where,
                allowed=f"({nodes}, 2), one point for each node of capacity",
            )
        return Euclidean(xy)
    if given == ["rack", "rack_distance"]:
        rack = check.ids("rack", arrays["rack"], 1)
        table = check.amounts("rack_distance", arrays["rack_distance"], 2)
        check.length("rack", rack, nodes, "capacity")
        if table.shape[0] != table.shape[1]:
            raise UserError(
                f"rack_distance has shape {table.shape}",
                where=check.where,
                allowed="square, [racks, racks]",
            )
        check.below("rack", rack, len(table), "racks of rack_distance")
        return Racks(rack, table)
    raise UserError(
        f"has {_listed(given) if given else 'no distances'}",
        where=check.where,
        do="give either node_xy, or rack and rack_distance",
    )


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _arrays(
    path: Path, needed: Sequence[str], others: Sequence[str] = ()
) -> dict[str, NDArray[Any]]:
    """Return the arrays of these names; raise UserError if a needed one is missing."""
    if not path.exists():
        raise UserError("there is no such file", where=path)
    if not path.is_file():
        raise UserError("this is not a file", where=path)
    if not zipfile.is_zipfile(path):
        raise UserError("this is no .npz archive (numpy.savez writes them)", where=path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            found = {name: archive[name] for name in (*needed, *others) if name in archive}
    except MemoryError:
        raise UserError("its arrays do not fit into memory", where=path) from None
    except Exception as error:  # damaged archives make zipfile, zlib and numpy raise many kinds
        reason = " ".join(str(error).split())[:REASON] or type(error).__name__
        raise UserError(f"cannot be read: {reason.rstrip('.')}", where=path) from None
    for name, array in found.items():
        if not isinstance(array, np.ndarray):
            raise UserError(f"{name} is no array (numpy.savez writes them)", where=path)
    missing = [name for name in needed if name not in found]
    if missing:
        raise UserError(f"lacks {_listed(missing)}", where=path, allowed=", ".join(needed))
    return found


def refuse_existing(path: Path, *, plans: bool = False) -> None:
    """Raise UserError if `path` exists; with `plans` an earlier plan may be replaced."""
    if path.exists():
        with contextlib.suppress(OSError, ValueError, TypeError, zipfile.BadZipFile):
            if plans and _is_plan(path):
                return
        raise UserError("exists: it is not overwritten", where=path, do="give another file")


def _is_plan(path: Path) -> bool:
    if path.suffix == ".csv":
        return path.read_text().startswith(",".join(ACTION_COLUMNS))
    if path.suffix == ".json":
        return "actions" in json.loads(path.read_bytes())
    return {f"{name}.npy" for name in PLAN_ARRAYS} <= {*zipfile.ZipFile(path).namelist()}


def _save_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    _save(path, lambda file: np.savez(file, **arrays))


def _save(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=path) from None
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=path) from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()


def spread_over(instance: Instance, level: int | None) -> Instance:
    """Return the instance with one level of its fault domains, or all of them for None."""
    if level is None:
        return instance
    if not 0 <= level < instance.levels:
        raise UserError(
            f"spread {level}: the instance has {instance.levels} levels of fault domains",
            allowed=f"0, the outermost, to {instance.levels - 1}",
        )
    if instance.levels == 1:
        return instance
    return replace(instance, fault_domain=np.ascontiguousarray(instance.fault_domain[:, level]))


def _same_dimensions(check: Checks, loads: Mapping[str, Float32], domain: Int32) -> None:
    """Raise UserError if the loads have differing numbers of columns, or an array has none."""
    columns = {array.shape[1:] for array in loads.values()}
    if len(columns) > 1:
        listed = ", ".join(f"{name} {array.shape}" for name, array in loads.items())
        raise UserError(
            f"the loads are not of the same dimensions ({listed})",
            where=check.where,
            do="give all three arrays one column for each dimension, or none of them any",
        )
    if columns == {(0,)} or domain.size == 0:
        raise UserError(
            "loads, capacity and fault_domain need at least a column", where=check.where
        )


def _nested(domain: Int32, check: Checks) -> None:
    """Raise UserError if a domain is in two domains of the level above."""
    for level in range(1, domain.shape[1]):
        inner, first = np.unique(domain[:, level], return_index=True)
        expected = domain[first, level - 1][np.searchsorted(inner, domain[:, level])]
        wrong = np.flatnonzero(expected != domain[:, level - 1])
        if len(wrong):
            node = int(wrong[0])
            raise UserError(
                f"fault_domain {domain[node, level]} of level {level} is in domains "
                f"{expected[node]} and {domain[node, level - 1]} of level {level - 1} (node "
                f"{node}); an inner domain belongs to one outer domain",
                where=check.where,
                do="give it an id of its own",
            )


def _names(made: Instance, check: Checks, names: NDArray[Any] | None) -> tuple[str, ...]:
    if names is None:
        return ()
    if names.dtype.kind not in "US" or names.shape != (made.dimensions,):
        raise UserError(
            f"dimension has type {names.dtype} and shape {names.shape}",
            where=check.where,
            allowed=f"{made.dimensions} names, one for each column of capacity",
        )
    found = tuple(str(name) for name in names.astype(np.str_).tolist())
    if len(set(found)) < len(found) or not all(found):
        raise UserError(f"dimension must hold distinct names; it holds {found}", where=check.where)
    return found


def _groups(made: Instance, check: Checks, group: NDArray[Any] | None) -> Int32 | None:
    """Check that partitions of a group are on the same nodes, column by column."""
    if group is None:
        return None
    ids = check.ids("group", group, 1)
    check.length("group", ids, made.partitions, "replica_node")
    check.not_negative("group", ids)
    _, first, index = np.unique(ids, return_index=True, return_inverse=True)
    for rows in blocks(ids):
        head = first[index[rows]]
        apart = (made.replica_node[rows] != made.replica_node[head]).any(axis=1)
        if apart.any():
            row = int(np.argmax(apart))
            raise UserError(
                f"partitions {head[row]} and {rows.start + row} are of group "
                f"{ids[rows.start + row]} and lie on different nodes; the replicas of a group "
                "lie together, column by column",
                where=check.where,
            )
    return ids
