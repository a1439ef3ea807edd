"""Cells of MOS: experiments on real microstores (sections 1, 3 and 8.1), and COSPerf's fourteen
hours under one policy (section 8.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from schemas.cells.base import CellParameters, Cells

Letter = Literal["A", "B", "C", "D"]
OfMachines = Literal["mos", "mos-at-once"]
"""Controllers that assign whole machines (Algorithm 1)."""
OfShares = Literal["mos-pp", "mos-pp-resource", "mos-pp-learning"]
"""Controllers that assign shares by a model (Algorithm 2)."""

DISKS = 3
"""Disks of a storage server in section 3."""


class MosCell(CellParameters):
    """A cell on real microstores.

    Attributes:
        large_mb: the largest object of C and D; the smallest is 1 MB (128 MB in the paper).
        small_objects, large_objects: existing objects of each workload.
        rampup_s: seconds before the measurement.
        experiment: the experiment of the paper.
    """

    experiment: Literal[
        "setups", "sizes", "proxy", "storage", "network", "disks", "load", "adaptation"
    ]
    large_mb: int = Field(default=16, ge=1, le=1024)
    rampup_s: float = Field(default=2, ge=0, le=600)
    small_objects: int = Field(default=200, ge=1, le=1_000_000)
    large_objects: int = Field(default=24, ge=1, le=1_000_000)

    @property
    def letters(self) -> tuple[Letter, ...]:
        """Workloads that run at the same time."""
        raise NotImplementedError

    @property
    def controlled(self) -> bool:
        """True if a controller divides the pool while the load runs."""
        return False

    def _objects(self) -> str:
        return f"{self.small_objects}-{self.large_objects}-{self.large_mb}"


class Setups(MosCell):
    """Four workloads at the same time (figure 1).

    Attributes:
        small_workers, large_workers: per workload of small (A, B) and of large objects (C, D).
        storage_cores: cores of each storage server.
        slim_cores, slim_mbit: the proxy with many cores and a slow link (32 cores, 1 Gbit/s in
            section 1).
        wide_cores, wide_mbit: the proxy with few cores and a fast link (8 cores, 10 Gbit/s).
        seconds: length of the measurement.
    """

    experiment: Literal["setups"]
    setup: Literal["default", "favors-small", "favors-large"] = "default"
    small_workers: int = Field(default=8, ge=1, le=1024)
    large_workers: int = Field(default=4, ge=1, le=1024)
    storage_cores: float = Field(default=0.35, gt=0, le=64)
    slim_cores: float = Field(default=0.5, gt=0, le=64)
    slim_mbit: float = Field(default=20, gt=0, le=100_000)
    wide_cores: float = Field(default=0.3, gt=0, le=64)
    wide_mbit: float = Field(default=200, gt=0, le=100_000)
    seconds: float = Field(default=12, ge=1, le=3600)

    @property
    def controller(self) -> str:
        return self.setup

    @property
    def letters(self) -> tuple[Letter, ...]:
        return ("A", "B", "C", "D")

    def contents(self) -> str:
        return f"ABCD-{self._objects()}"

    def label(self) -> str:
        return f"setups, {self.setup}"


class OneStore(MosCell):
    """One workload alone (section 3).

    Attributes:
        workers: COSBench's processes.
        proxies, proxy_cores, proxy_workers, network_mbit: proxy servers, and of each of them the
            cores, worker processes and rate of the link to the clients.
        storage_cores: cores of each storage server (of each microstore, if there are two).
        seconds: length of the measurement.
    """

    workers: int = Field(default=8, ge=1, le=1024)
    proxies: int = Field(default=1, ge=1, le=2)
    proxy_cores: float = Field(default=0.4, gt=0, le=64)
    proxy_workers: int = Field(default=1, ge=1, le=64)
    storage_cores: float = Field(default=0.35, gt=0, le=64)
    network_mbit: float = Field(default=200, gt=0, le=100_000)
    seconds: float = Field(default=12, ge=1, le=3600)

    @property
    def controller(self) -> str:
        return self.experiment


class ObjectSizes(OneStore):
    """Objects of one size, `object_kb` (1000 bytes) each (figure 2)."""

    experiment: Literal["sizes"]
    object_kb: int = Field(default=64, ge=1, le=1_000_000)

    @property
    def letters(self) -> tuple[Letter, ...]:
        return ("A",)

    def contents(self) -> str:
        return f"{self.object_kb}kb-{self._objects()}"

    def label(self) -> str:
        return f"sizes, {self.object_kb} KB"


class OneWorkload(OneStore):
    """One of Table 1's workloads. `workload`: the workload of Table 1."""

    workload: Letter = "A"

    @property
    def letters(self) -> tuple[Letter, ...]:
        return (self.workload,)

    def contents(self) -> str:
        return f"{self.workload}-{self._objects()}"


