"""One cell on real object servers, from its parameters to the files of its run folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from campaigns.engine.job import JOURNAL_FILE, Job, Phases
from campaigns.engine.judge import spoiled
from campaigns.engine.write_cell import write_cell
from campaigns.papers.twochoice.live import plans, results
from campaigns.papers.twochoice.live.results import LoadWatch, awake_s, too_busy
from campaigns.papers.twochoice.live.servers import ObjectServers
from schemas.cells.twochoice import (
    OBJECTS,
    PLAIN,
    ConcurrentProbes,
    Delay,
    Jobs,
    MeasuredBurst,
    ObjectCell,
    ProbeTime,
    RedirectTable,
)
from schemas.errors import UserError
from schemas.run import Run
from testbed.spec import CephSpec

REPORT_FILE = "objects.json"
PROBE_S = 600.0
GENERATE_S = plans.WHOLE_S + 120.0
"""Limit of the load generator, which ends by itself after `plans.WHOLE_S` with a reason."""
SHOWN = ("name", "scheduler", "background", "ranks", "rank_seconds", "server_bytes", "home_bytes")
"""Values of each job that figures need."""

Numbers = dict[str, float]


class ObjectCells:
    """Maker of cells on a testbed's object servers."""

    def __init__(self, servers: ObjectServers) -> None:
        self._servers = servers
        self._live = servers.live

    def make(self, job: Job, folder: Path) -> Run:
        """Run a cell and write its files into `folder`, `run.json` last.

        Raises:
            UserError: the testbed lacks something that the cell needs.
            HotbedError: a node, a server, a write or a read failed.
        """
        parameters = OBJECTS.check(job.parameters, f"run {job.run_id}")
        self._refuse(parameters)
        phases = Phases()
        with phases("clean"):
            self._servers.clean(plans.settings(parameters))
        meter = self._live.meter(self._servers.client)
        with phases("workload"), meter.measured():
            found, shown = self._carry_out(parameters, job.seed, folder)
        with phases("collect"):
            (folder / REPORT_FILE).write_text(json.dumps(shown) + "\n")
            load = meter.load
            found |= load.numbers()
            if isinstance(parameters, ProbeTime):
                # Schedulers that probe again at once must be busy, because that is measured.
                load = replace(load, client_share=None)
            why = spoiled(load, job.limits) or too_busy(found.get("processors_busy"))
        return write_cell(folder, job, found, phases, spoiled=why, settings=load.settings)

    def _refuse(self, parameters: ObjectCell) -> None:
        have, name = len(self._servers.servers), self._live.name
        if parameters.backend != self._servers.backend:
            raise UserError(
                f"the servers of testbed {name} have the backend {self._servers.backend}, and the "
                f"cell has {parameters.backend}",
                where=parameters.label(),
                do="name the cells' spec, or set backend in the campaign's parameters",
            )
        if isinstance(parameters, Jobs) and parameters.scheduler in PLAIN:
            self._refuse_pool(parameters)
        if isinstance(parameters, ConcurrentProbes) and 2 * parameters.pending > have:
            raise UserError(
                f"it needs {2 * parameters.pending} servers, and testbed {name} has {have}",
                where=parameters.label(),
            )

    def _refuse_pool(self, parameters: Jobs) -> None:
        """Raise unless there is a pool with the cell's copies, as a fair comparison needs it."""
        store = self._live.spec.store
        size = store.pools[0].size if isinstance(store, CephSpec) and store.pools else None
        if size != parameters.copies:
            has = "no pool" if size is None else f"a first pool of size {size}"
            raise UserError(
                f"it needs a pool of size {parameters.copies}, and the spec of testbed "
                f"{self._live.name} has {has}",
                where=parameters.label(),
                do="set copies to the pool's size, or change the pool",
            )

    def _carry_out(
        self, parameters: ObjectCell, seed: int, folder: Path
    ) -> tuple[Numbers, Mapping[str, Any]]:
        if isinstance(parameters, ProbeTime):
            answer = self._servers.bench(plans.probe_arguments(parameters), max_s=PROBE_S)
            return results.numbers_of_probes(answer), answer
        if isinstance(parameters, RedirectTable):
            arguments = plans.table_arguments(parameters, seed)
            answer = self._servers.bench(arguments, max_s=GENERATE_S)
            return results.numbers_of_table(answer), answer
        if isinstance(parameters, Delay):
            return self._delay(parameters, seed)
        assert isinstance(parameters, Jobs)
        return self._applications(parameters, seed, folder)

    def _delay(self, parameters: Delay, seed: int) -> tuple[Numbers, Mapping[str, Any]]:
        probed = self._servers.bench(plans.probe_arguments(parameters), max_s=PROBE_S)
        plan = plans.delay_plan(parameters, seed)
        report = self._servers.bench(["apps"], max_s=GENERATE_S, plan=plan)
        return results.numbers_of_delay(probed, report), {"probed": probed}

    def _applications(
        self, parameters: Jobs, seed: int, folder: Path
    ) -> tuple[Numbers, Mapping[str, Any]]:
        servers = self._servers.servers
        slowed = plans.stragglers(parameters, seed, len(servers))
        commands = [plans.fio_command(servers[n].folder, GENERATE_S) for n in slowed]
        watch = LoadWatch(self._servers.disk_counters, partial(awake_s, self._live.site))
        with ExitStack() as stack:
            stack.enter_context(self._servers.disturbed(slowed, commands))
            stack.enter_context(watch.watching())
            if isinstance(parameters, MeasuredBurst) and parameters.scheduler == "dlr":
                controller = self._live.controller(
                    "dlr", interval_s=parameters.interval_s, journal=folder / JOURNAL_FILE
                )
                stack.enter_context(controller)
            plan = plans.plan(parameters, seed, len(servers), self._servers.pool)
            report = self._servers.bench(["apps"], max_s=GENERATE_S, plan=plan)
        found = results.numbers_of_apps(report, slowed)
        lead_s = parameters.lead_s
        found |= watch.numbers(report["began"] + lead_s, report["seconds"] - lead_s)
        shown = {
            "apps": [{name: app[name] for name in SHOWN} for app in report["apps"]],
            "slowed": list(slowed),
            "steps": report["steps"],
            "verified": report.get("verified"),
        }
        return found, shown
