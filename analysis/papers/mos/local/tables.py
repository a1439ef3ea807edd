"""Tables of results of every setup on real microstores."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from analysis.core.columns import average
from analysis.core.figures import Table, interval_text, value_text
from analysis.papers.mos.local.runs import EXPERIMENTS, cells, label, shown, values_of

SETUP_HEADS = (
    *("setup", "n", "A QPS", "B QPS", "C MB/s", "D MB/s"),
    *("A mean ms", "B mean ms", "C mean s", "D mean s", "failed requests"),
    *("proxies' CPU ms a request", "storage's CPU ms a request"),
)
LOAD_HEADS = (
    *("workers of A/C", "setup", "n", "overall QPS", "overall MB/s", "A p95 ms", "C p95 s"),
    *("failed requests", "proxies' CPU ms a request"),
)
COURSE_HEADS = (
    *("setup", "n", "A QPS", "A at the spike", "A in stage 3", "C MB/s", "C in stage 1"),
    *("A's SLA held, % of the time", "C's", "failed requests", "changes", "decided to applied s"),
)
ALONE_HEADS = (
    *("experiment", "workload", "what", "n", "QPS", "MB/s", "mean ms", "proxy busy %"),
    *("proxies' CPU ms a request", "storage's CPU ms a request", "failed requests"),
)


def tables(rows: pd.DataFrame) -> list[Table]:
    """Return tables with means over runs and 95 % intervals."""
    return [*_setups(rows), *_loads(rows), *_courses(rows), *_alone(rows)]


def _setups(rows: pd.DataFrame) -> list[Table]:
    found = cells(rows, "setups")
    lines: list[tuple[str, ...]] = []
    for setup in shown(found):
        its = found[found["setup"] == setup]
        lines.append(
            (
                label(setup),
                str(len(its)),
                *(interval_text(average(its, f"{x}_qps")) for x in "AB"),
                *(interval_text(average(its, f"{x}_mb_s")) for x in "CD"),
                *(value_text(average(its, f"{x}_mean_s", 1e3)) for x in "AB"),
                *(value_text(average(its, f"{x}_mean_s")) for x in "CD"),
                _total(its, "failed"),
                *(value_text(average(its, f"{kind}_ms_per_op")) for kind in ("proxy", "storage")),
            )
        )
    return _table("setups", "Four workloads at once (figure 1)", SETUP_HEADS, lines)


def _loads(rows: pd.DataFrame) -> list[Table]:
    found = cells(rows, "load")
    lines: list[tuple[str, ...]] = []
    for small in values_of(found, "small_workers"):
        here = found[found["small_workers"] == small]
        for setup in shown(here):
            its = here[here["setup"] == setup]
            large = "/".join(f"{value:g}" for value in values_of(its, "large_workers"))
            lines.append(
                (
                    f"{small:g}/{large}",
                    label(setup),
                    str(len(its)),
                    interval_text(average(its, "qps")),
                    interval_text(average(its, "mb_s")),
                    value_text(average(its, "A_p95_s", 1e3)),
                    value_text(average(its, "C_p95_s")),
                    _total(its, "failed"),
                    value_text(average(its, "proxy_ms_per_op")),
                )
            )
    return _table("load", "Two tenants at several loads (figures 8 to 10)", LOAD_HEADS, lines)


def _courses(rows: pd.DataFrame) -> list[Table]:
    found = cells(rows, "adaptation")
    lines: list[tuple[str, ...]] = []
    for setup in shown(found):
        its = found[found["setup"] == setup]
        lines.append(
            (
                label(setup),
                str(len(its)),
                *(interval_text(average(its, n)) for n in ("A_qps", "A_qps_spike", "A_qps_stage3")),
                *(interval_text(average(its, n)) for n in ("C_mb_s", "C_mb_s_stage1")),
                *(value_text(average(its, f"{x}_sla_met", 100.0)) for x in "AC"),
                _total(its, "failed"),
                value_text(average(its, "changes")),
                value_text(average(its, "act_s_max")),
            )
        )
    return _table("course", "Two tenants whose load changes (figures 11, 12)", COURSE_HEADS, lines)


_VARIED: Mapping[str, tuple[str, ...]] = {
    "sizes": ("object_kb",),
    "proxy": ("proxies", "proxy_cores", "proxy_workers"),
    "storage": ("storage_cores",),
    "network": ("ssds", "hdds", "network_mbit"),
    "disks": ("ssds", "hdds", "network_mbit"),
}


def _alone(rows: pd.DataFrame) -> list[Table]:
    lines: list[tuple[str, ...]] = []
    for experiment in EXPERIMENTS:
        varied = _VARIED.get(experiment)
        found = cells(rows, experiment)
        if varied is None or found.empty:
            continue
        for key, its in found.groupby(["workload", *varied], sort=True):
            letter, *values = key
            what = ", ".join(f"{n} {v:g}" for n, v in zip(varied, values, strict=True))
            lines.append(
                (
                    experiment,
                    str(letter),
                    what,
                    str(len(its)),
                    interval_text(average(its, "qps")),
                    interval_text(average(its, "mb_s")),
                    value_text(average(its, f"{letter}_mean_s", 1e3)),
                    value_text(average(its, "proxy_busy", 100.0)),
                    *(
                        value_text(average(its, f"{kind}_ms_per_op"))
                        for kind in ("proxy", "storage")
                    ),
                    _total(its, "failed"),
                )
            )
    return _table("alone", "One workload alone (figures 2 to 5)", ALONE_HEADS, lines)


def _table(
    name: str, title: str, heads: tuple[str, ...], lines: list[tuple[str, ...]]
) -> list[Table]:
    return [Table(f"mos-{name}", title, heads, tuple(lines))] if lines else []


def _total(rows: pd.DataFrame, column: str) -> str:
    return f"{rows[column].sum():g}" if column in rows else "–"
