"""Instances and plans as .npz files; what is malformed is told in one sentence.

`docs/ursa.md` describes the arrays.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controllers.ursa import optional
from controllers.ursa.checks import ONE_OR_TWO, Checks
from controllers.ursa.instance import Distance, Euclidean, Float32, Instance, Int32, Racks
from controllers.ursa.results import Budget, Plan
from schemas.errors import UserError

MAX_REPLICAS = 127  # a column is an int8
REASON = 160  # characters of what a library says of a damaged archive, which may quote all of it
REQUIRED = ("replica_node", "primary_load", "secondary_load", "capacity", "fault_domain")
DISTANCES = ("node_xy", "rack", "rack_distance")
LIMITS = {"max_moves": "max_moves", "budget": "size", "node_budget": "node_size"}
"""Numbers in a plan's file, and the fields of `results.Budget` that they are."""
CHANGES = ("partition", "primary_load", "secondary_load")
PLAN_ARRAYS = ("swap_partition", "swap_replica", "move_partition", "move_replica", "move_to")


def load_instance(path: Path) -> Instance:
    """Read and check an instance.

    Raises:
        UserError: the file is no .npz archive, or what it holds is no instance.
    """
    return instance_from(_arrays(path, {*REQUIRED, *DISTANCES, *optional.ARRAYS}), str(path))


def instance_from(arrays: Mapping[str, NDArray[Any]], where: str) -> Instance:
    """The instance that these arrays are, checked; `where` is what an error names."""
    missing = [name for name in REQUIRED if name not in arrays]
    if missing:
        raise UserError(
            f"{where} lacks {_listed(missing)}: an instance holds {', '.join(REQUIRED)}, and "
            "node_xy or rack with rack_distance."
        )
    check = Checks(where)
    replica_node = check.ids("replica_node", arrays["replica_node"], 2)
    partitions, replicas = replica_node.shape
    if not 1 <= replicas <= MAX_REPLICAS:
        raise UserError(
            f"{where}: replica_node has {replicas} columns; a partition has 1 to {MAX_REPLICAS} "
            "replicas."
        )
    capacity = check.amounts("capacity", arrays["capacity"], ONE_OR_TWO)
    nodes = len(capacity)
    if nodes == 0:
        raise UserError(f"{where}: capacity is empty; there must be at least one node.")
    made = Instance(
        replica_node=replica_node,
        primary_load=check.amounts("primary_load", arrays["primary_load"], ONE_OR_TWO),
        secondary_load=check.amounts("secondary_load", arrays["secondary_load"], ONE_OR_TWO),
        capacity=capacity,
        fault_domain=check.ids("fault_domain", arrays["fault_domain"], ONE_OR_TWO),
        distance=_distance(check, arrays, nodes),
    )
    for name, array in (("primary", made.primary_load), ("secondary", made.secondary_load)):
        check.length(f"{name}_load", array, partitions, "replica_node has as many rows")
    check.length("fault_domain", made.fault_domain, nodes, "capacity has as many nodes")
    check.below("replica_node", made.replica_node, nodes, "nodes")
    check.not_negative("fault_domain", made.fault_domain)
    check.distinct(made.replica_node)
    return optional.added(made, check, arrays)


def save_instance(instance: Instance, path: Path) -> None:
    """Write the arrays that `load_instance` reads; the file appears whole or not at all.

    Raises:
        UserError: `path` exists, or cannot be written.
    """
    refuse_existing(path)
    arrays = {name: getattr(instance, name) for name in REQUIRED} | vars(instance.distance)
    _save(path, arrays | optional.arrays_of(instance))


