"""Proofs of a plan's bound for runs on real machines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from pm_reports import part, report

from campaigns.papers.prioritymeister import rule
from campaigns.papers.prioritymeister.announced import larger
from campaigns.papers.prioritymeister.cell import bound_holds, numbers
from campaigns.papers.prioritymeister.experiment import Experiment
from campaigns.papers.prioritymeister.links import LINK_SHARE, Links, htb_links
from campaigns.papers.prioritymeister.live.results import (
    as_text,
    conditions_of,
    network_differs,
    result_of,
)
from campaigns.papers.prioritymeister.local_ground import parameters_on
from campaigns.papers.prioritymeister.machines import Machines
from campaigns.papers.prioritymeister.mixes import Mix
from campaigns.papers.prioritymeister.outcome import Conditions, Outcome
from campaigns.papers.prioritymeister.study import Measured, planned
from schemas.cells.prioritymeister import PM
from testbed.stores.nfs.shaping import FRAME
from tests.campaigns.pm_live_bench import PROFILE, a_testbed, experiment_in

LATENCY_S = 0.02
SERVICE = {"calls": 9, "charged_seconds": 1.0, "busy_seconds": 1.0, "lag_seconds": 0.015}


def planned_in(folder: Path, *, overhead: bool = True) -> Experiment:
    """Return an experiment under pm, planned as on a testbed."""
    made = experiment_in(folder, "pm")
    if overhead:
        profile = PROFILE | {"overhead": {"request": 0.0, "latency": LATENCY_S}}
        (folder / "disk.json").write_text(json.dumps(profile))
    rows = "0,0x1000,DiskRead,0x0\n200000000,0x8000,DiskRead,0x0\n900000000,0x1000,DiskRead,0x0\n"
    for name in "AL":
        (folder / f"{name}.csv").write_text(rows)
    known = Measured(folder)
    tenants = [known.tenant(made.topology, w) for w in made.topology.workloads]
    return replace(made, plan=planned(made.topology, tenants, links=htb_links(FRAME)))


def conditions(
    experiment: Experiment, folder: Path, *, levels: int = 7, told: Any = None, **changes: Any
) -> Conditions:
    reports = {"A": report(**changes), "L": report()}
    told = told or parameters_on(experiment, a_testbed(folder))
    status = {"server": {"service": SERVICE}}
    return conditions_of(experiment, told, status, reports, switch_levels=levels)["A"]


def test_all_that_a_bound_needs_was_kept(tmp_path: Path) -> None:
    found = conditions(planned_in(tmp_path), tmp_path, lag=1e-4)
    assert found.why_not is None and found.network
    assert (found.late_s, found.behind_s, found.allowed_s) == (2e-4, 0.015, LATENCY_S)


def test_a_profile_without_overhead_proves_nothing_of_a_real_server(tmp_path: Path) -> None:
    found = conditions(planned_in(tmp_path, overhead=False), tmp_path)
    assert found.why_not is not None and "has no overhead.latency" in found.why_not
    assert found.network
    assert "by up to 15 ms" in json.loads(as_text({"A": found}))["A"]


def test_a_network_that_is_not_enforced_takes_the_proof(tmp_path: Path) -> None:
    experiment = planned_in(tmp_path)
    told = parameters_on(experiment, a_testbed(tmp_path))
    plain = told.model_copy(update={"network": told.network.model_copy(update={"mode": "fifo"})})
    found = conditions(experiment, tmp_path, told=plain)
    assert found.why_not == "the network is not enforced" and not found.network
    assert network_differs(told, 7) is None
    assert network_differs(told, 0) == "the plan has 2 network levels, and the switch 0"


def test_a_bucket_that_the_kernel_cannot_keep_takes_the_proof(tmp_path: Path) -> None:
    """The plan ignores that HTB's buckets hold at least a frame."""
    experiment = planned_in(tmp_path)
    known = Measured(tmp_path)
    tenants = [known.tenant(experiment.topology, w) for w in experiment.topology.workloads]
    assert min(tenants[0].limiters["network-in"].bursts) < FRAME
    naive = replace(experiment, plan=planned(experiment.topology, tenants))
    found = conditions(naive, tmp_path)
    assert found.why_not is not None and "let more through" in found.why_not
    assert experiment.plan is not None and naive.plan is not None
    for real, thought in zip(experiment.plan.workloads, naive.plan.workloads, strict=True):
        assert real.bound > thought.bound  # HTB's larger bucket lets more through
    rates = {queue.queue: queue.bandwidth for queue in experiment.plan.queues}
    assert rates["server:disk"] == 1.0
    assert rates["server->switch"] == pytest.approx(LINK_SHARE * 2e8 / 8)


