"""Engine's side of the open-loop writer: its requests, and parsing of the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from schemas.errors import UserError
from testbed.agent.openloop.writer import Histogram
from tests.errors import raises
from tests.workloads.fake_agent import FakeAgent
from workloads.errors import WorkloadError
from workloads.open_loop import (
    OpenLoop,
    OpenLoopResult,
    parse_open_loop,
    run_open_loop,
)

LOAD = OpenLoop(pool="bench", duration_s=3.0, rates={"1.0": 4.0, "1.1": 1.0})


def row(t_s: float, worst: float | None, oldest: float | None = None) -> dict[str, Any]:
    counts = {"intended": 5, "sent": 5, "done": 4, "failed": 0, "outstanding": 1}
    times = {"latency_mean_s": worst, "latency_max_s": worst, "oldest_s": oldest}
    return {"event": "second", "t_s": t_s, **counts, **times}


def counted(*seconds: float) -> Mapping[str, object]:
    found = Histogram()
    for value in seconds:
        found.add(value)
    return found.to_json()


def printed(rows: list[dict[str, Any]] | None = None, **more: Any) -> str:
    pg = {"failed": 0, "intended": 4, "done": 3, "outstanding": 1}
    pgs = {"1.0": counted(0.1, 0.2, 0.3), "1.1": counted(0.4, 0.5, 0.6)}
    end = {"event": "end", "intended": 8, "done": 6, "failed": 0, "outstanding": 2, "held": 1}
    end |= {"late": 1, "late_max_s": 0.5, "errors": [], "ages": counted(7.0, 9.0), "cpu_s": 0.25}
    end |= {"pgs": {name: {**pg, "histogram": found} for name, found in pgs.items()}}
    end |= {"requests": [[0.5, 0.1, 0], [0.75, None, 1]], **more}
    start = {"event": "start", "wall": 1e9, "pool": 1, "pg_num": 8, "objects": 2, "prefill_s": 2.5}
    lines = [start, *(rows or [row(1.0, 0.3), row(2.0, 0.6)]), end]
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_a_result_is_read() -> None:
    result = parse_open_loop(printed(), LOAD)
    assert (result.intended, result.done, result.outstanding, result.late) == (8, 6, 2, 1)
    assert (result.started_wall, result.prefill_s, result.cpu_s) == (1e9, 2.5, 0.25)
    assert [row["t_s"] for row in result.series] == [1.0, 2.0]
    assert result.histogram.total == 6
    assert result.pgs["1.1"].histogram.max_s == 0.6
    assert result.requests == ((0.5, 0.1, "1.0"), (0.75, None, "1.1"))
    assert result.config == LOAD


@pytest.mark.parametrize(
    ("rows", "after", "settled"),
    [
        ([row(1, 0.1), row(2, 0.2)], 0.0, 0.0),
        ([row(1, 3.0), row(2, 0.2), row(3, 0.1)], 0.0, 1.0),
        ([row(1, 0.1), row(2, 2.0), row(3, 0.1), row(4, 0.1)], 0.0, 2.0),
        ([row(1, 0.1), row(2, None, 1.5), row(3, 0.1)], 0.0, 2.0),
        ([row(1, 0.1), row(2, 1.0)], 0.0, None),
        ([row(1, 5.0), row(2, 0.2), row(3, 0.2)], 2.0, 2.0),
    ],
)
def test_when_the_store_became_stable_for_good(
    rows: list[dict[str, Any]], after: float, settled: float | None
) -> None:
    assert parse_open_loop(printed(rows)).settled_s(1.0, after) == settled


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "only to its start"),
        ("\n".join(printed().splitlines()[:2]), "only to second 1"),
        ("Segmentation fault\n", "cannot be read"),
        (printed(pgs={"1.0": {}}), "cannot be read"),
        (printed(pgs=3), "cannot be read"),
    ],
)
def test_what_is_no_result_is_reported(text: str, said: str) -> None:
    with raises(WorkloadError, said):
        parse_open_loop(text)


class Agent(FakeAgent):
    """Agent that starts the load on request, if it can."""

    def __init__(self, code: int | None = 0, out: str = "", err: str = "") -> None:
        super().__init__(lambda argv: (code, out, err))
        self.refusal: Exception | None = None

    def call(
        self, verb: str, payload: Mapping[str, Any] | None = None, *, timeout_s: float = 60.0
    ) -> Any:
        super().call(verb, payload, timeout_s=timeout_s)
        assert payload is not None and verb == "open-loop-start"
        if self.refusal:
            raise self.refusal
        self.unit_start(payload["node"], payload["name"], [], max_s=payload["max_s"])
        return {"started_wall": 1e9}


def test_a_load_is_started_waited_for_and_read() -> None:
    agent = Agent(out=printed())
    result = run_open_loop(agent, "admin", LOAD)
    assert isinstance(result, OpenLoopResult)
    assert (result.done, result.config) == (6, LOAD)
    (_, payload), *_ = agent.calls
    assert payload["plan"]["rates"] == {"1.0": 4.0, "1.1": 1.0}
    assert payload["node"] == "admin"
    # Allow for the prefill, the load and its drain, so that systemd never cuts one off.
    assert payload["max_s"] > LOAD.duration_s + LOAD.drain_s
    assert agent.stopped == []


@pytest.mark.parametrize(
    ("code", "refusal", "said"),
    [
        (None, None, "was stopped: gone"),
        (1, None, "node admin failed: gone"),
        (0, UserError("there is no pool 'x'."), "no pool"),
    ],
)
def test_a_load_that_failed_or_was_refused_is_no_result(
    code: int | None, refusal: Exception | None, said: str
) -> None:
    agent = Agent(code, err="warning\ngone\n")
    agent.refusal = refusal
    with raises(UserError if refusal else WorkloadError, said):
        run_open_loop(agent, "admin", LOAD)
    assert agent.stopped == [("admin", "load-open-loop")]


def test_a_load_that_cannot_be_is_refused_here() -> None:
    with raises(ValidationError, "one PG or more"):
        OpenLoop(duration_s=1.0, rates={})
    too_much = OpenLoop(duration_s=1.0, rates={"1.0": 1.0}, object_bytes=2**26)
    with raises(UserError, allowed="at most 16 here"):
        too_much.plan()
