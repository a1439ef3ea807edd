"""Cells with open-loop writes: parameters, load, order and evaluation."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from unittest.mock import MagicMock, call

import pandas as pd
import pytest

from campaigns.engine import session
from campaigns.engine.campaign_file import FILES, load_campaign
from campaigns.engine.job import Phases
from campaigns.papers.dlr import loads
from campaigns.papers.dlr.cell import CellSetting, _measure, in_order
from campaigns.papers.dlr.measure import collect_writes, outcome, recorded_rows
from controllers.journal import JournalStep, JournalWriter, decided, parse_journal
from schemas.cells.dlr import DLR
from schemas.cells.dlr import OpenLoopWrites as OpenLoopCell
from schemas.errors import HotbedError
from testbed.agent.openloop.writer import Histogram
from tests.errors import raises
from workloads.open_loop import OpenLoop, OpenLoopResult

SKEW = {"op": "open", "scenario": "skew", "rate": 24.0}


def cell(**more: object) -> OpenLoopCell:
    made = DLR.check({**SKEW, **more}, "test")
    assert isinstance(made, OpenLoopCell)
    return made


def setting(tmp_path, time_scale: float = 0.5, **more: object) -> CellSetting:
    (tmp_path / "logs").mkdir(exist_ok=True)
    return CellSetting(cell(**more), seed=1, block=0, time_scale=time_scale, folder=tmp_path)


def placed(osds: int = 10, pgs: int = 100, size: int = 3) -> dict[str, list[int]]:
    draw = random.Random(1)
    return {f"1.{n:x}": draw.sample(range(osds), size) for n in range(pgs)}


def test_the_load_is_the_papers():
    placement = placed()
    load = loads.skewed_load(cell(), placement, seed=3)
    assert len(load.hot) == 2
    assert load.off < 0.01
    sums = dict.fromkeys(range(10), 0.0)
    for pg, rate in load.rates.items():
        for osd in placement[pg]:
            sums[osd] += rate
    for osd, total in sums.items():
        assert total == pytest.approx(24.0 if osd in load.hot else 9.6, rel=0.01)


def test_a_load_that_cannot_be_is_refused():
    placement = {"1.0": [0, 1, 2], "1.1": [0, 1, 2]}
    with raises(HotbedError, "cannot be written to"):
        loads.skewed_load(cell(), placement, seed=1)


def test_figure_4_loads_one_node():
    placement = placed()
    load = loads.skewed_load(cell(scenario="single", rate=7.0), placement, seed=1)
    (hot,) = load.hot
    assert all(hot in placement[pg] for pg in load.rates)
    assert sum(load.rates.values()) == pytest.approx(7.0)


def test_the_writer_overwrites_what_is_there(tmp_path):
    config = loads.open_loop(setting(tmp_path, objects_per_pg=3), "bench", {"1.0": 2.0})
    assert not config.prefill
    assert config.keep_requests
    assert config.objects_per_pg == 3
    assert config.max_in_flight * config.object_bytes <= 2**30
    here = setting(tmp_path, objects_per_pg=3, ballast_mb=8)
    filling = loads.filling(here, "bench", ["1.0", "1.1"])
    assert filling.prefill
    assert (filling.objects_per_pg, filling.ballast_per_pg) == (3, 2)


def test_ballast_is_part_of_what_a_group_holds():
    typed = cell(object_size=16384, objects_per_pg=4, ballast_mb=6)
    assert loads.ballast_per_pg(typed) == 2  # whole objects of 4 MiB
    assert loads.bytes_per_pg(typed) == 4 * 16384 + 8 * 2**20
    report = {"1.0": {"bytes": 4 * 16384}, "1.1": {"bytes": 4 * 16384 + 8 * 2**20}}
    assert loads.lacking(typed, report) == ["1.0"]
    plain = cell(object_size=16384, objects_per_pg=4)
    assert loads.ballast_per_pg(plain) == 0
    assert plain.contents() != typed.contents()


def test_the_load_runs_before_the_controller_is_called():
    services, job = MagicMock(at_once=in_order), SimpleNamespace(time_scale=1.0)
    # Without a folder: the next cell's process must not start before the load has ended.
    context = SimpleNamespace(sleep=None, job=job)
    _measure(cell(interval_s=10), context, services, Phases())
    done = [name for name, *_ in services.mock_calls if not name.endswith("__enter__")]
    assert [name for name in done if name not in {"clean", "prefill", "drop_caches"}] == [
        *("disturbance", "recorder", "wait", "controller", "wait", "usage", "workload"),
        *(f"{name}().__exit__" for name in ("usage", "controller", "recorder", "disturbance")),
    ]
    assert services.wait.mock_calls == [call(10.0), call(0.0)]


def written(latencies: list[tuple[float, float | None]], seconds: int = 20) -> OpenLoopResult:
    """Return requests (start, latency) as the writer reports them."""
    histogram, ages = Histogram(), Histogram()
    for at, took in latencies:
        histogram.add(took) if took is not None else ages.add(seconds - at)
    series = []
    for end in range(1, seconds + 1):
        ended = [t for at, t in latencies if t is not None and end - 1 < at + t <= end]
        waiting = [at for at, t in latencies if at <= end and (t is None or at + t > end)]
        series.append(
            {
                "t_s": float(end),
                "intended": sum(end - 1 < at <= end for at, _ in latencies),
                "done": len(ended),
                "latency_mean_s": sum(ended) / len(ended) if ended else None,
                "latency_max_s": max(ended, default=None),
                "outstanding": len(waiting),
                "oldest_s": max((end - at for at in waiting), default=None),
            }
        )
    return OpenLoopResult(
        config=OpenLoop(duration_s=seconds, rates={"1.0": 1.0}),
        started_wall=1000.0,
        prefill_s=0.0,
        series=series,
        histogram=histogram,
        ages=ages,
        intended=len(latencies),
        done=histogram.total,
        failed=0,
        outstanding=ages.total,
        late=0,
        late_max_s=0.0,
        held=0,
        pgs={},
        requests=tuple((at, took, "1.0") for at, took in latencies),
    )


SLOW_THEN_QUICK = [(n / 2, 3.0 if n < 16 else 0.1) for n in range(90)]


def test_settling_counts_from_the_call():
    found = outcome(written(SLOW_THEN_QUICK, 45), called_s=5.0)
    # The last slow writes were due at 7 and 7.5 and ended at 10.5: from 11 on all are fast. One
    # slow write is allowed, so from 7.5 on too few due writes are slow.
    assert found["settled_strict_s"] == pytest.approx(6.0)
    assert found["settled_s"] == pytest.approx(3.0)
    assert found["settled_good_s"] == pytest.approx(3.0)
    assert found["intended"] == 90


def test_a_store_that_hangs_has_not_settled():
    hangs = [(n / 2, 0.1 if n < 12 else None) for n in range(90)]
    found = outcome(written(hangs, 45), called_s=5.0)
    assert not {"settled_s", "settled_strict_s"} & set(found)
    assert found["outstanding"] == 78


def test_a_slow_write_in_a_hundred_does_not_unsettle():
    quick = [(n / 50, 1.5 if n % 200 == 50 else 0.1) for n in range(2000)]
    found = outcome(written(quick, 40), called_s=5.0)
    assert found["settled_s"] == 0.0
    assert found.get("settled_strict_s", 40.0) > 25.0
    slower = [(at, 1.5 if n % 20 == 0 else took) for n, (at, took) in enumerate(quick)]
    assert "settled_s" not in outcome(written(slower, 40), called_s=5.0)


def decision(t_s: float, moves: int, cost: float, bound: float | None) -> dict[str, object]:
    return {
        "t_s": t_s,
        "hot": {"0": 20.0},
        "still_hot": [],
        "swaps": [],
        "moves": [["1.0", 0, n + 1] for n in range(moves)],
        "cost": cost,
        "lower_bound": bound,
        "threshold": 16.8,
    }


def journal_of(folder) -> None:
    states = [
        {"decision": None, "check": None},
        {"decision": decision(10.0, 3, 3.0, 2.5), "check": None},
        {"decision": decision(10.0, 3, 3.0, 2.5), "check": {"worst": 0.2, "loads": {}}},
        {"decision": decision(40.0, 1, 5.0, 5.0), "check": None},
    ]
    with JournalWriter(folder / "journal.jsonl") as journal:
        journal.header(policy="ursa", needs={"senses": [], "acts": ["pg-upmap"]})
        for number, state in enumerate(states):
            journal.step(
                JournalStep(
                    step=number,
                    t_s=10.0 * number,
                    wall=0.0,
                    observation={"activity": {"unclean": ["1.0"] if number == 2 else []}},
                    state_before={},
                    state_after=state,
                    actions=[{"action": "MoveReplica"}] if number in {1, 3} else [],
                )
            )
        journal.footer("stopped", [])


def test_decisions_are_counted_once_each(tmp_path):
    journal_of(tmp_path)
    found = decided(parse_journal((tmp_path / "journal.jsonl").read_text(), "test"))
    assert (found["decisions"], found["moves"], found["first_moves"]) == (2, 4, 3)
    assert (found["cost"], found["first_cost"], found["first_lower_bound"]) == (8.0, 3.0, 2.5)
    assert found["prediction_off"] == 0.2
    assert (found["acted_s"], found["moving_until_s"]) == (30.0, 30.0)


def test_a_run_folder_is_whole(tmp_path):
    here = setting(tmp_path, time_scale=1.0, duration_s=20, balance_after_s=5)
    journal_of(tmp_path)
    placement = {pg: {"up": up, "bytes": 0} for pg, up in placed().items()}
    loads.placed_writer(here, "bench", {"pgs": placement})
    drawn = json.loads((tmp_path / "logs" / "load.json").read_text())
    assert drawn["placement"] == {"pgs": placement}
    result = written(SLOW_THEN_QUICK[:40])
    recording = [
        {"wall": 1000.0 + n, "values": {"osd0": {"pressure": 50.0}, "client": {"x": None}}}
        for n in range(-2, 10)
    ]
    rows = recorded_rows(recording, result.started_wall)
    summary = collect_writes(here, result, rows, nodes=["osd0", "osd1"])
    (whole,), (steady,) = summary.whole, summary.steady
    assert (whole.op, whole.operations) == ("open", 40)
    assert whole.latency_p99_s == 3.0
    assert whole.latency_p50_s == 0.1
    assert steady.operations == 30
    assert summary.pressure_mean == {"osd0": 50.0}
    assert summary.extra["hot_osds"] == len(drawn["hot_osds"]) > 0
    assert summary.extra["called_s"] == 5.0
    samples = pd.read_parquet(tmp_path / "samples.parquet")
    assert list(samples.columns) == ["t_s", "node", "metric", "value"]
    assert samples["t_s"].min() == -2.0
    requests = pd.read_parquet(tmp_path / "requests.parquet")
    assert len(requests) == 40
    counts = pd.read_parquet(tmp_path / "latency.parquet")["count"]
    assert counts.sum() == 40


@pytest.mark.parametrize("file", sorted(FILES.glob("ursa-live*.yaml")), ids=lambda file: file.stem)
def test_planners_know_the_rate_that_a_node_bears(file):
    typed = session.typed_cells(load_campaign(file), file)
    cells = [cell for grid in typed.values() for cell in grid]
    assert {cell.op for cell in cells} == {"open"}
    planners = [cell for cell in cells if cell.controller in {"ursa", "nearest", "htoc"}]
    assert all(cell.controller_parameters["capacity"] == cell.rate for cell in planners)