def test_a_plan_of_smaller_frames_than_the_links_takes_the_proof(tmp_path: Path) -> None:
    """The plan assumes packets of 1500 bytes; the links carry 9000."""
    told = parameters_on(planned_in(tmp_path), a_testbed(tmp_path))
    assert network_differs(told, 7, 1538) is None
    why_not = network_differs(told, 7, 9038)
    assert why_not is not None and "let more through" in why_not


def test_a_cells_plan_counts_with_what_the_machines_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(rule, "planned", lambda *_, **options: given.append(options))
    parameters = PM.of(scenario="disk", frame=5000)
    mix, nobody = (
        cast(Any, SimpleNamespace(base=tmp_path)),
        cast(Any, SimpleNamespace(workloads=())),
    )
    real = Links(frame=9038, share=0.9, overshoot=1538)
    for machines in (Machines(links=real), Machines()):
        rule.plan_of_cell(parameters, mix, nobody, machines)
    assert given == [{"links": real}, {"links": Links(frame=5000)}]


def test_requests_without_an_answer_take_the_proof(tmp_path: Path) -> None:
    found = conditions(planned_in(tmp_path), tmp_path, whole=part(40, waiting=2))
    assert found.why_not == "2 requests were not answered by the end of the run"


def test_without_a_plan_there_is_nothing_to_prove(tmp_path: Path) -> None:
    experiment = replace(planned_in(tmp_path), plan=None)
    assert conditions_of(experiment, cast(Any, None), {}, {}, switch_levels=7) == {}


def test_the_generators_lateness_is_allowed_for() -> None:
    """With 2 ms lateness, a latency of 12 ms may exceed a bound of 10 ms; 12.1 ms may not."""
    late = Conditions(late_s=0.002)
    assert late.ratio(0.012, 0.010) == pytest.approx(1.0)
    assert late.ratio(0.0121, 0.010) > 1
    assert Conditions(late_s=0.002, width=1e-3).ratio(0.012 * 1.0009, 0.010) < 1


@pytest.mark.parametrize("kept", [True, False])
def test_what_a_summary_tells_of_a_real_run(tmp_path: Path, kept: bool) -> None:
    experiment = planned_in(tmp_path)
    found = conditions(experiment, tmp_path, levels=7 if kept else 1)
    made = report()
    results = {name: result_of(made, 10.0, 20.0) for name in "AL"}
    outcome = Outcome(results, conditions={"A": found, "L": found})
    loads = {name: load_of(experiment, name) for name in "AL"}
    mix = cast(Mix, SimpleNamespace(base=tmp_path, loads=loads.values(), load=loads.get))
    parameters = PM.of(scenario="disk", policy="pm")
    assert bound_holds(parameters, mix, "A", found) is kept
    assert not bound_holds(parameters, mix, "L", found)  # it has no trace as a limit
    extra = numbers(parameters, mix, experiment, outcome, {"A": 0.05})
    assert ("A_bound_ratio" in extra) is kept
    assert extra["bounds"] == float(kept)
    assert extra["A_network_kept"] == float(kept)
    assert (extra["A_late_s"], extra["A_behind_s"], extra["A_allowed_s"]) == (2e-4, 0.015, 0.02)
    if kept:
        longest, bound = made["whole"]["latency"]["max"], extra["A_bound_blocking_s"]
        assert extra["A_bound_ratio"] == pytest.approx(longest * (1 - 1e-3) / (bound + 2e-4))
    assert all(np.isfinite(value) for value in extra.values())


@pytest.mark.parametrize(("sent", "who"), [("0x8000", None), ("0x9000", "B")])
def test_whoever_sends_larger_requests_than_announced_takes_all_bounds(
    tmp_path: Path, sent: str, who: str | None
) -> None:
    announced, misbehaves = tmp_path / "B.csv", tmp_path / "B-sent.csv"
    announced.write_text("0,0x8000,DiskRead,0x0\n5,0x1000,DiskWrite,0x0\n")
    misbehaves.write_text(f"0,{sent},DiskRead,0x0\n" * 3)
    load = SimpleNamespace(name="B", trace="B.csv", replay=SimpleNamespace(file=misbehaves))
    assert larger(cast(Mix, SimpleNamespace(base=tmp_path, loads=[load]))) == who


def load_of(experiment: Experiment, name: str) -> Any:
    """Return the mix's load of a workload; L is a copy."""
    copy = name == "L"
    return SimpleNamespace(
        name=name,
        trace=f"{name}.csv",
        completion_s=9.0 if copy else None,
        required=1e5,
        replay=experiment.replays[name],
    )
