"""Who does better than whom, from paired blocks.

Every block holds every controller once under the same seed, so controllers are compared block by
block: geometric mean of the ratio, t interval on the log-ratios (design, Statistics). Each
interval holds 95 % by itself; they are not widened for the number of pairs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from analysis.dlr.compare import compare, metric_of
from analysis.stats import Estimate, mean

State = Literal["baseline", "better", "worse", "inconclusive", "inert", "failed"]
"""Against the baseline. ``inconclusive``: the interval includes no effect, or there is none (one
block). ``inert``: it changed nothing in all its runs, which support no claim. ``failed``: no run,
or none in a block that has the baseline."""

Key = tuple[str, str, str]  # controller, scenario, op


@dataclass(frozen=True)
class Standing:
    """One controller under one scenario and op.

    `level` is the mean of its runs (MB/s, for rand IOPS); `gain` and `latency` are ratios to the
    baseline over `n` blocks. `places` are the best and the worst rank that the paired intervals
    leave open; `ties` those it cannot be told from. `notes` say what is missing, and why.
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


@dataclass(frozen=True)
class Panel:
    """All controllers under one scenario and op: the ranked ones first, the best on top."""

    scenario: str
    op: str
    baseline: str
    standings: tuple[Standing, ...]

    def of(self, controller: str) -> Standing:
        """The standing of `controller`; KeyError when it takes no part."""
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
        table: `analysis.load.table` of the comparison's finished runs.
        scenario, op: of the panel.
        baseline: the controller that the others are compared with.
        controllers: those that take part.
        missing: why planned runs are not there, one reason a run.
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
    pairs = {
        (a.controller, b.controller): compare(active[a.controller], active[b.controller], metric)
        for a in ranked
        for b in ranked
        if a is not b
    }
    placed = [_placed(standing, ranked, pairs) for standing in ranked]
    placed.sort(key=lambda s: (-s.gain.value if s.gain else 0.0, s.controller))
    order = ("inert", "failed")
    rest = [s for s in standings if s.state in order]
    rest.sort(key=lambda s: (order.index(s.state), s.controller))
    return Panel(scenario, op, baseline, (*placed, *rest))


def shows(estimate: Estimate | None) -> Literal["better", "worse", "inconclusive"]:
    """What a ratio with its interval shows."""
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
    return Standing(name, state, gain.n, level, gain, slower, notes=notes)


def _notes(inert: int, runs: int, absent: Sequence[str]) -> tuple[str, ...]:
    notes = []
    if inert:
        which = "all" if inert == runs else f"{inert} of {runs}"
        notes.append(f"inert: it changed nothing in {which} runs, which support no claim")
    planned = runs + len(absent)
    for reason, count in Counter(absent).most_common():
        notes.append(f"{count} of {planned} runs missing: {reason}")
    return tuple(notes)


def _placed(
    standing: Standing,
    ranked: Sequence[Standing],
    pairs: Mapping[tuple[str, str], Estimate | None],
) -> Standing:
    others = [other.controller for other in ranked if other is not standing]
    against = {other: shows(pairs[standing.controller, other]) for other in others}
    ahead = sum(shown == "worse" for shown in against.values())
    behind = sum(shown == "better" for shown in against.values())
    return Standing(
        standing.controller,
        standing.state,
        standing.n,
        standing.level,
        standing.gain,
        standing.latency,
        places=(1 + ahead, len(ranked) - behind),
        ties=tuple(other for other in others if against[other] == "inconclusive"),
        notes=standing.notes,
    )
