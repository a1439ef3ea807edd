"""Claims of the two-choice paper's section III (figures 3 and 4), and claims beyond it.

They are about decisions of schedulers in a simulation, as in the paper: they reproduce the paper's
simulation, not machines. The paper's text gives relations and hardly a number; where it says
"significantly" or "stable", the statement gives our reading. The paper describes *preassign* as a
strategy on top of two-choice and, later in the text, of the collaborative probe. So its claims are
tested for both, alone and with both strategies together.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pandas as pd

from analysis.core.claims import Claim, Compute, Evidence, Measured, NotRun, declared
from analysis.core.evidence import (
    Over,
    Pair,
    Rows,
    ShareOf,
    assigned,
    ends,
    extreme_over,
    mean_of,
    mean_over,
    result,
    values_of,
)
from analysis.core.stats import amount, fraction
from analysis.papers.twochoice.runs import (
    BOTH,
    BURST_STANDARD,
    COLD_BOTH,
    COLLABORATIVE,
    EVEN,
    FIXED,
    NATIVE,
    ORACLE,
    PAIRED,
    PREASSIGN,
    PREQUAL,
    RANDOM,
    UNCACHED,
    common_loads,
    few_stragglers,
    loads_given,
    names_of,
    simulated,
)
from schemas.claim import SHARE as SHARES

FEWEST = 0.01
"""Straggler ratio of "a small number of stragglers"."""
FEW = 0.1
"""Maximum "small" straggler ratio."""
ALIKE = 0.25
"""Maximum relative difference that is "not significant" or "stable"."""
SCALE_LEARN = 5
"""Number of bursts in which servers learn, in the sweep over sizes."""
LARGE = {"servers": 10_000, "processes": 1_000_000, "straggler_ratio": 0.1}

REMEMBERED = (
    "Remembered loads of other servers benefit the performance: the last process ends earlier than "
    "without them"
)
"""Statement that is tested in bursts and on object servers."""

RESPONSE, RATIO = "response_s", "straggler_ratio"

# Section III: runs of simulated bursts, paired by burst.


def _bursts(series: str, **setting: Any) -> Rows:
    return lambda table: simulated(table, series, **setting)


def _versus(series: str, baseline: str, **setting: Any) -> Pair:
    """Compute the ratio of responses. Pairs of one block at several straggler ratios share a seed:
    their mean counts once."""
    sides = (_bursts(series, **setting), _bursts(baseline, **setting))
    why = f"no burst was met by {names_of(series, baseline)}"
    return Pair(*sides, RESPONSE, why, keys=PAIRED, cluster="seed", against=baseline)


def _remembered() -> Compute:
    """Compute the response of both strategies over the same without remembered loads, if nodes do
    not begin at once: then no load is remembered in time."""
    pair = _versus(BOTH, UNCACHED, straggler_ratio=FEW, spread_s=...)
    return mean_over(pair, "spread_s", wanted=lambda spread: spread > 0)


def _percent(ratio: float) -> str:
    return f"{100 * ratio:g} %"


_over_ratios = partial(mean_over, parameter=RATIO, text=_percent)
_growth = partial(ends, parameter=RATIO, column=RESPONSE, why="fewer than two straggler ratios")


def _few(series: str) -> Rows:
    """Select the runs of figure 4."""
    return lambda table: simulated(table, series, straggler_ratio=few_stragglers(table, (FIXED,)))


def _with_few(series: str, column: str) -> Compute:
    """Compute the mean of a summary number over the runs of figure 4."""
    return mean_of(
        _few(series),
        column,
        f"no run of {names_of(series)} has few stragglers",
        of=amount,
        note=lambda rows: f"at {_percent(rows[RATIO].iloc[0])} stragglers",
    )


def _of_loads(compute: Compute, *series: str) -> Compute:
    """Compute from the writes given to servers of each load (figure 4) instead of from runs."""

    def of(evidence: Evidence) -> Measured | NotRun:
        ratio = few_stragglers(evidence.table, (FIXED, *series))
        if ratio is None:
            return NotRun(f"no run of {names_of(*series)} has few stragglers")
        given = pd.concat([loads_given(evidence, name, ratio) for name in series])
        return compute(Evidence(given, evidence.runs))

    return Over(of, getattr(compute, "against", None))


def _hits(series: str, ratio: float) -> Rows:
    """Select runs at a straggler ratio, with the share of the writes that stragglers got."""
    runs = _bursts(series, straggler_ratio=ratio)
    return assigned(runs, on_stragglers=lambda its: its["straggler_writes"] / its["processes"])


def _new_stragglers(series: str) -> Rows:
    """Select the runs of figure 4, with the writes beyond the average of the fullest server that is
    no straggler."""
    return assigned(_few(series), beyond=lambda its: its["calm_most"] - EVEN)


_RARE = "no such load is common enough"


def _common(series: str) -> Rows:
    def rows(given: pd.DataFrame) -> pd.DataFrame:
        its = given[given["series"] == series]
        return its[its["load"].isin(common_loads(its))]

    return rows


def _light(series: str, loads_of: str) -> Rows:
    """Select common loads below the mean load, and return means over their servers, by block."""

    def rows(given: pd.DataFrame) -> pd.DataFrame:
        common = common_loads(given[given["series"] == loads_of])
        loads = [load for load in common if load < BURST_STANDARD["load_mean"]]
        its = given[(given["series"] == series) & given["load"].isin(loads)]
        sums = its[["mean", "most"]].mul(its["servers"], axis=0).groupby(its["seed"]).sum()
        means = sums.div(its.groupby("seed")["servers"].sum(), axis=0).reset_index()
        means["over_even"] = means["mean"] / EVEN
        return means.assign(ground="+".join(sorted(set(its["ground"]))), loads=_span(loads))

    return rows


def _span(loads: list[int]) -> str:
    return f"loads {loads[0]} to {loads[-1]}" if loads else ""


def _lighter(series: str, baseline: str, column: str = "mean") -> Compute:
    """Compute the writes of servers below the mean load (``mean``: average, ``most``: maximum of a
    load) over another scheduler's."""
    pair = Pair(
        _light(series, series),
        _light(baseline, series),
        column,
        _RARE,
        note=lambda rows, _: str(rows["loads"].iloc[0]),
        against=baseline,
    )
    return _of_loads(pair, series, baseline)


