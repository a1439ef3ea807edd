"""The typed parameters of one cell of the DLR experiment, in the paper's time."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from campaigns.checked import allowed_of, checked

Op = Literal["write", "seq", "rand", "open", "s3"]
Scenario = Literal["none", "heterogeneity", "interference", "mix", "spread", "skew", "single"]
Mix = Literal["A", "B", "C", "D", "E"]
Letter = Literal["A", "B", "C", "D"]
Signal = Literal["node", "osd", "op_r_latency"]

MIX_LOAD = {"A": 0.10, "B": 0.25, "C": 0.50, "D": 0.75, "E": 1.00}
"""Figure 3's mixes as offered loads: shares of what a node's disk can serve."""

SPREAD_MEAN = 0.5
"""Figure 4's mean offered load: half the nodes carry 50 % (1 + spread), half 50 % (1 - spread)."""

CONTROLLER_LEAD_INTERVALS = 2
"""The controller runs this many control intervals before the benchmark starts."""


SIZE_PARAMETERS = ("osds", "hot_share")

OPEN_SCENARIOS = ("skew", "single")
"""Loads of open-loop writes (paper Ursa, section 5.2): to a share of the nodes more than to the
others, or to one node (its figure 4)."""

OPEN_PARAMETERS = ("rate", "cold_share", "balance_after_s", "objects_per_pg", "ballast_mb")
HOT_SHARE = 0.2
COLD_SHARE = 0.4
BALANCE_AFTER_S = 60.0
OPEN_LEAD_INTERVALS = 5
"""Under open-loop writes the controller is started so many control intervals before it is to
decide: that long it measures, as the loads of groups are told by few writes each."""

OBJECTS_PER_PG = 8

GATEWAY_PARAMETERS = ("workload", "workers")
BENCH_PARAMETERS = ("object_size", "concurrency")
"""Of rados bench and open-loop writes; a workload of COSBench has sizes and workers of its own."""


