"""Figures beyond the paper's: effect of details that the paper omits, time to learn, and larger
clusters. Means over runs with 95 % intervals."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.columns import average
from analysis.core.figures import Missing
from analysis.core.stats import Estimate, mean
from analysis.papers.twochoice.figures import RESPONSE, SHARE, response
from analysis.papers.twochoice.panels import counts, draw, label, percent, points
from analysis.papers.twochoice.runs import (
    BEYOND,
    BOTH,
    COLLABORATIVE,
    COLOURS,
    FIXED,
    NATIVE,
    ORACLE,
    PAPERS,
    PREASSIGN,
    PREQUAL,
    bursts,
    cells,
    quotient,
)

SCALE_LEARN = 5
"""Number of bursts in which servers learn, in the sweep over sizes."""

SCALE_SHARE = 0.1
BURST_TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def learning(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw the response in the first bursts of servers that have learned nothing yet."""
    wanted = (PREASSIGN, BOTH)
    rows = {series: cells(evidence.table, series, learn_rounds=None) for series in wanted}
    most = max((its["learn_rounds"].max() for its in rows.values() if len(its)), default=0)
    rows = {series: its[its["learn_rounds"] == most] for series, its in rows.items()}
    shares = sorted({share for its in rows.values() for share in its["straggler_ratio"]})
    if most < 2 or not shares:
        return Missing("preassign or both with several bursts to learn in")
    if len(shares) > 2:
        shares = [share for share in (0.01, 0.1) if share in shares] or shares[:2]
    with style.figure(1, max(1, len(shares)), width=10.0, height=4.2) as (drawn, axes):
        for panel, share in zip(axes, shares, strict=True):
            for series in wanted:
                here = rows[series][rows[series]["straggler_ratio"] == share]
                if here.empty:
                    continue
                curve = [bursts(evidence.runs[int(i)].folder)["learning"] for i in here["index"]]
                _band(panel, np.array(curve), series)
            panel.set_xscale("log")
            ticks = [each for each in BURST_TICKS if each <= most]
            panel.set_xticks(ticks, [str(each) for each in ticks])
            panel.set_xlabel("Burst since the servers knew nothing")
            panel.set_ylabel(RESPONSE)
            n = int(pd.concat(list(rows.values()))["seed"].nunique())
            panel.set_title(f"{100 * share:g} % stragglers (n = {n} runs)", loc="left")
            panel.set_ylim(0, None)
        style.legend(drawn, axes)
        return style.save(drawn, folder, name)


def _band(panel: object, curves: np.ndarray, series: str) -> None:
    from matplotlib.axes import Axes

    assert isinstance(panel, Axes)
    found = [mean(column.tolist()) for column in curves.T]
    x = np.arange(1, len(found) + 1)
    panel.plot(x, [one.value for one in found], color=COLOURS[series], label=label(series))
    low, high = [one.low for one in found], [one.high for one in found]
    panel.fill_between(x, low, high, color=COLOURS[series], alpha=0.25, linewidth=0)