class ProxyCores(OneWorkload):
    """Cores and worker processes of proxies (figures 3a and 3b)."""

    experiment: Literal["proxy"]

    def label(self) -> str:
        each = f"{self.proxies} x {self.proxy_cores:g} cores, {self.proxy_workers} workers"
        return f"proxy, {self.workload}, {each}"


class StorageCores(OneWorkload):
    """Cores of storage servers (figure 3c)."""

    experiment: Literal["storage"]

    def label(self) -> str:
        return f"storage, {self.workload}, {self.storage_cores:g} cores each"


class Disks(OneWorkload):
    """Network and disks (figures 4 and 5): `ssds` and `hdds` of each storage server, three in total
    if one of them is left out."""

    experiment: Literal["network", "disks"]
    ssds: int = Field(default=3, ge=0, le=24)
    hdds: int = Field(default=0, ge=0, le=24)

    @model_validator(mode="before")
    @classmethod
    def _others_are_hdds(cls, values: Any) -> Any:
        """Set `hdds` to the rest of three disks if only `ssds` is given."""
        if not isinstance(values, Mapping) or "hdds" in values:
            return values
        ssds = values.get("ssds", DISKS)
        if isinstance(ssds, bool) or not isinstance(ssds, int):
            return values
        return {**values, "hdds": max(0, DISKS - ssds)}

    @model_validator(mode="after")
    def _fits(self) -> Disks:
        if self.ssds + self.hdds == 0:
            raise ValueError("ssds and hdds are both 0: storage servers need a disk")
        return self

    def label(self) -> str:
        disks = f"{self.ssds} SSD and {self.hdds} HDD, {self.network_mbit:g} Mbit/s"
        return f"{self.experiment}, {self.workload}, {disks}"


class TwoStores(MosCell):
    """Workloads A and C at the same time, on a pool that a setup divides (section 8.1).

    Attributes:
        setup: ``mos``, ``mos-pp`` and their variants begin as ``static``, and the controller of
            that name changes the division.
        epoch_s: epoch of the controller.
        latency_sla_ms: workload A's largest mean latency, for MOS++ (90 ms in section 8.1).
        bandwidth_sla_mb_s: workload C's bandwidth at least, for each of its workers (in section
            8.1 it is in proportion to the load).
        profile: name of the measured points of MOS++'s cospurf (`hotbed mos profile RUNS --keep
            NAME` adds one).
    """

    setup: Literal["default", "static", OfMachines, OfShares] = "default"
    epoch_s: float = Field(default=12, ge=1, le=3600)
    latency_sla_ms: float = Field(default=90, gt=0, le=60_000)
    bandwidth_sla_mb_s: float = Field(default=2.5, gt=0, le=100_000)
    profile: str = "local"

    @property
    def controller(self) -> str:
        return self.setup

    @property
    def controlled(self) -> bool:
        return self.assigns_machines or self.plans

    @property
    def assigns_machines(self) -> bool:
        """True if a controller assigns whole machines."""
        return self.setup in get_args(OfMachines)

    @property
    def plans(self) -> bool:
        """True if a controller assigns shares by a model."""
        return self.setup in get_args(OfShares)

    @property
    def letters(self) -> tuple[Letter, ...]:
        return ("A", "C")


