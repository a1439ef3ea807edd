"""Conversion of replayer output to results."""

from __future__ import annotations

import pytest
from pm_reports import part, report

from campaigns.papers.prioritymeister.live.results import late, result_of, series_of
from schemas.errors import HotbedError


def test_what_was_never_answered_is_told_apart() -> None:
    found = result_of(report(second_half=part(20, waiting=2)), 10.0, 20.0)
    assert (found.requests, found.misses, found.unfinished) == (20, 2, 2)
    assert found.count.tolist() == [18]
    assert (found.low_ns.tolist(), found.high_ns.tolist()) == ([1_000_000], [1_000_511])
    assert found.percentile(50) == pytest.approx(1e-3, rel=1e-3)
    assert found.bytes == 18 * 4096
    assert found.series == ((20, 5), (20, 5))


def test_nothing_arrived_in_the_half() -> None:
    empty = {"count": 0, "mean": 0, "max": 0}
    half = {"requests": 0, "slo_misses": None, "bytes": 0, "latency": empty, "unanswered": empty}
    found = result_of(report(second_half=half, timeline={"bin_s": 1.0, "bins": None}), 10.0, 20.0)
    assert (found.requests, found.misses, len(found.count)) == (0, None, 0)
    assert found.series == ((0, 0), (0, 0))


def test_windows_hold_whole_stretches() -> None:
    line = {"bin_s": 2.0, "bins": [{"requests": 1, "slo_misses": 0}] * 11}
    assert series_of(line, 10.0, 20.0) == ((5, 0), (6, 0))
    with pytest.raises(HotbedError, match="bins of 2 s"):
        series_of(line, 1.0, 20.0)


def test_a_replayer_that_is_late_spoils_the_run() -> None:
    assert late({"A": report(), "B": report(lag=0.9e-3)}) is None
    words = late({"A": report(), "B": report(lag=1.3e-3)})
    assert words is not None and "the replayer of B was late by 1.30 ms" in words
