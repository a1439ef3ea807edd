"""Cells on real object servers: the load generator's plans and arguments
(docs/twochoice.md), the steps of a cell, and the numbers of its summary."""

from __future__ import annotations

import json
import os
import random
import statistics
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from campaigns.engine.job import JOURNAL_FILE, Job, Phases
from campaigns.engine.judge import spoiled
from campaigns.engine.write_cell import write_cell
from campaigns.grounds.live import ticks
from campaigns.papers.twochoice.servers import STRAGGLER_FILE, ObjectServers, Stats
from schemas.cells.twochoice import (
    KIB,
    OBJECTS,
    PLAIN,
    Balance,
    ConcurrentProbes,
    Delay,
    Jobs,
    MeasuredBurst,
    ObjectCell,
    ProbeTime,
    RedirectTable,
)
from schemas.errors import HotbedError, UserError
from schemas.run import Run
from testbed.agent.steady import SteadyClock
from testbed.sites.contract import AwakeSite, Site
from testbed.spec import CephSpec
from workloads.burst_applications import BurstCluster, applications

MEASURED = "measured"
"""Name of the measured job of a burst."""
WHOLE_S = 1800.0
"""Limit of the seconds of a cell's applications."""
PATIENCE_S = 600.0
"""Seconds that a client waits for an answer. Queues of a burst are long, and retries make them
longer."""
EXPECTED_S = 20.0
"""Seconds that a server expects requested data: two processors need them to carry 512 processes'
writes. Data that is forgotten earlier is neither counted nor learned from."""
CEPH = {
    "conf": "/etc/ceph/ceph.conf",
    "keyring": "/etc/ceph/ceph.client.admin.keyring",
    "user": "admin",
}
"""Access of a client node to its Ceph (role ceph)."""
WRITE_RATE = 50e6
"""Bytes per second between a compute node and a storage node on the paper's machine (VI.A)."""
TABLE_SAMPLES = 50
TABLE_WRITERS = 8
REPORT_FILE = "objects.json"
PROBE_S = 600.0
GENERATE_S = WHOLE_S + 120.0
"""Limit of the load generator, which ends by itself after `WHOLE_S` with a reason."""
SHOWN = ("name", "scheduler", "background", "ranks", "rank_seconds", "server_bytes", "home_bytes")
"""Values of each job that figures need."""

Numbers = dict[str, float]
STEPS = ("probe", "put", "register")
EVERY_S = 2.0
STAT = Path("/proc/stat")
_IDLE = (3, 4)  # idle, and waiting for input or output
_TICKS_S = os.sysconf("SC_CLK_TCK")
MOST_BUSY = 0.9
"""Share of processor time above which a run measures the machine, not the disks."""


# ---- Plans and arguments of the load generator ----


def settings(parameters: ObjectCell) -> dict[str, Any]:
    """Return the cluster file's settings for a cell, other than agents and key (for agents too)."""
    # Agents have no oracle, because an oracle probes no server, and see no writes that bypass them.
    usual = MeasuredBurst(experiment="burst", maintainers=not isinstance(parameters, RedirectTable))
    jobs = parameters if isinstance(parameters, Jobs) else usual
    unknown = jobs.scheduler in (*PLAIN, "oracle")
    return {
        "copies": jobs.copies,
        "scheduler": {
            "scheduler": "fixed" if unknown else jobs.scheduler,
            "choices": jobs.choices,
            "cache_lifetime": jobs.cache_s,
            "preassign": {
                "unit": parameters.size,
                "prior": 0.5,
                "weight": 1,
                "lifetime": EXPECTED_S,
            },
        },
        "maintainer": {"off": not jobs.maintainers},
        "patience": PATIENCE_S,
        "attempts": 3,
    }


