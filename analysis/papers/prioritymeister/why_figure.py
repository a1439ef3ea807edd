"""Results of figures 7, 9, 10 and 11 when one thing is varied (campaign `pm-why`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.figures import Missing
from analysis.core.stats import Estimate, counts
from analysis.papers.prioritymeister.panels import legend
from analysis.papers.prioritymeister.runs import COLOURS, LABELS, average
from analysis.papers.prioritymeister.why_claims import (
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
    """Draw a panel for each question with runs, a row for each setting with runs, and a mark for
    each policy."""
    answers = [(*one, _answers(evidence, one[0])) for one in _PANELS]
    asked = [one for one in answers if any(setting for _, setting in one[3])]
    if not asked:
        return Missing("the campaign pm-why")
    columns = min(3, len(asked))
    lines = -(-len(asked) // columns)
    with style.figure(lines, columns, width=5 * columns + 1, height=3.2 * lines) as (drawn, axes):
        for panel, (question, title, scale, found), mark in zip(axes, asked, "abcde", strict=False):
            _draw(panel, question, scale, found)
            text = f"({mark}) {title} ({counts(found.values())})"
            panel.set_title(text, loc="left", fontsize="small")
        for panel in axes[len(asked) :]:
            panel.set_visible(False)
        legend(drawn, axes)
        return style.save(drawn, folder, name)


def _answers(evidence: Evidence, question: Question) -> dict[tuple[str, int], Estimate]:
    """Return a question's value by policy and setting; setting 0 is the figure's own."""
    found = {}
    for policy in question.policies:
        for place, setting in enumerate(question.settings):
            rows = question.rows(policy, setting)(evidence.table)
            one = None if rows.empty else average(question.value(rows))
            if one is not None:
                found[policy, place] = one
    return found


def _draw(
    axes: Axes, question: Question, scale: float, found: Mapping[tuple[str, int], Estimate]
) -> None:
    settings = sorted({setting for _, setting in found})
    for (policy, setting), one in found.items():
        offset = 0.16 * (question.policies.index(policy) - (len(question.policies) - 1) / 2)
        shown = one.map(lambda value: scale * value)
        axes.errorbar(
            shown.value,
            settings.index(setting) + offset,
            xerr=np.array(shown.error).reshape(2, 1),
            fmt="o",
            color=COLOURS[policy],
            label=LABELS[policy],
            markersize=4.5,
            elinewidth=0.9,
            capsize=2,
        )
    axes.set_yticks(range(len(settings)), [question.settings[one].words for one in settings])
    axes.set_ylim(len(settings) - 0.4, -0.6)
    if settings[0] == 0:
        axes.axhline(0.5, color="black", linewidth=0.6, linestyle=":")
