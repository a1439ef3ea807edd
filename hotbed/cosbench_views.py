"""Tables of `hotbed cosbench`: plans, releases, archives and comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hotbed.output import new_table

if TYPE_CHECKING:
    from rich.table import Table

    from workloads.cosbench.archive import Archive
    from workloads.cosbench.release import Release
    from workloads.cosbench.tables import ArchiveComparison


def _ms(value: float | None) -> str:
    if value == math.inf:
        return ">500000"  # beyond COSBench's last bucket
    return "" if value is None else f"{1e3 * value:.4g}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.4g} %"


def plan_table(plan: Mapping[str, Any]) -> object:
    """Return a plan of `cosdrive check` as a table, one operation per line."""
    auth, storage = plan["auth"]["type"], plan["storage"]["type"]
    view = new_table(
        ("stage", "work", "workers", "ends after", "operation", "share", "config"),
        title=f"workload {plan['name']}: storage {storage}, auth {auth}",
        caption="\n".join(plan.get("warnings") or ()),
    )
    for stage in plan["stages"]:
        for work in stage["works"]:
            first = (stage["id"], work["name"], str(work["workers"]), _end(work))
            for one in work["operations"]:
                view.add_row(*first, one["name"], f"{one['ratio_percent']} %", one["config"])
                first = ("", "", "", "")
    return view


def _end(work: Mapping[str, Any]) -> str:
    """Return the limits of a work; runtime is the measured part."""
    if work["type"] not in ("normal", "delay"):
        return "all done"
    parts = []
    if work.get("runtime_s"):
        rampup = work.get("rampup_s")
        parts.append((f"{rampup} s, then " if rampup else "") + f"{work['runtime_s']} s")
    if work.get("total_ops"):
        parts.append(f"{work['total_ops']} operations")
    if work.get("total_bytes"):
        parts.append(f"{work['total_bytes']} bytes")
    return ", ".join(parts)


def release_views(release: Release) -> list[object]:
    """Return the checks of a release as a table, and Java's options."""
    view = new_table(("", "what", "found", "what to do"), title=f"COSBench in {release.folder}")
    for finding in release.findings:
        mark = "ok" if finding.good else "missing" if finding.needed else "note"
        view.add_row(mark, finding.what, finding.found, "" if finding.good else finding.advice)
    java = release.java_options
    return [view, f"JDK_JAVA_OPTIONS='{java}'"] if java else [view]


def archive_facts(archive: Archive, series: bool) -> dict[str, Any]:
    """Return an archive as data."""
    stages = []
    for stage in archive.stages:
        results = []
        for result in stage.results:
            failed = result.failures
            facts = asdict(result) | {
                "failed": failed and failed.likely,
                "failed_least": failed and failed.least,
                "failed_most": failed and failed.most,
            }
            del facts["buckets"]
            if not series:
                del facts["series"]
            results.append(facts)
        history = [{"state": moment.state, "at": moment.at.isoformat()} for moment in stage.history]
        named = {"id": stage.id, "name": stage.name, "status": stage.status}
        stages.append({**named, "history": history, "results": results})
    fields = ("stage", "op", "mean_s", "max_s", "operations", "bytes", "failed")
    measured = [
        {field: getattr(one, field) for field in fields}
        | {f"p{name}_s": one.quantile_s(share) for name, share in _QUANTILES.items()}
        for one in archive.measured
    ]
    return {
        "folder": str(archive.folder),
        "id": archive.id,
        "name": archive.name,
        "finished": archive.finished,
        "driver": archive.driver,
        "stages": stages,
        "measured": measured,
        "unread": list(archive.unread),
        "warnings": list(archive.warnings),
    }


_QUANTILES = {"50": 0.5, "95": 0.95, "99": 0.99, "99.9": 0.999}


