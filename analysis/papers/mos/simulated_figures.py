"""Figures and tables of MOS and MOS++ on fifty machines (section 8.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.evidence import known, pairs, quotient
from analysis.core.figures import FigureEntry, Missing, Table
from analysis.core.load import LoadedRun
from analysis.core.panels import Look, bars, counts
from analysis.core.panels import errors as error_bars
from analysis.core.papers import Part
from analysis.core.stats import Estimate, amount
from analysis.papers.mos.claims import LABELS, MOS, MOS_PP
from analysis.papers.mos.simulated import (
    CLAIMS,
    ERRORS,
    LEARNING,
    POLICIES,
    RESOURCES,
    STAGES,
    TENANTS,
    by_tenant,
    cells,
    gain,
    held_share,
    measure,
    table,
    throughput,
    within,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UNITS = {"requests_s": (1.0, "Throughput (QPS)"), "bytes_s": (1e9, "Bandwidth (GB/s)")}
SHOWN = (MOS, MOS_PP)
TENANT_COLOURS = {"A": "#0072B2", "B": "#56B4E9", "C": "#D55E00", "D": "#E69F00"}
STAGE_GREY = "#999999"
SHIFT = 0.5
_NOT_BOTH = "both MOS and MOS++ in section 8.2's simulation"


def over_time(evidence: Evidence, *, tenants: Sequence[str]) -> Figure | Missing:
    """Draw figure 14 or 15: throughput of two workloads under MOS and MOS++."""
    runs = {policy: cells(evidence.table, policy)["loaded"].tolist() for policy in SHOWN}
    if not all(runs.values()):
        return Missing(_NOT_BOTH)
    with style.figure(1, 2, width=10.4, height=4.2) as (drawn, axes):
        for panel, tenant, letter in zip(axes, tenants, "ab", strict=True):
            factor, axis = UNITS[measure(tenant)]
            for policy, its in runs.items():
                _band(panel, [throughput(one, tenant) / factor for one in its], policy)
            _stages(panel)
            panel.set_ylim(0, None)
            panel.set_xlabel("Time (min)")
            panel.set_ylabel(axis)
            counted = len(runs[MOS_PP])
            panel.set_title(f"({letter}) Workload {tenant} (n = {counted} runs)", loc="left")
        return style.legend(drawn, axes, columns=4)


def _band(panel: Axes, found: Sequence[pd.Series[float]], policy: str) -> None:
    minutes = found[0].index.to_numpy(float)
    estimates = [amount([float(one.iloc[at]) for one in found]) for at in range(len(minutes))]
    colour = style.colour(policy)
    panel.plot(
        minutes,
        [one.value for one in estimates],
        color=colour,
        linewidth=1.8,
        linestyle="-" if policy == MOS_PP else "--",
        label=LABELS[policy],
    )
    if len(found) > 1:
        low, high = [one.low for one in estimates], [one.high for one in estimates]
        panel.fill_between(minutes, low, high, color=colour, alpha=0.2, linewidth=0)


def _stages(panel: Axes) -> None:
    for stage, (begins, ends) in STAGES.items():
        if begins:
            panel.axvline(begins, color=STAGE_GREY, linewidth=0.8, linestyle=":")
        panel.text(
            (begins + ends) / 2,
            1.0,
            f"stage {stage}",
            transform=panel.get_xaxis_transform(),
            ha="center",
            va="top",
            fontsize="x-small",
            color="#555555",
        )
    panel.set_xlim(0, STAGES[4][1])
    panel.set_xticks(np.arange(0, STAGES[4][1] + 1, 105))


def averages(evidence: Evidence) -> Figure | Missing:
    """Draw table 3: average performance under MOS and MOS++, and the paper's."""
    runs = {policy: cells(evidence.table, policy) for policy in SHOWN}
    if any(rows.empty for rows in runs.values()):
        return Missing(_NOT_BOTH)
    with style.figure(1, 2, width=10.4, height=4.2) as (drawn, axes):
        for panel, tenants in zip(axes, ("AB", "CD"), strict=True):
            factor, axis = UNITS[measure(tenants[0])]
            series, stated = [], {}
            for place, (policy, rows) in enumerate(runs.items()):
                rates = {x: by_tenant(rows, x)["rate"] / factor for x in tenants}
                means = {f"workload {x}": amount(rate.tolist()) for x, rate in rates.items()}
                series.append((Look(LABELS[policy], style.colour(policy)), means))
                for x in tenants:
                    stated[LABELS[policy], f"workload {x}"] = PAPERS[x][place] / factor
            bars(panel, [f"workload {x}" for x in tenants], series, stated=stated)
            panel.set_ylabel(axis)
            panel.set_title(counts(series), loc="left")
        return style.legend(drawn, axes, columns=4)


