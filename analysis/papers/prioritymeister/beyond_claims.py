"""Claims about Table 2's stand-ins and bounds, and beyond the paper: k swept, levels, mClock."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from analysis.core.claims import Claim, Compute, Evidence, Measured, NotRun
from analysis.papers.prioritymeister.claim_kinds import K_LEVELS, always, claim, of
from analysis.papers.prioritymeister.measured import TAIL, gap, share, times
from analysis.papers.prioritymeister.runs import LABELS, Rows, average, by_block, latency, met
from analysis.papers.prioritymeister.settings import share_met
from analysis.papers.prioritymeister.table2 import described, farthest
from analysis.papers.prioritymeister.unproven import kept, sentence

BROKEN = 1 + 1e-6
"""Ratio of the longest latency to the proven bound above which the bound is broken."""
_WHY_TABLE2 = "no cell of the scenario table2"
_WHY_LEVELS = "no block of the scenario levels with k = 1.25"


def proven(table: pd.DataFrame) -> pd.DataFrame:
    """Return rows with a proven bound; on real machines, only if the run reports enforcement."""
    return table[table["bound_ratio"].notna() & kept(table)]


def _held(rows: pd.DataFrame) -> pd.Series:
    """Return the share of a block's bounds that held."""
    ratio = rows["bound_ratio"].astype(float)
    return by_block(rows.assign(held=(ratio <= BROKEN).astype(float)), "held")


def _bounds(evidence: Evidence) -> Measured | NotRun:
    rows, lacking = proven(evidence.table), sentence(evidence.table)
    if rows.empty:
        return NotRun(lacking or "no run of pm (hold) whose plan has a bound")
    estimate = average(_held(rows))
    assert estimate is not None
    ratio = rows["bound_ratio"].astype(float)
    broken = int((ratio > BROKEN).sum())
    words = (
        f"{broken} of {len(rows)} bounds in {rows['run_id'].nunique()} runs broken; the longest "
        f"latency was at most {ratio.max():.3g} of its bound, the median {ratio.median():.3g}"
    )
    if lacking:
        words += f"; {lacking}"
    return Measured(estimate, "+".join(sorted(set(rows["ground"]))), 1.0, words)


BOUNDS: tuple[Claim, ...] = (
    claim(
        "bounds",
        "bounds",
        "No latency of any run is above its proven bound (section 4.4, with blocking by "
        "requests and packets in service)",
        _bounds,
        value=1.0,
        kind="within",
        unit="share of the bounds",
        tolerance=0.0,
        machines=False,
    ),
)


def _settings_gap(other: str) -> Compute:
    def compute(evidence: Evidence) -> Measured | NotRun:
        top, bottom = share_met(evidence.table, "pm"), share_met(evidence.table, other)
        if not len(set(top.index) & set(bottom.index)):
            return NotRun("no block of the scenario disk with several k")
        both = pd.concat([top.rename("pm"), bottom.rename("other")], axis=1, join="inner")
        estimate = average(both["pm"] - both["other"])
        assert estimate is not None
        means = 100 * both["pm"].mean(), 100 * both["other"].mean()
        words = f"PM meets {means[0]:.0f} %, {LABELS[other]} {means[1]:.0f} %"
        return Measured(estimate, "+".join(sorted(set(evidence.table["ground"]))), 1.0, words)

    return compute


def _workloads_met(rows: pd.DataFrame) -> pd.Series:
    found = latency(rows)
    return by_block(found.assign(met=met(found, TAIL).astype(float)), "met")


def _levels(count: int) -> Rows:
    return of("levels", "pm", k=K_LEVELS, network_levels=count)


def _planned_share(rows: pd.DataFrame) -> pd.Series:
    return by_block(latency(rows), "planned")


_LEVELS: tuple[tuple[str, str, Callable[[pd.DataFrame], pd.Series]], ...] = (
    ("measured", "meet their SLOs", _workloads_met),
    ("proven", "are proven to", _planned_share),
)

BEYOND: tuple[Claim, ...] = (
    claim(
        "table2",
        "table2",
        "The stand-ins have Table 2's loads and C_A^2 (the farthest of all; within 2 %)",
        share(described, farthest, _WHY_TABLE2, whole=False),
        value=1.0,
        kind="within",
        unit="ratio",
        baseline="Table 2",
        tolerance=0.02,
        machines=False,
    ),
    always(
        "table2-overload",
        "table2",
        "E's storage load is above 100 %",
        share(
            lambda table: (rows := described(table))[rows["workload"] == "E"],
            lambda rows: by_block(rows.assign(over=(rows["storage"] > 1).astype(float)), "over"),
            _WHY_TABLE2,
        ),
        "share of the traces",
    ),
    *(
        claim(
            f"settings-{other}",
            "settings",
            f"PM meets all SLOs in more settings (k swept, figure 5) than {LABELS[other]}",
            _settings_gap(other),
            unit="share of the settings, difference",
            baseline=LABELS[other],
        )
        for other in ("ps", "cake", "edf", "byslo", "mclock", "none")
    ),
    *(
        claim(
            f"levels-one-{name}",
            "levels",
            f"With seven levels more of twelve workloads {words} than with one (section 4.7)",
            gap(_levels(7), _levels(1), value, _WHY_LEVELS),
            unit="share of the workloads, difference",
            baseline="one level",
        )
        for name, words, value in _LEVELS
    ),
    *(
        claim(
            f"levels-seven-{name}",
            "levels",
            f"With seven network levels as many of twelve workloads {words} as with one each",
            times(_levels(7), _levels(0), value, _WHY_LEVELS),
            value=1.0,
            kind="within",
            unit="ratio",
            baseline="a level each",
            tolerance=0.05,
        )
        for name, words, value in _LEVELS
    ),
)
