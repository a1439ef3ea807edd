"""Cells of the two-choice scheduler: simulated bursts, and experiments on real object servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from schemas.cells.base import CellParameters, Cells, SizedCell

Scheduler = Literal[
    "fixed", "random", "two-choice", "collaborative", "preassign", "both", "prequal", "oracle"
]
Choices = Literal["random+random", "home+random"]

BASE_MIB = 8.0
SERVER_BYTES = 6000
PROCESS_BYTES = 1700
PROCESSES_PER_NODE = 8


class Burst(SizedCell):
    """Cell of simulated bursts. `size` combines servers and processes (``1K-10K``).

    The defaults are figure 3's if the paper gives a value: 1 MB, 5 ms, stragglers with 5 times
    the load. The others are inferred (docs/twochoice.md).

    Attributes:
        scheduler: chooses the server of a write.
        processes_per_node: processes that share a scheduler instance and collaborate.
        straggler_ratio: share of the servers that are stragglers, new ones in each round.
        straggler_factor: load of a straggler in units of the others' load.
        load_mean, load_sd: normal distribution of the writes that a server holds when a burst
            begins, rounded to whole ones.
        service_s: a server's time for one write.
        round_trip_s: round trip between a compute node and a server.
        link_s: a compute node's network link's time for one write.
        spread_s: processes' nodes begin a burst within this time of each other.
        cache_s: lifetime of the knowledge of servers' loads.
        prior_weight: a server's first guess of P(load), one half, counts as this many decisions.
        rounds: bursts per run that count.
        redirects: a write counts once its home server has recorded its place (section V.A).
        servers, processes: number of servers, and of processes that write.
    """

    SIZED: ClassVar[tuple[str, str]] = ("servers", "processes")
    SIZE_EXAMPLE: ClassVar[str] = "1K-10K"

    scheduler: Scheduler
    servers: int = Field(default=1000, ge=2, le=1_000_000)
    processes: int = Field(default=10_000, ge=1, le=10_000_000)
    processes_per_node: int = Field(default=PROCESSES_PER_NODE, ge=1, le=65_536)
    straggler_ratio: float = Field(default=0.0, ge=0, le=1)
    straggler_factor: float = Field(default=5.0, ge=1, le=1000)
    load_mean: float = Field(default=10.0, ge=0, le=1e6)
    load_sd: float = Field(default=2.0, ge=0, le=1e6)
    service_s: float = Field(default=0.02, gt=0, le=60)
    round_trip_s: float = Field(default=0.005, ge=0, le=10)
    link_s: float = Field(default=0.00025, ge=0, le=10)
    spread_s: float = Field(default=0.0, ge=0, le=60)
    cache_s: float = Field(default=0.2, ge=0, le=3600)
    prior_weight: float = Field(default=1.0, ge=0, le=1e9)
    rounds: int = Field(default=10, ge=1, le=10_000)
    redirects: bool = False

    @property
    def controller(self) -> str:
        return self.scheduler

    @property
    def memory_mib(self) -> float:
        return BASE_MIB + (SERVER_BYTES * self.servers + PROCESS_BYTES * self.processes) / 2**20

    def contents(self) -> str:
        return self.size

    def label(self) -> str:
        """Return a short text for people: ``1K-10K both, 10 % stragglers``."""
        parts = [self.size, self.scheduler, *self._details()]
        if self.processes_per_node != PROCESSES_PER_NODE:
            parts.append(f"{self.processes_per_node} a node")
        return f"{' '.join(parts)}, {100 * self.straggler_ratio:g} % stragglers"

    def _details(self) -> list[str]:
        return []


class Blind(Burst):
    """Simulated bursts under a scheduler that asks no server for its load."""

    scheduler: Literal["fixed", "random", "oracle"]


class Asking(Burst):
    """Simulated bursts under a scheduler that asks two servers for their loads.

    Attributes:
        choices: the two servers that a write can choose from (section III or V.A).
    """

    scheduler: Literal["two-choice", "collaborative", "preassign", "both", "prequal"]
    choices: Choices = "random+random"

    def _details(self) -> list[str]:
        return [] if self.choices == "random+random" else [self.choices]


class Probing(Asking):
    """Simulated bursts under a scheduler that asks for loads and has no history."""

    scheduler: Literal["two-choice", "collaborative"]


class Learning(Asking):
    """Simulated bursts under a scheduler with a history: of decisions, P(load), or of latencies.

    Attributes:
        history: ``learned``: servers keep the results of `learn_rounds`, which do not count;
            ``cold``: the history is forgotten before each round.
    """

    scheduler: Literal["preassign", "both", "prequal"]
    history: Literal["learned", "cold"] = "learned"
    learn_rounds: int = Field(default=20, ge=0, le=10_000)

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, values: Any) -> Any:
        """Set `learn_rounds` to 0 for a cold history, so that a cell has only one notation."""
        if isinstance(values, Mapping) and values.get("history") == "cold":
            return {**values, "learn_rounds": 0}
        return values

    def _details(self) -> list[str]:
        return super()._details() + (["cold"] if self.history == "cold" else [])


BURSTS: Cells[Burst] = Cells(Blind, Probing, Learning, by=("scheduler",), idle=("learn_rounds",))

KIB = 1024

PLAIN = ("crush", "dlr")
"""Placements without agents: writes are objects of a replicated pool, and CRUSH places them."""

SHARING = ("collaborative", "both")
"""Schedulers that pass on other servers' loads (section III.B)."""


