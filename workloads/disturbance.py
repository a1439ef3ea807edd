"""Plan of disturbed nodes over time, drawn from a seed: pure, no clock and no I/O.

A block's seed gives the same plan to every controller of the block. Times are real seconds from the
benchmark's start; the first stretch also covers the time before it, in which the controller
settles.
"""

from __future__ import annotations

import html
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from schemas.errors import UserError, not_allowed
from workloads.fio import FioLoad

Scenario = Literal["none", "heterogeneity", "interference", "mix", "spread"]
MIX_LOAD: Mapping[str, float] = {"A": 0.10, "B": 0.25, "C": 0.50, "D": 0.75, "E": 1.00}
"""Figure 3's mixes as offered loads, shares of the capacity of a node's disk (local site)."""

MIX_FILE_BYTES: Mapping[str, int] = {
    "A": 250 * 10**6,
    "B": 500 * 10**6,
    "C": 10**9,
    "D": 2 * 10**9,
    "E": 4 * 10**9,
}
"""Figure 3's mixes as in the paper: fio's job sizes (real sites). Their only difference is the part
in the page cache (4 GB of memory, section V-A), so they are read through the cache."""

SPREAD_MEAN = 0.5  # figure 4 holds the mean load and varies its spread over the nodes
LOAD_NAME = "load-hot"


@dataclass(frozen=True)
class DisturbanceStretch:
    """Loads of the disturbed nodes from `t_s` until the next stretch: a share of the disk's
    capacity (offered load), or None for the hotspot, which takes all it gets."""

    t_s: float
    loads: Mapping[str, float | None]

    @property
    def hot(self) -> frozenset[str]:
        """Disturbed nodes."""
        return frozenset(self.loads)


@dataclass(frozen=True)
class DisturbancePlan:
    """Disturbance of the nodes; `stretches` are in the order of time, the first at 0."""

    scenario: Scenario
    seed: int
    nodes: tuple[str, ...]
    stretches: tuple[DisturbanceStretch, ...]
    buffered_file_bytes: int | None = None  # a mix by size: files of this size, page cache on

    @property
    def loaded(self) -> frozenset[str]:
        """Nodes that are disturbed at any time."""
        return frozenset(name for stretch in self.stretches for name in stretch.loads)

    def at(self, t_s: float) -> DisturbanceStretch:
        """Return the stretch at `t_s` seconds from the benchmark's start (before it: the first)."""
        current = self.stretches[0]
        for stretch in self.stretches[1:]:
            if stretch.t_s <= t_s:
                current = stretch
        return current

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{stretch.t_s:g} s</td><td>{html.escape(_words(stretch))}</td></tr>"
            for stretch in self.stretches
        )
        return f"<table><tr><th>{self.scenario}</th><th>load</th></tr>{rows}</table>"


def _words(stretch: DisturbanceStretch) -> str:
    if not stretch.loads:
        return "none"
    return ", ".join(
        name if share is None else f"{name} {share:.0%}"
        for name, share in sorted(stretch.loads.items())
    )


def plan_disturbance(
    scenario: Scenario,
    nodes: Sequence[str],
    *,
    seed: int,
    duration_s: float,
    hot_nodes: int = 4,
    move_every_s: float = 90.0,
    mix: str | None = None,
    spread: float | None = None,
    mix_by_size: bool = False,
    design: tuple[int, int] | None = None,
) -> DisturbancePlan:
    """Return the plan of one cell.

    Args:
        scenario: ``heterogeneity`` disturbs `hot_nodes` random nodes for good (section III-A),
            ``interference`` moves to other random ones every `move_every_s` (III-B; V-D: "four
            other random OSDs", so none stays hot where there are enough others), ``mix``
            gives every node the offered load of `mix` (figure 3), ``spread`` half the nodes
            50 % (1 + spread) and half 50 % (1 - spread) (figure 4).
        nodes: the nodes that carry OSDs.
        seed: the block's seed.
        duration_s: real seconds of the benchmark.
        hot_nodes: number of nodes disturbed at any time.
        move_every_s: real seconds.
        mix: A to E.
        spread: 0 to 1.
        mix_by_size: a mix is a hotspot on files of the paper's size instead of an offered load;
            the files must have been laid out as large (the role fio, `fio_file_bytes`).
        design: seed and block of a `balanced` design of heterogeneity's nodes, instead of `seed`.

    Raises:
        UserError: the parameters do not fit the testbed or each other.
    """
    names = tuple(nodes)
    # The scenario is part of the seed: heterogeneity's nodes differ from interference's first ones.
    draw = random.Random(f"{scenario}/{seed}")
    if scenario == "none":
        stretches: tuple[DisturbanceStretch, ...] = (DisturbanceStretch(0.0, {}),)
    elif scenario in ("heterogeneity", "interference"):
        if not 1 <= hot_nodes <= len(names):
            raise UserError(
                f"hot_nodes is {hot_nodes} but the testbed has {len(names)} OSD nodes",
                allowed=f"1 to {len(names)}",
            )
        if scenario == "heterogeneity":
            chosen = (
                balanced(names, hot_nodes, *design) if design else draw.sample(names, hot_nodes)
            )
            stretches = (_hotspots(0.0, chosen),)
        else:
            stretches = _moves(draw, names, hot_nodes, move_every_s, duration_s)
    elif scenario == "mix":
        if mix is None or mix not in MIX_LOAD:
            raise not_allowed("mix", mix, ", ".join(MIX_LOAD))
        share = None if mix_by_size else MIX_LOAD[mix]
        stretches = (DisturbanceStretch(0.0, dict.fromkeys(names, share)),)
    elif scenario == "spread":
        if spread is None or not 0 <= spread <= 1:
            raise not_allowed("spread", spread, "a number from 0 to 1")
        stretches = (_spread(draw, names, spread),)
    else:
        raise not_allowed("scenario", scenario, "none, heterogeneity, interference, mix or spread")
    size = MIX_FILE_BYTES[mix] if scenario == "mix" and mix_by_size and mix else None
    return DisturbancePlan(scenario, seed, names, stretches, size)