def _farthest_from_even(given: Evidence) -> Measured | NotRun:
    """Compute the mean number of writes of a load's servers, relative to an even share, at the
    common load farthest from it."""
    rows = _common(RANDOM)(given.table)
    found = {
        load: amount([one / EVEN for one in rows[rows["load"] == load]["mean"]])
        for load in values_of(rows, "load")
    }
    if not found:
        return NotRun(_RARE)
    load = max(found, key=lambda at: abs(math.log(found[at].value)))
    return result(found[load], rows, _RARE, f"farthest of {_span(list(found))}, at {load}")


_simulated = partial(declared, prefix="twochoice", paper="twochoice", machines=False)
_less = partial(_simulated, larger=False)
"""A claim that a number is less than that of the baseline, or than the number without an effect."""
_alike = partial(_simulated, value=1.0, rule="within", tolerance=ALIKE)
"""A claim that two numbers are about the same."""
_average = partial(
    _simulated, value=EVEN, rule="within", unit="writes", kind="exact", tolerance=0.0
)
"""A claim that servers get the average number of writes by construction."""


def _at_every_ratio(
    name: str, series: str, baseline: str, statement: str, *, slower: bool = False, **more: Any
) -> Claim:
    """Return a claim that a scheduler is faster than the baseline, or `slower`, at every straggler
    ratio."""
    return _simulated(
        name,
        "3",
        f"{statement}, whatever the straggler ratio",
        extreme_over(
            _versus(series, baseline), RATIO, "least" if slower else "largest", text=_percent
        ),
        larger=slower,
        **more,
    )


