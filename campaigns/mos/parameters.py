"""The typed parameters of one cell on real microstores: an experiment of sections 1, 3 or 8.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from campaigns.kinds.parameters import KindParameters
from campaigns.mos.profile.points import references

Experiment = Literal[
    "setups", "sizes", "proxy", "storage", "network", "disks", "load", "adaptation"
]
Setup = Literal["default", "static", "favors-small", "favors-large", "mos", "mos-pp"]
Letter = Literal["A", "B", "C", "D"]
Course = Literal["short", "paper"]

CONTROLLED = ("mos", "mos-pp")
"""Setups that a controller changes while the load runs."""

DISKS = 3
"""Of a storage server in section 3."""

_SINGLE = ("sizes", "proxy", "storage", "network", "disks")
_STORES = ("setups", "load", "adaptation")
_OF: dict[str, tuple[str, ...]] = {
    "setup": _STORES,
    "workload": ("proxy", "storage", "network", "disks"),
    "object_kb": ("sizes",),
    "workers": _SINGLE,
    "proxies": _SINGLE,
    "proxy_cores": _SINGLE,
    "proxy_workers": _SINGLE,
    "storage_cores": (*_SINGLE, "setups"),
    "network_mbit": _SINGLE,
    "ssds": ("network", "disks"),
    "hdds": ("network", "disks"),
    "small_workers": ("setups", "load"),
    "large_workers": ("setups", "load"),
    "slim_cores": ("setups",),
    "slim_mbit": ("setups",),
    "wide_cores": ("setups",),
    "wide_mbit": ("setups",),
    "epoch_s": ("load", "adaptation"),
    "settle_epochs": ("load",),
    "latency_sla_ms": ("load", "adaptation"),
    "bandwidth_sla_mb_s": ("load", "adaptation"),
    "profile": ("load", "adaptation"),
    "minute_s": ("adaptation",),
    "course": ("adaptation",),
    "seconds": (*_SINGLE, "setups", "load"),
}
"""Experiments that a parameter is of; the others have one value of it only."""

_SETUPS: dict[str, tuple[str, ...]] = {
    "setups": ("default", "favors-small", "favors-large"),
    "load": ("default", "static", "mos", "mos-pp"),
    "adaptation": ("default", "static", "mos", "mos-pp"),
}


class MosParameters(KindParameters):
    """One cell.

    Attributes:
        experiment: ``setups`` (figure 1: four workloads at once), ``sizes`` (figure 2),
            ``proxy`` (3a, 3b), ``storage`` (3c), ``network`` (4a, 4b), ``disks`` (5), ``load``
            (8 to 10: A and C at once, each with some workers), ``adaptation`` (11 and 12: A and C
            change over time).
        setup: how the pool is divided; ``mos`` and ``mos-pp`` begin as ``static`` and are changed
            by the controller of that name (section 8.1).
        workload: which of Table 1's runs where one alone does.
        object_kb: of every object, 1000 bytes (figure 2).
        workers: of the one workload, COSBench's processes.
        proxies, proxy_cores, proxy_workers, network_mbit: proxy servers, and of each of them cores,
            worker processes and the rate of its link to the clients.
        storage_cores: of each storage server, of each microstore's where there are two.
        ssds, hdds: disks of either class that each storage server has, three in all if one is
            left out.
        small_workers, large_workers: of each workload of small (A, B) and of large objects (C, D).
        large_mb: the largest object of C and D; the smallest is 1 MB (128 MB in the paper).
        slim_cores, slim_mbit: of the proxy with many cores and a slow link (32 cores, 1 Gbit/s in
            section 1).
        wide_cores, wide_mbit: of the one with few cores and a fast link (8 cores, 10 Gbit/s).
        seconds: that are measured, after `rampup_s`.
        epoch_s: of the controller.
        settle_epochs: of load before a setup is measured, so that a controller has found its
            division; of the others too.
        latency_sla_ms: workload A's mean latency at most, for MOS++ (90 ms in section 8.1).
        bandwidth_sla_mb_s: workload C's bandwidth at least, for each of its workers (in section
            8.1 it is in proportion to the load).
        profile: the measured points that MOS++'s cospurf is made of, a name (`hotbed mos profile
            RUNS --keep NAME` adds one).
        minute_s: how long one of the paper's minutes takes.
        course: how load changes: the paper's 280 minutes, or the same with shorter plateaus.
        small_objects, large_objects: that each workload finds.
    """

    ALLOWED: ClassVar[dict[str, str]] = {}

    experiment: Experiment
    setup: Setup = "default"
    workload: Letter = "A"
    object_kb: int = Field(default=64, ge=1, le=1_000_000)
    workers: int = Field(default=8, ge=1, le=1024)
    proxies: int = Field(default=1, ge=1, le=2)
    proxy_cores: float = Field(default=0.4, gt=0, le=64)
    proxy_workers: int = Field(default=1, ge=1, le=64)
    storage_cores: float = Field(default=0.35, gt=0, le=64)
    network_mbit: float = Field(default=200, gt=0, le=100_000)
    ssds: int = Field(default=3, ge=0, le=24)
    hdds: int = Field(default=0, ge=0, le=24)
    small_workers: int = Field(default=8, ge=1, le=1024)
    large_workers: int = Field(default=4, ge=1, le=1024)
    large_mb: int = Field(default=16, ge=1, le=1024)
    slim_cores: float = Field(default=0.5, gt=0, le=64)
    slim_mbit: float = Field(default=20, gt=0, le=100_000)
    wide_cores: float = Field(default=0.3, gt=0, le=64)
    wide_mbit: float = Field(default=200, gt=0, le=100_000)
    seconds: float = Field(default=12, ge=1, le=3600)
    rampup_s: float = Field(default=2, ge=0, le=600)
    epoch_s: float = Field(default=12, ge=1, le=3600)
    settle_epochs: int = Field(default=3, ge=0, le=100)
    latency_sla_ms: float = Field(default=90, gt=0, le=60_000)
    bandwidth_sla_mb_s: float = Field(default=2.5, gt=0, le=100_000)
    profile: str = "local"
    minute_s: float = Field(default=4, gt=0, le=60)
    course: Course = "short"
    small_objects: int = Field(default=200, ge=1, le=1_000_000)
    large_objects: int = Field(default=24, ge=1, le=1_000_000)

    @model_validator(mode="before")
    @classmethod
    def _others_are_hdds(cls, values: Any) -> Any:
        """Where only `ssds` are said, the rest of three disks are HDDs."""
        if not isinstance(values, Mapping) or "hdds" in values:
            return values
        ssds = values.get("ssds", DISKS)
        if isinstance(ssds, bool) or not isinstance(ssds, int):
            return values
        return {**values, "hdds": max(0, DISKS - ssds)}

    @model_validator(mode="after")
    def _fits(self) -> MosParameters:
        for name, experiments in _OF.items():
            if self.experiment not in experiments and getattr(self, name) != _default(name):
                raise ValueError(
                    f"{name} is of the experiment{'s' * (len(experiments) > 1)} "
                    f"{' and '.join(experiments)}: leave it out of {self.experiment}"
                )
        allowed = _SETUPS.get(self.experiment)
        if allowed is not None and self.setup not in allowed:
            raise ValueError(
                f"{self.experiment} has the setups {', '.join(allowed)}, and no {self.setup}"
            )
        if self.profile not in references():
            known = ", ".join(references()) or "none"
            raise ValueError(
                f"profile: {self.profile!r} is not allowed; allowed: {known}, or what `hotbed mos "
                "profile RUNS --keep NAME` made of your own runs"
            )
        if self.ssds + self.hdds == 0:
            raise ValueError("ssds and hdds are both 0: storage servers need a disk")
        return self

    @property
    def controller(self) -> str:
        """The setup, as the engine counts; the experiment where one store alone is measured."""
        return self.setup if self.experiment in _STORES else self.experiment

    @property
    def controlled(self) -> bool:
        """Whether a controller divides the pool while the load runs."""
        return self.setup in CONTROLLED

    @property
    def letters(self) -> tuple[str, ...]:
        """Workloads that run at once."""
        if self.experiment == "setups":
            return ("A", "B", "C", "D")
        if self.experiment in ("load", "adaptation"):
            return ("A", "C")
        return (self.workload,)

    def contents(self) -> str:
        """Objects that are read: cells that find the same follow each other. So do the setups at
        one load, which are compared: a machine that others use changes its speed in minutes."""
        objects = f"{self.small_objects}-{self.large_objects}-{self.large_mb}"
        if self.experiment == "load":
            return f"{objects}-{self.small_workers}-{self.large_workers}"
        if self.experiment in _STORES:
            return f"{''.join(self.letters)}-{objects}"
        if self.experiment == "sizes":
            return f"{self.object_kb}kb-{objects}"
        return f"{self.workload}-{objects}"

    def label(self) -> str:
        """``load, mos-pp, 8 and 16 workers``."""
        if self.experiment == "setups":
            return f"setups, {self.setup}"
        if self.experiment == "load":
            return f"load, {self.setup}, {self.small_workers} and {self.large_workers} workers"
        if self.experiment == "adaptation":
            return f"adaptation, {self.setup}, {self.course} course"
        if self.experiment == "sizes":
            return f"sizes, {self.object_kb} KB"
        if self.experiment == "proxy":
            each = f"{self.proxies} x {self.proxy_cores:g} cores, {self.proxy_workers} workers"
            return f"proxy, {self.workload}, {each}"
        if self.experiment == "storage":
            return f"storage, {self.workload}, {self.storage_cores:g} cores each"
        disks = f"{self.ssds} SSD and {self.hdds} HDD, {self.network_mbit:g} Mbit/s"
        return f"{self.experiment}, {self.workload}, {disks}"


def _default(name: str) -> Any:
    return MosParameters.model_fields[name].default
