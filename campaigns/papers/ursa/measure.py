"""Numbers of a run's summary, from a cell's instance and plan."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from campaigns.engine.job import Phases
from controllers.ursa.check import check, loads
from controllers.ursa.generate import generate, shape
from controllers.ursa.instance import Instance, MigrationPlan
from controllers.ursa.methods import METHODS, Method
from controllers.ursa.place.algorithm1 import Variant
from controllers.ursa.run import plan_instance
from controllers.ursa.select import random_objects
from schemas.cells.ursa import Algorithm1, Placing, UrsaCell
from schemas.errors import HotbedError

SHOWN_NODES = 20_000
CURVE_POINTS = 200
THRESHOLD = 0.7
"""Part of a node's capacity above which it is hot; an instance's thresholds include it."""
LIMIT_SHARE = 0.99
"""Share of its time limit from which on a decision counts as ended by the limit."""

Floats = NDArray[np.float64]


def make_instance(parameters: UrsaCell, seed: int) -> Instance:
    """Return the instance of a cell, the same for all cells of a block with this shape."""
    wanted = shape(
        parameters.kind,
        parameters.nodes,
        parameters.partitions,
        replicas=parameters.replicas,
        tail=parameters.tail,
        load_max=parameters.load_max,
        racks=parameters.racks,
    )
    return generate(wanted, seed)


def plan_and_check(
    parameters: UrsaCell, instance: Instance, seed: int, phases: Phases
) -> tuple[dict[str, float], dict[str, Any]]:
    """Plan with the cell's method and verify the plan with the independent checker.

    Return the numbers of the cell's summary, and the plan's summary as in `hotbed ursa plan`.

    Raises:
        HotbedError: the plan violates a constraint.
    """
    at_random = isinstance(parameters, Placing) and parameters.selection == "random"
    with phases("plan"):
        made = plan_instance(
            instance,
            method_of(parameters),
            time_limit_s=parameters.time_limit_s,
            seed=seed,
            max_move_cost=parameters.max_move_cost,
            success=parameters.swap_success,
            select=partial(random_objects, seed=seed) if at_random else None,
        )
    summary = dict(made.summary) | {"method": parameters.method}
    with phases("check"):
        cost = summary["cost"]
        assert isinstance(cost, float)
        report = check(instance, made, cost)
    if not report.valid:
        raise HotbedError(
            f"the plan of {parameters.label()} violates {report.violations_total} things, the "
            f"first: {report.violations[0]}."
        )
    with phases("count"):
        values = _values(parameters, summary) | _spread(instance, made)
    return values, summary


def method_of(parameters: UrsaCell) -> str | Method:
    """Return the planning method: by name, a variant of Algorithm 1, or one that keeps all moves.

    Randomly selected objects are all moved, because leaving out unnecessary moves would be another
    way of selecting.
    """
    if not isinstance(parameters, Placing):
        return parameters.method
    known = METHODS[parameters.method]
    if parameters.selection == "random":
        known = replace(known, summary=parameters.label(), prune=False, rescue=False)
    elif not isinstance(parameters, Algorithm1):
        return parameters.method
    if isinstance(parameters, Algorithm1):
        variant = Variant(
            divide=parameters.divide != "none",
            relax=parameters.program != "ilp",
            first_radius=parameters.first_radius,
            step=parameters.radius_step,
        )
        known = replace(known, summary=parameters.label(), arguments={"variant": variant})
    return known


def describe(instance: Instance) -> dict[str, Any]:
    """Return the instance in the form of figures 1 and 3.

    ``ratio`` is load over capacity of each node (at most `SHOWN_NODES`), the hottest first;
    ``load`` and ``capacity`` of the same nodes are over their means; ``partition_share`` is the
    part of the partitions that carries at least ``partition_load``, over the mean.
    """
    (load,) = loads(instance, instance.replica_node, np.zeros(instance.partitions, np.int64))
    capacity = instance.capacity.astype(np.float64) / THRESHOLD
    ratio = np.divide(load, capacity, out=np.zeros_like(load), where=capacity > 0)
    order = np.argsort(-ratio, kind="stable")
    if len(order) > SHOWN_NODES:
        order = order[np.linspace(0, len(order) - 1, SHOWN_NODES).astype(np.int64)]
    each = np.sort(instance.primary_load.astype(np.float64))[::-1]
    places = np.unique(np.geomspace(1, max(1, len(each)), CURVE_POINTS).astype(np.int64)) - 1
    places = places[places < len(each)]
    return {
        "ratio": _short(ratio[order]),
        "load": _short(load[order] / _mean(load)),
        "capacity": _short(capacity[order] / _mean(capacity)),
        "partition_share": _short((places + 1) / max(1, len(each))),
        "partition_load": _short(each[places] / _mean(each)),
        "threshold": THRESHOLD,
    }


def described_values(instance: Instance, described: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of the summary of a cell without a plan."""
    ratio = np.array(described["ratio"])
    low, middle, high = np.quantile(ratio, [0.05, 0.5, 0.95])
    return {
        "hot_before": float((ratio > THRESHOLD).sum()),
        "hot_share": float((ratio > THRESHOLD).mean()),
        "ratio_p05": float(low),
        "ratio_median": float(middle),
        "ratio_p95": float(high),
        "objects": float(instance.replica_node.size),
        "input_mib": instance.nbytes / 2**20,
    }


def _values(parameters: UrsaCell, summary: dict[str, Any]) -> dict[str, float]:
    seconds = summary["decision_seconds"]
    names = ("hot_before", "hot_after_swaps", "hot_after", "swaps", "moves", "cost", "input_mib")
    values = {name: float(summary[name]) for name in names}
    values["decision_s"] = float(seconds["total"])
    values |= {f"s_{name}": float(took) for name, took in seconds.items() if name != "total"}
    for name in ("lower_bound", "gap"):
        if summary[name] is not None:
            values[name] = float(summary[name])
    values["limited"] = float(seconds["total"] >= LIMIT_SHARE * parameters.time_limit_s)
    for name, value in summary["notes"].items():
        if isinstance(value, (bool, int, float)) and math.isfinite(value):
            values[f"note_{name}"] = float(value)
    return values


def _spread(instance: Instance, made: MigrationPlan) -> dict[str, float]:
    """Return standard deviations over the nodes, before and after (figure 11d): of loads in units
    of the mean load, and of load over capacity."""
    column = np.zeros(instance.partitions, np.int64)
    (before,) = loads(instance, instance.replica_node, column)
    column[made.swap_partition] = made.swap_replica  # the last swap of a partition counts
    where = instance.replica_node.copy()
    where[made.move_partition, made.move_replica] = made.move_to
    (after,) = loads(instance, where, column)
    capacity = np.maximum(instance.capacity.astype(np.float64) / THRESHOLD, 1e-300)
    return {
        "load_sd_before": float(before.std() / _mean(before)),
        "load_sd_after": float(after.std() / _mean(before)),
        "ratio_sd_before": float((before / capacity).std()),
        "ratio_sd_after": float((after / capacity).std()),
    }


def _mean(values: Floats) -> float:
    mean = float(values.mean()) if len(values) else 0.0
    return mean or 1.0


def _short(values: Floats) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