class ObjectCell(CellParameters):
    """A cell on real object servers.

    Attributes:
        backend: the place of the servers' bytes: a folder of a ``file`` system, or an OSD each.
        size_kib: size of a write.
        experiment: the experiment of the paper.
    """

    experiment: Literal["burst", "balance", "probe", "table", "delay"]
    backend: Literal["file", "rados"] = "file"
    size_kib: int = Field(default=512, ge=1, le=65_536)

    @property
    def size(self) -> int:
        """Bytes of a write."""
        return self.size_kib * KIB

    @property
    def controller(self) -> str:
        return self.experiment

    def contents(self) -> str:
        return f"{self.experiment} {self.size_kib}"


class Jobs(ObjectCell):
    """Jobs on client processes.

    Attributes:
        scheduler: places the writes.
        choices: the two servers that a write can choose from (section V.A or III).
        maintainers: True if idle servers bring home redirected writes.
        cache_s: lifetime of servers' knowledge of others' loads (section III.B: hundreds
            of milliseconds); 0: not at all.
        copies: copies of redirected writes, and with ``crush`` and ``dlr`` of all writes.
        volume: share of Table II's writes that its jobs make.
        think_s: pause between bursts of a job of Table II.
        nodes, processes: compute nodes, each with a scheduler, and client processes on each.
    """

    scheduler: Scheduler | Literal["crush", "dlr"] = "both"
    choices: Choices = "home+random"
    maintainers: bool = True
    cache_s: float = Field(default=0.2, ge=0, le=3600)
    copies: Literal[1, 2] = 1
    volume: float = Field(default=1 / 32, gt=0, le=1)
    think_s: float = Field(default=2.0, ge=0, le=3600)
    nodes: int = Field(default=64, ge=1, le=1024)
    processes: int = Field(default=8, ge=1, le=256)

    @model_validator(mode="after")
    def _fits(self) -> Jobs:
        if self.scheduler not in SHARING and self.cache_s != 0.2:
            raise ValueError(f"cache_s is of the schedulers {' and '.join(SHARING)}: leave it out")
        return self

    @property
    def controller(self) -> str:
        return self.scheduler

    @property
    def table2(self) -> bool:
        """True if the jobs of Table II run."""
        return True

    @property
    def lead_s(self) -> float:
        """Seconds from the start of the stragglers' load to the start of the burst."""
        return 0.0

    def contents(self) -> str:
        return f"{self.experiment} {self.nodes} {self.size_kib}"

    def label(self) -> str:
        where = " on RADOS" if self.backend == "rados" else ""
        twice = f", {self.copies} copies" if self.copies != 1 else ""
        quiet = "" if self.maintainers else ", no maintainers"
        cached = "" if self.cache_s == 0.2 else f", cache {self.cache_s:g} s"
        among = self._among()
        return f"{self.experiment}{where} {self.scheduler}{twice}{among}{quiet}{cached}"

    def _among(self) -> str:
        return ""


