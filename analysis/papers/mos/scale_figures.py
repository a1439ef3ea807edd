"""Figures 14 and 15: throughput of MOS and MOS++ on fifty machines over fourteen hours. Beyond
them: the division of the pool, and the cost of a wrong cospurf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.figures import Missing
from analysis.core.stats import Estimate, mean
from analysis.papers.mos.scale_claims import ERRORS, by_error
from analysis.papers.mos.scale_runs import (
    LABELS,
    MOS,
    MOS_PP,
    RESOURCES,
    STAGES,
    TENANTS,
    cells,
    held_share,
    measure,
    windows,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UNITS = {"requests_s": (1.0, "Throughput (QPS)"), "bytes_s": (1e9, "Bandwidth (GB/s)")}
SHOWN = (MOS, MOS_PP)
TENANT_COLOURS = {"A": "#0072B2", "B": "#56B4E9", "C": "#D55E00", "D": "#E69F00"}
GREY = "#999999"
DODGE = 0.5


def small(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 14: throughput of workloads A and B."""
    return _over_time(evidence, folder, name, ("A", "B"))


def large(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 15: bandwidth of workloads C and D."""
    return _over_time(evidence, folder, name, ("C", "D"))


def _over_time(
    evidence: Evidence, folder: Path, name: str, tenants: Sequence[str]
) -> Path | Missing:
    runs = {policy: cells(evidence.table, policy)["folder"].tolist() for policy in SHOWN}
    if not all(runs.values()):
        return Missing("both MOS and MOS++ in section 8.2's simulation")
    with style.figure(1, 2, width=10.4, height=4.2) as (drawn, axes):
        for panel, tenant, letter in zip(axes, tenants, "ab", strict=True):
            factor, axis = UNITS[measure(tenant)]
            for policy, folders in runs.items():
                _band(panel, folders, tenant, factor, policy)
            _stages(panel)
            panel.set_ylim(0, None)
            panel.set_xlabel("Time (min)")
            panel.set_ylabel(axis)
            counted = len(runs[MOS_PP])
            panel.set_title(f"({letter}) Workload {tenant} (n = {counted} runs)", loc="left")
        style.legend(drawn, axes, columns=4)
        return style.save(drawn, folder, name)


def _band(panel: Axes, folders: Sequence[Path], tenant: str, factor: float, policy: str) -> None:
    found = [windows(folder, tenant) for folder in folders]
    minutes = found[0].minutes
    estimates = [
        mean([float(one.values[at]) / factor for one in found]) for at in range(len(minutes))
    ]
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
        panel.fill_between(
            minutes,
            [one.low for one in estimates],
            [one.high for one in estimates],
            color=colour,
            alpha=0.2,
            linewidth=0,
        )


def _stages(panel: Axes) -> None:
    for stage, (begins, ends) in STAGES.items():
        if begins:
            panel.axvline(begins, color=GREY, linewidth=0.8, linestyle=":")
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


def division(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw the share of the pool that each microstore holds over time, under MOS and MOS++."""
    runs = {policy: cells(evidence.table, policy)["folder"].tolist() for policy in SHOWN}
    if not all(runs.values()):
        return Missing("both MOS and MOS++ in section 8.2's simulation")
    with style.figure(len(RESOURCES), 2, width=10.4, height=9.0) as (drawn, axes):
        panels = iter(axes)
        for resource, words in RESOURCES.items():
            for policy in SHOWN:
                panel = next(panels)
                shares = []
                for tenant in TENANTS:
                    found = [held_share(run, (tenant,), resource) for run in runs[policy]]
                    minutes = found[0].minutes
                    shares.append(100 * np.mean([one.values for one in found], axis=0))
                panel.stackplot(
                    minutes,
                    *shares,
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
        style.legend(drawn, axes, columns=4)
        return style.save(drawn, folder, name)


MADE: Mapping[str, tuple[Mapping[str, object], str]] = {
    "Judge's own runs": (
        {"runs": "same"},
        "cospurf and the simulator are fitted to the same measurements",
    ),
    "Other runs": (
        {"runs": "disjoint"},
        "cospurf and the simulator are fitted to disjoint halves of the measurements, as in all "
        "other figures, and cospurf is off before anything is made wrong",
    ),
    "Own runs, no learning": (
        {"runs": "same", "learns": False},
        "as judge's own runs, and MOS++ does not correct its model by what it measures",
    ),
}
"""Panels of figure *error* by title: parameters of their runs, and words for the caption."""


def _made(evidence: Evidence) -> dict[str, dict[float, Estimate]]:
    """Return the gain over all workloads by error, for settings with several errors."""
    everybody = "".join(TENANTS)
    found = {title: by_error(evidence, everybody, **made) for title, (made, _) in MADE.items()}
    return {title: gains for title, gains in found.items() if len(gains) > 1}


def told_of_errors(evidence: Evidence) -> str:
    """Describe the panels of `errors` for its caption."""
    return "".join(f" {title}: {MADE[title][1]}." for title in _made(evidence))


def errors(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw the gain of MOS++ over MOS against the error of its cospurf."""
    shown = _made(evidence)
    if not shown:
        return Missing("MOS, and MOS++ with a cospurf that is wrong by several parts")
    with style.figure(1, len(shown), width=1.2 + 3.8 * len(shown), height=4.4) as (drawn, axes):
        for panel, (title, mean_of_all) in zip(axes, shown.items(), strict=True):
            lines = [
                (
                    f"workload {tenant}",
                    TENANT_COLOURS[tenant],
                    by_error(evidence, tenant, **MADE[title][0]),
                )
                for tenant in TENANTS
            ]
            lines.append(("all four (geometric mean)", "black", mean_of_all))
            for index, (text, colour, found) in enumerate(lines):
                _line(panel, found, text, colour, shift=(index - 2) * DODGE)
            panel.axhline(0, color="black", linewidth=0.8)
            panel.set_xticks([100 * error for error in ERRORS])
            panel.set_xlabel("Error of cospurf's curves, up or down (%)")
            counted = max(one.n for one in mean_of_all.values())
            panel.set_title(f"{title} (n = {counted} blocks)", loc="left")
        axes[0].set_ylabel("MOS++ over MOS, average performance (%)")
        ends = [panel.get_ylim() for panel in axes]
        for panel in axes:
            panel.set_ylim(min(low for low, _ in ends), max(high for _, high in ends))
        style.legend(drawn, axes, columns=5 if len(shown) > 1 else 2)
        return style.save(drawn, folder, name)


def _line(
    panel: Axes,
    found: Mapping[float, Estimate],
    text: str,
    colour: str,
    *,
    shift: float,
) -> None:
    whole = colour == "black"
    panel.errorbar(
        np.array([100 * error for error in found]) + shift,
        [100 * (one.value - 1) for one in found.values()],
        yerr=100 * np.array([one.error for one in found.values()]).T,
        color=colour,
        marker="o" if whole else "s",
        markersize=5 if whole else 4,
        linewidth=2.0 if whole else 1.0,
        capsize=2.5,
        label=text,
    )
