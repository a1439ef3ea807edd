"""Ranking of controllers from paired blocks.

Every block holds every controller once under the same seed, so controllers are compared block by
block: geometric mean of the ratio, t interval on the log-ratios (design, Statistics). Each interval
holds 95 % by itself; intervals are not widened for the number of pairs.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pandas as pd

from analysis.core.stats import Estimate, mean
from analysis.papers.dlr.compare import compare, metric_of

Shown = Literal["better", "worse", "inconclusive"]
State = Literal["baseline", "better", "worse", "inconclusive", "inert", "failed"]
"""Against the baseline. ``inconclusive``: the interval includes no effect, or there is no interval
(one block). ``inert``: it changed nothing in all its runs, which support no claim. ``failed``: no
run, or no run in a block that has the baseline."""

ACTIONS = "controller_actions"
"""Column of `analysis.core.load.table`: number of actions that a run's controller took."""

Key = tuple[str, str, str]  # controller, scenario, op


@dataclass(frozen=True)
class Standing:
    """One controller under one scenario and op.

    `level` is the mean of its runs (MB/s, for rand IOPS); `gain` and `latency` are ratios to the
    baseline over `n` blocks. `places` are the best and the worst rank that the paired intervals
    allow; `ties` are the controllers without a shown difference. `notes` say what is missing, and
    why. `idle`: it took no action in any run, by its own choice.
    """

    controller: str
    state: State
    n: int = 0
    level: Estimate | None = None
    gain: Estimate | None = None
    latency: Estimate | None = None
    places: tuple[int, int] | None = None
    ties: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    idle: bool = False


@dataclass(frozen=True)
class Panel:
    """All controllers under one scenario and op: the ranked ones first, the best on top."""

    scenario: str
    op: str
    baseline: str
    standings: tuple[Standing, ...]

    def of(self, controller: str) -> Standing:
        """Return the standing of `controller`; raise KeyError if it takes no part."""
        for standing in self.standings:
            if standing.controller == controller:
                return standing
        raise KeyError(controller)


def rank(
    table: pd.DataFrame,
    *,
    scenario: str,
    op: str,
    baseline: str,
    controllers: Sequence[str],
    missing: Mapping[Key, Sequence[str]],
) -> Panel:
    """Rank the controllers under one scenario and op.

    Args:
        table: `analysis.core.load.table` of the comparison's finished runs.
        scenario, op: of the panel.
        baseline: the controller that the others are compared with.
        controllers: the controllers that take part.
        missing: reasons why planned runs are missing, one per run.
    """
    rows = table[(table["scenario"] == scenario) & (table["op"] == op)]
    runs = {name: rows[rows["controller"] == name] for name in controllers}
    active = {name: found[~found["inert"].astype(bool)] for name, found in runs.items()}
    metric = metric_of(op, "throughput")
    standings = [
        _standing(
            name,
            runs=runs[name],
            active=active[name],
            base=active[baseline],
            op=op,
            baseline=baseline,
            absent=missing.get((name, scenario, op), ()),
        )
        for name in controllers
    ]
    ranked = [s for s in standings if s.state not in ("failed", "inert")]
    names = [standing.controller for standing in ranked]
    shown = _every_pair({name: active[name] for name in names}, metric)
    placed = [_placed(standing, names, shown) for standing in ranked]
    placed.sort(key=lambda s: (-s.gain.value if s.gain else 0.0, s.controller))
    order = ("inert", "failed")
    rest = [s for s in standings if s.state in order]
    rest.sort(key=lambda s: (order.index(s.state), s.controller))
    return Panel(scenario, op, baseline, (*placed, *rest))


def shows(estimate: Estimate | None) -> Shown:
    """Return the result that a ratio with its interval shows."""
    if estimate is None or math.isnan(estimate.low) or estimate.low <= 1 <= estimate.high:
        return "inconclusive"
    return "better" if estimate.value > 1 else "worse"


def _standing(
    name: str,
    *,
    runs: pd.DataFrame,
    active: pd.DataFrame,
    base: pd.DataFrame,
    op: str,
    baseline: str,
    absent: Sequence[str],
) -> Standing:
    notes = _notes(len(runs) - len(active), len(runs), absent)
    if runs.empty:
        return Standing(name, "failed", notes=notes or ("no run",))
    throughput, latency = metric_of(op, "throughput"), metric_of(op, "latency")
    inert = active.empty
    used = runs if inert else active
    values = used[throughput].dropna().tolist()
    level = mean(values) if values else None
    if name == baseline:
        if inert:
            return Standing(name, "inert", len(runs), level, notes=notes)
        same = Estimate(1.0, 1.0, 1.0, len(active))
        return Standing(name, "baseline", len(active), level, same, same, notes=notes)
    stalled = int((used[throughput].fillna(0) <= 0).sum())
    if stalled:
        notes = (*notes, f"{stalled} of {len(used)} runs without any throughput: left out")
    gain = compare(used, base, throughput)
    slower = compare(used, base, latency)
    if gain is None:
        why = f"no block has a run of it and one of {baseline}"
        return Standing(name, "failed", 0, level, notes=(*notes, why))
    state: State = "inert" if inert else shows(gain)
    idle = not inert and _idle(active)
    if idle:
        notes = (*notes, "took no action in any run")
    return Standing(name, state, gain.n, level, gain, slower, notes=notes, idle=idle)


def _idle(runs: pd.DataFrame) -> bool:
    """Return True if all runs counted their controller's actions, and there was none."""
    if ACTIONS not in runs.columns:
        return False
    return bool((runs[ACTIONS] == 0).all())


def _notes(inert: int, runs: int, absent: Sequence[str]) -> tuple[str, ...]:
    notes = []
    if inert:
        which = "all" if inert == runs else f"{inert} of {runs}"
        notes.append(f"inert: it changed nothing in {which} runs, which support no claim")
    planned = runs + len(absent)
    for reason, count in Counter(absent).most_common():
        notes.append(f"{count} of {planned} runs missing: {reason}")
    return tuple(notes)


def _every_pair(runs: Mapping[str, pd.DataFrame], metric: str) -> dict[tuple[str, str], Shown]:
    """Return the result of each controller against each other controller."""
    mirrored: dict[Shown, Shown] = {
        "better": "worse",
        "worse": "better",
        "inconclusive": "inconclusive",
    }
    found: dict[tuple[str, str], Shown] = {}
    for first, second in itertools.combinations(runs, 2):
        found[first, second] = shows(compare(runs[first], runs[second], metric))
        found[second, first] = mirrored[found[first, second]]
    return found


def _placed(
    standing: Standing, names: Sequence[str], shown: Mapping[tuple[str, str], Shown]
) -> Standing:
    others = [name for name in names if name != standing.controller]
    against = {other: shown[standing.controller, other] for other in others}
    ahead = sum(word == "worse" for word in against.values())
    behind = sum(word == "better" for word in against.values())
    return replace(
        standing,
        places=(1 + ahead, len(names) - behind),
        ties=tuple(other for other in others if against[other] == "inconclusive"),
    )
