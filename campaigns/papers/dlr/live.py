"""`Services` of a cell on a deployed Ceph: a benchmark under disturbance, or open-loop writes.

Each write cell starts from a frozen state, and reads never see its writes. A write cell marks the
testbed as written before it starts. The next cell restores the testbed, even if the engine was
killed. Objects that were prefilled after the latest snapshot are frozen with the store once, before
the first write cell.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from campaigns.engine.judge import MachineLoad
from campaigns.grounds.live import LiveTestbed, Recorder, at_once
from campaigns.papers.dlr import loads
from campaigns.papers.dlr.cell import CellSetting
from campaigns.papers.dlr.measure import collect, collect_writes, recorded_rows
from controllers import remote
from schemas.cells.dlr import Bench
from schemas.durable import write_file
from schemas.errors import HotbedError
from schemas.run import Summary
from testbed.agent.contract import Agent
from testbed.deploy.inventory import fio_file_bytes
from testbed.deploy.lifecycle import DEPLOYED, restore_snapshot, stopped_store
from testbed.sites.contract import Site, SnapshotSite, Testbed
from testbed.spec import DiskSpec
from workloads import rados_bench
from workloads.disturbance import DisturbancePlan, agent_plan, load_of
from workloads.fio import measure_capacity, place_files
from workloads.open_loop import (
    OpenLoop,
    OpenLoopResult,
    run_open_loop,
    start_open_loop,
    stop_open_loop,
    wait_open_loop,
)
from workloads.prefill import prefill
from workloads.rados_bench import BenchResult, RadosBench

SLACK_S = 180.0
"""Maximum extra time of load and recorder after the planned time, if the engine is lost."""
STEADY_S = 30.0
START_S = 120.0
PLACEMENT_S = 60.0
CAPACITY_FILE = "capacity.json"
CONTENTS_FILE = "contents.json"
FILLED = "filled"


class BenchServices:
    """See `campaigns.papers.dlr.cell.Services`."""

    def __init__(self, live: LiveTestbed, setting: CellSetting) -> None:
        self._live = live
        self._setting = setting
        self._client = live.testbed.with_role("client")[0]
        self._nodes = live.names("osd")
        self._snapshots = Snapshots(live.site, live.testbed)
        self._meter = live.meter(self._client)
        self._plan = loads.disturbance_of(setting, self._nodes)
        self._recorder = Recorder(live.agent, setting.run_id)
        self._result: BenchResult | None = None
        self._wait_since: float | None = None

    def at_once(self, *calls: Callable[[], Any]) -> list[Any]:
        return at_once(*calls)

    def signal(self) -> str | None:
        named = {"osd": "osd_pressure", "op_r_latency": "op_r_latency"}
        found = named.get(self._setting.parameters.signal)
        return found or self._live.testbed.with_role("osd")[0].signal

    def clean(self) -> None:
        self._live.quiet("controller", "disturbance", "recorder")
        if self._setting.parameters.op == "write" and self._snapshots.fresh_undoes():
            return  # a write cell restores next; the following call cleans the restored store
        self._snapshots.undo_writes()
        self._live.put_right()

    def restore(self) -> bool:
        return self._snapshots.fresh()

    def prefill(self) -> None:
        """See `Services.prefill`; writes missing objects at full disk speed."""
        live, plan = self._live, loads.objects_to_read(self._setting, self._live.spec)
        unshaped = live.unshaped()
        if prefill(live.agent, self._client.name, self._pool, plan, writing=unshaped).written:
            self._snapshots.mark_prefilled()
            self._live.put_right()

    def drop_caches(self) -> None:
        """See `Services.drop_caches`; checks settings first, as minutes of load follow."""
        self._meter.require_settings()
        self._live.drop_caches()

    def disturbance(self) -> AbstractContextManager[None]:
        agent, disk = self._live.agent, next(iter(self._live.spec.osd_disks()))
        if self._live.spec.ceph().objectstore == "filestore":
            # In the paper, fio's files fill the file systems of the OSDs that it disturbs. All of a
            # cell's files exist from its beginning, also those of nodes that are disturbed later.
            with self._live.unshaped():
                size = fio_file_bytes(disk, self._nodes[0])
                place_files(agent, self._nodes, self._plan.loaded, size)
        reads = capacity(agent, self._live.testbed, disk, self._plan)
        return disturbed(agent, self._plan, disk, reads, self._most_s)

    def recorder(self) -> AbstractContextManager[None]:
        return self._recorder.recording(self._most_s)

    def controller(self) -> AbstractContextManager[None]:
        """See `Services.controller`. A failed controller fails the cell."""
        setting = self._setting
        parameters = setting.parameters
        return self._live.controller(
            parameters.controller,
            parameters=parameters.controller_parameters,
            seed=setting.seed,
            interval_s=setting.interval_s,
            signal=parameters.signal,
            controllers_dir=setting.controllers_dir,
        )

    def steady(self) -> None:
        since = time.monotonic()
        if self._plan.stretches[0].loads:
            since = wait_steady(self._live.agent)
        self._wait_since = since

    def wait(self, seconds: float) -> None:
        """See `Services.wait`."""
        now = time.monotonic()
        since, self._wait_since = self._wait_since or now, None
        time.sleep(max(0.0, since + seconds - now))

    def usage(self) -> AbstractContextManager[None]:
        return self._meter.measured()

    def workload(self) -> None:
        parameters = self._setting.parameters
        assert isinstance(parameters, Bench), "other operations have services of their own"
        if parameters.op == "write":
            run = f"hotbed-{self._setting.run_id}"
            self._snapshots.mark_written(run)
        else:
            run = loads.objects_to_read(self._setting, self._live.spec).run_name
        bench = RadosBench(
            op=parameters.op,
            pool=self._pool,
            object_size=parameters.object_size,
            concurrency=parameters.concurrency,
            duration_s=self._setting.duration_s,
            run_name=run,
            read_seed=self._setting.seed % 2**32 if parameters.same_objects else None,
        )
        self._result = rados_bench.run(
            self._live.agent, self._client.name, bench, started=lambda _wall: self.move_loads()
        )

    def move_loads(self) -> None:
        """Let the disturbance's moves begin, because the workload begins now."""
        if any(stretch.loads for stretch in self._plan.stretches):
            self._live.agent.call("disturb-go", {})

    def load(self) -> MachineLoad:
        return replace(self._meter.load, stalled=self._recorder.stalled)

    def not_restored(self) -> list[str]:
        return self._live.put_right()

    def collect(self) -> Summary:
        result = self._result
        assert result is not None
        for number, text in enumerate(result.raw, start=1):
            (self._setting.folder / "logs" / f"rados-bench-{number}.txt").write_text(text)
        samples, log = self.fetch()
        return collect(self._setting, self._nodes, result, samples, log)

    def fetch(self) -> tuple[list[dict[str, Any]], Mapping[str, Any]]:
        """Bring the run's logs and journal from the admin node in parallel; return the recorder's
        samples and the disturbance's log."""
        folder = self._setting.folder
        log, samples, _ = at_once(
            partial(write_log, self._live.agent, self._plan, folder),
            partial(self._recorder.fetch, folder / "logs"),
            self.fetch_journal,
        )
        return samples, log

    def fetch_journal(self) -> None:
        """Copy the controller's journal into the run's folder."""
        name = self._setting.parameters.controller
        remote.fetch_journal(self._live.agent, name, self._setting.folder / "journal.jsonl")

    @property
    def _pool(self) -> str:
        return self._live.spec.ceph().pools[0].name

    @property
    def _most_s(self) -> float:
        setting = self._setting
        lead = setting.parameters.lead_s(setting.time_scale)
        # Sequential reads have several passes; caches are dropped between them.
        return lead + 2 * setting.duration_s + SLACK_S


