"""One cell on real microstores, from its parameters to the files of its run folder.

Steps in order, ended in reverse order: cleaning, objects to read, the pool's division, empty
caches, recorder, the setup's controller if any, drivers.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from campaigns.engine.job import Job, Phases
from campaigns.engine.judge import spoiled, stalled
from campaigns.engine.write_cell import write_cell
from campaigns.papers.dlr.steps import clean
from campaigns.papers.dlr.steps.collect import controller_summary
from campaigns.papers.dlr.steps.usage import Usage
from campaigns.papers.mos.division import Division, Pool, division_of, problem, unfit
from campaigns.papers.mos.live import drives, results, stages
from campaigns.papers.mos.live.control import controller_parameters
from campaigns.papers.mos.live.objects import Stocked
from campaigns.papers.mos.live.swift import Swift
from campaigns.papers.mos.live.tables import write_latency, write_samples
from campaigns.papers.mos.loads import length_s, loads_of, measured
from controllers import remote
from controllers.journal import read_journal
from schemas.cells.mos import MOS, Adaptation, MosCell, TwoStores
from schemas.errors import HotbedError, UserError
from schemas.run import Run
from testbed.agent.recorder import INTERVAL_S

REPORT_FILE = "mos.json"
JOURNAL_FILE = "journal.jsonl"
LOGS = "logs"
SLACK_S = 180.0
LATE_S = 1.0
"""Maximum delay of a driver without a ramp-up."""

Numbers = dict[str, float]


class Maker:
    """Maker of cells on a testbed's Swift."""

    def __init__(self, swift: Swift) -> None:
        self._swift = swift
        self._reached = swift.reached
        self._stocked = Stocked(swift)

    def make(self, job: Job, folder: Path) -> Run:
        """Run a cell and write its files into `folder`, `run.json` last.

        Raises:
            UserError: the testbed lacks what the cell needs.
            HotbedError: a node, a store, a driver or a controller failed.
        """
        parameters = MOS.check(job.parameters, f"run {job.run_id}")
        pool = self._swift.pool()
        division = divided(parameters, pool, self._reached.testbed.name)
        phases = Phases()
        with phases("clean"):
            self._clean()
        with phases("objects"):
            self._stocked.ensure(parameters)
        with phases("divide"):
            self._swift.divide(division)
            sent = self._drives(parameters)
            self._swift.drop_caches()
        one = _Running(self._swift, parameters, job, folder, sent)
        with phases("workload"):
            one.run()
        with phases("collect"):
            try:
                found, why = one.collect(division, pool)
            except results.ObjectsGone:
                self._stocked.forget(parameters)
                raise
        return write_cell(folder, job, found, phases, spoiled=why, settings=one.usage.load.settings)

    def _clean(self) -> None:
        """Remove everything of an earlier run, and raise if other load runs."""
        agent = self._reached.agent
        clean.at_once(lambda: remote.stop(agent), lambda: agent.call("recorder-stop", {}))
        for node, units in agent.units().items():
            for unit in units:
                agent.unit_stop(node, unit)
        clean.refuse_strays(agent)

    def _drives(self, parameters: MosCell) -> tuple[drives.Drive, ...]:
        return drives.drives_of(loads_of(parameters), self._swift.access(), self._reached.clients)


def divided(parameters: MosCell, pool: Pool, testbed: str) -> Division:
    """Return the initial division of a cell.

    Raises:
        UserError: the testbed's pool cannot be divided like this.
    """
    why = unfit(parameters, pool)
    if why is not None:
        raise UserError(f"{parameters.label()} on testbed {testbed}: {why}.")
    division = division_of(parameters, pool)
    whole = isinstance(parameters, TwoStores)
    why = problem(division, pool, whole=whole)
    if why is not None:
        raise UserError(f"{parameters.label()} on testbed {testbed}: {why}.")
    return division