def jobs_plan(parameters: Jobs, seed: int, servers: int, pool: str | None = None) -> dict[str, Any]:
    """Return the plan of a burst or a balance: the same jobs on the same nodes and files for every
    scheduler of a block.

    Args:
        parameters: the cell's parameters.
        seed: the block's seed.
        servers: number of servers.
        pool: pool for writes that CRUSH places.
    """
    cluster = BurstCluster(parameters.nodes, parameters.processes, servers)
    found: list[dict[str, Any]] = []
    balance = isinstance(parameters, Balance)
    if parameters.table2:
        found += applications(
            cluster,
            seed,
            size=parameters.size,
            volume=parameters.volume,
            think_s=parameters.think_s,
            scheduler=parameters.scheduler if balance else "fixed",
            background=not balance,
        )
    plain = parameters.scheduler in PLAIN
    if isinstance(parameters, MeasuredBurst):
        found.append(
            {
                "name": f"{MEASURED}-{random.Random(f'start {seed}').getrandbits(32):08x}",
                **({"pool": pool} if plain else {"scheduler": parameters.scheduler}),
                "writes": parameters.writes,
                "size": parameters.size,
                "start": parameters.lead_s,
            }
        )
    return ({"ceph": CEPH} if plain else {}) | {
        "nodes": parameters.nodes,
        "processes": parameters.processes,
        "seed": seed,
        "apps": found,
        "verify": True,
        "patience": WHOLE_S,
    }


def stragglers(parameters: Jobs, seed: int, servers: int) -> tuple[int, ...]:
    """Return the servers with fio on their disks, the same for every scheduler of a block."""
    if not isinstance(parameters, MeasuredBurst) or parameters.stragglers != "fio":
        return ()
    count = max(1, round(parameters.straggler_share * servers))
    return tuple(sorted(random.Random(f"stragglers {seed}").sample(range(servers), count)))


def fio_command(folder: str, seconds: float) -> list[str]:
    """Return the fio command for a server's disk, in parallel with the server. Eight writes of 64
    KiB are always in flight, so that each of the server's disk requests waits for eight others."""
    return [
        *("fio", "--name=straggler", f"--filename={folder}/{STRAGGLER_FILE}", "--rw=write"),
        "--bs=64k",
        *("--iodepth=8", "--ioengine=libaio", "--direct=1", "--size=128m", "--time_based"),
        *(f"--runtime={seconds:.0f}", "--output-format=json"),
    ]


def probe_arguments(parameters: ConcurrentProbes) -> list[str]:
    """Return figure 11's arguments: every scheduler probes the servers for `pending` writes."""
    return [
        *("probe", "--servers", str(2 * parameters.pending)),
        *("--schedulers", str(parameters.schedulers_at_once), "--times", str(parameters.probes)),
        *("--size", f"{parameters.size}B"),
    ]


def table_arguments(parameters: RedirectTable, seed: int) -> list[str]:
    """Return figure 12's arguments."""
    return [
        *("table", "--writers", str(TABLE_WRITERS), "--writes", str(parameters.operations)),
        *("--samples", str(min(TABLE_SAMPLES, parameters.operations)), "--seed", str(seed)),
        *("--object", f"{parameters.object_kib * KIB}B"),
    ]


def delay_plan(parameters: Delay, seed: int) -> Mapping[str, Any]:
    """Return Table I's plan: `pending` writes at a time of one compute node, unscheduled."""
    app = {
        "name": f"delay-{seed}",
        "scheduler": "fixed",
        "writes": parameters.rounds,
        "size": parameters.size,
    }
    return {
        "nodes": 1,
        "processes": parameters.pending,
        "seed": seed,
        "apps": [app],
        "patience": WHOLE_S,
    }


# ---- Steps of a cell ----