_RESPONSES: tuple[Claim, ...] = (
    _simulated(
        "stragglers-slow",
        "3",
        f"A small number of stragglers ({100 * FEWEST:g} %) slows a burst with fixed placement",
        _growth(_bursts(FIXED), wanted=lambda ratio: ratio <= FEWEST),
        baseline="no-stragglers",
    ),
    _alike(
        "average-hides",
        "3",
        "With few stragglers the average over processes stays acceptable, though the slowest is "
        f"delayed (fixed placement, {100 * FEWEST:g} %; read as within {100 * ALIKE:g} %)",
        ends(
            _bursts(FIXED),
            RATIO,
            "mean_s",
            "fewer than two straggler ratios",
            wanted=lambda ratio: ratio <= FEWEST,
        ),
        baseline="no-stragglers",
    ),
    _at_every_ratio(
        "random-worse",
        RANDOM,
        FIXED,
        "Random selection is slower than fixed placement",
        slower=True,
    ),
    _alike(
        "native-not-better",
        "3",
        "Native two-choice is not significantly better than fixed placement even with few "
        f"stragglers (up to {100 * FEW:g} %; read as within {100 * ALIKE:g} % of it)",
        extreme_over(
            _versus(NATIVE, FIXED),
            RATIO,
            "farthest",
            wanted=lambda ratio: 0 < ratio <= FEW,
            text=_percent,
        ),
    ),
    _simulated(
        "native-grows",
        "3",
        "The response of native two-choice grows with the number of stragglers",
        _growth(_bursts(NATIVE), wanted=lambda ratio: ratio > 0),
        baseline="fewest-stragglers",
    ),
    _simulated(
        "native-hits",
        "3",
        "With many stragglers (half of the servers) native two-choice still hits them",
        ShareOf(_hits(NATIVE, 0.5), lambda rows: rows["hit"] > 0, "no run has as many stragglers"),
        unit=SHARES,
    ),
    _less(
        "few-native-hits",
        "3",
        "With few stragglers native two-choice can almost guarantee not to hit one "
        f"({100 * FEWEST:g} %; read as at most 1 % of the writes)",
        mean_of(
            _hits(NATIVE, FEWEST), "on_stragglers", "no run has as few stragglers", of=fraction
        ),
        unit=SHARES,
        no_effect=0.01,
    ),
    _at_every_ratio(
        "strategies-better", BOTH, NATIVE, "Both strategies together improve native two-choice"
    ),
    _less(
        "collaborative-hits-less",
        "3",
        "The collaborative probe places fewer writes on stragglers than native two-choice "
        f"({100 * FEW:g} %; share of blocks with more)",
        Pair(
            _hits(COLLABORATIVE, FEW),
            _hits(NATIVE, FEW),
            "straggler_writes",
            "no block has both",
            by="sign",
        ),
        unit=SHARES,
        baseline=NATIVE,
    ),
    _less(
        "collaborative-better",
        "3",
        "The collaborative probe improves native two-choice (over all straggler ratios)",
        _over_ratios(_versus(COLLABORATIVE, NATIVE)),
    ),
    _at_every_ratio(
        "preassign-better",
        BOTH,
        COLLABORATIVE,
        "Preassign reduces the response of the collaborative probe",
    ),
    _at_every_ratio(
        "preassign-better-alone",
        PREASSIGN,
        NATIVE,
        "Preassign reduces the response of native two-choice",
    ),
    # Both readings of the paper's "preassign".
    *(
        claim
        for series, text, suffix in (
            (BOTH, "Preassign, with the collaborative probe,", ""),
            (PREASSIGN, "Preassign", "-alone"),
        )
        for claim in (
            _at_every_ratio(
                f"better-than-fixed{suffix}",
                series,
                FIXED,
                f"{text} is faster than fixed placement",
            ),
            _alike(
                f"stable{suffix}",
                "3",
                f"{text} is stable while the stragglers grow to half of the servers (read as "
                f"within {100 * ALIKE:g} %)",
                _growth(_bursts(series)),
                baseline="no-stragglers",
            ),
        )
    ),
)