class Balance(Jobs):
    """Bytes that servers receive from all jobs of Table II (figure 13)."""

    experiment: Literal["balance"]
    scheduler: Scheduler = "both"


class MeasuredBurst(Jobs):
    """Job on all client processes (figure 14). On RADOS `scheduler` may also be ``crush``, a
    replicated pool without agents, and ``dlr``, the same with DLR at work on its primaries.

    Attributes:
        interval_s: DLR's control interval; the paper's 20 s are for runs of minutes.
        stragglers: slow servers down during the burst: ``table2``, the jobs of Table II with fixed
            placement; ``fio``, fio on the disks of some servers; ``none``.
        straggler_share: share of the servers with fio on their disks.
        writes: writes of each process of the burst; 5 of 4 MB in the paper.
        start_s: head start of the stragglers' load and DLR before the burst: the first writes of
            the jobs of Table II keep two processors busy for about 15 s, and probes wait.
    """

    experiment: Literal["burst"]
    interval_s: float = Field(default=10 / 3, ge=1, le=3600)
    stragglers: Literal["none", "table2", "fio"] = "none"
    straggler_share: float = Field(default=0.125, gt=0, lt=1)
    writes: int = Field(default=5, ge=1, le=10_000)
    start_s: float = Field(default=20.0, ge=0, le=3600)

    @model_validator(mode="after")
    def _together(self) -> MeasuredBurst:
        if self.stragglers != "fio" and self.straggler_share != 0.125:
            raise ValueError("straggler_share is of the stragglers fio: leave it out")
        if self.scheduler != "dlr" and self.interval_s != 10 / 3:
            raise ValueError("interval_s is of the scheduler dlr: leave it out")
        if self.scheduler in PLAIN and self.backend != "rados":
            raise ValueError(
                f"{self.scheduler} is of the experiment burst with backend rados: choose another "
                "scheduler"
            )
        if self.scheduler in PLAIN and (self.choices != "home+random" or not self.maintainers):
            raise ValueError(
                f"choices and maintainers are of the agents, and {self.scheduler} has none: leave "
                "them out"
            )
        return self

    @property
    def table2(self) -> bool:
        return self.stragglers == "table2"

    @property
    def lead_s(self) -> float:
        return 0.0 if self.stragglers == "none" else self.start_s

    def contents(self) -> str:
        return f"{self.experiment} {self.stragglers} {self.nodes} {self.size_kib}"

    def _among(self) -> str:
        return f", stragglers by {self.stragglers}" if self.stragglers != "none" else ""


class ConcurrentProbes(ObjectCell):
    """Concurrent probes for writes, each asking two servers.

    Attributes:
        pending: writes that are probed for together.
        probes: probes by each scheduler.
    """

    pending: int = Field(default=4, ge=1, le=256)
    probes: int = Field(default=100, ge=1, le=1_000_000)

    @property
    def schedulers_at_once(self) -> int:
        """Schedulers that probe at the same time."""
        return 1


class ProbeTime(ConcurrentProbes):
    """Time of probing by the number of `schedulers` that probe at the same time (figure 11)."""

    experiment: Literal["probe"]
    schedulers: int = Field(default=1, ge=1, le=4096)

    @property
    def schedulers_at_once(self) -> int:
        return self.schedulers

    def label(self) -> str:
        return f"probe, {self.pending} writes, {self.schedulers} schedulers"


class Delay(ConcurrentProbes):
    """Share of the writes' time that probing takes (Table I): `rounds` of `pending` writes."""

    experiment: Literal["delay"]
    rounds: int = Field(default=20, ge=1, le=10_000)

    def label(self) -> str:
        return f"delay, {self.pending} writes of {self.size_kib} KiB"


class RedirectTable(ObjectCell):
    """Redirected writes, `operations` of them, to one object of `object_kib` (figure 12)."""

    experiment: Literal["table"]
    operations: int = Field(default=4000, ge=50, le=1_000_000)
    object_kib: int = Field(default=1024, ge=4, le=65_536)

    def label(self) -> str:
        return f"table, {self.operations} writes"


OBJECTS: Cells[ObjectCell] = Cells(
    *(MeasuredBurst, Balance, ProbeTime, RedirectTable, Delay), by=("experiment",)
)