class ObjectCells:
    """Maker of cells on a testbed's object servers."""

    def __init__(self, servers: ObjectServers) -> None:
        self._servers = servers
        self._live = servers.live

    def make(self, job: Job, folder: Path) -> Run:
        """Run a cell and write its files into `folder`, `run.json` last. UserError: the testbed
        lacks something that the cell needs. HotbedError: a node, a server, a write or a read
        failed."""
        parameters = OBJECTS.check(job.parameters, f"run {job.run_id}")
        self._refuse(parameters)
        phases = Phases()
        with phases("clean"):
            self._servers.clean(settings(parameters))
        meter = self._live.meter(self._servers.client, core_speed=True)
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
            answer = self._servers.bench(probe_arguments(parameters), max_s=PROBE_S)
            return numbers_of_probes(answer), answer
        if isinstance(parameters, RedirectTable):
            arguments = table_arguments(parameters, seed)
            answer = self._servers.bench(arguments, max_s=GENERATE_S)
            return numbers_of_table(answer), answer
        if isinstance(parameters, Delay):
            probed = self._servers.bench(probe_arguments(parameters), max_s=PROBE_S)
            plan = delay_plan(parameters, seed)
            report = self._servers.bench(["apps"], max_s=GENERATE_S, plan=plan)
            return numbers_of_delay(parameters, probed, report), {"probed": probed}
        assert isinstance(parameters, Jobs)
        return self._applications(parameters, seed, folder)

    def _applications(
        self, parameters: Jobs, seed: int, folder: Path
    ) -> tuple[Numbers, Mapping[str, Any]]:
        servers = self._servers.servers
        slowed = stragglers(parameters, seed, len(servers))
        commands = [fio_command(servers[n].folder, GENERATE_S) for n in slowed]
        watch = LoadWatch(self._servers.disk_counters, partial(awake_s, self._live.site))
        with ExitStack() as stack:
            stack.enter_context(self._servers.disturbed(slowed, commands))
            stack.enter_context(watch.watching())
            if isinstance(parameters, MeasuredBurst) and parameters.scheduler == "dlr":
                controller = self._live.controller(
                    "dlr", interval_s=parameters.interval_s, journal=folder / JOURNAL_FILE
                )
                stack.enter_context(controller)
            plan = jobs_plan(parameters, seed, len(servers), self._servers.pool)
            report = self._servers.bench(["apps"], max_s=GENERATE_S, plan=plan)
        found = numbers_of_apps(report, slowed)
        lead_s = parameters.lead_s
        found |= watch.numbers(report["began"] + lead_s, report["seconds"] - lead_s)
        shown = {
            "apps": [{name: app[name] for name in SHOWN} for app in report["apps"]],
            "slowed": list(slowed),
            "steps": report["steps"],
            "verified": report.get("verified"),
        }
        return found, shown


# ---- Numbers of a run's summary ----


def numbers_of_apps(report: Mapping[str, Any], slowed: Sequence[int] = ()) -> dict[str, float]:
    """Return the numbers of a burst, or of all jobs of a balance, which has no measured job.

    ``seconds`` is the end of the slowest process, ``process_*`` are of all processes (figure 14).
    ``fullest`` and ``emptiest`` are the most and the least of any server relative to an even share;
    ``spread`` is its deviation over servers (figure 13). ``home_*`` are the same with every write
    at home. ``slowed_share`` is the share of the servers in `slowed` relative to an even share. The
    places of writes by CRUSH are unknown. Times in seconds.
    """
    apps = [app for app in report["apps"] if app["name"].startswith(f"{MEASURED}-")]
    found = of_jobs(apps or report["apps"], slowed)
    if apps:
        background = [app for app in report["apps"] if app not in apps]
        found["background_bytes"] = float(sum(app["bytes"] for app in background))
        found["background_writes"] = float(sum(app["writes"] for app in background))
    found["client_processes"] = float(report["processes"])
    for step in STEPS:
        spread = report["steps"].get(step, {"n": 0})
        if spread["n"]:
            found[f"{step}_mean_s"] = spread["mean"]
            found[f"{step}_max_s"] = spread["max"]
    found |= _scheduled(report, apps or report["apps"])
    return found | _verified(report.get("verified"))


