"""Plans of several methods for one instance, and what each costs: `hotbed ursa compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from controllers.ursa.instance import Instance
from controllers.ursa.io import load_instance
from controllers.ursa.run import plan_instance
from schemas.errors import UserError


def compare_file(
    path: Path,
    methods: Sequence[str],
    *,
    time_limit_s: float | None = None,
    seed: int = 0,
    max_move_cost: float | None = None,
) -> list[dict[str, object]]:
    """As `compare`, for a file."""
    if time_limit_s is not None and not time_limit_s > 0:
        raise UserError(f"time-limit {time_limit_s}: it must be above 0 seconds.")
    return compare(
        load_instance(path),
        methods,
        time_limit_s=time_limit_s,
        seed=seed,
        max_move_cost=max_move_cost,
    )


def compare(
    instance: Instance,
    methods: Sequence[str],
    *,
    time_limit_s: float | None = None,
    seed: int = 0,
    max_move_cost: float | None = None,
) -> list[dict[str, object]]:
    """For each method cost, moves, nodes still hot, lower bound, seconds and notes.

    `saved` is the part of the first method's cost that is spared; None where either leaves nodes
    hot that the other one does not, or the first costs nothing. With `joint` among the methods,
    `above_joint_bound` is the part by which the cost is above the bound on every choice of objects
    that leave hot nodes for nodes with room: what ALP chooses from. Plans that move other objects
    besides can be below it.
    """
    found: list[dict[str, object]] = []
    for method in methods:
        summary = plan_instance(
            instance,
            method,
            time_limit_s=time_limit_s,
            seed=seed,
            max_move_cost=max_move_cost,
        ).summary
        names = ("method", "cost", "moves", "swaps", "hot_after", "lower_bound", "notes")
        told = {name: summary[name] for name in names}
        told["seconds"] = summary["decision_seconds"]["total"]  # type: ignore[index]
        first = found[0] if found else told
        base, cost = float(str(first["cost"])), float(str(told["cost"]))
        alike = first["hot_after"] == told["hot_after"]
        told["saved"] = 1 - cost / base if alike and base > 0 else None
        found.append(told)
    bound = max(map(_joint_bound, found), default=0.0)
    for told in found:
        known = bound > 0 and not told["hot_after"]
        told["above_joint_bound"] = float(str(told["cost"])) / bound - 1 if known else None
    return found


def _joint_bound(told: dict[str, object]) -> float:
    """On every choice of objects of hot nodes; 0 where the method proves none."""
    notes = told["notes"]
    bound = notes.get("hot_nodes_only_bound") if isinstance(notes, dict) else None
    return 0.0 if bound is None else float(bound)
