"""`hotbed twochoice bench`: each scheduler writes through empty agents, with files or OSDs. Results
are kept as they come."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, get_args

from campaigns.grounds.live import at_once
from campaigns.papers.twochoice.servers import (
    BENCH,
    CLUSTER_FILE,
    KEY_FILE,
    SERVES_S,
    reason_of,
)
from schemas.cells.twochoice import Scheduler
from schemas.durable import make_folder, write_file
from schemas.errors import HotbedError, UserError, not_allowed
from testbed.agent.contract import UnitResult
from testbed.deploy import twochoice_variables
from testbed.sites.contract import Node, Progress, Testbed
from testbed.spec import CephSpec, ObjectsSpec, TestbedSpec, TwoChoiceSpec
from testbed.ssh import Shell

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
GENERATE_S, SLACK_S = 3600.0, 300.0

PLAN_FILE = "/var/lib/hotbed/twochoice-bench.json"
UNIT = "load-twochoice"


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

    def settings(self, scheduler: str, copies: int) -> dict[str, Any]:
        """Return the cluster file's settings other than agents and key. Agents use them too,
        because their load detectors preassign only for some schedulers (section III.C)."""
        return {
            "copies": copies,
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


@dataclass(frozen=True)
class BenchTestbed:
    """A deployed testbed with agents.

    `call` calls a verb of the node agent; `start`, `wait` and `stop` are for a unit on a node.
    """

    testbed: Testbed
    store: CephSpec | ObjectsSpec
    shell_to: Callable[[str], Shell]
    call: Callable[[str, Mapping[str, Any], float], Any]
    start: Callable[[str, str, Sequence[str], float], None]
    wait: Callable[[str, str, float], UnitResult]
    stop: Callable[[str, str], object]

    @property
    def clients(self) -> tuple[Node, ...]:
        """Nodes with client processes."""
        return self.testbed.with_role("client")

    @property
    def agents(self) -> dict[str, tuple[int, ...]]:
        """The agents' numbers by node."""
        return twochoice_variables.agents(self.testbed, self.store)

    @property
    def asked(self) -> TwoChoiceSpec:
        """The agents as the testbed's spec asks for them."""
        spec = twochoice_variables.asked(self.store)
        assert spec is not None
        return spec

    @property
    def backend(self) -> str:
        """Place of the agents' bytes: ``file`` or ``rados``."""
        return "rados" if self.store.kind == "ceph" else "file"

    def fresh(self, settings: Mapping[str, Any]) -> None:
        """Empty all agents, clean up earlier runs, and start the agents with `settings`.

        Raises:
            HotbedError: a node cannot be reached, or an agent does not start.
        """
        nodes = tuple(self.agents)
        self._everywhere(nodes, ["systemctl", "stop", "hotbed-twochoice@*.service"])
        if isinstance(self.store, CephSpec):
            osds = [number for numbers in self.agents.values() for number in numbers]
            payload = {"prefix": twochoice_variables.POOL_PREFIX, "osds": osds}
            self.call("pinned-empty", payload, SERVES_S)
        else:
            for node, numbers in self.agents.items():
                paths = twochoice_variables.folders(self.testbed.node(node), numbers)
                folders = " ".join(f"'{path}'" for path in paths)
                script = f'for f in {folders}; do rm -rf "$f"/*; done; sync'
                self.shell_to(node).run(["sh", "-c", script], timeout_s=SERVES_S)
        peers = twochoice_variables.peers(self.testbed, self.store, self.asked.port)
        document = {"agents": peers, "key_file": KEY_FILE, **settings}
        text = twochoice_variables.cluster_text(document)
        names = dict.fromkeys([*nodes, *(node.name for node in self.clients)])
        at_once(*(partial(self.shell_to(name).put, text, CLUSTER_FILE) for name in names))
        self._everywhere(nodes, ["systemctl", "start", "hotbed-twochoice.target"])
        self.status(SERVES_S)

    def restore(self) -> None:
        """Restore the deployed settings, and empty the agents."""
        self.fresh(twochoice_variables.variables_of(self.testbed, self.store)["twochoice_settings"])

    def status(self, wait_s: float = 0.0) -> list[dict[str, Any]]:
        """Return every agent's status. Raise HotbedError if one does not answer within `wait_s`."""
        argv = [BENCH, "status", "--cluster", CLUSTER_FILE, "--wait", f"{wait_s:g}s"]
        done = self.shell_to(self.clients[0].name).run(argv, check=False, timeout_s=wait_s + 60)
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
            raise HotbedError(said[-1].removeprefix("twochoicebench: "))
        found: list[dict[str, Any]] = json.loads(done.text)["agents"]
        return found

    def generate(self, plans: Sequence[Mapping[str, Any]], max_s: float) -> list[dict[str, Any]]:
        """Run a plan on each client node, all at the same time, and return the reports.

        The starts differ by at most the time for an ssh connection. An interruption stops all.

        Raises:
            HotbedError: a load generator failed, with its own message.
        """
        with self._running(plans, max_s) as nodes:
            end = time.monotonic() + max_s
            return [
                answer(node, self.wait(node, UNIT, max(1.0, end - time.monotonic())))
                for node in nodes
            ]

    @contextmanager
    def _running(self, plans: Sequence[Mapping[str, Any]], max_s: float) -> Iterator[list[str]]:
        nodes = [node.name for node in self.clients]
        argv = [BENCH, "apps", "--cluster", CLUSTER_FILE, "--plan", PLAN_FILE]
        for node, plan in zip(nodes, plans, strict=True):
            self.shell_to(node).run(["mkdir", "-p", str(Path(PLAN_FILE).parent)])
            self.shell_to(node).put(json.dumps(plan).encode(), PLAN_FILE)
        started: list[str] = []
        try:
            for node in nodes:
                self.start(node, UNIT, argv, max_s)
                started.append(node)
            yield nodes
        finally:
            for node in started:
                self.stop(node, UNIT)
                self.shell_to(node).run(["rm", "-f", PLAN_FILE])

    def _everywhere(self, nodes: Sequence[str], argv: Sequence[str]) -> None:
        at_once(*(partial(self.shell_to(node).run, argv, timeout_s=SERVES_S) for node in nodes))


