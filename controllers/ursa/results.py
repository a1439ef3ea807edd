"""What the phases hand to each other: a selection, a placement, moves, and the plan at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.instance import Float64, Int32

UNPLACED = -1


class Timer:
    """Seconds of each phase and what is left of the time limit, on the clock that is given.

    Algorithms read no clock: they are handed a timer, whose clock stands still in tests. A phase
    within a phase is named with a dot, such as ``place.lp``, and is not counted twice.
    """

    def __init__(self, clock: Callable[[], float], limit_s: float | None = None) -> None:
        self._clock = clock
        self._start = clock()
        self._limit_s = limit_s
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add what the block takes to phase `name`."""
        start = self._clock()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self._clock() - start

    def total(self) -> float:
        """Seconds of all phases."""
        return sum(seconds for name, seconds in self.seconds.items() if "." not in name)

    def left(self) -> float:
        """Seconds left (0 when over); infinite without a limit."""
        if self._limit_s is None:
            return float("inf")
        return max(0.0, self._limit_s - (self._clock() - self._start))


@dataclass(frozen=True, eq=False)
class Selection:
    """Objects that leave nodes which swaps left hot (phase 1 of section 3.2), grouped by node.

    Attributes:
        partition: [M].
        replica: [M], column of `Instance.replica_node`, int8.
        node: [M], where the object is now.
        load: [M], its load in its present role.
    """

    partition: Int32
    replica: NDArray[np.int8]
    node: Int32
    load: Float64

    def __len__(self) -> int:
        return len(self.partition)


@dataclass(frozen=True, eq=False)
class Placement:
    """Where a selection goes.

    Attributes:
        move_to: [M], target node, or UNPLACED.
        lower_bound: certified least cost of placing *all* of the selection; None when the method
            proves none (or nothing that is certified was found in time).
        notes: facts about the method that the summary repeats, such as whether it is optimal.
    """

    move_to: Int32
    lower_bound: float | None = None
    notes: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Moves:
    """Moves of a method that selects by itself, in an order of application.

    Attributes:
        partition, replica, to: [M], which object goes to which node.
        lower_bound, notes: as in `Placement`; the bound is over all choices of objects.
    """

    partition: Int32
    replica: NDArray[np.int8]
    to: Int32
    lower_bound: float | None = None
    notes: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Budget:
    """What may be moved in one round; None for no limit. Swaps move nothing and are free.

    Attributes:
        max_moves: replicas.
        size: bytes.
        node_size: bytes that leave any one node, and bytes that come to it.
        rounds: how many rounds a plan is made for at most.
    """

    max_moves: int | None = None
    size: float | None = None
    node_size: float | None = None
    rounds: int = 1


@dataclass(frozen=True, eq=False)
class Plan:
    """Swaps, then moves, both in the order of application.

    Attributes:
        swap_partition, swap_replica: [S], `swap_replica` is the column that becomes primary.
        move_partition, move_replica, move_to: [M].
        still_hot: nodes that the plan leaves hot, ascending; empty when all are relieved.
        summary: the JSON of `hotbed ursa plan`; empty for a plan read from a file.
        move_round: [M], ascending from 0, the round that each move belongs to; None where nothing
            limits them.
        budget: that the rounds keep to.
    """

    swap_partition: Int32
    swap_replica: Int32
    move_partition: Int32
    move_replica: Int32
    move_to: Int32
    still_hot: Int32
    summary: dict[str, object] = field(default_factory=dict)
    move_round: Int32 | None = None
    budget: Budget | None = None
