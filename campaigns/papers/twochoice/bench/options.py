"""Options of `hotbed twochoice bench`, checked before anything is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.errors import UserError

SCHEDULERS = (
    "fixed",
    "random",
    "two-choice",
    "collaborative",
    "preassign",
    "both",
    "prequal",
    "oracle",
)
CHOICES = ("home+random", "random+random")
MOST_PROCESSES = 2**14
"""Maximum of client processes in the load generator (dataplane/internal/apps)."""
MAX_SIZE = 64 * 2**20
"""Bytes of the largest write (protocol.MaxData)."""
PATIENCE_S = 60.0
"""Seconds that a client waits for an answer, because queues of a burst are long."""
SLACK_S = 300.0
FOREVER = 1_000_000
"""Writes of a rank that continues until its time is over."""


@dataclass(frozen=True)
class Options:
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
            named = repr(unknown[0]) if unknown else "none"
            raise UserError(f"--schedulers names {named}; there are {', '.join(SCHEDULERS)}.")
        if len(set(self.schedulers)) != len(self.schedulers):
            raise UserError("--schedulers names one twice: name each once.")
        if self.choices not in CHOICES:
            raise UserError(f"--choices is {self.choices!r}; there are {' and '.join(CHOICES)}.")
        for name in ("nodes", "processes"):
            if not 1 <= getattr(self, name) <= 4096:
                raise UserError(f"--{name} is {getattr(self, name)}; write 1 to 4096.")
        processes = self.nodes * self.processes
        if processes > MOST_PROCESSES:
            raise UserError(
                f"{self.nodes} --nodes with {self.processes} --processes each are {processes} "
                f"client processes; {MOST_PROCESSES} are the most."
            )
        if not 0 <= self.seed < 2**32:
            raise UserError(f"--seed is {self.seed}; write 0 to {2**32 - 1}.")
        if not 1 <= self.size <= MAX_SIZE:
            raise UserError(f"--size is {self.size} bytes; write 1 B to {MAX_SIZE // 2**20} MiB.")
        if (self.writes is None) == (self.duration_s is None):
            raise UserError("give either --writes or --duration.")
        if self.writes is not None and not 1 <= self.writes <= FOREVER:
            raise UserError(f"--writes is {self.writes}; write 1 to {FOREVER}.")
        if self.duration_s is not None and not 1 <= self.duration_s <= 86400:
            raise UserError(f"--duration is {self.duration_s:g} s; write 1 s to 24 h.")


def agent_settings(options: Options, scheduler: str, copies: int) -> dict[str, Any]:
    """Return the cluster file's settings other than agents and key. Agents use them too, because
    their load detectors preassign only for some schedulers (section III.C)."""
    return {
        "copies": copies,
        # Agents have no oracle, because an oracle probes no server.
        "scheduler": {
            "scheduler": "fixed" if scheduler == "oracle" else scheduler,
            "choices": options.choices,
        },
        "maintainer": {"off": not options.maintainers},
        "patience": PATIENCE_S,
    }


def shares(nodes: int, machines: int) -> list[int]:
    """Return the compute nodes of each client machine, distributed evenly, at least one each."""
    return [max(1, nodes // machines + (place < nodes % machines)) for place in range(machines)]


def plan(options: Options, scheduler: str, machine: int, nodes: int) -> dict[str, Any]:
    """Return a plan of `twochoicebench apps` for one client machine.

    With a duration, the writers are in the background, which ends with a foreground application.
    That application is a single write of a byte at the end of the duration.
    """
    work: dict[str, Any] = {
        "name": f"{scheduler}-{machine}",
        "scheduler": scheduler,
        "writes": options.writes or 1,
        "size": options.size,
    }
    apps = [work]
    if options.duration_s is not None:
        work |= {"background": True, "repeat": True}
        end = {"name": f"end-{machine}", "scheduler": "fixed", "writes": 1, "size": 1, "nodes": 1}
        apps.append(end | {"start": options.duration_s})
    return {
        "nodes": nodes,
        "processes": options.processes,
        "seed": options.seed * 1000 + machine,
        "apps": apps,
        "verify": options.read,
        "verify_all": options.read,
        "patience": (options.duration_s or 0.0) + 1800.0,
    }


@dataclass(frozen=True)
class Row:
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


def row(scheduler: str, reports: Sequence[Mapping[str, Any]]) -> Row:
    """Return client machines' reports as one row.

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
    return Row(
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
