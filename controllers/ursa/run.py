"""Plan for a file on the real clock: what `hotbed ursa plan` and the benches call."""

from __future__ import annotations

import re
import resource
import time
from decimal import Decimal
from pathlib import Path

from controllers.ursa.generate import generate, shape
from controllers.ursa.instance import Instance
from controllers.ursa.io import load_instance, save_instance
from controllers.ursa.methods import Method
from controllers.ursa.plan import Selector, plan
from controllers.ursa.results import Plan, Timer
from controllers.ursa.select import highest_load_first
from controllers.ursa.state import initial_state
from schemas.errors import UserError

WARM_LIMIT_S = 0.5


def plan_file(
    path: Path,
    method: str,
    *,
    time_limit_s: float | None = None,
    seed: int = 0,
    max_move_cost: float | None = None,
    success: float = 1.0,
) -> Plan:
    """Read an instance and plan for it; parameters as of `plan.plan`.

    Reading and the compilation of loops are no part of the decision's seconds.
    """
    if time_limit_s is not None and not time_limit_s > 0:
        raise UserError(f"time-limit {time_limit_s}: it must be above 0 seconds.")
    instance = load_instance(path)
    return plan_instance(
        instance,
        method,
        time_limit_s=time_limit_s,
        seed=seed,
        max_move_cost=max_move_cost,
        success=success,
    )


def plan_instance(
    instance: Instance,
    method: str | Method,
    *,
    time_limit_s: float | None = None,
    seed: int = 0,
    max_move_cost: float | None = None,
    success: float = 1.0,
    select: Selector = highest_load_first,
) -> Plan:
    """Plan for an instance in memory, with compiled loops and solvers loaded beforehand.

    Parameters as of `plan.plan`.
    """
    warm_up(method, max_move_cost)
    made = plan(
        instance,
        method,
        timer=Timer(time.perf_counter, time_limit_s),
        seed=seed,
        max_move_cost=max_move_cost,
        success=success,
        select=select,
    )
    made.summary["peak_rss_mib"] = peak_rss_mib()
    made.summary["input_mib"] = instance.nbytes / 2**20
    return made


def generate_file(
    out: Path | None, *, kind: str, nodes: str, partitions: str, seed: int, **changes: object
) -> dict[str, object]:
    """Write an instance; numbers may end in K or M.

    Args:
        out: the file; None for a name made of what is asked for, in the working directory.
        kind, nodes, partitions, seed: see `generate`.
        changes: further parameters of `generate.Shape`; None leaves the kind's.

    Returns:
        Facts about the instance, `path` among them.
    """
    if seed < 0:
        raise UserError(f"seed {seed}: it must be at least 0.")
    wanted = shape(kind, _number("nodes", nodes), _number("partitions", partitions), **changes)
    path = out or Path(f"ursa-{kind}-{nodes}-{partitions}-{seed}.npz")
    made = generate(wanted, seed)
    save_instance(made, path)
    hot = int(initial_state(made).hot(made).sum())
    return {
        "path": str(path.resolve()),
        "nodes": made.nodes,
        "partitions": made.partitions,
        "replicas": made.replicas,
        "hot": hot,
        "mib": made.nbytes / 2**20,
    }


def _number(name: str, text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmM]?)", text.strip())
    value = (
        Decimal(match[1]) * {"": 1, "k": 1000, "m": 1000000}[match[2].lower()] if match else None
    )
    if value is None or value != int(value):
        raise UserError(f"{name} {text!r}: it must be a whole number, such as 300, 10K or 0.1M.")
    return int(value)


def warm_up(method: str | Method, max_move_cost: float | None = None) -> None:
    """Plan for small instances, so that every loop is compiled and every solver is loaded."""
    for small in warm_instances():
        timer = Timer(time.perf_counter, WARM_LIMIT_S)
        plan(small, method, timer=timer, max_move_cost=max_move_cost, success=0.9)


def warm_instances() -> list[Instance]:
    """Both kinds of distance; swaps leave nodes hot, and these can be relieved by moves."""
    tight = {"ratio_median": 0.6, "ratio_sigma": 0.5, "ratio_max": 1.4}
    shapes = [shape("s1", 12, 240, racks=racks, **tight) for racks in (0, 4)]
    return [generate(wanted, seed=14) for wanted in shapes]


def peak_rss_mib() -> float:
    """The most memory that this process has held so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