def answer(node: str, done: UnitResult) -> dict[str, Any]:
    """Return a load generator's report, also after failed writes or differing objects, which the
    report names. Raise HotbedError if there is none."""
    try:
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    except ValueError as error:
        raise HotbedError(f"the load generator on {node} failed: {reason_of(done)}") from error


def bench_testbed(testbed: Testbed, spec: TestbedSpec) -> BenchTestbed:
    """Return a testbed for the bench.

    Raises:
        UserError: the testbed's spec has no agents.
    """
    from testbed.client import agent_client
    from testbed.reach import shell_to

    store = spec.store
    if not isinstance(store, (CephSpec, ObjectsSpec)) or twochoice_variables.asked(store) is None:
        raise UserError(
            "no agents of the two-choice scheduler",
            where=f"testbed {testbed.name}",
            do="bring up a spec with them, such as testbed/specs/twochoice-rados.yaml",
        )
    agent = agent_client(testbed)
    return BenchTestbed(
        testbed=testbed,
        store=store,
        shell_to=lambda name: shell_to(testbed, testbed.node(name)),
        call=lambda verb, payload, timeout_s: agent.call(verb, payload, timeout_s=timeout_s),
        start=lambda node, unit, argv, max_s: agent.unit_start(node, unit, argv, max_s=max_s),
        wait=lambda node, unit, timeout_s: agent.unit_wait(node, unit, timeout_s=timeout_s),
        stop=agent.unit_stop,
    )


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
    """Create and return an empty folder: `out`, or one named by the time.

    Raises:
        UserError: `out` exists, or cannot be created.
    """
    path = out or Path("artifacts") / f"twochoice-bench-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    if path.exists():
        raise UserError(
            "the folder exists, and results are never overwritten",
            where=path,
            do="name another folder",
        )
    make_folder(path)
    return path


def refuse(machines: BenchTestbed, options: BenchOptions) -> None:
    """Raise if the options are impossible, before a folder is made or an agent emptied.

    Raises:
        UserError: an option is wrong, or does not fit the testbed.
    """
    options.check()
    clients = len(machines.clients)
    if clients > 1 and "oracle" in options.schedulers:
        raise UserError(
            f"the oracle must know all writes, and there are {clients} client nodes",
            where=f"testbed {machines.testbed.name}",
            do="leave oracle out of --schedulers",
        )


def run(
    machines: BenchTestbed, options: BenchOptions, folder: Path, progress: Progress
) -> BenchOutcome:
    """Run every scheduler, one after another, each on empty agents.

    Each report is written at once, so that an interruption keeps finished results. Afterwards the
    agents have their deployed settings again, and are empty.

    Raises:
        UserError: the options do not fit the testbed.
        HotbedError: agents cannot be reached or do not start.
    """
    refuse(machines, options)
    _write(folder / "bench.json", _facts(machines, options))
    max_s = (options.duration_s or 0.0) + (GENERATE_S if options.writes else SLACK_S)
    rows: list[SchedulerResult] = []
    failed: dict[str, str] = {}
    try:
        for place, scheduler in enumerate(options.schedulers):
            share = place / len(options.schedulers)
            progress(f"{scheduler}: emptying the agents", share)
            machines.fresh(options.settings(scheduler, machines.asked.copies))
            progress(f"{scheduler}: writing", share + 0.3 / len(options.schedulers))
            try:
                plans = options.plans(scheduler, len(machines.clients))
                reports = machines.generate(plans, max_s)
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
        agents=sum(len(numbers) for numbers in machines.agents.values()),
        client_nodes=len(machines.clients),
        options=options,
        rows=tuple(rows),
        failed=failed,
        folder=str(folder),
    )
    _write(folder / "result.json", asdict(outcome))
    progress("done", 1.0)
    return outcome


def _facts(machines: BenchTestbed, options: BenchOptions) -> dict[str, Any]:
    """Return the facts about the results: testbed, agents, options and versions."""
    facts: dict[str, Any] = {}
    with suppress(HotbedError):
        facts = dict(machines.call("versions", {}, 60.0))
    return {
        "began": datetime.now(UTC).isoformat(),
        "testbed": machines.testbed.name,
        "site": machines.testbed.site,
        "spec_hash": machines.testbed.spec_hash,
        "backend": machines.backend,
        "agents": {node: list(numbers) for node, numbers in machines.agents.items()},
        "clients": [node.name for node in machines.clients],
        "options": asdict(options),
        "versions": facts,
    }


def _write(path: Path, data: object) -> None:
    write_file(path, json.dumps(data, indent=1) + "\n")
