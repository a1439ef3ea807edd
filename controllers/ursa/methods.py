"""The methods by name: they choose the targets of objects, and some also the objects.

A *placer* is ``place(problem, timer) -> SelectionTargets``: it places a selection, which is
highest-load-first. A *mover* is ``moves(instance, state, request) -> Result`` and chooses the
objects by itself; `state` is after the swaps. Both leave their arguments as they are, keep
C1 and C2 whatever happens, and move nothing farther than the highest allowed cost.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from controllers.ursa.instance import Timer

BEYOND = "controllers.research.ursa.plan"
"""Plug-in for several dimensions, nested fault domains, groups and budgets; see `plan.plan`."""


@dataclass(frozen=True)
class MethodRequest:
    """Request to a mover, in addition to the instance.

    When `timer.left()` is 0 a method returns the best that it has found. No single move costs more
    than `max_move_cost`.
    """

    timer: Timer
    seed: int = 0
    max_move_cost: float | None = None

    @property
    def reach(self) -> float:
        """`max_move_cost`, infinite without one."""
        return float("inf") if self.max_move_cost is None else self.max_move_cost


@dataclass(frozen=True)
class Method:
    """Place of a method (imported when it is used: solvers take long to load).

    `trim`: select the lightest last object that suffices (`select.highest_load_first`). `prune`:
    leave unnecessary moves out of its plans. `rescue`: try all choices of moves around nodes that
    its plan leaves hot (`place.exact`). The paper's methods do none of these. `arguments`: of the
    function, such as a variant of Algorithm 1.
    """

    kind: Literal["placer", "mover"]
    module: str
    function: str
    summary: str
    trim: bool = True
    prune: bool = True
    rescue: bool = False
    arguments: Mapping[str, object] = field(default_factory=dict)

    def load(self) -> Any:
        """Load the method's function."""
        found = getattr(
            importlib.import_module(f"controllers.ursa.place.{self.module}"), self.function
        )
        return partial(found, **self.arguments) if self.arguments else found


_ALP = Method(
    "placer", "algorithm1", "place", "Algorithm 1, the paper's ALP", trim=False, prune=False
)

METHODS: dict[str, Method] = {
    "alp-fast": Method(
        "placer", "alp_fast", "alp_fast", "ALP, faster and improved: the best", rescue=True
    ),
    "alp": _ALP,
    "algorithm1": _ALP,
    "algorithm1-pruned": Method(
        "placer", "algorithm1", "place", "Algorithm 1, last object trimmed, no vain moves"
    ),
    "ilp": Method(
        "placer", "alp_fast", "ilp", "the two-phase ILP, (7) to (13), to its optimum", rescue=True
    ),
    "opt": Method(
        "mover", "joint", "opt", "the exact model, (1) to (6), of small instances", rescue=True
    ),
    "joint": Method(
        "mover", "joint", "joint", "chooses together what leaves and where it goes", rescue=True
    ),
    "htoc": Method(
        "mover", "baselines", "htoc", "hottest to coldest, a baseline of the paper", prune=False
    ),
    "sa": Method(
        "mover", "baselines", "sa", "simulated annealing, a baseline of the paper", prune=False
    ),
    "nearest": Method("placer", "alp_fast", "nearest", "each object to its nearest fitting node"),
}