class OpenLoopServices(BenchServices):
    """`Services` of a cell with open-loop writes.

    The load is the disturbance: it runs before and after the controller's call. At the end the
    controller's moves are undone, with disks and links unshaped if the site can.
    """

    def __init__(self, live: LiveTestbed, setting: CellSetting) -> None:
        super().__init__(live, setting)
        self._config: OpenLoop | None = None
        self._written: OpenLoopResult | None = None

    def clean(self) -> None:
        self._live.quiet("controller", "disturbance", "recorder")
        self._snapshots.undo_writes()
        self.not_restored()

    def prefill(self) -> None:
        """See `Services.prefill`; writes the objects that the load will overwrite."""
        pgs = self._placement()["pgs"]
        if not loads.lacking(loads.cell_of(self._setting), pgs):
            return
        config = loads.filling(self._setting, self._pool, sorted(pgs))
        with self._live.unshaped():
            run_open_loop(self._live.agent, self._client.name, config)
            self._snapshots.mark_prefilled()
            self._live.put_right()

    @contextmanager
    def disturbance(self) -> Iterator[None]:
        agent, client = self._live.agent, self._client.name
        self._config = loads.placed_writer(self._setting, self._pool, self._placement())
        try:
            start_open_loop(agent, client, self._config)
            yield
        finally:
            stop_open_loop(agent, client)

    def workload(self) -> None:
        """See `Services.workload`. Waits until the load ends."""
        assert self._config is not None
        self._written = wait_open_loop(self._live.agent, self._client.name, self._config)
        if not self._written.done:
            raise HotbedError("not one write was done: the store did not take the load.")

    def not_restored(self) -> list[str]:
        with self._live.unshaped():
            return self._live.put_right()

    def collect(self) -> Summary:
        result = self._written
        assert result is not None
        fetch = partial(self._recorder.fetch, self._setting.folder / "logs")
        samples, _ = at_once(fetch, self.fetch_journal)
        rows = recorded_rows(samples, result.started_wall)
        return collect_writes(self._setting, result, rows, nodes=self._nodes)

    def _placement(self) -> dict[str, Any]:
        answer: dict[str, Any] = self._live.agent.call(
            "placement", {"pool": self._pool}, timeout_s=PLACEMENT_S
        )
        return answer

    @property
    def _most_s(self) -> float:
        return 2 * self._setting.duration_s + SLACK_S


