"""Fewest moves of replicas that let the primaries follow the disks' rates, and what they are worth.

Where most OSDs are disturbed, most placement groups (PGs) have disturbed replicas only, and no
choice of primaries gets their reads away. `closed_network.best_shares` says which loads would be
best if every PG were everywhere. Ursa's planner (Algorithm 1's two phases on the PGs as partitions,
their parts of the reads as loads) finds the fewest moves that bring every OSD below a capacity. The
capacity lies a part of the way from the loads of the best primaries to those best loads: a smaller
part moves less data. Of the plans for several parts, the one that serves most reads in the expected
rest of the hotspot is taken, if it serves more than staying:

    reads(stay) = now * rest
    reads(move) = (now * (1 - cost) + (then - now) / 2) * moving + then * (rest - moving)

with `moving` = bytes / recovery bandwidth (only its part within the rest counts). While data moves,
throughput loses the part `cost`, and rises evenly from `now` to `then`. All moves cost the same, so
the fewest are made, of the PGs with most reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from controllers.dlr_even.primaries import best_primaries, rate_of
from controllers.dlr_even.rates import DiskRates
from controllers.dlr_pg.swaps import SwapProblem, osd_loads
from controllers.ursa.instance import Instance, Racks
from controllers.ursa.live import LiveProblem, domain_ids, float32_from_above, plan_for
from schemas.closed_network import best_shares
from testbed.stores.contract import Osd

PARTS = (0.25, 0.5, 0.75, 1.0)
"""Capacities that are tried, as parts of the way to the best loads."""

_DIGITS = 3


@dataclass(frozen=True)
class MoveTerms:
    """Terms of a move: recovery bandwidth in bytes per second, the part of the throughput lost
    while data moves, and the seconds for which the hotspot is expected to stay."""

    bytes_s: float
    cost: float
    rest_s: float


@dataclass(frozen=True)
class MoveEstimate:
    """Moves (PG, from OSD, to OSD), and the estimate for them. DiskRates are reads per second.

    `then` with all moves made; `gain` is reads(move) / reads(stay) - 1. `best` is the rate that no
    placement passes (`best_shares`)."""

    moves: tuple[tuple[str, int, int], ...]
    now: float
    then: float
    best: float
    bytes: int
    moving_s: float
    gain: float

    def words(self) -> dict[str, Any]:
        """Return the estimate for the journal."""
        rates = {"now": self.now, "then": self.then, "best": self.best, "gain": self.gain}
        found = {name: round(value, _DIGITS) for name, value in rates.items()}
        return {"moves": len(self.moves), "mb": self.bytes // 10**6, **found} | {
            "moving_s": round(self.moving_s, 1)
        }


def best_moves(
    problem: SwapProblem,
    rates: DiskRates,
    osds: Sequence[Osd],
    sizes: Mapping[str, int],
    terms: MoveTerms,
    *,
    seed: int,
) -> MoveEstimate | None:
    """Return the moves that are worth most by `terms`, even if that is less than nothing; None if
    nothing can be moved. `sizes`: bytes by PG."""
    nodes = [osd for osd in sorted(osds, key=lambda osd: osd.id) if osd.id in rates.stations]
    size = max((len(up) for up in problem.movable.values()), default=0)
    free = sorted(pg for pg, up in problem.movable.items() if len(up) == size)
    if len(nodes) <= size or not free:
        return None
    swaps = best_primaries(problem, rates.stations, rates.in_flight, len(problem.movable))
    led = {**problem.primaries, **swaps}
    now = rate_of(problem, rates.stations, rates.in_flight, swaps)
    load = osd_loads(led, problem.loads, [osd.id for osd in nodes])
    free_bound = best_shares([rates.stations[osd.id] for osd in nodes], rates.in_flight)
    found: list[MoveEstimate] = []
    for part in PARTS:
        capacity = np.array(
            [
                load[osd.id] + part * (share - load[osd.id])
                for osd, share in zip(nodes, free_bound.shares, strict=True)
            ]
        )
        live = _instance(problem, led, free, nodes, capacity)
        moves = plan_for(live, "nearest", seed).moves
        if moves and (not found or moves != found[-1].moves):
            then = _rate_after(problem, led, rates, moves)
            size = sum(sizes[pg] for pg, _, _ in moves)
            gain = gain_of(now, then, size / terms.bytes_s, terms)
            found.append(
                MoveEstimate(moves, now, then, free_bound.rate, size, size / terms.bytes_s, gain)
            )
    return max(found, key=lambda estimate: estimate.gain, default=None)


def _instance(
    problem: SwapProblem,
    led: Mapping[str, int],
    free: Sequence[str],
    nodes: Sequence[Osd],
    capacity: np.typing.NDArray[np.float64],
) -> LiveProblem:
    """Return the planner's problem: a read loads its primary only, and all moves cost 1."""
    index = {osd.id: number for number, osd in enumerate(nodes)}
    rows = [[led[pg], *(osd for osd in problem.movable[pg] if osd != led[pg])] for pg in free]
    replicas = np.array([[index[osd] for osd in row] for row in rows], dtype=np.int32)
    loads = np.array([problem.loads[pg] for pg in free], dtype=np.float32)
    fixed = np.zeros(len(nodes))
    for pg, osd in led.items():
        if osd in index and pg not in problem.movable:
            fixed[index[osd]] += problem.loads[pg]
    # PGs are indivisible: a cold OSD takes the last one although it then has half of it too much.
    limit = np.maximum(capacity - fixed, 0.0) + float(loads.max()) / 2
    instance = Instance(
        replica_node=replicas,
        primary_load=loads,
        secondary_load=np.zeros_like(loads),
        capacity=float32_from_above(limit),
        fault_domain=domain_ids(list(nodes), "host"),
        distance=Racks(np.zeros(len(nodes), np.int32), np.ones((1, 1), np.float32)),
    )
    carried = np.bincount(replicas[:, 0], loads.astype(np.float64), len(nodes))
    ids = tuple(osd.id for osd in nodes)
    return LiveProblem(instance, tuple(free), ids, fixed, 0.0, carried > instance.capacity)


def gain_of(now: float, then: float, moving_s: float, terms: MoveTerms) -> float:
    """Return the reads that moving gives in the hotspot's rest, relative to staying, minus 1.
    `now`, `then`: reads per second; `moving_s`: seconds that the moves take."""
    staying = now * terms.rest_s
    during_s = min(moving_s, terms.rest_s)
    risen = (then - now) * during_s / moving_s if moving_s > 0 else 0.0
    during = now * (1 - terms.cost) + risen / 2
    going = during * during_s + then * (terms.rest_s - during_s)
    return going / staying - 1 if staying > 0 else 0.0


def _rate_after(
    problem: SwapProblem,
    led: Mapping[str, int],
    rates: DiskRates,
    moves: Sequence[tuple[str, int, int]],
) -> float:
    """Return the reads per second of the best primaries after the moves."""
    movable, primaries = dict(problem.movable), dict(led)
    for pg, source, target in moves:
        movable[pg] = tuple(target if osd == source else osd for osd in movable[pg])
        primaries[pg] = target if primaries[pg] == source else primaries[pg]
    moved = replace(problem, movable=movable, primaries=primaries)
    chosen = best_primaries(moved, rates.stations, rates.in_flight, len(movable))
    return rate_of(moved, rates.stations, rates.in_flight, chosen)
