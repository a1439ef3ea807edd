"""Rounds for a file on the real clock: what `hotbed ursa rounds` and the bench call."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from controllers.ursa.check import check
from controllers.ursa.instance import Float32, Instance, Int32
from controllers.ursa.io import load_changes, load_instance, save_instance, save_plan
from controllers.ursa.results import Plan, Timer
from controllers.ursa.rounds import Rounds
from controllers.ursa.run import peak_rss_mib, plan_instance, warm_instances, warm_up
from schemas.errors import UserError

Changes = tuple[Int32, Float32, Float32]
"""Partitions, and their new primary and secondary loads."""


@dataclass(frozen=True)
class Wanted:
    """What is asked for.

    Attributes:
        changes: files, one for each round after the first.
        random: part of the partitions whose loads change from round to round, instead of files.
        rounds: how many such rounds.
        method, seed, max_move_cost, time_limit_s: of every decision.
        out: folder for plans; None for none.
        instances: whether the instance before each round is written there too.
        check: whether every plan is verified independently.
        scratch: whether a plan from scratch is made beside each, to compare cost and seconds.
    """

    changes: Sequence[Path] = ()
    random: float | None = None
    rounds: int = 10
    method: str = "alp"
    seed: int = 0
    max_move_cost: float | None = None
    time_limit_s: float | None = None
    out: Path | None = None
    instances: bool = False
    check: bool = False
    scratch: bool = False


def rounds_file(path: Path, wanted: Wanted) -> Iterator[dict[str, object]]:
    """Facts about one round after the other; round 0 is before any change."""
    if wanted.random is not None and wanted.changes:
        raise UserError("give files of changes or --random, not both.")
    if wanted.random is not None and not 0 < wanted.random <= 1:
        raise UserError(f"random {wanted.random}: it is a part of the partitions, above 0 to 1.")
    if wanted.rounds < 0:
        raise UserError(f"rounds {wanted.rounds}: it must be at least 0.")
    if wanted.time_limit_s is not None and not wanted.time_limit_s > 0:
        raise UserError(f"time-limit {wanted.time_limit_s}: it must be above 0 seconds.")
    for file in wanted.changes:
        load_changes(file)
    yield from in_rounds(load_instance(path), wanted)


def in_rounds(instance: Instance, wanted: Wanted) -> Iterator[dict[str, object]]:
    """As `rounds_file`, for an instance in memory."""
    _warm_up(wanted)
    start = time.perf_counter()
    rounds = Rounds(instance)
    facts: dict[str, object] = {"setup_seconds": time.perf_counter() - start}
    for number, changes in enumerate(_changes(rounds, wanted)):
        if changes is not None:
            start = time.perf_counter()
            rounds.update(*changes)
            facts = {"update_seconds": time.perf_counter() - start}
        made = rounds.decide(
            Timer(time.perf_counter, wanted.time_limit_s),
            wanted.method,
            seed=wanted.seed,
            max_move_cost=wanted.max_move_cost,
        )
        told = {
            "round": number,
            "changed": 0 if changes is None else len(changes[0]),
            **made.summary,
            **facts,
        }
        told |= _beside(rounds, made, wanted)
        if wanted.out is not None:
            _write(wanted.out, number, rounds.instance, made, wanted.instances)
        start = time.perf_counter()
        rounds.apply(made)
        told["apply_seconds"] = time.perf_counter() - start
        told["peak_rss_mib"] = peak_rss_mib()
        yield told


def drawn(now: Instance, part: float, rng: np.random.Generator) -> Changes:
    """New loads for a part of the partitions: each gets those of another one, drawn at random."""
    count = max(1, round(part * now.partitions))
    if now.partitions == 0:
        return np.empty(0, np.int32), np.empty(0, np.float32), np.empty(0, np.float32)
    partition = rng.choice(now.partitions, count, replace=False, shuffle=False).astype(np.int32)
    other = rng.integers(now.partitions, size=count)
    return partition, now.primary_load[other], now.secondary_load[other]


def _changes(rounds: Rounds, wanted: Wanted) -> Iterator[Changes | None]:
    """None before the first round, then what changes before each other one."""
    yield None
    for file in wanted.changes:
        yield load_changes(file)
    if wanted.random is not None:
        rng = np.random.Generator(np.random.PCG64(wanted.seed))
        for _ in range(wanted.rounds):
            yield drawn(rounds.instance, wanted.random, rng)


def _beside(rounds: Rounds, made: Plan, wanted: Wanted) -> dict[str, object]:
    told: dict[str, object] = {}
    if wanted.check:
        report = check(rounds.instance, made, float(str(made.summary["cost"])))
        told |= {"valid": report.valid, "violations": report.violations}
    if wanted.scratch:
        scratch = plan_instance(
            rounds.instance,
            wanted.method,
            time_limit_s=wanted.time_limit_s,
            seed=wanted.seed,
            max_move_cost=wanted.max_move_cost,
        ).summary
        names = ("cost", "moves", "swaps", "hot_after", "decision_seconds")
        told["scratch"] = {name: scratch[name] for name in names}
    return told


def _write(folder: Path, number: int, before: Instance, made: Plan, instances: bool) -> None:
    """The plan with the nodes that it names: columns are those of the placement at that time."""
    source = before.replica_node[made.move_partition, made.move_replica]
    leader = before.replica_node[made.swap_partition, made.swap_replica]
    if instances:  # which replaces nothing, so that nothing is replaced when it fails
        save_instance(before, folder / f"before-{number:03}.npz")
    save_plan(made, folder / f"plan-{number:03}.npz", {"move_from": source, "swap_to": leader})


def _warm_up(wanted: Wanted) -> None:
    warm_up(wanted.method, wanted.max_move_cost)
    for small in warm_instances():
        rounds = Rounds(small)
        for _ in range(2):
            rounds.apply(rounds.decide(Timer(time.perf_counter), "greedy"))
            rounds.update(*drawn(small, 0.5, np.random.Generator(np.random.PCG64(1))))
