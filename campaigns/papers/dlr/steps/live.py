"""`Services` on a deployed testbed: a step is a few verbs of the admin node's agent."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from campaigns.engine.judge import stalled
from campaigns.papers.dlr.services import CellSetting, Load
from campaigns.papers.dlr.steps import clean, disturb, fill
from campaigns.papers.dlr.steps.facts import signal_name
from campaigns.papers.dlr.steps.snapshot import Snapshots
from campaigns.papers.dlr.steps.usage import Usage
from controllers import remote
from schemas.cells.dlr import Bench
from schemas.durable import write_file
from schemas.errors import HotbedError
from schemas.run import Summary
from testbed.agent.contract import Agent
from testbed.agent.recorder import INTERVAL_S
from testbed.deploy.roles import spec_of
from testbed.sites.contract import Site, Testbed
from workloads import rados_bench
from workloads.rados_bench import BenchResult, RadosBench

SLACK_S = 180.0
"""Maximum extra time of load and recorder after the planned time, if the engine is lost."""


class LiveServices:
    """See `campaigns.papers.dlr.services.Services`."""

    def __init__(self, site: Site, testbed: Testbed, agent: Agent, setting: CellSetting) -> None:
        self._site = site
        self._testbed = testbed
        self._agent = agent
        self._setting = setting
        self._spec = spec_of(testbed)
        self._client = testbed.with_role("client")[0]
        self._nodes = tuple(node.name for node in testbed.with_role("osd"))
        self._snapshots = Snapshots(site, testbed)
        self._usage = Usage(site, testbed, self._client)
        self._plan = disturb.plan_of(setting, self._nodes)
        self._recording = f"{setting.run_id}-{secrets.token_hex(3)}"
        self._result: BenchResult | None = None
        self._stalled: float | None = None

    def signal(self) -> str | None:
        """See `Services.signal`."""
        return signal_name(self._setting.parameters.signal, self._testbed)

    def clean(self) -> None:
        """See `Services.clean`."""
        clean.stop_everything(self._agent)
        clean.refuse_strays(self._agent)
        if self._setting.parameters.op == "write" and self._snapshots.fresh_undoes():
            return  # a write cell restores next; the following call cleans the restored store
        self._snapshots.undo_writes()
        clean.put_right(self._agent)

    def restore(self) -> bool:
        """See `Services.restore`."""
        return self._snapshots.fresh()

    def prefill(self) -> None:
        """See `Services.prefill`."""
        plan = fill.fill_plan(self._setting, self._spec)
        written = fill.fill(
            self._agent,
            self._site,
            self._testbed,
            plan,
            client=self._client.name,
            pool=self._pool,
        )
        if written:
            self._snapshots.mark_prefilled()
            clean.put_right(self._agent)

    def drop_caches(self) -> None:
        """See `Services.drop_caches`; checks settings first, as minutes of load follow."""
        self._usage.require_settings()
        clean.drop_caches(self._agent)

    def disturbance(self) -> AbstractContextManager[None]:
        """See `Services.disturbance`."""
        disk = fill.osd_disks(self._spec)[0]
        capacity = disturb.capacity(self._agent, self._testbed, disk, self._plan)
        return disturb.disturbed(self._agent, self._plan, disk, capacity, self._most_s)

    @contextmanager
    def recorder(self) -> Iterator[None]:
        """See `Services.recorder`."""
        payload = {"name": self._recording, "max_s": self._most_s}
        try:
            self._agent.call("recorder-start", payload)
            yield
        finally:
            self._agent.call("recorder-stop", {})

    @contextmanager
    def controller(self) -> Iterator[None]:
        """See `Services.controller`. A failed controller fails the cell."""
        parameters = self._setting.parameters
        folders = self._setting.controllers_dir
        try:
            remote.start(
                self._agent,
                parameters.controller,
                parameters=parameters.controller_parameters,
                seed=self._setting.seed,
                interval_s=self._setting.interval_s,
                signal=parameters.signal,
                controllers_dirs=() if folders is None else (folders,),
            )
            yield
        except BaseException:
            remote.stop(self._agent)
            raise
        ended = remote.stop(self._agent, parameters.controller)
        if not ended["was_running"] or ended["code"] != 0:
            raise HotbedError(f"the controller {parameters.controller} failed: {ended['reason']}")

    def wait(self, seconds: float) -> None:
        """See `Services.wait`."""
        time.sleep(seconds)

    def usage(self) -> AbstractContextManager[None]:
        """See `Services.usage`."""
        return self._usage.measured()

    def workload(self) -> None:
        """See `Services.workload`."""
        parameters = self._setting.parameters
        assert isinstance(parameters, Bench), "other operations have services of their own"
        writes = parameters.op == "write"
        run = f"hotbed-{self._setting.run_id}"
        if writes:
            self._snapshots.mark_written(run)
        else:
            run = fill.fill_plan(self._setting, self._spec).run_name
        bench = RadosBench(
            op=parameters.op,
            pool=self._pool,
            object_size=parameters.object_size,
            concurrency=parameters.concurrency,
            duration_s=self._setting.duration_s,
            run_name=run,
        )
        disturbed = any(stretch.loads for stretch in self._plan.stretches)

        def started(_wall: float) -> None:
            if disturbed:
                self._agent.call("disturb-go", {})

        self._result = rados_bench.run(self._agent, self._client.name, bench, started=started)

    def load(self) -> Load:
        """See `Services.load`."""
        return replace(self._usage.load, stalled=self._stalled)

    def not_restored(self) -> list[str]:
        """See `Services.not_restored`."""
        return clean.put_right(self._agent)

    def fetch_recording(self) -> list[dict[str, Any]]:
        """Return the recorder's samples; move them from the admin node to the run's logs."""
        payload = {"name": self._recording, "forget": True}
        samples: list[dict[str, Any]] = self._agent.call(
            "recorder-fetch", payload, timeout_s=120.0
        )["samples"]
        lines = "".join(json.dumps(line) + "\n" for line in samples)
        write_file(self._setting.folder / "logs" / "recording.jsonl", lines)
        self._stalled = stalled([float(line["wall"]) for line in samples], INTERVAL_S)
        return samples

    def fetch_journal(self) -> None:
        """Copy the controller's journal into the run's folder."""
        name = self._setting.parameters.controller
        remote.fetch_journal(self._agent, name, self._setting.folder / "journal.jsonl")

    def collect(self) -> Summary:
        """See `Services.collect`."""
        from campaigns.papers.dlr.steps.collect import collect

        result = self._result
        assert result is not None
        folder = self._setting.folder
        for number, text in enumerate(result.raw, start=1):
            (folder / "logs" / f"rados-bench-{number}.txt").write_text(text)
        fetched: dict[str, Any] = {}

        def disturbance() -> None:
            fetched["log"] = disturb.write_log(self._agent, self._plan, folder)

        def recording() -> None:
            fetched["samples"] = self.fetch_recording()

        clean.at_once(disturbance, recording, self.fetch_journal)
        return collect(self._setting, self._testbed, result, fetched["samples"], fetched["log"])

    @property
    def _pool(self) -> str:
        return self._spec.ceph().pools[0].name

    @property
    def _most_s(self) -> float:
        setting = self._setting
        lead = setting.parameters.lead_s(setting.time_scale)
        # Sequential reads have several passes; caches are dropped between them.
        return lead + 2 * setting.duration_s + SLACK_S
