"""The typed parameters of one cell on real object servers: which experiment of section VI."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from campaigns.kinds.parameters import KindParameters
from campaigns.twochoice.parameters import Choices, Scheduler

Backend = Literal["file", "rados"]
Placement = Scheduler | Literal["crush", "dlr"]
Experiment = Literal["burst", "balance", "probe", "table", "delay"]
Stragglers = Literal["none", "table2", "fio"]

KIB = 1024

PLAIN: frozenset[str] = frozenset({"crush", "dlr"})
"""Placements without agents: writes are objects of a replicated pool, and CRUSH places them."""

SHARING: frozenset[str] = frozenset({"collaborative", "both"})
"""Schedulers that pass on what they heard of other servers' loads (section III.B)."""

_OF: dict[str, tuple[str, ...]] = {
    "scheduler": ("burst", "balance"),
    "choices": ("burst", "balance"),
    "maintainers": ("burst", "balance"),
    "cache_s": ("burst", "balance"),
    "copies": ("burst", "balance"),
    "interval_s": ("burst",),
    "stragglers": ("burst",),
    "straggler_share": ("burst",),
    "writes": ("burst",),
    "start_s": ("burst",),
    "volume": ("burst", "balance"),
    "think_s": ("burst", "balance"),
    "nodes": ("burst", "balance"),
    "processes": ("burst", "balance"),
    "pending": ("probe", "delay"),
    "schedulers": ("probe",),
    "probes": ("probe", "delay"),
    "operations": ("table",),
    "object_kib": ("table",),
    "rounds": ("delay",),
}
"""Experiments that a parameter is of; the others have one value of it only."""