def division(evidence: Evidence) -> Figure | Missing:
    """Draw the share of the pool that each microstore holds over time, under MOS and MOS++."""
    runs = {policy: cells(evidence.table, policy)["loaded"].tolist() for policy in SHOWN}
    if not all(runs.values()):
        return Missing(_NOT_BOTH)
    with style.figure(len(RESOURCES), 2, width=10.4, height=9.0) as (drawn, axes):
        panels = iter(axes)
        for resource, words in RESOURCES.items():
            for policy in SHOWN:
                panel = next(panels)
                held = {
                    tenant: [held_share(run, resource, tenant) for run in runs[policy]]
                    for tenant in TENANTS
                }
                panel.stackplot(
                    held["D"][0].index.to_numpy(float),
                    *(100 * np.mean([one.to_numpy() for one in held[x]], axis=0) for x in TENANTS),
                    colors=[TENANT_COLOURS[tenant] for tenant in TENANTS],
                    labels=[f"microstore {tenant}" for tenant in TENANTS],
                    linewidth=0,
                )
                _stages(panel)
                panel.set_ylim(0, 108)
                panel.set_ylabel(f"Held of the pool's\n{words} (%)")
                panel.set_title(f"{LABELS[policy]} (n = {len(runs[policy])} runs)", loc="left")
        for panel in axes[-2:]:
            panel.set_xlabel("Time (min)")
        return style.legend(drawn, axes, columns=4)


MADE: Mapping[str, tuple[Mapping[str, object], str]] = {
    "Judge's own runs": (
        {"runs": "same"},
        "cospurf and the simulator are fitted to the same measurements",
    ),
    "Other runs": (
        {"runs": "disjoint"},
        "cospurf and the simulator are fitted to disjoint halves of the measurements, as in all "
        "other figures, so cospurf is wrong even without distortion",
    ),
    "Own runs, no learning": (
        {"runs": "same", "learns": False},
        "as judge's own runs, and MOS++ does not correct its model by its measurements",
    ),
}
"""Panels of figure *error* by title: parameters of their runs, and words for the caption."""


def by_error(evidence: Evidence, tenants: Iterable[str], title: str) -> dict[float, Estimate]:
    """Return the gain of MOS++ that learns over MOS by the error of its cospurf, for a panel of
    `MADE`."""
    base = cells(evidence.table, MOS)
    wrong = partial(cells, evidence.table, LEARNING, **MADE[title][0])
    return known({error: gain(wrong(model_error=error), base, tenants) for error in ERRORS})


def _made(evidence: Evidence) -> dict[str, dict[float, Estimate]]:
    """Return the gain over all workloads by error, for panels with several errors."""
    found = {title: by_error(evidence, TENANTS, title) for title in MADE}
    return {title: gains for title, gains in found.items() if len(gains) > 1}


def panels_of_errors(evidence: Evidence) -> str:
    """Describe the panels of `errors` for its caption."""
    return "".join(f" {title}: {MADE[title][1]}." for title in _made(evidence))


def errors(evidence: Evidence) -> Figure | Missing:
    """Draw the gain of MOS++ over MOS against the error of its cospurf."""
    shown = _made(evidence)
    if not shown:
        return Missing("MOS, and MOS++ with a cospurf that is wrong by several parts")
    with style.figure(1, len(shown), width=1.2 + 3.8 * len(shown), height=4.4) as (drawn, axes):
        for panel, (title, of_all) in zip(axes, shown.items(), strict=True):
            for place, tenant in enumerate(TENANTS):
                found = by_error(evidence, tenant, title)
                colour, shift = TENANT_COLOURS[tenant], (place - 2) * SHIFT
                _line(panel, found, f"workload {tenant}", colour, shift=shift)
            _line(panel, of_all, "all four (geometric mean)", "black", shift=2 * SHIFT)
            panel.axhline(0, color="black", linewidth=0.8)
            panel.set_xticks([100 * error for error in ERRORS])
            panel.set_xlabel("Error of cospurf's curves, up or down (%)")
            counted = max(one.n for one in of_all.values())
            panel.set_title(f"{title} (n = {counted} blocks)", loc="left")
        axes[0].set_ylabel("MOS++ over MOS, average performance (%)")
        limits = [panel.get_ylim() for panel in axes]
        for panel in axes:
            panel.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        return style.legend(drawn, axes, columns=5 if len(shown) > 1 else 2)


def _line(
    panel: Axes, found: Mapping[float, Estimate], text: str, colour: str, *, shift: float
) -> None:
    thick = colour == "black"
    panel.errorbar(
        np.array([100 * error for error in found]) + shift,
        [100 * (one.value - 1) for one in found.values()],
        yerr=100 * error_bars(list(found.values())),
        color=colour,
        marker="o" if thick else "s",
        markersize=5 if thick else 4,
        linewidth=2.0 if thick else 1.0,
        capsize=2.5,
        label=text,
    )


# ---- Tables ----

