"""Table I next to the paper's, and results of every scheduler on real object servers."""

from __future__ import annotations

import pandas as pd

from analysis.core.columns import average
from analysis.core.figures import Table, interval_text, value_text
from analysis.papers.twochoice.objects.claims import TABLE1
from analysis.papers.twochoice.objects.runs import (
    HEAD_TO_HEAD,
    ON_RADOS,
    RADOS_AMONG,
    STANDARD,
    cells,
    rados,
)
from analysis.papers.twochoice.runs import COLLABORATIVE, LABELS, PREASSIGN, RANDOM, UNCACHED

DELAY_HEADS = ("write", *(f"{n} at once, %" for n in (1, 2, 4, 8)), "paper, %")
HEADS = (
    "experiment",
    "stragglers",
    "scheduler",
    "n",
    "last process s",
    "mean process s",
    "fullest server, of the mean",
    "redirected %",
    "probes a write",
    "read back",
    "of them redirected",
    "not as acknowledged",
    "disks busy %",
    "processors busy %",
)


def tables(table: pd.DataFrame) -> list[Table]:
    """Return tables of means over runs with 95 % intervals."""
    return [*_delays(table), *_schedulers(table), *_rados(table)]


def _delays(table: pd.DataFrame) -> list[Table]:
    rows = []
    for size, stated in TABLE1.items():
        found = [
            average(cells(table, "delay", size_kib=size, pending=n), "delay", 100.0) for n in stated
        ]
        if any(one is not None for one in found):
            paper = ", ".join(f"{value:g}" for value in stated.values())
            rows.append((f"{size // 1024} MB", *(interval_text(one) for one in found), paper))
    title = "Table I: what probing takes of writes at once"
    return [Table("table1", title, DELAY_HEADS, tuple(rows))] if rows else []


def _schedulers(table: pd.DataFrame) -> list[Table]:
    rows = []
    found = pd.concat(
        [
            cells(table, experiment, stragglers=..., cache_s=...)
            for experiment in ("balance", "burst")
        ]
    )
    plain = found["cache_s"] == STANDARD["cache_s"]
    found["scheduler"] = found["scheduler"].where(plain, found["scheduler"] + "-uncached")
    for experiment in ("balance", "burst"):
        for stragglers in ("none", "table2", "fio"):
            for series in (*HEAD_TO_HEAD, UNCACHED, RANDOM, COLLABORATIVE, PREASSIGN):
                here = found[
                    (found["experiment"] == experiment)
                    & (found["stragglers"] == stragglers)
                    & (found["scheduler"] == series)
                ]
                if len(here):
                    rows.append(_row(experiment, stragglers, series, here))
    title = "What every scheduler came to on real object servers"
    return [Table("objects", title, HEADS, tuple(rows))] if rows else []


def _rados(table: pd.DataFrame) -> list[Table]:
    rows = []
    for copies in (2, 1):
        for stragglers in RADOS_AMONG:
            found = rados(table, stragglers, copies=copies)
            for series in ON_RADOS:
                here = found[found["scheduler"] == series]
                if len(here):
                    kept = "two copies" if copies == 2 else "one copy"
                    rows.append(_row(kept, stragglers, series, here))
    title = "What every scheduler came to on a Ceph of eight OSDs"
    return [Table("rados", title, ("kept", *HEADS[1:]), tuple(rows))] if rows else []


def _row(experiment: str, stragglers: str, series: str, here: pd.DataFrame) -> tuple[str, ...]:
    return (
        experiment,
        stragglers,
        LABELS.get(series, series),
        str(len(here)),
        interval_text(average(here, "seconds")),
        interval_text(average(here, "process_mean_s")),
        interval_text(average(here, "fullest")),
        value_text(average(here, "redirected_share", 100.0)),
        value_text(average(here, "probes_per_write")),
        f"{here['read_back'].sum():g}" if "read_back" in here else "–",
        f"{here['read_redirected'].sum():g}" if "read_redirected" in here else "–",
        f"{here['read_bad'].sum():g}" if "read_bad" in here else "–",
        value_text(average(here, "disk_busy_mean", 100.0)),
        value_text(average(here, "processors_busy", 100.0)),
    )
