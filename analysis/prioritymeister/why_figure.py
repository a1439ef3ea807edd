"""What becomes of figures 7, 9, 10 and 11 when one thing is varied (campaign `pm-why`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis import style
from analysis.claims import Evidence
from analysis.figures import Missing
from analysis.prioritymeister.panels import legend
from analysis.prioritymeister.runs import COLOURS, LABELS, average
from analysis.prioritymeister.why_claims import (
    ESTIMATOR,
    HIGH,
    LOW,
    NETWORK,
    ORDERS,
    Question,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANELS = (
    (ORDERS, "Figure 11: permutations in which all SLOs are met", 1.0),
    (NETWORK, "Figure 9: runs in which all SLOs are met (%)", 100.0),
    (ESTIMATOR, "Figure 10: plans of the same order (%)", 100.0),
    (LOW, "Figure 7, F (C_A² = 1): requests that miss (%)", 100.0),
    (HIGH, "Figure 7, H (C_A² = 40): requests that miss (%)", 100.0),
)


def causes(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """A panel for each question, a row a setting, a mark a policy."""
    if all(_panel_is_empty(evidence, question) for question, _, _ in _PANELS):
        return Missing("the campaign pm-why")
    with style.figure(2, 3, width=15.0, height=6.4) as (drawn, axes):
        for panel, (question, title, scale), mark in zip(axes, _PANELS, "abcde", strict=False):
            count = _draw(panel, evidence, question, scale)
            panel.set_title(f"({mark}) {title} (n = {count})", loc="left", fontsize="small")
        for panel in axes[len(_PANELS) :]:
            panel.set_visible(False)
        legend(drawn, axes)
        return style.save(drawn, folder, name)


def _panel_is_empty(evidence: Evidence, question: Question) -> bool:
    first = question.settings[0]
    return all(question.rows(policy, first)(evidence.table).empty for policy in question.policies)


def _draw(axes: Axes, evidence: Evidence, question: Question, scale: float) -> int:
    """Draws a question; how many blocks the most of its marks have."""
    blocks = 0
    for index, policy in enumerate(question.policies):
        offset = 0.16 * (index - (len(question.policies) - 1) / 2)
        for place, setting in enumerate(question.settings):
            rows = question.rows(policy, setting)(evidence.table)
            if rows.empty:
                continue
            found = average(question.value(rows))
            if found is None:
                continue
            blocks = max(blocks, found.n)
            shown = found.map(lambda value: scale * value)
            error = np.array(shown.error).reshape(2, 1)
            axes.errorbar(
                shown.value,
                place + offset,
                xerr=error,
                fmt="o",
                color=COLOURS[policy],
                label=LABELS[policy],
                markersize=4.5,
                elinewidth=0.9,
                capsize=2,
            )
    axes.set_yticks(range(len(question.settings)), [one.words for one in question.settings])
    axes.set_ylim(len(question.settings) - 0.4, -0.6)
    axes.axhline(0.5, color="black", linewidth=0.6, linestyle=":")
    return blocks
