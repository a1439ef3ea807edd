"""A comparison as a table: for people, as CSV and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.comparison.ranking import Panel, Standing
from analysis.core.stats import Estimate

UNIT = {"rand": "IOPS", "seq": "MB/s", "write": "MB/s"}


def frame(panels: Sequence[Panel]) -> pd.DataFrame:
    """Return `rows` as a table."""
    whole = {"best_place": "Int64", "worst_place": "Int64"}  # integers that may be missing
    return pd.DataFrame(rows(panels)).astype(whole)


def rows(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Return one row per controller, scenario and op, in the panels' order; None if unknown.

    Keys: scenario, op, controller, verdict, best_place, worst_place, level and level_unit, change,
    change_low, change_high (throughput against the baseline, a share), latency_change,
    latency_change_low, latency_change_high, n, ties, notes.
    """
    found: list[dict[str, Any]] = []
    for panel in panels:
        for standing in panel.standings:
            best, worst = standing.places or (None, None)
            change = _ends(standing.gain)
            slower = _ends(standing.latency)
            found.append(
                {
                    "scenario": panel.scenario,
                    "op": panel.op,
                    "controller": standing.controller,
                    "verdict": standing.state,
                    "best_place": best,
                    "worst_place": worst,
                    "level": None if standing.level is None else standing.level.value,
                    "level_unit": UNIT[panel.op],
                    "change": change[0],
                    "change_low": change[1],
                    "change_high": change[2],
                    "latency_change": slower[0],
                    "latency_change_low": slower[1],
                    "latency_change_high": slower[2],
                    "n": standing.n,
                    "ties": ", ".join(standing.ties),
                    "notes": "; ".join(standing.notes),
                }
            )
    return found


def texts(panel: Panel, standing: Standing) -> dict[str, str]:
    """Return one row as texts, by column."""
    baseline = standing.state == "baseline"
    return {
        "scenario": panel.scenario,
        "op": panel.op,
        "places": places(standing),
        "controller": standing.controller,
        "level": level(panel.op, standing),
        "gain": "" if baseline else percent(standing.gain),
        "interval": "" if baseline else interval(standing.gain),
        "latency": "" if baseline else percent(standing.latency),
        "n": str(standing.n) if standing.n else "–",
        "verdict": standing.state,
        "ties": ", ".join(standing.ties),
        "notes": "; ".join(standing.notes),
    }


def heads(baseline: str) -> dict[str, str]:
    """Return the columns of `texts` with their headings."""
    return {
        "scenario": "scenario",
        "op": "op",
        "places": "place",
        "controller": "controller",
        "level": "throughput",
        "gain": f"against {baseline}",
        "interval": "95 % interval",
        "latency": "latency",
        "n": "n",
        "verdict": "verdict",
        "ties": "not to be told from",
        "notes": "notes",
    }


def markdown(panels: Sequence[Panel], baseline: str) -> str:
    """Return the table for people in Markdown."""
    named = heads(baseline)
    lines = ["| " + " | ".join(named.values()) + " |", "|" + " --- |" * len(named)]
    for panel in panels:
        for standing in panel.standings:
            row = texts(panel, standing)
            cells = (row[column].replace("|", "\\|") for column in named)
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def places(standing: Standing) -> str:
    """Format places: ``1``, or ``1–3`` if the intervals leave it open."""
    if standing.places is None:
        return "–"
    best, worst = standing.places
    return str(best) if best == worst else f"{best}–{worst}"


def level(op: str, standing: Standing) -> str:
    """Format the mean throughput with its unit."""
    return "–" if standing.level is None else f"{standing.level.value:.1f} {UNIT[op]}"


def percent(ratio: Estimate | None) -> str:
    """Format a ratio as a change: ``+12.3 %``."""
    return "–" if ratio is None else f"{100 * (ratio.value - 1):+.1f} %"


def interval(ratio: Estimate | None) -> str:
    """Format a ratio's interval as changes; a dash for a single block."""
    if ratio is None or math.isnan(ratio.low):
        return "–"
    return f"{100 * (ratio.low - 1):+.1f} … {100 * (ratio.high - 1):+.1f} %"


def _ends(ratio: Estimate | None) -> tuple[float | None, float | None, float | None]:
    if ratio is None:
        return None, None, None
    if math.isnan(ratio.low):
        return ratio.value - 1, None, None
    return ratio.value - 1, ratio.low - 1, ratio.high - 1