def load_plan(path: Path) -> tuple[Plan, float | None]:
    """Read a plan.

    Returns:
        The plan, and the cost that it states (None when it states none). Whether ids are of the
        instance is for `check` to say.

    Raises:
        UserError: the file is no .npz archive, or what it holds is no plan.
    """
    where = str(path)
    arrays = _arrays(path, {*PLAN_ARRAYS, "still_hot", "cost", "move_round", *LIMITS})
    missing = [name for name in PLAN_ARRAYS if name not in arrays]
    if missing:
        raise UserError(f"{where} lacks {_listed(missing)}: a plan holds {', '.join(PLAN_ARRAYS)}.")
    check = Checks(where)
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
    if "move_round" in arrays:
        move_round = check.ids("move_round", arrays["move_round"], 1)
        check.length("move_round", move_round, len(move_partition), "move_partition has as many")
        limits = {LIMITS[name]: _number(name, arrays, where) for name in LIMITS}
        plan = replace(plan, move_round=move_round, budget=Budget(**limits))  # type: ignore[arg-type]
    return plan, _number("cost", arrays, where)


def _number(name: str, arrays: Mapping[str, NDArray[Any]], where: str) -> float | None:
    found = arrays.get(name)
    if found is not None and (found.shape != () or found.dtype.kind not in "fiu"):
        raise UserError(f"{where}: {name} must be one number.")
    return None if found is None else float(found)


def save_plan(plan: Plan, path: Path, more: Mapping[str, NDArray[Any]] | None = None) -> None:
    """Write a plan, with `more` arrays; the file appears whole or not at all.

    Raises:
        UserError: `path` exists and is no plan, or cannot be written.
    """
    refuse_existing(path, plans=True)
    arrays: dict[str, Any] = {name: getattr(plan, name) for name in (*PLAN_ARRAYS, "still_hot")}
    if "cost" in plan.summary:
        arrays["cost"] = np.float64(plan.summary["cost"])  # type: ignore[arg-type]
    if plan.move_round is not None:
        arrays["move_round"] = plan.move_round
        for name, field in LIMITS.items():
            if (limit := getattr(plan.budget, field)) is not None:
                arrays[name] = np.float64(limit)
    _save(path, arrays | dict(more or {}))


def load_changes(path: Path) -> tuple[Int32, Float32, Float32]:
    """Read new loads: partitions [C], their primary and secondary loads.

    Raises:
        UserError: the file is no .npz archive, or does not hold these. Whether partitions are of
            the instance is for `rounds.Rounds.update` to say.
    """
    where = str(path)
    arrays = _arrays(path, set(CHANGES))
    missing = [name for name in CHANGES if name not in arrays]
    if missing:
        raise UserError(f"{where} lacks {_listed(missing)}: changes hold {', '.join(CHANGES)}.")
    check = Checks(where)
    partition = check.ids("partition", arrays["partition"], 1)
    primary = check.amounts("primary_load", arrays["primary_load"], 1)
    secondary = check.amounts("secondary_load", arrays["secondary_load"], 1)
    for name, array in (("primary_load", primary), ("secondary_load", secondary)):
        check.length(name, array, len(partition), "partition has as many")
    return partition, primary, secondary


def _distance(check: Checks, arrays: Mapping[str, NDArray[Any]], nodes: int) -> Distance:
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
        reason = " ".join(str(error).split())[:REASON] or type(error).__name__
        raise UserError(f"{path} cannot be read: {reason.rstrip('.')}.") from None
    for name, array in found.items():
        if not isinstance(array, np.ndarray):
            raise UserError(f"{path}: {name} is no array (numpy.savez writes them).")
    return found


def refuse_existing(path: Path, *, plans: bool = False) -> None:
    """Raise UserError if `path` exists: no file is overwritten.

    Args:
        path: the file to be written.
        plans: True if a plan may be replaced by another.
    """
    if path.exists():
        if plans:
            with contextlib.suppress(OSError, ValueError, zipfile.BadZipFile):
                if {f"{name}.npy" for name in PLAN_ARRAYS} <= {*zipfile.ZipFile(path).namelist()}:
                    return
        raise UserError(f"{path} exists: it is not overwritten; give another file.")


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
