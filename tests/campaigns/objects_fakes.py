"""Object servers that answer at once with chosen numbers, to test their evaluation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from campaigns.grounds.live import LiveTestbed
from campaigns.papers.twochoice.live.servers import ObjectServer, ObjectServers
from testbed.agent.contract import Agent, UnitResult
from testbed.sites.fake import FakeSite
from testbed.spec import TestbedSpec

SERVERS = 4
SPEC: dict[str, Any] = {
    "name": "t",
    "groups": [
        {"name": "admin", "roles": ["admin"]},
        {"name": "client", "roles": ["client"], "cpus": 2},
        {
            "name": "server",
            "count": 2,
            "roles": ["object"],
            "disk": {"size": "1GiB", "scratch": 0},
            "disks": 2,
        },
    ],
    "store": {"kind": "twochoice"},
}


SERVED = tuple(
    ObjectServer(2 * place + disk, f"server{place}", f"/objects/{2 * place + disk}")
    for place in range(2)
    for disk in range(2)
)


def spread(n: int, mean: float) -> dict[str, Any]:
    return {"n": n, "mean": mean, "p50": mean, "p90": None, "p99": 2 * mean, "max": 3 * mean}


def report_of(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the load generator's report on a plan. Dynamic schedulers load servers equally; fixed
    placement gives the first server twice as much; pools are not reported."""
    apps = []
    for place, app in enumerate(plan["apps"]):
        ranks = app.get("nodes", plan["nodes"]) * plan["processes"]
        writes = ranks * app.get("bursts", 1) * app["writes"]
        scheduler = app.get("scheduler", "crush")
        even = writes * app["size"] / SERVERS
        home = [2 * even, even, even / 2, even / 2]
        fixed = scheduler in ("fixed", "crush")
        apps.append(
            {
                "name": app["name"],
                "scheduler": scheduler,
                "background": app.get("background", False),
                "ranks": ranks,
                "writes": writes,
                "failed": 0,
                "bytes": writes * app["size"],
                "redirected": 0 if fixed else writes // 2,
                "rank_seconds": [1.0 + place + rank / ranks for rank in range(ranks)],
                "server_bytes": [] if "pool" in app else home if fixed else [even] * SERVERS,
                "home_bytes": [] if "pool" in app else home,
                "latency": spread(writes, 0.5),
            }
        )
    names = {app["scheduler"] for app in apps} - {"crush"}
    return {
        "nodes": plan["nodes"],
        "processes": plan["nodes"] * plan["processes"],
        "began": 100.0,
        "seconds": 10.0,
        "apps": apps,
        "schedulers": {
            name: {
                "Writes": 100,
                "Probes": 0 if name == "fixed" else 200,
                "Unanswered": 0,
                "Blind": 0,
            }
            for name in names
        },
        "steps": {"probe": spread(10, 0.002), "put": spread(20, 0.4), "register": spread(0, 0.0)},
        "verified": {
            "objects": 100,
            "redirected": 40,
            "bad": [],
            "seconds": 1.0,
            "query": spread(100, 0.003),
            "home": spread(60, 0.01),
            "elsewhere": spread(40, 0.02),
        },
    }


class FakeServers(ObjectServers):
    """Fake of `campaigns.papers.twochoice.live.servers.ObjectServers`. It records the generator's
    arguments (`asked`), its `plans`, and the servers where fio ran (`slowed`, by `commands`)."""

    def __init__(self, live: LiveTestbed, servers: Sequence[ObjectServer] = SERVED) -> None:
        super().__init__(live, servers)
        self.cleaned: list[Mapping[str, Any]] = []
        self.asked: list[list[str]] = []
        self.plans: list[Mapping[str, Any]] = []
        self.slowed: list[int] = []
        self.commands: list[list[str]] = []
        self.busy_s = 0.0

    def clean(self, settings: Mapping[str, Any]) -> None:
        self.cleaned.append(settings)

    def bench(
        self, arguments: Sequence[str], *, max_s: float, plan: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        self.asked.append(list(arguments))
        self.busy_s += 5.0
        if arguments[0] == "probe":
            return {
                "probes": 100,
                "lost": 0,
                "mean_seconds": 0.002,
                "p50_seconds": 0.002,
                "p99_seconds": None,
            }
        if arguments[0] == "table":
            rows = [
                {
                    "writes": 100 * n,
                    "entries": 10 + n,
                    "creates": 90,
                    "create_seconds": 0.01,
                    "queries": 100,
                    "query_seconds": 0.001,
                }
                for n in range(1, 5)
            ]
            return {
                "rows": rows,
                "creates": 360,
                "queries": 400,
                "create_max_seconds": 0.05,
                "query_max_seconds": 0.004,
                "create_p99_seconds": 0.03,
                "query_p99_seconds": None,
            }
        assert plan is not None
        self.plans.append(plan)
        return json.loads(json.dumps(report_of(plan)))  # type: ignore[no-any-return]

    @contextmanager
    def disturbed(self, numbers: Sequence[int], commands: Sequence[list[str]]) -> Iterator[None]:
        assert len(numbers) == len(commands)
        self.slowed, self.commands = list(numbers), list(commands)
        yield

    def disk_counters(self) -> dict[int, Mapping[str, object]]:
        return {
            number: {"busy_s": self.busy_s * (number + 1) / SERVERS, "overshoot_mean_s": 1e-4}
            for number in range(SERVERS)
        }


class FakeAgent(Agent):
    """Units that print the given output."""

    def __init__(self, result: UnitResult | None = None) -> None:
        self.result = result
        self.live: dict[str, list[str]] = {}
        self.started: list[tuple[str, str, list[str]]] = []
        self.stopped: list[tuple[str, str]] = []
        self.stray: dict[str, list[str]] = {}

    def call(
        self, verb: str, payload: Mapping[str, Any] | None = None, *, timeout_s: float = 60.0
    ) -> Any:
        raise NotImplementedError(verb)

    def unit_start(self, node: str, name: str, argv: Sequence[str], *, max_s: float) -> None:
        self.started.append((node, name, list(argv)))
        self.live.setdefault(node, []).append(name)

    def unit_wait(self, node: str, name: str, *, timeout_s: float) -> UnitResult:
        assert self.result is not None
        self.live[node].remove(name)
        return self.result

    def unit_stop(self, node: str, name: str) -> UnitResult | None:
        self.stopped.append((node, name))
        if name in self.live.get(node, ()):
            self.live[node].remove(name)
        return None

    def units(self) -> Mapping[str, Sequence[str]]:
        return {node: list(names) for node, names in self.live.items() if names}

    def strays(self) -> Mapping[str, Sequence[str]]:
        return self.stray


class FakeShell:
    """Shell that records its commands and files."""

    def __init__(self) -> None:
        self.ran: list[list[str]] = []
        self.files: dict[str, bytes] = {}

    def run(self, argv: Sequence[str], **_: object) -> None:
        self.ran.append(list(argv))

    def put(self, data: bytes, path: str) -> None:
        self.files[path] = data


def live_of(folder: Path, agent: Agent | None = None) -> tuple[LiveTestbed, dict[str, FakeShell]]:
    """Return a fake testbed for the servers `SERVED`, and the shells of its nodes."""
    site, spec = FakeSite(folder), TestbedSpec.model_validate(SPEC)
    testbed = site.provision(spec)
    shells = {node.name: FakeShell() for node in testbed.nodes}
    live = LiveTestbed(site, testbed, spec, agent or FakeAgent(), lambda name: shells[name])  # type: ignore[arg-type, return-value]
    return live, shells