@contextmanager
def disturbed(
    agent: Agent,
    plan: DisturbancePlan,
    disk: DiskSpec,
    capacity_iops: Mapping[str, float],
    max_s: float,
) -> Iterator[None]:
    """Run `plan`; the block begins when every initial load runs.

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
        yield
    finally:
        agent.call("disturb-stop", {}, timeout_s=START_S)


def wait_steady(agent: Agent, *, clock: Callable[[], float] = time.monotonic) -> float:
    """Wait until every load has its rate; if rates are unknown, until all are alive. Return the
    time (of `clock`) at which the last look began: the loads have their rates since then.
    HotbedError: a load ended, or is not steady in time."""
    deadline = clock() + STEADY_S
    while True:
        began = clock()
        status = agent.call("disturb-status", {}, timeout_s=START_S)
        dead = [load for load in status["loads"] if not load["alive"]]
        if dead:
            said = dead[0].get("said") or "it said nothing"
            raise HotbedError(
                f"the load {dead[0]['name']} on node {dead[0]['node']} has ended: {said}"
            )
        if status["steady"] is not False:
            return began
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
    known = known_capacity(path, testbed.spec_hash)
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


def known_capacity(path: Path, spec: str) -> dict[str, float]:
    """Return the measured reads a second of nodes that `capacity` has kept for a spec."""
    try:
        data = json.loads(path.read_text())
        if data["spec"] == spec:
            return {str(node): float(iops) for node, iops in data["iops"].items()}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return {}


@dataclass(frozen=True)
class StoreContents:
    """Contents of the store beyond its newest snapshot. `written` names the run that wrote."""

    written: str | None = None
    prefilled: bool = False


class Snapshots:
    """Snapshots of one testbed for cells."""

    def __init__(self, site: Site, testbed: Testbed) -> None:
        self._site = site
        self._testbed = testbed
        self._marker = testbed.directory / CONTENTS_FILE

    def contents(self) -> StoreContents:
        """Return the contents in the marker file."""
        try:
            return StoreContents(**json.loads(self._marker.read_text()))
        except (OSError, ValueError, TypeError):
            return StoreContents()

    def mark_written(self, run: str) -> None:
        """Mark the store as written, before a write cell starts."""
        self._mark(StoreContents(run, self.contents().prefilled))

    def mark_prefilled(self) -> None:
        """Mark the store as having additional objects to read."""
        self._mark(StoreContents(self.contents().written, True))

    def undo_writes(self) -> bool:
        """Undo the changes of an earlier write cell; return False if there are none or the site
        cannot."""
        return self.contents().written is not None and self._restore()

    def fresh_undoes(self) -> bool:
        """Return True if `fresh` will undo the writes, so that this is not done twice."""
        site = self._site
        return (
            self.contents().written is not None
            and isinstance(site, SnapshotSite)
            and self._newest(site) is not None
        )

    def fresh(self) -> bool:
        """Start the store from a frozen state; return False if the site cannot."""
        site = self._site
        if not isinstance(site, SnapshotSite):
            return False
        known = self.contents()
        if known.prefilled and known.written is None:
            with stopped_store(self._testbed):
                site.snapshot(self._testbed.name, self._new_label(site))
            self._mark(StoreContents())
            return True
        return self._restore()

    def _restore(self) -> bool:
        site = self._site
        if not isinstance(site, SnapshotSite):
            return False
        label = self._newest(site)
        if label is None:
            return False
        restore_snapshot(site, self._testbed.name, label)
        self._mark(StoreContents())
        return True

    def _newest(self, site: SnapshotSite) -> str | None:
        ours = [label for label in site.snapshots(self._testbed.name) if _is_ours(label)]
        return ours[-1] if ours else None

    def _new_label(self, site: SnapshotSite) -> str:
        taken = set(site.snapshots(self._testbed.name))
        number = 1
        while f"{FILLED}-{number}" in taken:
            number += 1
        return f"{FILLED}-{number}"

    def _mark(self, contents: StoreContents) -> None:
        write_file(Path(self._marker), json.dumps(asdict(contents)) + "\n")


def _is_ours(label: str) -> bool:
    return label == DEPLOYED or label.startswith((f"{DEPLOYED}-", f"{FILLED}-"))