class SteadyLoad(TwoStores):
    """Constant number of workers (figures 8 to 10). `settle_epochs` of load precede the measurement
    of `seconds`, so that a controller has found its division."""

    experiment: Literal["load"]
    small_workers: int = Field(default=8, ge=1, le=1024)
    large_workers: int = Field(default=4, ge=1, le=1024)
    settle_epochs: int = Field(default=3, ge=0, le=100)
    seconds: float = Field(default=12, ge=1, le=3600)

    def contents(self) -> str:
        """Return the objects that are read, and the load. The speed of a shared machine changes
        within minutes, so the setups at one load run one after another."""
        return f"{self._objects()}-{self.small_workers}-{self.large_workers}"

    def label(self) -> str:
        """Return a short text for people: ``load, mos-pp, 8 and 16 workers``."""
        return f"load, {self.setup}, {self.small_workers} and {self.large_workers} workers"


class Adaptation(TwoStores):
    """Workers that change over time (figures 11 and 12).

    Attributes:
        minute_s: seconds for each of the paper's minutes.
        course: the paper's 280 minutes, or the same with shorter plateaus.
    """

    experiment: Literal["adaptation"]
    minute_s: float = Field(default=4, gt=0, le=60)
    course: Literal["short", "paper"] = "short"

    def contents(self) -> str:
        return f"AC-{self._objects()}"

    def label(self) -> str:
        return f"adaptation, {self.setup}, {self.course} course"


MOS: Cells[MosCell] = Cells(
    *(Setups, ObjectSizes, ProxyCores, StorageCores, Disks, SteadyLoad, Adaptation),
    by=("experiment",),
)


class PerfCell(CellParameters):
    """A cell of COSPerf. The defaults are the paper's where it gives a value (sections 8.1 and
    8.2); the others are ours (docs/mos.md).

    Attributes:
        policy: divides the pool: ``static``, the same number of machines for each; ``mos`` and its
            variant, whole machines; ``mos-pp`` and its variants, shares.
        profile: measurements that the model is fitted to: the paper's section 3, or this project's
            local testbed.
        cost_factor: times of reconfigurations are multiplied by it.
        pools: pools of 50 machines.
        minutes: all four stages together.
        epoch_s: the control interval.
    """

    policy: Literal["static", OfMachines, OfShares]
    profile: Literal["paper", "local"] = "paper"
    cost_factor: float = Field(default=1.0, ge=0, le=100)
    pools: int = Field(default=1, ge=1, le=20)
    minutes: float = Field(default=840.0, ge=60, le=10_000)
    epoch_s: float = Field(default=180.0, ge=10, le=3600)

    @property
    def controller(self) -> str:
        return self.policy

    def contents(self) -> str:
        return f"{self.profile}-{self.pools}-{self.minutes:g}"

    def label(self) -> str:
        """Return a short text for people: ``mos-pp, paper profile, model 20 % off``."""
        parts = [self.policy, f"{self.profile} profile"]
        if self.pools != 1:
            parts.append(f"{50 * self.pools} machines")
        parts += self._details()
        if self.cost_factor != 1:
            parts.append(f"costs x {self.cost_factor:g}")
        return ", ".join(parts)

    def _details(self) -> list[str]:
        return []


class RulesOfThumb(PerfCell):
    """COSPerf under a policy without a model."""

    policy: Literal["static", OfMachines]


class Modelled(PerfCell):
    """COSPerf under MOS++.

    Attributes:
        runs: the runs that the optimiser's cospurf is fitted to: disjoint from the judge's runs,
            or the same.
        model_error: cospurf's curves are wrong by this share, each up or down by the seed.
        sla: promise to tenants, as a share of their load's result on an idle pool.
    """

    policy: OfShares
    runs: Literal["disjoint", "same"] = "disjoint"
    model_error: float = Field(default=0.0, ge=0, le=0.9)
    sla: float = Field(default=0.9, gt=0, le=1)

    def _details(self) -> list[str]:
        parts = [f"model {100 * self.model_error:g} % off"] if self.model_error else []
        return parts + (["the judge's own runs"] if self.runs == "same" else [])


class FixedModel(Modelled):
    """COSPerf under MOS++ that plans with its model as it is."""

    policy: Literal["mos-pp", "mos-pp-resource"]


class LearntModel(Modelled):
    """COSPerf under MOS++ that corrects its model by measurements, if `learns`."""

    policy: Literal["mos-pp-learning"]
    learns: bool = True

    def _details(self) -> list[str]:
        return super()._details() + ([] if self.learns else ["learns nothing"])


COSPERF: Cells[PerfCell] = Cells(RulesOfThumb, FixedModel, LearntModel, by=("policy",))