def of_jobs(apps: Sequence[Mapping[str, Any]], slowed: Sequence[int] = ()) -> dict[str, float]:
    """Return the numbers of some jobs together."""
    ends = [second for app in apps for second in app["rank_seconds"]]
    written = [sum(column) for column in zip(*(app["server_bytes"] for app in apps), strict=True)]
    at_home = [sum(column) for column in zip(*(app["home_bytes"] for app in apps), strict=True)]
    writes = sum(app["writes"] for app in apps)
    total = sum(app["bytes"] for app in apps)
    ordered = sorted(ends)
    found = {
        "seconds": ordered[-1],
        "process_mean_s": statistics.fmean(ordered),
        "process_p10_s": ordered[len(ordered) // 10],
        "process_p50_s": ordered[len(ordered) // 2],
        "process_p90_s": ordered[int(0.9 * len(ordered))],
        "first_s": ordered[0],
        "writes": float(writes),
        "bytes": float(total),
        "redirected_share": sum(app["redirected"] for app in apps) / writes,
        "bytes_s": total / ordered[-1],
        "write_mean_s": sum(app["latency"]["mean"] * app["latency"]["n"] for app in apps) / writes,
        "write_max_s": max(app["latency"]["max"] for app in apps),
    }
    if not written:
        return found
    for prefix, values in (("", written), ("home_", at_home)):
        mean = statistics.fmean(values)
        found[f"{prefix}fullest"] = max(values) / mean
        found[f"{prefix}emptiest"] = min(values) / mean
        found[f"{prefix}spread"] = statistics.pstdev(values) / mean
    if slowed:
        mean = statistics.fmean(written)
        found["slowed_share"] = statistics.fmean(written[place] for place in slowed) / mean
    return found


def _scheduled(report: Mapping[str, Any], apps: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the schedulers' probes for these jobs; fixed placement and CRUSH have none."""
    names = {app["scheduler"] for app in apps} & set(report["schedulers"])
    counts = [report["schedulers"][name] for name in names]
    if not counts:
        return {"probes_per_write": 0.0}
    writes = sum(one["Writes"] for one in counts)
    return {
        "probes_per_write": sum(one["Probes"] for one in counts) / max(1, writes),
        "unanswered": float(sum(one["Unanswered"] for one in counts)),
        "blind": float(sum(one["Blind"] for one in counts)),
    }


def _verified(verified: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the number of reads that follow redirects, and the seconds of querying the home."""
    if verified is None:
        return {}
    found = {
        "read_back": float(verified["objects"]),
        "read_redirected": float(verified["redirected"]),
        "read_bad": float(len(verified["bad"])),
    }
    for name in ("query", "home", "elsewhere"):
        if verified[name]["n"]:
            found[f"read_{name}_mean_s"] = verified[name]["mean"]
    if verified["query"]["p99"] is not None:
        found["read_query_p99_s"] = verified["query"]["p99"]
    return found


def numbers_of_probes(answer: Mapping[str, Any]) -> dict[str, float]:
    """Return figure 11's numbers: of each probing, the slowest answer counts."""
    found = {
        "probe_mean_s": answer["mean_seconds"],
        "probes": float(answer["probes"]),
        "lost": float(answer["lost"]),
    }
    for name in ("p50", "p99"):
        if answer[f"{name}_seconds"] is not None:
            found[f"probe_{name}_s"] = answer[f"{name}_seconds"]
    return found


def numbers_of_table(answer: Mapping[str, Any]) -> dict[str, float]:
    """Return figure 12's numbers: the table's length, and a client's seconds for requests to it."""
    rows = answer["rows"]
    half = rows[len(rows) // 2 :]
    found = {
        "creates": float(answer["creates"]),
        "queries": float(answer["queries"]),
        "entries_last": float(rows[-1]["entries"]),
        "entries_most": float(max(row["entries"] for row in rows)),
        "entries_mean": statistics.fmean(row["entries"] for row in half),
        "create_mean_s": _mean(rows, "creates", "create_seconds"),
        "query_mean_s": _mean(rows, "queries", "query_seconds"),
        "create_max_s": answer["create_max_seconds"],
        "query_max_s": answer["query_max_seconds"],
    }
    for name in ("create", "query"):
        if answer[f"{name}_p99_seconds"] is not None:
            found[f"{name}_p99_s"] = answer[f"{name}_p99_seconds"]
    return found


def _mean(rows: Sequence[Mapping[str, Any]], count: str, value: str) -> float:
    total = float(sum(row[count] for row in rows))
    return float(sum(row[count] * row[value] for row in rows)) / max(1.0, total)


def numbers_of_delay(
    parameters: Delay, probed: Mapping[str, Any], report: Mapping[str, Any]
) -> dict[str, float]:
    """Return Table I's numbers. The delay is the time of probing for `pending` writes as a share of
    the time that the writes take one after another at `WRITE_RATE`: the paper computes 6 % from 10
    ms for four writes of 2 MB."""
    return {
        **numbers_of_probes(probed),
        "write_mean_s": report["apps"][0]["latency"]["mean"],
        "delay": probed["mean_seconds"] * WRITE_RATE / (parameters.pending * parameters.size),
    }


# Load of disks and processors while applications write, from counters read repeatedly. All nodes of
# a local testbed share the processors. The disks, not the processors, must be the bottleneck.


@dataclass(frozen=True)
class LoadCounters:
    """Counters at a time, in seconds since the epoch: of the disks by server, of the processors,
    and the seconds spent on keeping processors awake."""

    at: float
    disks: Mapping[int, Stats]
    processors: tuple[int, ...]
    awake_s: float = 0.0


class LoadWatch:
    """Reader of counters in the block of `watching`: every `every_s`, and once at its end.

    Args:
        read: returns the disks' counters by server. It returns nothing if the site cannot report
            them; then the nodes' processors are not this machine's either.
        awake_s: returns the seconds spent so far on keeping the processors awake.
        every_s: seconds between readings.
    """

    def __init__(
        self,
        read: Callable[[], Mapping[int, Stats]],
        awake_s: Callable[[], float] = lambda: 0.0,
        *,
        every_s: float = EVERY_S,
    ) -> None:
        self._read, self._awake_s, self._every_s = read, awake_s, every_s
        self._over, self._clock = threading.Event(), SteadyClock()
        self.samples: list[LoadCounters] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Read counters during the block."""
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _watch(self) -> None:
        while True:
            over = self._over.wait(self._every_s if self.samples else 0.0)
            try:
                found = self._read()
            except HotbedError:  # the cell reports the lost node
                return
            if not found:
                return
            processors = tuple(ticks(STAT.read_text()) or ())
            self.samples.append(LoadCounters(self._clock(), found, processors, self._awake_s()))
            if over:
                return

    def numbers(self, began: float, seconds: float) -> dict[str, float]:
        """Return busy shares of the time: mean, least and most of the disks over servers, and the
        machine's processors. They are between the readings nearest to beginning and end. Also
        return the disks' mean overshoot at the end, in seconds. Empty without two readings.
        `began`: seconds since the epoch. `seconds`: length of the time."""
        if len(self.samples) < 2:
            return {}
        first, last = self._nearest(began), self._nearest(began + seconds)
        took = last.at - first.at
        if took <= 0:
            return {}
        busy = [
            (_number(last.disks[n], "busy_s") - _number(first.disks[n], "busy_s")) / took
            for n in first.disks
        ]
        return {
            "disk_busy_mean": statistics.fmean(busy),
            "disk_busy_least": min(busy),
            "disk_busy_most": max(busy),
            "disk_late_mean_s": statistics.fmean(
                _number(stats, "overshoot_mean_s") for stats in last.disks.values()
            ),
            "processors_busy": busy_between(
                first.processors, last.processors, last.awake_s - first.awake_s
            ),
        }

    def _nearest(self, at: float) -> LoadCounters:
        return min(self.samples, key=lambda sample: abs(sample.at - at))


def _number(stats: Stats, name: str) -> float:
    return float(str(stats.get(name, 0.0)))


def awake_s(site: Site) -> float:
    """Return the processor time, in seconds, spent so far on keeping the site's machine awake."""
    return site.awake_s() if isinstance(site, AwakeSite) else 0.0


def busy_between(before: Sequence[int], after: Sequence[int], awake_s: float = 0.0) -> float:
    """Return the share of the time, 0 to 1, in which the processors worked.

    Args:
        before: ticks at the beginning.
        after: ticks at the end.
        awake_s: seconds spent on keeping processors awake; they count as idle, because that work
            yields to all other work.
    """
    delta = [b - a for a, b in zip(before, after, strict=True)]
    if sum(delta) <= 0:
        return 0.0
    idle = sum(delta[place] for place in _IDLE) + awake_s * _TICKS_S
    return max(0.0, 1.0 - idle / sum(delta))


def too_busy(busy: float | None) -> str | None:
    """Return why a run that must be limited by the disks does not count; None if it counts or the
    load is unknown."""
    if busy is None or busy <= MOST_BUSY:
        return None
    return (
        f"the machine's processors were busy for {100 * busy:.0f} % of the time (at most "
        f"{100 * MOST_BUSY:g} %): they were short, and not the disks"
    )
