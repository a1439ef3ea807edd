"""Ranking of controllers from paired blocks, and its claims: each controller against the baseline.

Every block holds every controller once under the same seed, so controllers are compared block by
block: geometric mean of the ratio, t interval on the log-ratios (design, Statistics). Each interval
holds 95 % by itself; intervals are not widened for the number of pairs.

Claims are declared before the runs, and all state that the controller does better. So
`contradicted` means that it does worse, and `inconclusive` that the blocks do not decide. No paper
has these claims: `stated` is false.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pandas as pd

from analysis.core.claims import Claim, Evidence, Measured, NotRun, evaluate
from analysis.core.evidence import average, quotient
from analysis.core.stats import Estimate
from analysis.papers.dlr.runs import BLOCKS, active, metric_of
from schemas.claim import ClaimResult

Shown = Literal["better", "worse", "inconclusive"]
State = Literal["baseline", "better", "worse", "inconclusive", "inert", "failed"]
"""Against the baseline. ``inconclusive``: the interval includes no effect, or there is no interval
(one block). ``inert``: it changed nothing in all its runs, which support no claim. ``failed``: no
run, or no run in a block that has the baseline."""

ACTIONS = "controller_actions"
"""Column of `analysis.core.load.table`: number of actions that a run's controller took."""

Key = tuple[str, str, str]  # controller, scenario, op


@dataclass(frozen=True)
class ControllerRank:
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
    standings: tuple[ControllerRank, ...]

    def of(self, controller: str) -> ControllerRank:
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
    """Rank the controllers under one scenario and op from `analysis.core.load.table`. `missing`:
    reasons why planned runs are missing, one per run."""
    rows = table[(table["scenario"] == scenario) & (table["op"] == op)]
    runs = {name: rows[rows["controller"] == name] for name in controllers}
    acted = {name: active(found) for name, found in runs.items()}
    metric = metric_of(op, "throughput")
    standings = [
        _standing(
            name,
            runs=runs[name],
            acted=acted[name],
            base=acted[baseline],
            op=op,
            baseline=baseline,
            absent=missing.get((name, scenario, op), ()),
        )
        for name in controllers
    ]
    ranked = [s for s in standings if s.state not in ("failed", "inert")]
    names = [standing.controller for standing in ranked]
    shown = _every_pair({name: acted[name] for name in names}, metric)
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
    acted: pd.DataFrame,
    base: pd.DataFrame,
    op: str,
    baseline: str,
    absent: Sequence[str],
) -> ControllerRank:
    notes = _notes(len(runs) - len(acted), len(runs), absent)
    if runs.empty:
        return ControllerRank(name, "failed", notes=notes or ("no run",))
    throughput, latency = metric_of(op, "throughput"), metric_of(op, "latency")
    inert = acted.empty
    used = runs if inert else acted
    level = average(used, throughput)
    if name == baseline:
        if inert:
            return ControllerRank(name, "inert", len(runs), level, notes=notes)
        same = Estimate(1.0, 1.0, 1.0, len(acted))
        return ControllerRank(name, "baseline", len(acted), level, same, same, notes=notes)
    stalled = int((used[throughput].fillna(0) <= 0).sum())
    if stalled:
        notes = (*notes, f"{stalled} of {len(used)} runs without any throughput: left out")
    gain = quotient(used, base, throughput, keys=BLOCKS)
    slower = quotient(used, base, latency, keys=BLOCKS)
    if gain is None:
        why = f"no block has a run of it and one of {baseline}"
        return ControllerRank(name, "failed", 0, level, notes=(*notes, why))
    state: State = "inert" if inert else shows(gain)
    idle = not inert and _idle(acted)
    if idle:
        notes = (*notes, "took no action in any run")
    return ControllerRank(name, state, gain.n, level, gain, slower, notes=notes, idle=idle)


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
        found[first, second] = shows(quotient(runs[first], runs[second], metric, keys=BLOCKS))
        found[second, first] = mirrored[found[first, second]]
    return found


def _placed(
    standing: ControllerRank, names: Sequence[str], shown: Mapping[tuple[str, str], Shown]
) -> ControllerRank:
    others = [name for name in names if name != standing.controller]
    against = {other: shown[standing.controller, other] for other in others}
    ahead = sum(word == "worse" for word in against.values())
    behind = sum(word == "better" for word in against.values())
    return replace(
        standing,
        places=(1 + ahead, len(names) - behind),
        ties=tuple(other for other in others if against[other] == "inconclusive"),
    )


FIGURE = "comparison"
_NOUN = {
    "seq": "sequential read throughput",
    "rand": "random read IOPS",
    "write": "write throughput",
}
_OPERATIONS = {"seq": "sequential reads", "rand": "random reads", "write": "writes"}


def claims_of(
    panels: Sequence[Panel], evidence: Evidence, *, ground: str, time_scale: float
) -> list[ClaimResult]:
    """Return every claim with its result, in the panels' order."""
    made: list[ClaimResult] = []
    for panel in panels:
        for standing in panel.standings:
            if standing.controller == panel.baseline:
                continue
            for claim in _claims(panel, standing, ground, time_scale):
                made.append(evaluate(claim, evidence))
    return made


def _claims(panel: Panel, standing: ControllerRank, ground: str, time_scale: float) -> list[Claim]:
    name, baseline = standing.controller, panel.baseline
    stem = f"compare-{name}-{panel.scenario}-{panel.op}"
    against = f"against {baseline} under {panel.scenario}"
    if panel.scenario == "none":
        against = f"against {baseline} without disturbance"
    noun = _NOUN[panel.op]

    def measured(
        estimate: Estimate | None, function: Callable[[float], float]
    ) -> Callable[[Evidence], Measured | NotRun]:
        return lambda _: _measured(standing, estimate, function, ground, time_scale)

    return [
        Claim(
            id=f"{stem}-throughput",
            figure=FIGURE,
            statement=f"{name} raises {noun} {against}",
            paper_value=None,
            compute=measured(standing.gain, lambda ratio: ratio - 1),
            unit="relative change",
            baseline=baseline,
            sized=False,
            stated=False,
        ),
        Claim(
            id=f"{stem}-latency",
            figure=FIGURE,
            statement=f"{name} lowers the latency of {_OPERATIONS[panel.op]} {against}",
            paper_value=None,
            compute=measured(standing.latency, lambda ratio: 1 - ratio),
            unit="relative change",
            baseline=baseline,
            sized=False,
            stated=False,
            depends_on=(f"{stem}-throughput",),
        ),
    ]


def _measured(
    standing: ControllerRank,
    estimate: Estimate | None,
    function: Callable[[float], float],
    ground: str,
    time_scale: float,
) -> Measured | NotRun:
    notes = "; ".join(standing.notes)
    if standing.state in ("failed", "inert") or estimate is None:
        return NotRun(notes or "no run that supports it")
    effect = estimate.map(function)
    if effect.low > 0:
        notes = "; ".join(filter(None, ("better", notes)))
    elif effect.high < 0:
        notes = "; ".join(filter(None, ("worse", notes)))
    return Measured(effect, ground, time_scale, notes or None)
