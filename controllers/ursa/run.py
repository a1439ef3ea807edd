"""Planning on the real clock: the functions of `hotbed ursa plan`, `compare` and `generate`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from controllers.ursa.generate import generate, shape
from controllers.ursa.instance import Instance, MigrationPlan, RoundBudget, Timer
from controllers.ursa.io import (
    actions_of,
    load_instance,
    refuse_existing,
    save_instance,
    spread_over,
)
from controllers.ursa.methods import Method
from controllers.ursa.plan import Selector, checked, plan
from controllers.ursa.state import initial_state
from schemas.errors import UserError, not_allowed

if TYPE_CHECKING:
    from typing import Unpack

WARM_LIMIT_S = 0.5
TIGHT = {"ratio_median": 0.6, "ratio_sigma": 0.5, "ratio_max": 1.4}


class PlanOptions(TypedDict, total=False):
    """Options of `plan.plan`."""

    seed: int
    max_move_cost: float | None
    success: float
    select: Selector | None
    budget: RoundBudget | None


def plan_read(
    read: Callable[[], Instance],
    method: str,
    *,
    time_limit_s: float | None = None,
    spread: int | None = None,
    **options: Unpack[PlanOptions],
) -> MigrationPlan:
    """Read an instance and plan for it; reading and compiling are not in the decision's seconds.

    The summary also has the actions by name, and total load and capacity, a number or one for each
    dimension. `spread`: the one level of fault domains that counts, 0 the outermost; None for all.
    """
    check_limit(time_limit_s)
    # Before reading and compiling, which may take longer than a wrong option is worth.
    seed, success = options.get("seed", 0), options.get("success", 1.0)
    checked(method, seed=seed, max_move_cost=options.get("max_move_cost"), success=success)
    instance = spread_over(read(), spread)
    made = plan_instance(instance, method, time_limit_s=time_limit_s, **options)
    names = instance.node_names or range(instance.nodes)
    load = initial_state(instance).load.sum(axis=0)
    capacity = instance.capacity.sum(axis=0, dtype=np.float64)
    unit = f" {instance.load_unit}".rstrip()
    made.summary.update(
        still_hot=[names[node] for node in made.still_hot],
        total_load=load.tolist(),
        total_capacity=capacity.tolist(),
        load_unit=instance.load_unit or None,
        warnings=[
            f"The total load, {have:.6g}{unit}, exceeds the total capacity, {room:.6g}{unit}: no "
            "plan can relieve all nodes."
            for have, room in zip(np.atleast_1d(load), np.atleast_1d(capacity), strict=True)
            if have > room * (1 + 1e-9)
        ],
        actions=actions_of(instance, made),
    )
    return made


def check_limit(time_limit_s: float | None) -> None:
    """Raise UserError for an invalid time limit."""
    if time_limit_s is not None and not time_limit_s > 0:
        raise not_allowed("time-limit", time_limit_s, "above 0 seconds")


def budget_of(
    max_moves: int | None, size: float | None, node_size: float | None, rounds: int
) -> RoundBudget | None:
    """Return the budget that options ask for; None without any."""
    if max_moves is None and size is None and node_size is None:
        if rounds != 1:
            raise UserError(
                f"rounds {rounds}: without a budget one round does it all",
                do="give --max-moves, --budget or --node-budget",
            )
        return None
    return RoundBudget(max_moves, size, node_size, rounds)


def plan_instance(
    instance: Instance,
    method: str | Method,
    *,
    time_limit_s: float | None = None,
    **options: Unpack[PlanOptions],
) -> MigrationPlan:
    """Plan for an instance in memory, with compiled loops and solvers loaded beforehand."""
    max_move_cost, budget = options.get("max_move_cost"), options.get("budget")
    if budget is None and instance.plain:
        warm_up(method, max_move_cost)
    else:
        warm_up_general(method, instance, max_move_cost, budget)
    made = plan(instance, method, timer=Timer(time.perf_counter, time_limit_s), **options)
    made.summary["peak_rss_mib"] = peak_rss_mib()
    made.summary["input_mib"] = instance.nbytes / 2**20
    return made


def generate_file(
    out: Path | None, *, kind: str, nodes: str, partitions: str, seed: int, **changes: object
) -> dict[str, object]:
    """Write an instance, by default to a file named after its parameters; return facts about it.

    `nodes` and `partitions` may end in K or M. `changes` are further parameters of
    `generate.InstanceShape`; None leaves the kind's.
    """
    if seed < 0:
        raise not_allowed("seed", seed, "at least 0")
    wanted = shape(kind, _number("nodes", nodes), _number("partitions", partitions), **changes)
    path = out or Path(f"ursa-{kind}-{nodes}-{partitions}-{seed}.npz")
    refuse_existing(path)
    made = generate(wanted, seed)
    save_instance(made, path)
    hot = int(initial_state(made).hot(made).reshape(made.nodes, -1).any(axis=1).sum())
    return {
        "path": str(path.resolve()),
        "nodes": made.nodes,
        "partitions": made.partitions,
        "replicas": made.replicas,
        "hot": hot,
        "mib": made.nbytes / 2**20,
    }


def _number(name: str, text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:[eE]\d\d?)?)([kKmM]?)", text.strip())
    value = (
        Decimal(match[1]) * {"": 1, "k": 1000, "m": 1000000}[match[2].lower()] if match else None
    )
    if value is None or value != int(value):
        raise not_allowed(name, text, "a whole number, such as 300, 10K or 0.1M")
    return int(value)


def warm_up(method: str | Method, max_move_cost: float | None = None) -> None:
    """Plan for small instances, so that every loop is compiled and every solver is loaded."""
    for small in warm_instances():
        timer = Timer(time.perf_counter, WARM_LIMIT_S)
        plan(small, method, timer=timer, max_move_cost=max_move_cost, success=0.9)


def warm_up_general(
    method: str | Method,
    like: Instance,
    max_move_cost: float | None = None,
    budget: RoundBudget | None = None,
) -> None:
    """Warm up as `warm_up`, for instances like this: loads of groups have another type."""
    group_size = 1 if like.group is None else 2
    wanted = shape("s1", 12, 240, dimensions=2, group_size=group_size, sizes=True, **TIGHT)
    timer = Timer(time.perf_counter, WARM_LIMIT_S)
    small = generate(wanted, seed=14)
    plan(small, method, timer=timer, max_move_cost=max_move_cost, success=0.9, budget=budget)


def warm_instances() -> list[Instance]:
    """Return instances of both distances; swaps leave nodes hot, and moves can relieve these."""
    shapes = [shape("s1", 12, 240, racks=racks, **TIGHT) for racks in (0, 4)]
    return [generate(wanted, seed=14) for wanted in shapes]


def peak_rss_mib() -> float:
    """Return the peak memory of this process (MiB); ``ru_maxrss`` can be the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1024


