"""Cells of experiments on Ceph, in the paper's time: rados bench (the DLR paper), open-loop writes
(section 5.2 of the Ursa paper) and COSBench on the object gateway.

The engine multiplies times by the campaign's time_scale. The defaults are the DLR paper's (sections
V-B and V-C): 4 MB objects, 16 concurrent operations, 180 s, fio on 4 of the nodes, moved every 90 s
under interference, control interval 20 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from schemas.cells.base import CellParameters, Cells

Op = Literal["write", "seq", "rand", "open", "s3", "other"]
Scenario = Literal["none", "heterogeneity", "interference", "mix", "spread", "skew", "single"]
MixName = Literal["A", "B", "C", "D", "E"]
Letter = Literal["A", "B", "C", "D"]
Signal = Literal["node", "osd", "op_r_latency"]

CONTROLLER_LEAD_INTERVALS = 2
"""The controller runs this many control intervals before the benchmark starts."""

OPEN_LEAD_INTERVALS = 5
"""Control intervals in which a controller under open-loop writes measures before it decides: a
group has few writes per second."""

HOT_NODES = 4
HOT_SHARE = 0.2


class DlrCell(CellParameters):
    """Cell on a store. On the ground sim, `osds` overrides the spec's store size. `op`: rados
    bench's writes, sequential or random reads, open-loop writes, COSBench on the object gateway
    (s3), or an installed package's workload (other); `scenario`: disturbance of the OSD nodes by
    fio, or the distribution of open-loop writes; `controller`: folder of the policy under test;
    `controller_parameters`: the policy's parameters that differ from its defaults; `duration_s`:
    seconds of the benchmark; `signal`: measure of a disk's load that DLR senses; `interval_s`:
    seconds between two decisions; `osds`: number of OSDs on the ground sim, in place of the
    spec's."""

    ALLOWED: ClassVar[Mapping[str, str]] = {
        "controller": "the name of a controller's folder",
        "controller_parameters": "a mapping of names to numbers, texts or booleans",
        "options": "a mapping of names to numbers, texts or booleans",
    }

    op: Op
    scenario: Scenario = "none"
    controller: str = Field(default="default", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}$")
    controller_parameters: dict[str, bool | int | float | str] = Field(default_factory=dict)
    duration_s: float = Field(default=180, gt=0, le=86400)
    signal: Signal = "node"
    interval_s: float = Field(default=20, gt=0, le=3600)
    osds: int | None = Field(default=None, ge=2, le=10_000)

    def hot_count(self, nodes: int) -> int:
        """Return the number of `nodes` (OSD nodes) that are hot at a time, at least one."""
        raise NotImplementedError

    def lead_s(self, time_scale: float) -> float:
        """Return the seconds that the controller runs before the workload; 0 without disturbance
        and controller."""
        if self.scenario == "none" and self.controller == "default":
            return 0.0
        return CONTROLLER_LEAD_INTERVALS * self.interval_s * time_scale

    def label(self) -> str:
        """Return a short text for people: ``seq heterogeneity dlr``."""
        parts = [self.op, self.scenario, self.controller, *self._details()]
        if self.osds is not None:
            parts.append(f"{self.osds} OSDs")
        parts += self._hot()
        parts += [f"{key}={value}" for key, value in sorted(self.controller_parameters.items())]
        return " ".join(parts)

    def _details(self) -> list[str]:
        return [] if self.signal == "node" else [f"signal={self.signal}"]

    def _hot(self) -> list[str]:
        return []