class CellParameters(BaseModel):
    """One cell. Times are the paper's: the engine multiplies them by the campaign's time_scale.

    The defaults are the paper's (section V-B, V-C): 4 MB objects, 16 concurrent operations, 180 s,
    fio on 4 of the nodes, moved every 90 s under interference, control interval 20 s.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)

    op: Op
    scenario: Scenario = "none"
    controller: str = Field(default="default", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}$")
    controller_parameters: dict[str, bool | int | float | str] = Field(default_factory=dict)
    object_size: int = Field(default=4194304, ge=4096, le=2**28)
    concurrency: int = Field(default=16, ge=1, le=4096)
    duration_s: float = Field(default=180, gt=0, le=86400)
    hot_nodes: int = Field(default=4, ge=1, le=10_000)
    move_every_s: float = Field(default=90, gt=0, le=86400)
    mix: Mix | None = None
    spread: float | None = Field(default=None, ge=0, le=1)
    signal: Signal = "node"
    interval_s: float = Field(default=20, gt=0, le=3600)
    # On the ground sim alone: a store of another size than the spec's.
    osds: int | None = Field(default=None, ge=2, le=10_000)
    hot_share: float | None = Field(default=None, gt=0, le=1)
    # Of open-loop writes: a second to each hot node, to the others this part of it, and when the
    # controller is to decide (it is started OPEN_LEAD_INTERVALS earlier).
    rate: float | None = Field(default=None, gt=0, le=1e6)
    cold_share: float | None = Field(default=None, ge=0, le=1)
    balance_after_s: float | None = Field(default=None, ge=0, le=86400)
    objects_per_pg: int | None = Field(default=None, ge=1, le=10_000)
    # MiB that each group holds besides what is written: it is moved, and never written again.
    ballast_mb: int | None = Field(default=None, ge=1, le=4096)
    # Of COSBench on the object gateway: which of Table 1's workloads (paper MOS), and its workers.
    workload: Letter | None = None
    workers: int | None = Field(default=None, ge=1, le=4096)

    @model_validator(mode="after")
    def _together(self) -> CellParameters:
        if (self.scenario == "mix") != (self.mix is not None):
            raise ValueError("mix (A to E) belongs to the scenario mix, and to it alone")
        if (self.scenario == "spread") != (self.spread is not None):
            raise ValueError("spread (0 to 1) belongs to the scenario spread, and to it alone")
        if (self.op == "open") != (self.scenario in OPEN_SCENARIOS):
            raise ValueError("op open (open-loop writes) belongs to the scenarios skew and single")
        if (self.op == "open") != (self.rate is not None):
            raise ValueError("rate (writes a second to a hot node) belongs to op open")
        if self.op != "open" and any(getattr(self, name) is not None for name in OPEN_PARAMETERS):
            raise ValueError(f"{', '.join(OPEN_PARAMETERS)} belong to op open")
        if (self.op == "s3") != (self.workload is not None):
            raise ValueError("workload (A to D of COSBench) belongs to op s3, and to it alone")
        if (self.op == "s3") != (self.workers is not None):
            raise ValueError("workers (of such a workload) belongs to op s3, and to it alone")
        foreign = [name for name in BENCH_PARAMETERS if name in self.model_fields_set]
        if self.op == "s3" and foreign:
            raise ValueError(f"{foreign[0]} belongs to rados bench: op s3 has workload and workers")
        if self.hot_share is not None and "hot_nodes" in self.model_fields_set:
            raise ValueError("hot_nodes and hot_share both say how many are hot: keep one of them")
        return self

    def canonical(self) -> dict[str, Any]:
        """JSON-able, every field present: what is hashed, stored and given to the notebook. What
        only a store of another size has is left out elsewhere: ids of its runs stay as they are.
        """
        given = self.model_dump(mode="json")
        optional = SIZE_PARAMETERS + OPEN_PARAMETERS + GATEWAY_PARAMETERS
        absent = [name for name in optional if given[name] is None]
        if self.op == "s3":
            absent += BENCH_PARAMETERS
        if self.hot_share is not None or self.op == "open":
            absent.append("hot_nodes")
        return {name: value for name, value in given.items() if name not in absent}

    def hot_count(self, nodes: int) -> int:
        """How many of `nodes` OSD nodes are disturbed at a time: of a share at least one."""
        if self.op == "open":
            share = HOT_SHARE if self.hot_share is None else self.hot_share
            return 1 if self.scenario == "single" else max(1, round(share * nodes))
        if self.hot_share is None:
            return self.hot_nodes
        return max(1, round(self.hot_share * nodes))

    def contents(self) -> str:
        """The objects that the cell needs in the store: cells that share them follow each other."""
        if self.op == "open":
            beside = "" if self.ballast_mb is None else f" and {self.ballast_mb} MiB of ballast"
            count = self.objects_per_pg or OBJECTS_PER_PG
            return f"{count} of {self.object_size}{beside} in each group"
        if self.op == "s3":
            return f"objects of workload {self.workload}"
        return "empty" if self.op == "write" else f"objects of {self.object_size}"

    def label(self) -> str:
        """A short text for people: ``seq heterogeneity dlr``."""
        parts = [self.op, self.scenario, self.controller]
        if self.mix is not None:
            parts.append(f"mix={self.mix}")
        if self.spread is not None:
            parts.append(f"spread={self.spread:g}")
        if self.object_size != 4194304:
            parts.append(f"{self.object_size // 1024}KiB")
        if self.signal != "node":
            parts.append(f"signal={self.signal}")
        if self.workload is not None:
            parts.append(f"workload {self.workload}, {self.workers} workers")
        if self.rate is not None:
            parts.append(f"{self.rate:g} writes/s")
        if self.osds is not None:
            parts.append(f"{self.osds} OSDs")
        if self.hot_share is not None:
            parts.append(f"{100 * self.hot_share:g} % hot")
        if self.osds is not None and self.scenario == "interference":
            parts.append(f"moving every {self.move_every_s:g} s")
        parts += [f"{key}={value}" for key, value in sorted(self.controller_parameters.items())]
        return " ".join(parts)


def parameter_names() -> tuple[str, ...]:
    """Every parameter that a campaign file may name."""
    return tuple(CellParameters.model_fields)


def check(values: dict[str, Any], where: str) -> CellParameters:
    """`values` as typed parameters.

    Args:
        values: one cell's parameters by name.
        where: file and grid, for the message.

    Raises:
        UserError: file, grid, key, what is allowed.
    """
    return checked(CellParameters, values, where, _allowed)


def _allowed(key: str) -> str:
    """What the field `key` may hold, in words."""
    if key == "controller":
        return "allowed: the name of a controller's folder"
    if key == "controller_parameters":
        return "allowed: a mapping of names to numbers, texts or booleans"
    return allowed_of(CellParameters.model_fields[key])


def called_s(parameters: CellParameters, time_scale: float) -> float:
    """Return the seconds of open-loop writes before the controller starts. It then measures, and
    decides when the load has run for `balance_after_s`."""
    after_s = parameters.balance_after_s
    after_s = BALANCE_AFTER_S if after_s is None else after_s
    return max(0.0, after_s - OPEN_LEAD_INTERVALS * parameters.interval_s) * time_scale


def lead_s(parameters: CellParameters, time_scale: float) -> float:
    """Time in which the controller runs before the workload; nothing to wait for when there is
    neither disturbance nor controller, and where the load is there before the controller."""
    if parameters.op == "open":
        return 0.0
    if parameters.scenario == "none" and parameters.controller == "default":
        return 0.0
    return CONTROLLER_LEAD_INTERVALS * parameters.interval_s * time_scale