PAPERS = {
    "A": (4444.0, 4994.0, 12.4),
    "B": (3828.0, 4429.0, 15.7),
    "C": (2.0e9, 2.3e9, 15.0),
    "D": (1.6e9, 1.9e9, 18.8),
}
"""Table 3: MOS, MOS++, and the improvement of MOS++ that the text states, in percent."""

PROFILES = {"paper": "model of section 3's measurements", "local": "model of local measurements"}


def tables(runs: pd.DataFrame) -> list[Table]:
    """Return table 3 for either profile, and the results of every policy in every stage."""
    return [one for one in (_table_3(runs), _by_stage(runs)) if one.rows]


def _table_3(runs: pd.DataFrame) -> Table:
    heads = (
        *("workload", "profile", "MOS, paper", "MOS, ours", "MOS++, paper", "MOS++, ours"),
        *("gain, paper", "gain, ours", "n"),
    )
    rows = []
    for profile, words in PROFILES.items():
        for tenant in TENANTS:
            ours, theirs = (
                by_tenant(cells(runs, policy, profile=profile), tenant) for policy in (MOS_PP, MOS)
            )
            both = pairs(ours, theirs, "rate")
            found = quotient(ours, theirs, "rate")
            if found is None:
                continue
            stated = PAPERS[tenant]
            rows.append(
                (
                    tenant,
                    words,
                    _amount(stated[0], tenant),
                    _interval(amount(both["baseline"].tolist()), tenant),
                    _amount(stated[1], tenant),
                    _interval(amount(both["treated"].tolist()), tenant),
                    f"{stated[2]:g} %",
                    _percent(found),
                    str(len(both)),
                )
            )
    title = (
        "Table 3: average performance, the paper's next to ours (loads are ours, see docs/mos.md)"
    )
    return Table("table-3", title, heads, tuple(rows))


def _by_stage(runs: pd.DataFrame) -> Table:
    heads = ("policy", "workload", *(f"stage {stage}" for stage in STAGES), "all", "n")
    rows = []
    for policy in POLICIES:
        its: list[LoadedRun] = cells(runs, policy)["loaded"].tolist()
        for tenant in TENANTS if its else ():
            found = [throughput(one, tenant) for one in its]
            values = [
                _interval(amount([float(within(one, span).mean()) for one in found]), tenant)
                for span in (*STAGES.values(), None)
            ]
            rows.append((LABELS[policy], tenant, *values, str(len(its))))
    title = "Results of every policy, by stage (model of section 3's measurements)"
    return Table("stages", title, heads, tuple(rows))


def _amount(value: float, tenant: str) -> str:
    if measure(tenant) == "bytes_s":
        return f"{value / 1e9:.3g} GB/s"
    return f"{value:,.0f} QPS"


def _interval(found: Estimate, tenant: str) -> str:
    text = _amount(found.value, tenant)
    if not found.low < found.high:
        return text
    low, high = (_amount(end, tenant).split()[0] for end in (found.low, found.high))
    return f"{text} [{low}, {high}]"


def _percent(found: Estimate) -> str:
    text = f"{100 * (found.value - 1):+.1f} %"
    if found.n < 2:
        return text
    return f"{text} [{100 * (found.low - 1):+.1f}, {100 * (found.high - 1):+.1f}]"


_BAND = (
    "Means of 15 minutes over runs, band: 95 % interval. Pool, loads and noise are drawn from a "
    "block's seed and are the same for both; the paper's pictures are not in its text, so levels "
    "of load are ours (docs/mos.md)."
)

FIGURES: tuple[FigureEntry, ...] = (
    FigureEntry(
        "14",
        "Throughput of MOS and MOS++ under workloads A and B",
        _BAND,
        partial(over_time, tenants="AB"),
    ),
    FigureEntry(
        "15",
        "Bandwidth of MOS and MOS++ under workloads C and D",
        _BAND,
        partial(over_time, tenants="CD"),
    ),
    FigureEntry(
        "table3",
        "Average performance of MOS and MOS++ (Table 3)",
        "Means over time and runs with 95 % intervals. Loads are ours (docs/mos.md), so levels "
        "differ from the paper's.",
        averages,
    ),
    FigureEntry(
        "error",
        "Cost of a wrong model for MOS++ that learns (not in the paper)",
        "Each curve of the optimiser's cospurf is distorted by a given share (docs/mos.md). "
        "Geometric means over blocks with 95 % intervals.",
        errors,
        facts=panels_of_errors,
    ),
    FigureEntry(
        "division",
        "Division of the pool over time (not in the paper)",
        "Means of 15 minutes over runs.",
        division,
        "14",
    ),
)

SIMULATED = Part(
    CLAIMS,
    FIGURES,
    kind="mos",
    simulated=True,
    tabulate=table,
    tables=tables,
    command="hotbed run mos-sim --figure {figure}",
)
