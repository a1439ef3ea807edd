"""Made-up replayer output for tests."""

from __future__ import annotations

from typing import Any


def part(requests: int, waiting: int = 0) -> dict[str, Any]:
    """Return a report of requests of 1 ms, `waiting` of them without an answer after 7 ms."""
    latency: dict[str, Any] = {"count": requests, "mean": 1e-3, "max": 2e-3, "p99": 1e-3}
    buckets = [[1_000_000, 1_000_512, requests - waiting], [7_000_000, 7_004_096, waiting]]
    unanswered: dict[str, Any] = {"count": waiting}
    if waiting:
        unanswered["buckets"] = buckets[1:]
    return {
        "requests": requests,
        "slo_misses": waiting,
        "bytes": 4096 * (requests - waiting),
        "latency": latency | {"buckets": buckets if waiting else buckets[:1]},
        "unanswered": unanswered,
    }


def report(lag: float = 1e-4, **changes: Any) -> dict[str, Any]:
    bins = [{"requests": 2, "slo_misses": second % 2, "max": 0.1} for second in range(20)]
    made: dict[str, Any] = {
        "whole": part(40),
        "second_half": part(20),
        "timeline": {"bin_s": 1.0, "bins": bins},
        "send_lag": {"p99": lag, "max": 2 * lag},
        "errors": {},
        "max_outstanding": 3,
        "max_backlog": 0,
        "started": 100.0,
    }
    return made | changes
