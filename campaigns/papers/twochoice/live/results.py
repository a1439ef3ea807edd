"""Numbers of a run's summary, from the load generator's report."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from campaigns.papers.twochoice.live.plans import MEASURED

STEPS = ("probe", "put", "register")


def numbers_of_apps(report: Mapping[str, Any], slowed: Sequence[int] = ()) -> dict[str, float]:
    """Return the numbers of a burst, or of all jobs of a balance, which has no measured job.

    ``seconds`` is the end of the slowest process, ``process_*`` are of all processes (figure 14).
    ``fullest`` and ``emptiest`` are the most and the least of any server relative to an even share;
    ``spread`` is its deviation over servers (figure 13). ``home_*`` are the same with every write
    at home. ``slowed_share`` is the share of the servers in `slowed` relative to an even share. The
    places of writes by CRUSH are unknown. Times in seconds.
    """
    apps = [app for app in report["apps"] if app["name"].startswith(f"{MEASURED}-")]
    found = of_jobs(apps or report["apps"], slowed)
    if apps:
        background = [app for app in report["apps"] if app not in apps]
        found["background_bytes"] = float(sum(app["bytes"] for app in background))
        found["background_writes"] = float(sum(app["writes"] for app in background))
    found["client_processes"] = float(report["processes"])
    for step in STEPS:
        spread = report["steps"].get(step, {"n": 0})
        if spread["n"]:
            found[f"{step}_mean_s"] = spread["mean"]
            found[f"{step}_max_s"] = spread["max"]
    found |= _scheduled(report, apps or report["apps"])
    return found | _verified(report.get("verified"))


def of_jobs(apps: Sequence[Mapping[str, Any]], slowed: Sequence[int] = ()) -> dict[str, float]:
    """Return the numbers of some jobs together."""
    ends = [second for app in apps for second in app["rank_seconds"]]
    written = [sum(column) for column in zip(*(app["server_bytes"] for app in apps), strict=True)]
    at_home = [sum(column) for column in zip(*(app["home_bytes"] for app in apps), strict=True)]
    writes = sum(app["writes"] for app in apps)
    total = sum(app["bytes"] for app in apps)
    ordered = sorted(ends)
    found = {
        "seconds": ordered[-1],
        "process_mean_s": statistics.fmean(ordered),
        "process_p10_s": ordered[len(ordered) // 10],
        "process_p50_s": ordered[len(ordered) // 2],
        "process_p90_s": ordered[int(0.9 * len(ordered))],
        "first_s": ordered[0],
        "writes": float(writes),
        "bytes": float(total),
        "redirected_share": sum(app["redirected"] for app in apps) / writes,
        "bytes_s": total / ordered[-1],
        "write_mean_s": sum(app["latency"]["mean"] * app["latency"]["n"] for app in apps) / writes,
        "write_max_s": max(app["latency"]["max"] for app in apps),
    }
    if not written:
        return found
    for prefix, values in (("", written), ("home_", at_home)):
        mean = statistics.fmean(values)
        found[f"{prefix}fullest"] = max(values) / mean
        found[f"{prefix}emptiest"] = min(values) / mean
        found[f"{prefix}spread"] = statistics.pstdev(values) / mean
    if slowed:
        mean = statistics.fmean(written)
        found["slowed_share"] = statistics.fmean(written[place] for place in slowed) / mean
    return found


def _scheduled(report: Mapping[str, Any], apps: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the schedulers' probes for these jobs; fixed placement and CRUSH have none."""
    names = {app["scheduler"] for app in apps} & set(report["schedulers"])
    counts = [report["schedulers"][name] for name in names]
    if not counts:
        return {"probes_per_write": 0.0}
    writes = sum(one["Writes"] for one in counts)
    return {
        "probes_per_write": sum(one["Probes"] for one in counts) / max(1, writes),
        "unanswered": float(sum(one["Unanswered"] for one in counts)),
        "blind": float(sum(one["Blind"] for one in counts)),
    }


def _verified(verified: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the number of reads that follow redirects, and the seconds of querying the home."""
    if verified is None:
        return {}
    found = {
        "read_back": float(verified["objects"]),
        "read_redirected": float(verified["redirected"]),
        "read_bad": float(len(verified["bad"])),
    }
    for name in ("query", "home", "elsewhere"):
        if verified[name]["n"]:
            found[f"read_{name}_mean_s"] = verified[name]["mean"]
    if verified["query"]["p99"] is not None:
        found["read_query_p99_s"] = verified["query"]["p99"]
    return found


def numbers_of_probes(answer: Mapping[str, Any]) -> dict[str, float]:
    """Return figure 11's numbers: of each probing, the slowest answer counts."""
    found = {
        "probe_mean_s": answer["mean_seconds"],
        "probes": float(answer["probes"]),
        "lost": float(answer["lost"]),
    }
    for name in ("p50", "p99"):
        if answer[f"{name}_seconds"] is not None:
            found[f"probe_{name}_s"] = answer[f"{name}_seconds"]
    return found


def numbers_of_table(answer: Mapping[str, Any]) -> dict[str, float]:
    """Return figure 12's numbers: the table's length, and a client's seconds for requests to it."""
    rows = answer["rows"]
    half = rows[len(rows) // 2 :]
    found = {
        "creates": float(answer["creates"]),
        "queries": float(answer["queries"]),
        "entries_last": float(rows[-1]["entries"]),
        "entries_most": float(max(row["entries"] for row in rows)),
        "entries_mean": statistics.fmean(row["entries"] for row in half),
        "create_mean_s": _mean(rows, "creates", "create_seconds"),
        "query_mean_s": _mean(rows, "queries", "query_seconds"),
        "create_max_s": answer["create_max_seconds"],
        "query_max_s": answer["query_max_seconds"],
    }
    for name in ("create", "query"):
        if answer[f"{name}_p99_seconds"] is not None:
            found[f"{name}_p99_s"] = answer[f"{name}_p99_seconds"]
    return found


def _mean(rows: Sequence[Mapping[str, Any]], count: str, value: str) -> float:
    total = float(sum(row[count] for row in rows))
    return float(sum(row[count] * row[value] for row in rows)) / max(1.0, total)


def numbers_of_delay(probed: Mapping[str, Any], report: Mapping[str, Any]) -> dict[str, float]:
    """Return Table I's numbers: probing as a share of its writes."""
    write = report["apps"][0]["latency"]["mean"]
    return {
        **numbers_of_probes(probed),
        "write_mean_s": write,
        "delay": probed["mean_seconds"] / write,
    }
