"""`hotbed twochoice bench`: each scheduler writes through empty agents, with files or OSDs. Results
are kept as they come."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from campaigns.papers.twochoice.servers import Agents
from schemas.cells.twochoice import Scheduler
from schemas.durable import make_folder, write_file
from schemas.errors import HotbedError, UserError, not_allowed
from testbed.agent.contract import UnitResult
from testbed.sites.contract import Progress, Testbed
from testbed.spec import TestbedSpec

SCHEDULERS: tuple[str, ...] = get_args(Scheduler)
CHOICES = ("home+random", "random+random")
MOST_PROCESSES = 2**14
"""Maximum of client processes in the load generator (dataplane/internal/apps)."""
MAX_SIZE = 64 * 2**20
"""Bytes of the largest write (protocol.MaxData)."""
FOREVER = 1_000_000
"""Writes of a rank that continues until its time is over."""
PATIENCE_S = 60.0
"""Seconds that a client waits for an answer, because queues of a burst are long."""
GENERATE_S, BEYOND_S = 3600.0, 300.0


@dataclass(frozen=True)
class BenchOptions:
    """`nodes` compute nodes with `processes` client processes each, on the testbed's client nodes.
    A process does `writes` writes of `size` bytes, or writes for `duration_s` seconds."""

    schedulers: tuple[str, ...] = SCHEDULERS
    choices: str = "home+random"
    nodes: int = 8
    processes: int = 8
    size: int = 4 * 2**20
    writes: int | None = 4
    duration_s: float | None = None
    read: bool = True
    maintainers: bool = False
    seed: int = 1

    def check(self) -> None:
        """Raise UserError with one sentence if an option is invalid."""
        unknown = [name for name in self.schedulers if name not in SCHEDULERS]
        if unknown or not self.schedulers:
            raise not_allowed("--schedulers", ",".join(unknown), ", ".join(SCHEDULERS))
        if len(set(self.schedulers)) != len(self.schedulers):
            raise UserError("a scheduler is named twice", where="--schedulers")
        if self.choices not in CHOICES:
            raise not_allowed("--choices", self.choices, ", ".join(CHOICES))
        for name in ("nodes", "processes"):
            if not 1 <= getattr(self, name) <= 4096:
                raise not_allowed(f"--{name}", getattr(self, name), "1 to 4096")
        processes = self.nodes * self.processes
        if processes > MOST_PROCESSES:
            raise UserError(
                f"{self.nodes} nodes with {self.processes} processes each are {processes} client "
                "processes",
                where="--nodes, --processes",
                allowed=f"at most {MOST_PROCESSES}",
            )
        if not 0 <= self.seed < 2**32:
            raise not_allowed("--seed", self.seed, f"0 to {2**32 - 1}")
        if not 1 <= self.size <= MAX_SIZE:
            most = MAX_SIZE // 2**20
            raise UserError(
                f"{self.size} bytes are not allowed", where="--size", allowed=f"1 B to {most} MiB"
            )
        if (self.writes is None) == (self.duration_s is None):
            raise UserError("give either --writes or --duration")
        if self.writes is not None and not 1 <= self.writes <= FOREVER:
            raise not_allowed("--writes", self.writes, f"1 to {FOREVER}")
        if self.duration_s is not None and not 1 <= self.duration_s <= 86400:
            raise UserError(
                f"{self.duration_s:g} s are not allowed", where="--duration", allowed="1 s to 24 h"
            )

    def settings(self, scheduler: str) -> dict[str, Any]:
        """Return the cluster file's settings other than agents and key. Agents use them too,
        because their load detectors preassign only for some schedulers (section III.C)."""
        return {
            # Agents have no oracle, because an oracle probes no server.
            "scheduler": {
                "scheduler": "fixed" if scheduler == "oracle" else scheduler,
                "choices": self.choices,
            },
            "maintainer": {"off": not self.maintainers},
            "patience": PATIENCE_S,
        }

    def plans(self, scheduler: str, machines: int) -> list[dict[str, Any]]:
        """Return a plan of `twochoicebench apps` for each client machine. Every machine gets about
        equally many compute nodes, at least one."""
        nodes, more = divmod(self.nodes, machines)
        return [
            self._plan(scheduler, machine, max(1, nodes + (machine < more)))
            for machine in range(machines)
        ]

    def _plan(self, scheduler: str, machine: int, nodes: int) -> dict[str, Any]:
        """Return a machine's plan. With a duration, the writers are in the background, which ends
        with a foreground application: a single write of a byte at the end of the duration."""
        work: dict[str, Any] = {
            "name": f"{scheduler}-{machine}",
            "scheduler": scheduler,
            "writes": self.writes or 1,
            "size": self.size,
        }
        apps = [work]
        if self.duration_s is not None:
            work |= {"background": True, "repeat": True}
            end = {"name": f"end-{machine}", "scheduler": "fixed", "writes": 1, "size": 1}
            apps.append(end | {"nodes": 1, "start": self.duration_s})
        return {
            "nodes": nodes,
            "processes": self.processes,
            "seed": self.seed * 1000 + machine,
            "apps": apps,
            "verify": self.read,
            "verify_all": self.read,
            "patience": (self.duration_s or 0.0) + 1800.0,
        }


@dataclass(frozen=True)
class SchedulerResult:
    """Result of a scheduler, over all client machines. Times in seconds."""

    scheduler: str
    writes: int
    failed: int
    seconds: float
    bytes_per_s: float
    mean_s: float
    p50_s: float | None
    p99_s: float | None
    max_s: float
    slowest_rank_s: float
    redirected: int
    server_bytes: tuple[int, ...]
    verified: int | None
    bad: int | None
    read_home_s: float | None
    read_elsewhere_s: float | None


def joined(scheduler: str, reports: Sequence[Mapping[str, Any]]) -> SchedulerResult:
    """Return client machines' reports as one result.

    A percentile is the largest of any machine, because separate distributions do not give a common
    percentile. With one machine it is exact.
    """
    jobs = [report["apps"][0] for report in reports]
    writes = sum(job["writes"] for job in jobs)
    seconds = max(max(job["rank_seconds"], default=0.0) for job in jobs)
    checked = [report["verified"] for report in reports if report.get("verified")]

    def worst(key: str) -> float | None:
        found = [job["latency"][key] for job in jobs]
        return None if any(value is None for value in found) else max(found)

    def mean(of: Sequence[Mapping[str, Any]]) -> float | None:
        count = sum(spread["n"] for spread in of)
        return sum(s["n"] * s["mean"] for s in of) / count if count else None

    latencies = [job["latency"] for job in jobs]
    return SchedulerResult(
        scheduler=scheduler,
        writes=writes,
        failed=sum(job["failed"] for job in jobs),
        seconds=seconds,
        bytes_per_s=sum(job["bytes"] for job in jobs) / seconds if seconds > 0 else 0.0,
        mean_s=mean(latencies) or 0.0,
        p50_s=worst("p50"),
        p99_s=worst("p99"),
        max_s=max(spread["max"] for spread in latencies),
        slowest_rank_s=seconds,
        redirected=sum(job["redirected"] for job in jobs),
        server_bytes=tuple(
            sum(found) for found in zip(*(job["server_bytes"] for job in jobs), strict=True)
        ),
        verified=sum(one["objects"] for one in checked) if checked else None,
        bad=sum(len(one["bad"]) for one in checked) if checked else None,
        read_home_s=mean([one["home"] for one in checked]),
        read_elsewhere_s=mean([one["elsewhere"] for one in checked]),
    )


def answer(node: str, done: UnitResult) -> dict[str, Any]:
    """Return a load generator's report, also after failed writes or differing objects, which the
    report names. Raise HotbedError if there is none."""
    try:
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    except ValueError as error:
        why = done.reason("twochoicebench")
        raise HotbedError(f"the load generator on {node} failed: {why}") from error


def bench_testbed(testbed: Testbed, spec: TestbedSpec) -> Agents:
    """Return a testbed's agents for the bench. UserError: the testbed's spec has no agents."""
    from testbed.client import agent_client
    from testbed.reach import shell_to

    agent = agent_client(testbed)
    return Agents(testbed, spec, agent, lambda name: shell_to(testbed, testbed.node(name)))


@dataclass(frozen=True)
class BenchOutcome:
    """Result of `hotbed twochoice bench`. `folder` has the reports; `failed` has each failed
    scheduler with its reason."""

    testbed: str
    backend: str
    agents: int
    client_nodes: int
    options: BenchOptions
    rows: tuple[SchedulerResult, ...]
    failed: Mapping[str, str]
    folder: str

    @property
    def good(self) -> bool:
        """True if every scheduler ran, no write failed, and every object was read unchanged."""
        return not self.failed and all(not r.failed and not r.bad for r in self.rows)


def new_folder(out: Path | None) -> Path:
    """Create and return an empty folder: `out`, or one named by the time. UserError: `out` exists,
    or cannot be created."""
    path = out or Path("artifacts") / f"twochoice-bench-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    if path.exists():
        raise UserError(
            "the folder exists, and results are never overwritten",
            where=path,
            do="name another folder",
        )
    make_folder(path)
    return path


def refuse(machines: Agents, options: BenchOptions) -> None:
    """Raise if the options are impossible, before a folder is made or an agent emptied. UserError:
    an option is wrong, or does not fit the testbed."""
    options.check()
    clients = len(machines.clients)
    if clients > 1 and "oracle" in options.schedulers:
        raise UserError(
            f"the oracle must know all writes, and there are {clients} client nodes",
            where=f"testbed {machines.testbed.name}",
            do="leave oracle out of --schedulers",
        )


def run(machines: Agents, options: BenchOptions, folder: Path, progress: Progress) -> BenchOutcome:
    """Run every scheduler, one after another, each on empty agents. Each report is written at once,
    so that an interruption keeps finished results. Afterwards the agents have their deployed
    settings again, and are empty. UserError: the options do not fit the testbed. HotbedError:
    agents cannot be reached or do not start."""
    refuse(machines, options)
    _write(folder / "bench.json", _facts(machines, options))
    max_s = (options.duration_s or 0.0) + (GENERATE_S if options.writes else BEYOND_S)
    rows: list[SchedulerResult] = []
    failed: dict[str, str] = {}
    try:
        for place, scheduler in enumerate(options.schedulers):
            share = place / len(options.schedulers)
            progress(f"{scheduler}: emptying the agents", share)
            machines.clean(options.settings(scheduler))
            progress(f"{scheduler}: writing", share + 0.3 / len(options.schedulers))
            try:
                plans = options.plans(scheduler, len(machines.clients))
                done = machines.generate(["apps"], max_s=max_s, plans=plans)
                reports = [answer(node, one) for node, one in done.items()]
            except HotbedError as error:
                failed[scheduler] = str(error)
                continue
            _write(folder / f"{scheduler}.json", {"scheduler": scheduler, "reports": reports})
            rows.append(joined(scheduler, reports))
    finally:
        progress("bringing the deployed settings back", 0.99)
        with suppress(HotbedError):
            machines.restore()
    outcome = BenchOutcome(
        testbed=machines.testbed.name,
        backend=machines.backend,
        agents=sum(len(numbers) for numbers in machines.numbers.values()),
        client_nodes=len(machines.clients),
        options=options,
        rows=tuple(rows),
        failed=failed,
        folder=str(folder),
    )
    _write(folder / "result.json", asdict(outcome))
    progress("done", 1.0)
    return outcome


def _facts(machines: Agents, options: BenchOptions) -> dict[str, Any]:
    """Return the facts about the results: testbed, agents, options and versions."""
    facts: dict[str, Any] = {}
    with suppress(HotbedError):
        facts = dict(machines.agent.call("versions", {}, timeout_s=60.0))
    return {
        "began": datetime.now(UTC).isoformat(),
        "testbed": machines.testbed.name,
        "site": machines.testbed.site,
        "spec_hash": machines.testbed.spec_hash,
        "backend": machines.backend,
        "agents": {node: list(numbers) for node, numbers in machines.numbers.items()},
        "clients": [node.name for node in machines.clients],
        "options": asdict(options),
        "versions": facts,
    }


def _write(path: Path, data: object) -> None:
    write_file(path, json.dumps(data, indent=1) + "\n")
