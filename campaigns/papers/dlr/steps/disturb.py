"""Load of the scenario: drawn from the block's seed, and steady before anything else runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from campaigns.papers.dlr.services import CellSetting
from schemas.cells.dlr import Disturbed, Mixed, Spread
from schemas.durable import write_file
from schemas.errors import HotbedError
from testbed.agent.contract import Agent
from testbed.deploy.inventory import fio_file_bytes
from testbed.sites.contract import Testbed
from testbed.spec import DiskSpec
from workloads.disturbance import (
    DisturbancePlan,
    Scenario,
    agent_plan,
    load_of,
    plan_disturbance,
)
from workloads.fio import measure_capacity

STEADY_S = 30.0
START_S = 120.0
CAPACITY_FILE = "capacity.json"


def plan_of(setting: CellSetting, nodes: tuple[str, ...]) -> DisturbancePlan:
    """Return the plan of loads by node and time, the same for every controller of the block.
    Open-loop writes are the load themselves, so their plan is empty."""
    parameters = setting.parameters
    scenario, every_s = "none", setting.duration_s
    if isinstance(parameters, Disturbed):
        scenario, every_s = parameters.scenario, parameters.move_every_s * setting.time_scale
    return plan_disturbance(
        cast("Scenario", scenario),
        nodes,
        seed=setting.seed,
        duration_s=setting.duration_s,
        hot_nodes=parameters.hot_count(len(nodes)),
        move_every_s=every_s,
        mix=parameters.mix if isinstance(parameters, Mixed) else None,
        spread=parameters.spread if isinstance(parameters, Spread) else None,
    )


@contextmanager
def disturbed(
    agent: Agent,
    plan: DisturbancePlan,
    disk: DiskSpec,
    capacity_iops: Mapping[str, float],
    max_s: float,
) -> Iterator[None]:
    """Run `plan`; the block begins when every initial load is steady.

    Its moves count from the verb disturb-go, which the start of the workload sends.
    """
    if all(not stretch.loads for stretch in plan.stretches):
        yield
        return
    steps = agent_plan(
        plan, load_of(fio_file_bytes(disk, plan.nodes[0]), capacity_iops), max_s=max_s
    )
    payload = {"plan": steps, "max_s": max_s, "wait_for_go": True}
    try:
        agent.call("disturb-start", payload, timeout_s=START_S)
        wait_steady(agent)
        yield
    finally:
        agent.call("disturb-stop", {}, timeout_s=START_S)


def wait_steady(agent: Agent, *, clock: Callable[[], float] = time.monotonic) -> None:
    """Wait until every load has its rate; if rates are unknown, until all are alive.

    Raises:
        HotbedError: a load ended, or is not steady in time.
    """
    deadline = clock() + STEADY_S
    while True:
        status = agent.call("disturb-status", {}, timeout_s=START_S)
        dead = [load for load in status["loads"] if not load["alive"]]
        if dead:
            said = dead[0].get("said") or "it said nothing"
            raise HotbedError(
                f"the load {dead[0]['name']} on node {dead[0]['node']} has ended: {said}"
            )
        if status["steady"] is not False:
            return
        if clock() > deadline:
            slow = [load["node"] for load in status["loads"] if load["steady"] is False]
            raise HotbedError(
                f"the load on node {slow[0]} is not steady after {STEADY_S:g} s "
                f"({len(slow)} nodes in all)."
            )


def capacity(
    agent: Agent, testbed: Testbed, disk: DiskSpec, plan: DisturbancePlan
) -> dict[str, float]:
    """Return each node's random reads a second, if the plan has offered loads. They are measured
    once per testbed and kept in its folder."""
    offered = any(
        share is not None for stretch in plan.stretches for share in stretch.loads.values()
    )
    if not offered:
        return {}
    path = testbed.directory / CAPACITY_FILE
    known = _known(path, testbed.spec_hash)
    if set(known) >= set(plan.nodes):
        return known
    found = dict(measure_capacity(agent, plan.nodes, fio_file_bytes(disk, plan.nodes[0])))
    write_file(path, json.dumps({"spec": testbed.spec_hash, "iops": found}, indent=2) + "\n")
    return found


def write_log(agent: Agent, plan: DisturbancePlan, folder: Path) -> Mapping[str, Any]:
    """Keep the plan, the times of its steps, and fio's output."""
    log: Mapping[str, Any] = {"state": None, "events": [], "outputs": []}
    # Without a disturbance, the log would be the previous cell's.
    if any(stretch.loads for stretch in plan.stretches):
        log = agent.call("disturb-log", {}, timeout_s=START_S)
    body = {
        "scenario": plan.scenario,
        "stretches": [
            {"t_s": stretch.t_s, "loads": dict(stretch.loads)} for stretch in plan.stretches
        ],
        "state": log["state"],
        "events": log["events"],
        "outputs": log["outputs"],
    }
    write_file(folder / "logs" / "disturbance.json", json.dumps(body, indent=1) + "\n")
    return log


def _known(path: Path, spec: str) -> dict[str, float]:
    try:
        data = json.loads(path.read_text())
        if data["spec"] == spec:
            return {str(node): float(iops) for node, iops in data["iops"].items()}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return {}