class _Running:
    """The part of a cell in which load runs, and its results."""

    def __init__(
        self,
        swift: Swift,
        parameters: MosCell,
        job: Job,
        folder: Path,
        sent: Sequence[drives.Drive],
    ) -> None:
        self._swift, self._reached = swift, swift.reached
        self._parameters, self._job, self._folder = parameters, job, folder
        self._drives = sent
        testbed = self._reached.testbed
        clients = [testbed.node(name) for name in dict.fromkeys(one.client for one in sent)]
        self.usage = Usage(self._reached.site, testbed, *clients, disks=swift.chosen_disks)
        self._recording = f"{job.run_id}-{secrets.token_hex(3)}"
        self._start = 0.0

    def run(self) -> None:
        """Run the load to its end."""
        with ExitStack() as stack:
            stack.enter_context(self._recorder())
            stack.enter_context(self._controller())
            stack.enter_context(self.usage.measured())
            self._start = drives.drive(
                self._reached.agent,
                self._reached.shell_to,
                self._drives,
                seed=self._job.seed,
                folder=self._folder / LOGS,
            )

    @contextmanager
    def _recorder(self) -> Iterator[None]:
        agent, most_s = self._reached.agent, length_s(self._parameters) + SLACK_S
        try:
            agent.call("recorder-start", {"name": self._recording, "max_s": most_s})
            yield
        finally:
            agent.call("recorder-stop", {})

    @contextmanager
    def _controller(self) -> Iterator[None]:
        """Run the controller around the block; raise if it failed."""
        parameters, agent = self._parameters, self._reached.agent
        if not isinstance(parameters, TwoStores) or not parameters.controlled:
            yield
            return
        try:
            remote.start(
                agent,
                parameters.setup,
                parameters=controller_parameters(parameters, self._swift.pool().total),
                seed=self._job.seed,
                interval_s=parameters.epoch_s,
            )
            yield
        except BaseException:
            remote.stop(agent)
            raise
        ended = remote.stop(agent, parameters.setup)
        remote.fetch_journal(agent, parameters.setup, self._folder / JOURNAL_FILE)
        if not ended["was_running"] or ended["code"] != 0:
            raise HotbedError(f"the controller {parameters.setup} failed: {ended['reason']}")

    def collect(self, division: Division, pool: Pool) -> tuple[Numbers, str | None]:
        """Write the run's tables and report; return its numbers, and why it does not count."""
        parameters, logs = self._parameters, self._folder / LOGS
        length = length_s(parameters)
        sent = results.gather(self._drives, logs, self._start, length)
        results.refuse_lost(sent)
        window = measured(parameters)
        found = results.numbers_of(sent, *window)
        report: dict[str, Any] = self._report(sent, division, pool)
        if isinstance(parameters, Adaptation):
            found |= stages.numbers_of(parameters, sent)
            report["course"] = stages.course_of(parameters)
            report["minute_s"] = parameters.minute_s
            # Upper bound of A's mean latency, and lower bound of C's bytes in each second.
            promised = stages.promised(parameters).tolist()
            report["sla"] = {"latency_s": parameters.latency_sla_ms / 1e3, "bytes_s": promised}
        samples = self._samples()
        proxies = sorted({one.access.proxy for one in self._drives})
        if pool.machines:  # proxies come and go
            proxies = [node.name for node in self._reached.testbed.with_role("proxy")]
        found |= results.usage_of(
            samples,
            (self._start + window[0], self._start + window[1]),
            proxies=proxies,
            storage=self._reached.storage,
            # Held resources change if machines come and go or a controller assigns shares.
            held=0.0 if pool.machines or parameters.controlled else self._held(division),
            ops_s=found["qps"],
        )
        found["storage_servers"] = float(pool.storage_servers)
        if parameters.controlled:
            found |= self._controlled(report)
        (self._folder / REPORT_FILE).write_text(json.dumps(report) + "\n")
        write_samples(self._folder, samples, sent, self._start)
        write_latency(self._folder, sent)
        load = replace(
            self.usage.load, stalled=stalled([float(s["wall"]) for s in samples], INTERVAL_S)
        )
        found |= load.as_summary()
        found |= {f"cores.{node}": used for node, used in self.usage.cores.items()}
        found["late_s"] = max(one.late_s for one in sent.values())
        return found, spoiled(load, self._job.limits) or self._late(found["late_s"])

    def _late(self, late_s: float) -> str | None:
        """Return why the cell is spoiled if a driver began after the start of the measured time."""
        allowed = max(LATE_S, min(one.load.rampup_s for one in self._drives))
        if late_s <= allowed:
            return None
        return f"a driver began {late_s:.1f} s late (at most {allowed:g} s)"

    def _held(self, division: Division) -> float:
        """Return the cores of the proxies that serve the cell's tenants."""
        tenants = {one.load.objects.tenant for one in self._drives}
        together = division.layout == "default"
        return sum(
            share.proxy_cores
            for name, share in division.shares.items()
            if together or name in tenants
        )

    def _report(
        self, sent: Mapping[str, results.Sent], division: Division, pool: Pool
    ) -> dict[str, Any]:
        return {
            "series": {letter: one.as_json() for letter, one in sent.items()},
            "latencies": {letter: one.latencies() for letter, one in sent.items()},
            "division": asdict(division),
            "pool": {k: v for k, v in asdict(pool.total).items() if k != "proxy_workers"},
        }

    def _samples(self) -> list[dict[str, Any]]:
        payload = {"name": self._recording, "forget": True}
        answer = self._reached.agent.call("recorder-fetch", payload, timeout_s=120.0)
        samples: list[dict[str, Any]] = answer["samples"]
        lines = "".join(json.dumps(line) + "\n" for line in samples)
        (self._folder / LOGS / "recording.jsonl").write_text(lines)
        return samples

    def _controlled(self, report: dict[str, Any]) -> Numbers:
        journal = read_journal(self._folder / JOURNAL_FILE)
        report["held"] = results.held_of(journal.steps, self._start)
        told = controller_summary(journal)
        found = {"changes": told["actions"], "failed_changes": told["failed_actions"]}
        found["steps"] = told["steps"]
        for name in ("sense_s", "decide_s", "act_s"):
            for key in (name, f"{name}_max"):
                if key in told:
                    found[key] = told[key]
        return found