def archive_tables(archive: Archive, series: bool) -> list[Table]:
    """Return an archive as tables; times in milliseconds."""
    heads = ("stage", "operation", "status", "workers", "count", "failed", "op/s", "MB/s")
    view = new_table(
        (*heads, "mean", "p95", "p99", "max"),
        title=f"{archive.id} {archive.name}; times in ms",
        numbers=3,
        caption=f"archive: {archive.folder}",
    )
    for stage in archive.stages:
        names = (stage.name, stage.status)
        if not stage.results:
            view.add_row(stage.name, "", stage.status)
        for result in stage.results:
            view.add_row(
                names[0],
                result.op,
                names[1],
                "" if result.workers is None else str(result.workers),
                str(result.operations),
                "" if result.failures is None else str(result.failures),
                f"{result.operations_s:.4g}",
                f"{result.bytes_s / 1e6:.4g}",
                _ms(result.mean_s),
                *(_ms(result.percentiles_s.get(percent)) for percent in (95, 99, 100)),
            )
            names = ("", "")
    measured = [_measured_table(archive)] if archive.measured else []
    return [view, *measured, *(_series_tables(archive) if series else ())]


def _measured_table(archive: Archive) -> Table:
    loop = archive.driver
    kind = f", open loop of {loop.rate:g}/s {loop.arrivals}" if loop and loop.rate else ""
    heads = ("stage", "operation", "count", "failed", *(f"p{name}" for name in _QUANTILES), "max")
    view = new_table(heads, title=f"full resolution{kind}; times in ms", numbers=2)
    for one in archive.measured:
        failed = ", ".join(f"{count} {kind}" for kind, count in one.failed.items()) or "0"
        quantiles = (_ms(one.quantile_s(share)) for share in _QUANTILES.values())
        view.add_row(one.stage, one.op, str(one.operations), failed, *quantiles, _ms(one.max_s))
    return view


def _series_tables(archive: Archive) -> Iterator[Table]:
    heads = ("s", "operation", "count", "op/s", "MB/s", "mean [ms]", "success")
    for stage in archive.stages:
        view = new_table(heads, title=f"series of {stage.id}", numbers=2)
        rows = sorted((p.t_s, result.op, p) for result in stage.results for p in result.series)
        for t_s, op, point in rows:
            rates = (f"{point.operations_s:.4g}", f"{point.bytes_s / 1e6:.4g}")
            mean, success = _ms(point.mean_s), _percent(point.success)
            view.add_row(f"{t_s:g}", op, str(point.operations), *rates, mean, success)
        if rows:
            yield view


def comparison_views(found: ArchiveComparison) -> list[object]:
    """Return a comparison as a table, and lines on what only one archive has."""
    view = new_table(
        ("stage", "operation", "", "first", "second", "change"),
        title=f"first: {found.first}\nsecond: {found.second}",
        numbers=3,
        caption="percentiles are edges of 10 ms buckets: one bucket apart is shown as the same",
    )
    before = ("", "")
    for one in found.differences:
        if one.metric not in _SHOWN:
            continue
        key = (one.stage, one.op)
        names = ("", "") if key == before else key
        before = key
        unit, shown = _SHOWN[one.metric]
        values = ("" if value is None else shown(value) for value in (one.first, one.second))
        change = "" if one.change is None else f"{100 * one.change:+.1f} %"
        view.add_row(*names, unit, *values, "same" if one.same else change)
    return [
        view,
        *(f"only in the first: {name}" for name in found.only_first),
        *(f"only in the second: {name}" for name in found.only_second),
        *(f"differs: {name}" for name in found.unlike),
    ]


_SHOWN: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "operations": ("operations", lambda value: f"{value:.5g}"),
    "bytes": ("MB", lambda value: f"{value / 1e6:.4g}"),
    "mean_s": ("mean [ms]", _ms),
    "p95_s": ("p95 [ms]", _ms),
    "p99_s": ("p99 [ms]", _ms),
    "operations_s": ("op/s", lambda value: f"{value:.5g}"),
    "bytes_s": ("MB/s", lambda value: f"{value / 1e6:.4g}"),
    "success": ("success", _percent),
}
"""Metrics of the table: name with unit, and how a number is shown."""