_PLACEMENTS: tuple[Claim, ...] = (
    _simulated(
        "load-7",
        "4",
        "Input: about 60 of the servers have a load of 7",
        _of_loads(
            mean_of(
                lambda given: given[given["load"] == 7],
                "servers",
                "no server has a load of 7",
                of=amount,
                note="an input, set by the loads' mean and deviation",
            ),
            FIXED,
        ),
        value=60.0,
        rule="within",
        unit="servers",
    ),
    _less(
        "few-stragglers",
        "4",
        "Input: fewer than 10 servers are stragglers",
        _with_few(FIXED, "stragglers"),
        value=10.0,
        rule="at_most",
        unit="servers",
        kind="exact",
        no_effect=10.0,
        size=False,
        tolerance=0.0,
    ),
    _average(
        "fixed-even",
        "4",
        "Fixed placement gives every server the same number of writes, the average",
        _with_few(FIXED, "most"),
    ),
    _alike(
        "random-even",
        "4",
        "Random selection gives servers of every load the average number (read as within 5 %)",
        _of_loads(_farthest_from_even, RANDOM),
        baseline="even",
        tolerance=0.05,
    ),
    _simulated(
        "random-most",
        "4",
        "The largest number of writes on a server is higher with random selection than with fixed "
        "placement, at every load",
        _of_loads(
            extreme_over(
                Pair(_common(RANDOM), _common(FIXED), "most", _RARE), "load", which="least"
            ),
            RANDOM,
            FIXED,
        ),
        baseline=FIXED,
    ),
    _simulated(
        "random-straggler",
        "4",
        "Random selection places more than the average on one of the stragglers",
        _with_few(RANDOM, "straggler_most"),
        unit="writes",
        no_effect=EVEN,
    ),
    _average(
        "fixed-straggler",
        "4",
        "Fixed placement does not avoid stragglers: they get the average",
        _with_few(FIXED, "straggler_most"),
    ),
    *(
        _simulated(
            f"{series}-avoids",
            "4",
            f"With {text} no straggler gets a write (largest number on a straggler)",
            _with_few(series, "straggler_most"),
            value=0.0,
            rule="within",
            unit="writes",
            tolerance=0.0,
        )
        for series, text in (
            (NATIVE, "native two-choice"),
            (COLLABORATIVE, "the collaborative probe"),
            (PREASSIGN, "preassign"),
            (BOTH, "both strategies"),
        )
    ),
    _simulated(
        "native-herds",
        "4",
        "Native two-choice places more than the average on servers with lower loads",
        _of_loads(
            mean_of(
                _light(NATIVE, NATIVE),
                "over_even",
                _RARE,
                of=amount,
                note=lambda rows: str(rows["loads"].iloc[0]),
            ),
            NATIVE,
        ),
        baseline="even",
    ),
    _simulated(
        "collaborative-herds",
        "4",
        "The collaborative probe places even more than native two-choice on servers with lower "
        "loads",
        _lighter(COLLABORATIVE, NATIVE),
    ),
    *(
        _less(
            f"preassign-spreads{suffix}",
            "4",
            "Preassign avoids new stragglers: the largest number of writes on a server with a "
            f"lower load is smaller than with {text}",
            _lighter(series, other, "most"),
        )
        for series, other, text, suffix in (
            (BOTH, COLLABORATIVE, "the collaborative probe", ""),
            (PREASSIGN, NATIVE, "native two-choice", "-alone"),
        )
    ),
)

_NEW_STRAGGLERS = _less(
    "generated-stragglers",
    "4",
    "Preassign avoids most of the new stragglers: the writes beyond the average of the fullest "
    "server are less than half of those with the collaborative probe",
    Pair(
        _new_stragglers(BOTH),
        _new_stragglers(COLLABORATIVE),
        "beyond",
        "no block has both with few stragglers",
    ),
    no_effect=0.5,
    baseline=COLLABORATIVE,
)

_REMEMBERED = _less("objects-remembered-better", "cache", REMEMBERED, _remembered())

_BEYOND_SECTION_3: tuple[Claim, ...] = (
    _at_every_ratio(
        "oracle",
        BOTH,
        ORACLE,
        "Both strategies are slower than the oracle",
        slower=True,
        stated=False,
    ),
    _at_every_ratio(
        "prequal", BOTH, PREQUAL, "Both strategies are faster than Prequal's rule", stated=False
    ),
    _less(
        "learning",
        "3",
        "Having learned P(load) makes both strategies faster (over all straggler ratios)",
        _over_ratios(_versus(BOTH, COLD_BOTH)),
        stated=False,
    ),
    _less(
        "scale",
        "scale",
        "With 10,000 servers and 1,000,000 processes both strategies are faster than fixed "
        "placement",
        _versus(BOTH, FIXED, learn_rounds=SCALE_LEARN, **LARGE),
        stated=False,
    ),
)

BURST_CLAIMS: tuple[Claim, ...] = (
    *_RESPONSES,
    *_PLACEMENTS,
    _NEW_STRAGGLERS,
    _REMEMBERED,
    *_BEYOND_SECTION_3,
)