class ObjectParameters(KindParameters):
    """One cell.

    Attributes:
        experiment: ``burst`` (figure 14: a job on all client processes), ``balance`` (figure 13:
            what servers get of all jobs of Table II), ``probe`` (figure 11), ``table`` (figure 12),
            ``delay`` (Table I: what probing takes of a write).
        backend: what the servers keep their bytes in: a folder of a ``file`` system, or
            (``rados``) an OSD each.
        scheduler: who places the writes; in a burst those of the job that is measured. On RADOS
            also ``crush``, a replicated pool without agents, and ``dlr``, the same with DLR at work
            on its primaries.
        copies: of what is redirected, and with ``crush`` and ``dlr`` of all that is written.
        interval_s: of DLR's control; the paper's 20 s are for runs of minutes.
        choices: which two servers a write has to choose from (section V.A or III).
        maintainers: whether idle servers bring home what was redirected meanwhile.
        cache_s: for how long servers' knowledge of others' loads is used (section III.B: hundreds
            of milliseconds); 0: not at all.
        stragglers: what slows servers down while a burst is measured: ``table2``, the jobs of Table
            II with fixed placement; ``fio``, fio on the disks of some servers; ``none``.
        straggler_share: of the servers, on whose disks fio writes.
        nodes, processes: compute nodes, each with a scheduler, and client processes on each.
        writes: of each process of the burst; 5 of 4 MB in the paper.
        size_kib: of a write.
        start_s: how long the stragglers' load, and DLR, have run when the burst begins: what the
            jobs of Table II write at once keeps two processors busy for some 15 s, and probes wait.
        volume: part of Table II's writes that its jobs make.
        think_s: between bursts of a job of Table II.
        pending: writes that are probed for together, each asking two servers.
        schedulers: that probe at the same time.
        probes: by each of them.
        operations: redirected writes to one object of `object_kib`.
        rounds: of `pending` writes that are timed.
    """

    ALLOWED: ClassVar[dict[str, str]] = {}

    experiment: Experiment
    backend: Backend = "file"
    scheduler: Placement = "both"
    copies: Literal[1, 2] = 1
    interval_s: float = Field(default=10 / 3, ge=1, le=3600)
    choices: Choices = "home+random"
    maintainers: bool = True
    cache_s: float = Field(default=0.2, ge=0, le=3600)
    stragglers: Stragglers = "none"
    straggler_share: float = Field(default=0.125, gt=0, lt=1)
    nodes: int = Field(default=64, ge=1, le=1024)
    processes: int = Field(default=8, ge=1, le=256)
    writes: int = Field(default=5, ge=1, le=10_000)
    size_kib: int = Field(default=512, ge=1, le=65_536)
    start_s: float = Field(default=20.0, ge=0, le=3600)
    volume: float = Field(default=1 / 32, gt=0, le=1)
    think_s: float = Field(default=2.0, ge=0, le=3600)
    pending: int = Field(default=4, ge=1, le=256)
    schedulers: int = Field(default=1, ge=1, le=4096)
    probes: int = Field(default=100, ge=1, le=1_000_000)
    operations: int = Field(default=4000, ge=50, le=1_000_000)
    object_kib: int = Field(default=1024, ge=4, le=65_536)
    rounds: int = Field(default=20, ge=1, le=10_000)

    @model_validator(mode="after")
    def _fits(self) -> ObjectParameters:
        for name, experiments in _OF.items():
            default = type(self).model_fields[name].default
            if self.experiment not in experiments and getattr(self, name) != default:
                raise ValueError(
                    f"{name} is of the experiment{'s' * (len(experiments) > 1)} "
                    f"{' and '.join(experiments)}: leave it out of {self.experiment}"
                )
        if self.stragglers != "fio" and self.straggler_share != _default("straggler_share"):
            raise ValueError("straggler_share is of the stragglers fio: leave it out")
        if self.scheduler not in SHARING and self.cache_s != _default("cache_s"):
            raise ValueError(
                f"cache_s is of the schedulers {' and '.join(sorted(SHARING))}: leave it out"
            )
        if self.scheduler in PLAIN:
            self._plain()
        if self.scheduler != "dlr" and self.interval_s != _default("interval_s"):
            raise ValueError("interval_s is of the scheduler dlr: leave it out")
        return self

    def _plain(self) -> None:
        if self.backend != "rados" or self.experiment != "burst":
            raise ValueError(
                f"{self.scheduler} is of the experiment burst with backend rados: choose another "
                "scheduler"
            )
        for name in ("choices", "maintainers"):
            if getattr(self, name) != _default(name):
                raise ValueError(
                    f"{name} is of the agents, and {self.scheduler} has none: leave it out"
                )

    @property
    def lead_s(self) -> float:
        """Seconds from the beginning of the stragglers' load to that of the burst."""
        return 0.0 if self.stragglers == "none" else self.start_s

    @property
    def controller(self) -> str:
        """The scheduler, as the engine counts."""
        return self.scheduler if self.experiment in _OF["scheduler"] else self.experiment

    @property
    def size(self) -> int:
        """Bytes of a write."""
        return self.size_kib * KIB

    def contents(self) -> str:
        """What is written: cells that share it follow each other."""
        return f"{self.experiment} {self.stragglers} {self.nodes} {self.size_kib}"

    def label(self) -> str:
        """A short text for people."""
        if self.experiment == "probe":
            return f"probe, {self.pending} writes, {self.schedulers} schedulers"
        if self.experiment == "table":
            return f"table, {self.operations} writes"
        if self.experiment == "delay":
            return f"delay, {self.pending} writes of {self.size_kib} KiB"
        among = f", stragglers by {self.stragglers}" if self.stragglers != "none" else ""
        quiet = "" if self.maintainers else ", no maintainers"
        twice = f", {self.copies} copies" if self.copies != 1 else ""
        where = " on RADOS" if self.backend == "rados" else ""
        cached = "" if self.cache_s == _default("cache_s") else f", cache {self.cache_s:g} s"
        return f"{self.experiment}{where} {self.scheduler}{twice}{among}{quiet}{cached}"


def _default(name: str) -> Any:
    return ObjectParameters.model_fields[name].default
