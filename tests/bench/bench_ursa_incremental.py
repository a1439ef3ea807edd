"""Ursa: a round with 1 % changed loads, compared with a plan from scratch."""

from __future__ import annotations

import statistics
from typing import Any

from bench_ursa import KINDS, say
from frame import Row, row, show

from controllers.research.ursa.rounds import RoundsOptions, in_rounds
from controllers.ursa.generate import generate, shape

NODES, PARTITIONS = 10_000, 10_000_000
SEED = 1
CHANGED = 0.01
ROUNDS = 9
LIMIT_S = 0.1


def rows(kind: str) -> list[Row]:
    """Measure rounds on one kind of data: seconds, and cost over that of a plan from scratch."""
    say(f"{kind}: generating")
    instance = generate(shape(kind, NODES, PARTITIONS), SEED)
    wanted = RoundsOptions(random=CHANGED, rounds=ROUNDS, seed=SEED, check=True, scratch=True)
    made: list[Any] = []
    for one in in_rounds(instance, wanted):
        say(f"{kind}: round {one['round']}")
        made.append(one)
    later = made[1:]
    seconds = [one["decision_seconds"]["total"] for one in later]
    scratch = [one["scratch"]["decision_seconds"]["total"] for one in later]
    update = statistics.median(one["update_seconds"] for one in later)
    apply = statistics.median(one["apply_seconds"] for one in later)
    cost = sum(one["cost"] for one in later)
    base = sum(one["scratch"]["cost"] for one in later)
    name = f"ursa incremental {kind} {NODES}-{PARTITIONS}, {CHANGED:.0%} of the loads changed"
    valid = sum(one["valid"] for one in made)
    hot = max(one["hot_after"] for one in later)
    return [
        row(
            f"{name}, decision",
            statistics.median(seconds),
            "s",
            LIMIT_S,
            n=len(seconds),
            note=f"median, {min(seconds):.3f} to {max(seconds):.3f}; taking the changes "
            f"{update:.3f} s, applying the plan {apply:.3f} s, setting up once "
            f"{made[0]['setup_seconds']:.2f} s; from scratch {statistics.median(scratch):.3f} s; "
            f"{valid} of {len(made)} plans valid, at most {hot} nodes left hot",
        ),
        row(
            f"{name}, cost over a plan from scratch",
            100 * (cost / base - 1) if base else None,
            "%",
            None,
            n=len(later),
            note=f"{sum(one['moves'] for one in later)} moves, "
            f"{sum(one['swaps'] for one in later)} swaps in {len(later)} rounds",
        ),
    ]


def main() -> None:
    """Print the results."""
    show(each for kind in KINDS for each in rows(kind))


if __name__ == "__main__":
    main()