def nodes(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw the response against the number of processes per compute node (and its scheduler)."""
    shown = (FIXED, NATIVE, COLLABORATIVE, PREASSIGN, BOTH, ORACLE)
    rows = {s: cells(evidence.table, s, varied=("processes_per_node",)) for s in shown}
    both = rows[BOTH]
    shares = [
        share
        for share in sorted(set(both["straggler_ratio"].tolist()))
        if both[both["straggler_ratio"] == share]["processes_per_node"].nunique() > 1
    ]
    if not shares:
        return Missing("several numbers of processes a node")
    with style.figure(1, len(shares), width=5.2 * len(shares), height=4.4) as (drawn, axes):
        for panel, share in zip(axes, shares, strict=True):
            here = {s: its[its["straggler_ratio"] == share] for s, its in rows.items()}
            order = sorted(set(here[BOTH]["processes_per_node"]))
            lines = {s: points(its, "processes_per_node", response) for s, its in here.items()}
            draw(panel, lines, order, [str(each) for each in order])
            panel.set_xlabel("Processes that share a compute node")
            panel.set_ylabel(RESPONSE)
            panel.set_ylim(0, None)
            text = f"{100 * share:g} % stragglers ({counts(list(lines.values()))})"
            panel.set_title(text, loc="left")
        style.legend(drawn, axes)
        return style.save(drawn, folder, name)


def spread(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw the response against the spread of the nodes' start times; probes take 5 ms."""
    shown = (FIXED, NATIVE, COLLABORATIVE, PREASSIGN, BOTH, PREQUAL, ORACLE)
    rows = {
        s: cells(evidence.table, s, varied=("spread_s",), straggler_ratio=SCALE_SHARE)
        for s in shown
    }
    order = sorted(set(rows[BOTH]["spread_s"]))
    if len(order) < 2:
        return Missing("several spreads of the processes' beginnings")
    with style.figure(width=7.2, height=4.8) as (drawn, axes):
        lines = {s: points(its, "spread_s", response) for s, its in rows.items()}
        draw(axes[0], lines, order, [f"{1000 * at:g}" for at in order])
        style.magnitudes(axes[0])
        axes[0].set_xlabel("Nodes begin within (ms)")
        axes[0].set_ylabel(RESPONSE)
        text = f"{100 * SCALE_SHARE:g} % stragglers ({counts(list(lines.values()))})"
        axes[0].set_title(text, loc="left")
        style.legend(drawn, axes)
        return style.save(drawn, folder, name)


def home(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw two random servers against home and a random one: response, and the share redirected."""
    shown = (NATIVE, COLLABORATIVE, PREASSIGN, BOTH)
    choices = ("random+random", "home+random")
    rows = {
        f"{s}, {choice}": cells(evidence.table, s, choices=choice, redirects=True)
        for s in shown
        for choice in choices
    }
    rows = {s: its for s, its in rows.items() if len(its)}
    if not any(s.endswith(choices[1]) for s in rows):
        return Missing("schedulers that choose between home and a random server")
    order = sorted({float(share) for its in rows.values() for share in its["straggler_ratio"]})
    share = partial(average, column="redirected_share")
    with style.figure(1, 2, width=10.4, height=4.8) as (drawn, axes):
        for panel, estimate, text in zip(
            axes, (response, share), (RESPONSE, "Writes redirected (share)"), strict=True
        ):
            lines = {s: points(its, "straggler_ratio", estimate) for s, its in rows.items()}
            draw(panel, lines, order, percent(order))
            for line, container in zip(lines, panel.containers, strict=True):
                if line.endswith(choices[0]):
                    container[0].set_linestyle(":")
            panel.set_xlabel(SHARE)
            panel.set_ylabel(text)
            panel.set_ylim(0, None)
            panel.set_title(counts(list(lines.values())), loc="left")
        style.legend(drawn, axes, columns=4)
        return style.save(drawn, folder, name)


def scale(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw clusters of several sizes: (a) response over the oracle's, (b) messages per write."""
    shown = (*PAPERS, *BEYOND)
    rows = {
        s: cells(
            evidence.table,
            s,
            varied=("servers", "processes"),
            learn_rounds=SCALE_LEARN,
            straggler_ratio=SCALE_SHARE,
        )
        for s in shown
    }
    sizes = _sizes(rows[BOTH])
    if len(sizes) < 2 or rows[ORACLE].empty:
        return Missing("clusters of several sizes, and the oracle")
    place = {size: float(index) for index, size in enumerate(sizes)}
    with style.figure(1, 2, width=10.8, height=4.8) as (drawn, axes):
        over = {s: _by_size(its, rows[ORACLE], place) for s, its in rows.items() if s != ORACLE}
        asked = {
            s: {
                place[str(size)]: one
                for size, here in its[its["size"].isin(sizes)].groupby("size")
                if (one := average(here, "messages_per_write")) is not None
            }
            for s, its in rows.items()
        }
        texts = ("Response over the oracle's", "Messages for a write")
        for panel, lines, text, mark in zip(axes, (over, asked), texts, "ab", strict=True):
            draw(panel, lines, list(place.values()), sizes)
            panel.set_xlabel("Servers-processes")
            panel.set_ylabel(text)
            head = f"({mark}) {100 * SCALE_SHARE:g} % stragglers ({counts(list(lines.values()))})"
            panel.set_title(head, loc="left")
        style.magnitudes(axes[0])
        axes[1].set_ylim(0, None)
        style.legend(drawn, axes)
        return style.save(drawn, folder, name)


def _sizes(rows: pd.DataFrame) -> list[str]:
    known = rows[["servers", "processes", "size"]].drop_duplicates()
    return [str(size) for size in known.sort_values(["processes", "servers"])["size"]]


def _by_size(
    rows: pd.DataFrame, oracle: pd.DataFrame, place: dict[str, float]
) -> dict[float, Estimate]:
    """Return the response over the oracle's, by place of the size."""
    found = {}
    for size, at in place.items():
        one = quotient(rows[rows["size"] == size], oracle[oracle["size"] == size], "response_s")
        if one is not None:
            found[at] = one
    return found