def balanced(names: Sequence[str], count: int, seed: int, block: int) -> list[str]:
    """Return the hot nodes of a block in a design in which all nodes are hot equally often: after
    any number of blocks, the numbers of two nodes differ by at most one. The design deals nodes
    from one random order of all of them after the other."""
    draw = random.Random(f"balanced/{seed}")
    left: list[str] = []
    for _ in range(block + 1):
        chosen, left = left[:count], left[count:]
        if len(chosen) < count:
            order = draw.sample(names, len(names))
            order.sort(key=chosen.__contains__)  # no node twice in a block
            missing = count - len(chosen)
            chosen, left = chosen + order[:missing], order[missing:]
    return chosen


def _hotspots(t_s: float, names: Sequence[str]) -> DisturbanceStretch:
    return DisturbanceStretch(t_s, dict.fromkeys(sorted(names), None))


def _moves(
    draw: random.Random, names: Sequence[str], count: int, every_s: float, duration_s: float
) -> tuple[DisturbanceStretch, ...]:
    if not every_s > 0:
        raise not_allowed("move_every_s", every_s, "a positive number of seconds")
    stretches: list[DisturbanceStretch] = []
    for index in range(max(1, math.ceil(duration_s / every_s))):
        before = stretches[-1].hot if stretches else frozenset()
        # "On four other random OSDs" (section V-D): none stays hot, if there are enough others.
        others = [name for name in names if name not in before]
        drawn = others if len(others) >= count else names
        chosen = draw.sample(drawn, count)
        # A move to the same nodes would be no move.
        while count < len(names) and set(chosen) == before:
            chosen = draw.sample(drawn, count)
        stretches.append(_hotspots(index * every_s, chosen))
    return tuple(stretches)


def _spread(draw: random.Random, names: Sequence[str], spread: float) -> DisturbanceStretch:
    order = draw.sample(names, len(names))
    half = len(order) // 2
    loads = dict.fromkeys(order[:half], SPREAD_MEAN * (1 + spread))
    # With an odd number, the middle node keeps the mean.
    loads |= dict.fromkeys(order[half : len(order) - half], SPREAD_MEAN)
    loads |= dict.fromkeys(order[len(order) - half :], SPREAD_MEAN * (1 - spread))
    return DisturbanceStretch(0.0, {name: loads[name] for name in sorted(loads) if loads[name] > 0})


def load_of(
    file_bytes: int, capacity_iops: Mapping[str, float]
) -> Callable[[str, float | None], FioLoad]:
    """Return a function from a node and its share to a fio load.

    The hotspot is the paper's libaio loop; offered loads are blocking reads. With libaio nothing
    waits before the device's queue is full. Then neither %iowait nor io.pressure separates 10 %
    from 90 % (docs/queue-disk.md), and figures 3 and 4 would be empty.

    Args:
        file_bytes: size of each of fio's files.
        capacity_iops: random reads per second of each node's disk (`measure_capacity`); needed
            only for offered loads.
    """

    def load(node: str, share: float | None) -> FioLoad:
        if share is None:
            return FioLoad(file_bytes=file_bytes)
        if node not in capacity_iops:
            raise UserError(
                f"an offered load on node {node} needs its disk's random-read capacity",
                do="measure it first",
            )
        rate = max(1.0, share * capacity_iops[node])
        return FioLoad(file_bytes=file_bytes, offered_iops=rate, ioengine="psync")

    return load


def agent_plan(
    plan: DisturbancePlan, load: Callable[[str, float | None], FioLoad], *, max_s: float
) -> list[dict[str, Any]]:
    """Return the steps for the agent's verb disturb-start (testbed/agent/disturb.py).

    A node with the same load before and after a move is left alone. `max_s` limits the whole plan;
    each fio ends by itself after it.
    """
    steps: list[dict[str, Any]] = []
    before: Mapping[str, float | None] = {}
    for stretch in plan.stretches:
        changed = {
            node
            for node in set(before) | set(stretch.loads)
            if before.get(node, -1.0) != stretch.loads.get(node, -1.0)
        }
        for node in sorted(changed & set(before)):
            steps.append(_step(stretch.t_s, node, None, None))
        for node in sorted(changed & set(stretch.loads)):
            fio = load(node, stretch.loads[node])
            changes: dict[str, Any] = {"seed": _fio_seed(plan.seed, node, stretch.t_s)}
            if plan.buffered_file_bytes is not None:
                changes |= {"file_bytes": plan.buffered_file_bytes, "direct": False}
            fio = fio.model_copy(update=changes)
            steps.append(_step(stretch.t_s, node, fio.argv(max_s), fio.offered_iops))
        before = stretch.loads
    return steps


def _fio_seed(seed: int, node: str, t_s: float) -> int:
    # Every controller of a block meets the same arrivals; they differ by node and move.
    return random.Random(f"{seed}/{node}/{t_s}").randrange(1, 2**31)


def _step(t_s: float, node: str, argv: list[str] | None, rate_iops: float | None) -> dict[str, Any]:
    name = f"{LOAD_NAME}-{node}"
    return {"t_s": t_s, "node": node, "name": name, "argv": argv, "rate_iops": rate_iops}
