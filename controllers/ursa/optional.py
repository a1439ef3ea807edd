"""The arrays that an instance may have beside what the paper's model needs, and their checks.

Loads of several dimensions and nested fault domains are columns of the arrays that every instance
has; names of dimensions, groups and bytes are arrays of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.checks import Checks, blocks
from controllers.ursa.instance import Instance, Int32
from schemas.errors import UserError

ARRAYS = ("dimension", "group", "bytes")
LOADS = ("primary_load", "secondary_load", "capacity")


def added(made: Instance, check: Checks, arrays: Mapping[str, NDArray[Any]]) -> Instance:
    """`made` with what is optional; a single column becomes none.

    Raises:
        UserError: arrays that contradict each other, in one sentence.
    """
    made = _one_column(made, check)
    _nested(made.fault_domain, check)
    size = None
    if "bytes" in arrays:
        size = check.amounts("bytes", arrays["bytes"], 1)
        check.length("bytes", size, made.partitions, "replica_node has as many rows")
    return replace(
        made,
        dimension=_names(made, check, arrays.get("dimension")),
        group=_groups(made, check, arrays.get("group")),
        size=size,
    )


def spread_over(instance: Instance, level: int | None) -> Instance:
    """The instance with one level of its fault domains, or all of them for None."""
    if level is None:
        return instance
    if not 0 <= level < instance.levels:
        raise UserError(
            f"spread {level}: the instance has {instance.levels} levels of fault domains; it must "
            f"be 0, the outermost, to {instance.levels - 1}."
        )
    if instance.levels == 1:
        return instance
    return replace(instance, fault_domain=np.ascontiguousarray(instance.fault_domain[:, level]))


def arrays_of(instance: Instance) -> dict[str, NDArray[Any]]:
    """The optional arrays of a file that holds `instance`."""
    found: dict[str, NDArray[Any]] = {}
    if instance.dimension:
        found["dimension"] = np.array(instance.dimension)
    if instance.group is not None:
        found["group"] = instance.group
    if instance.size is not None:
        found["bytes"] = instance.size
    return found


def _one_column(made: Instance, check: Checks) -> Instance:
    arrays = {name: getattr(made, name) for name in LOADS}
    columns = {name: array.shape[1] if array.ndim == 2 else None for name, array in arrays.items()}
    if len(set(columns.values())) > 1:
        told = ", ".join(f"{name} {arrays[name].shape}" for name in LOADS)
        raise UserError(
            f"{check.where}: the loads are not of the same dimensions ({told}): give all three "
            "arrays one column for each dimension, or none of them any."
        )
    if columns["capacity"] == 0 or made.fault_domain.size == 0:
        raise UserError(f"{check.where}: loads, capacity and fault_domain need at least a column.")
    if columns["capacity"] == 1:
        made = replace(made, **{name: array[:, 0].copy() for name, array in arrays.items()})
    if made.fault_domain.ndim > 1 and made.levels == 1:
        made = replace(made, fault_domain=made.fault_domain[:, 0].copy())
    return made


def _nested(domain: Int32, check: Checks) -> None:
    """UserError when a domain lies in two domains of the level above."""
    levels = 1 if domain.ndim == 1 else domain.shape[1]
    for level in range(1, levels):
        inner, first = np.unique(domain[:, level], return_index=True)
        expected = domain[first, level - 1][np.searchsorted(inner, domain[:, level])]
        wrong = np.flatnonzero(expected != domain[:, level - 1])
        if len(wrong):
            node = int(wrong[0])
            raise UserError(
                f"{check.where}: fault_domain {domain[node, level]} of level {level} lies in "
                f"domains {expected[node]} and {domain[node, level - 1]} of level {level - 1} "
                f"(node {node}); an inner domain belongs to one outer domain, give it an id of its "
                "own."
            )


def _names(made: Instance, check: Checks, names: NDArray[Any] | None) -> tuple[str, ...]:
    if names is None:
        return ()
    if names.dtype.kind not in "US" or names.shape != (made.dimensions,):
        raise UserError(
            f"{check.where}: dimension has type {names.dtype} and shape {names.shape}; it must "
            f"be {made.dimensions} names, one for each column of capacity."
        )
    found = tuple(str(name) for name in names.astype(np.str_).tolist())
    if len(set(found)) < len(found) or not all(found):
        raise UserError(f"{check.where}: dimension must hold distinct names; it holds {found}.")
    return found


def _groups(made: Instance, check: Checks, group: NDArray[Any] | None) -> Int32 | None:
    """Partitions of a group lie on the same nodes, column by column."""
    if group is None:
        return None
    ids = check.ids("group", group, 1)
    check.length("group", ids, made.partitions, "replica_node has as many rows")
    check.not_negative("group", ids)
    _, first, index = np.unique(ids, return_index=True, return_inverse=True)
    for rows in blocks(ids):
        head = first[index[rows]]
        apart = (made.replica_node[rows] != made.replica_node[head]).any(axis=1)
        if apart.any():
            row = int(np.argmax(apart))
            raise UserError(
                f"{check.where}: partitions {head[row]} and {rows.start + row} are of group "
                f"{ids[rows.start + row]} and lie on different nodes; the replicas of a group lie "
                "together, column by column."
            )
    return ids