def compare_file(
    path: Path,
    methods: Sequence[str],
    *,
    time_limit_s: float | None = None,
    **options: Unpack[PlanOptions],
) -> list[dict[str, object]]:
    """Return cost, moves, hot nodes, lower bound, seconds and notes for each method.

    `saved` is the saved part of the first method's cost; None if the two leave different numbers of
    nodes hot. `above_joint_bound` (with `joint` among the methods) is the part by which the cost
    is above the bound on every choice of objects that leave hot nodes for nodes with room; plans
    that also move other objects can be below it.
    """
    check_limit(time_limit_s)
    instance = load_instance(path)
    found: list[dict[str, Any]] = []
    for method in methods:
        made = plan_instance(instance, method, time_limit_s=time_limit_s, **options)
        summary: dict[str, Any] = made.summary
        names = ("method", "cost", "moves", "swaps", "hot_after", "lower_bound", "notes")
        row = {name: summary[name] for name in names}
        row["seconds"] = summary["decision_seconds"]["total"]
        first = found[0] if found else row
        alike = first["hot_after"] == row["hot_after"]
        row["saved"] = 1 - row["cost"] / first["cost"] if alike and first["cost"] > 0 else None
        found.append(row)
    # The bound on every choice of objects of hot nodes.
    bound = max((row["notes"].get("hot_nodes_only_bound") or 0.0 for row in found), default=0.0)
    for row in found:
        known = bound > 0 and not row["hot_after"]
        row["above_joint_bound"] = row["cost"] / bound - 1 if known else None
    return found