class Disturbed(DlrCell):
    """Cell with fio on some nodes: on `hot_nodes`, or on a share of them. `hot_design`: seed of a
    design in which heterogeneity makes all nodes hot equally often over blocks; None draws each
    block's nodes from the block's seed. `hot_set`: number of the design's set, from 0, the same in
    all blocks; None takes the block's. `hot_nodes`: number of nodes with fio; `hot_share`: share of
    the nodes with fio, in place of their number; `move_every_s`: seconds until interference moves
    to other nodes."""

    hot_nodes: int | None = Field(default=None, ge=1, le=10_000)
    hot_share: float | None = Field(default=None, gt=0, le=1)
    hot_design: int | None = Field(default=None, ge=0, lt=2**32)
    hot_set: int | None = Field(default=None, ge=0, le=1000)
    move_every_s: float = Field(default=90, gt=0, le=86400)

    @model_validator(mode="after")
    def _of_a_design(self) -> Disturbed:
        if self.hot_set is not None and self.hot_design is None:
            raise ValueError("hot_set is a set of hot_design: give both")
        return self

    @model_validator(mode="before")
    @classmethod
    def _one_of_both(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        if values.get("hot_share") is None:
            return {"hot_nodes": HOT_NODES, **values}
        if values.get("hot_nodes") is not None:
            raise ValueError("hot_nodes and hot_share both say how many are hot: keep one of them")
        return values

    def hot_count(self, nodes: int) -> int:
        if self.hot_share is None:
            return self.hot_nodes or HOT_NODES
        return max(1, round(self.hot_share * nodes))

    def _hot(self) -> list[str]:
        hot = [] if self.hot_share is None else [f"{100 * self.hot_share:g} % hot"]
        if self.osds is not None and self.scenario == "interference":
            hot.append(f"moving every {self.move_every_s:g} s")
        if self.hot_set is not None:
            hot.append(f"hot set {self.hot_set}")
        return hot


class Bench(Disturbed):
    """Operation of rados bench. `same_objects`: random reads read the same objects in the same
    order in all cells of a block. `object_size`: bytes of an object; `concurrency`: operations in
    flight."""

    op: Literal["write", "seq", "rand"]
    scenario: Literal["none", "heterogeneity", "interference", "mix", "spread"] = "none"
    object_size: int = Field(default=4194304, ge=4096, le=2**28)
    concurrency: int = Field(default=16, ge=1, le=4096)
    same_objects: bool = False

    def contents(self) -> str:
        """Return the objects that are read; writes start with an empty store."""
        return "empty" if self.op == "write" else f"objects of {self.object_size}"

    def _details(self) -> list[str]:
        size = [] if self.object_size == 4194304 else [f"{self.object_size // 1024}KiB"]
        return size + super()._details()


class PlainBench(Bench):
    """rados bench without disturbance, or with fio on hot nodes that stay or move."""

    scenario: Literal["none", "heterogeneity", "interference"] = "none"


class Mixed(Bench):
    """rados bench among the offered load of figure 3 (its `mix`), the same on all nodes."""

    scenario: Literal["mix"]
    mix: MixName

    def _details(self) -> list[str]:
        return [f"mix={self.mix}", *super()._details()]


class SpreadBench(Bench):
    """rados bench among the offered load of figure 4, higher on half of the nodes. `spread`:
    difference of the offered load between the halves of the nodes, 0 to 1."""

    scenario: Literal["spread"]
    spread: float = Field(ge=0, le=1)

    def _details(self) -> list[str]:
        return [f"spread={self.spread:g}", *super()._details()]


class OpenLoopWrites(DlrCell):
    """Open-loop writes: more to a share of the nodes than to the others (scenario ``skew``), or to
    one node (``single``, figure 4 of the Ursa paper).

    Attributes:
        rate: writes per second to each hot node.
        cold_share: part of `rate` for each other node.
        balance_after_s: seconds of load before the controller decides; it starts
            `OPEN_LEAD_INTERVALS` earlier.
        ballast_mb: MiB that each group holds in addition: moved with the group, not written again.
        objects_per_pg: number of objects in each placement group.
    """

    op: Literal["open"]
    scenario: Literal["skew", "single"]
    object_size: int = Field(default=4194304, ge=4096, le=2**28)
    concurrency: int = Field(default=16, ge=1, le=4096)
    hot_share: float = Field(default=HOT_SHARE, gt=0, le=1)
    rate: float = Field(gt=0, le=1e6)
    cold_share: float = Field(default=0.4, ge=0, le=1)
    balance_after_s: float = Field(default=60.0, ge=0, le=86400)
    objects_per_pg: int = Field(default=8, ge=1, le=10_000)
    ballast_mb: int = Field(default=0, ge=0, le=4096)

    def hot_count(self, nodes: int) -> int:
        return 1 if self.scenario == "single" else max(1, round(self.hot_share * nodes))

    def called_s(self, time_scale: float) -> float:
        """Return the seconds of load before the controller starts to measure."""
        return max(0.0, self.balance_after_s - OPEN_LEAD_INTERVALS * self.interval_s) * time_scale

    def lead_s(self, time_scale: float) -> float:
        """Return 0: the load runs before the controller does."""
        return 0.0

    def contents(self) -> str:
        """Return the objects of every group."""
        ballast = f" and {self.ballast_mb} MiB of ballast" if self.ballast_mb else ""
        return f"{self.objects_per_pg} of {self.object_size}{ballast} in each group"

    def _details(self) -> list[str]:
        size = [] if self.object_size == 4194304 else [f"{self.object_size // 1024}KiB"]
        return [*size, *super()._details(), f"{self.rate:g} writes/s"]

    def _hot(self) -> list[str]:
        return [] if self.hot_share == HOT_SHARE else [f"{100 * self.hot_share:g} % hot"]


class GatewayWorkload(Disturbed):
    """A workload of COSBench (Table 1 of the MOS paper) on the object gateway. `workload`:
    COSBench's workload; `workers`: COSBench's processes."""

    op: Literal["s3"]
    scenario: Literal["none", "heterogeneity", "interference"] = "none"
    workload: Letter
    workers: int = Field(ge=1, le=4096)

    def contents(self) -> str:
        """Return the workload with the objects that it reads."""
        return f"objects of workload {self.workload}"

    def _details(self) -> list[str]:
        return [*super()._details(), f"workload {self.workload}, {self.workers} workers"]


class OtherWorkload(Disturbed):
    """A workload of an installed package. `workload`: COSBench's workload (s3), or the name of a
    package's (other); `options`: options of a package's workload."""

    op: Literal["other"]
    scenario: Literal["none", "heterogeneity", "interference"] = "none"
    workload: str
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)

    def contents(self) -> str:
        """Return the workload with its options, which decide what it reads."""
        return f"objects of {self.workload} with {sorted(self.options.items())}"

    def _details(self) -> list[str]:
        options = [f"{key}={value}" for key, value in sorted(self.options.items())]
        return [*super()._details(), f"workload {self.workload}", *options]


DLR: Cells[DlrCell] = Cells(
    *(PlainBench, Mixed, SpreadBench, OpenLoopWrites, GatewayWorkload, OtherWorkload),
    by=("op", "scenario"),
    idle=("hot_nodes", "move_every_s"),
)
