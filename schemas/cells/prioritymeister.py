"""Cells of PriorityMeister: an experiment of section 6 (or 3.2, 4.7) under a policy."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from schemas.cells.base import CellParameters, Cells

Policy = Literal["pm", "ps", "cake", "edf", "byslo", "mclock", "none", "inputs"]
Label = Literal["B", "D", "F", "G", "H"]

PLANNED = ("pm", "mclock")
"""Policies that use the plan."""
INPUTS = "inputs"
"""The policy of a cell that runs nothing and describes the traces (Table 2)."""
MULTIPLES = "124"
"""Figure 11: the three SLO numbers are these multiples of the same base."""


class PmCell(CellParameters):
    """Cell of PriorityMeister.

    Attributes:
        policy: policy of the enforcement; `inputs` runs nothing and describes the traces.
        mode: pm's treatment of a request that is out of profile.
        slos: the SLO of every workload with one, such as ``C=200ms D=100ms`` (section 5.2); None
            for the rule of `k`.
        k: an SLO is this multiple of the latency of a workload alone.
        slo_percentile: percentile of the latency alone that k multiplies; 100 is the longest.
        seconds: length of the traces.
        counted: requests that count, by arrival: those of the second ``half`` (section 5.3, for
            Cake to converge), or of the ``whole`` trace.
        buckets: token buckets of a workload at a stage.
        cake_upper: Cake's upper bound of SLO compliance, which the paper "increased" (5.3). The
            default is the best of 1.2, 2 and 4 in the campaign `pm-pilot`.
        copy_share: share of the disk that the copy L asks for.
        copy_in_flight: outstanding requests of the copy.
        blocking: plan with the bound that counts requests and packets in service.
        depth: requests given to a device at a time.
        frame: bytes of the modelled network's largest packets; jumbo frames, six times fewer to
            simulate than of 1538 bytes. A testbed's spec sets its own.
        device_profile: another disk than `disk7200.json`, a profile's file.
        traces: a folder of real traces, ``A.csv`` and so on, for the workloads in it.
        trace_windows: blocks are windows of the traces from random places, or ``consecutive``:
            the first block has the first `seconds` of each, the second the next; none overlaps.
        trace_load: speed of the traces: scaled to the device load of Table 2, or the traces'
            ``own``.
        scenario: the experiment of the paper.
    """

    scenario: Literal["disk", "burst", "misbehave", "network", "buckets", "levels", "table2"]
    policy: Policy = "pm"
    mode: Literal["hold", "best-effort"] = "hold"
    slos: str | None = Field(default=None, pattern=r"^[A-Z]\d*=\d+ms( [A-Z]\d*=\d+ms)*$")
    k: float = Field(default=2.0, gt=0, le=1000)
    slo_percentile: float = Field(default=99.9, ge=50, le=100)
    seconds: float = Field(default=600.0, ge=10, le=86400)
    counted: Literal["half", "whole"] = "half"
    buckets: int = Field(default=8, ge=1, le=64)
    cake_upper: float = Field(default=4.0, ge=1, le=100)
    copy_share: float = Field(default=0.25, gt=0, le=0.9)
    copy_in_flight: int = Field(default=4, ge=1, le=256)
    blocking: bool = False
    depth: int = Field(default=1, ge=1, le=256)
    frame: float = Field(default=9038.0, ge=100, le=1e9)
    device_profile: str | None = None
    traces: str | None = None
    trace_windows: Literal["random", "consecutive"] = "random"
    trace_load: Literal["table2", "own"] = "table2"

    @model_validator(mode="after")
    def _together(self) -> PmCell:
        self._of_real_traces("trace_windows", "trace_load")
        self._of_policies(("pm",), "mode")
        self._of_policies(("cake",), "cake_upper")
        self._of_policies(PLANNED, "blocking")
        if self.slos is not None:
            for name in ("k", "slo_percentile"):
                if getattr(self, name) != self.default(name):
                    raise ValueError(f"{name} belongs to the rule of k: leave it out with slos")
        if (self.scenario == "table2") is not (self.policy == INPUTS):
            raise ValueError("the scenario table2 and the policy inputs go together")
        return self

    def _of_real_traces(self, *names: str) -> None:
        for name in names:
            if self.traces is None and getattr(self, name) != self.default(name):
                raise ValueError(f"{name} is of real traces: name their folder as traces")

    def _of_policies(self, policies: tuple[str, ...], name: str) -> None:
        if self.policy not in policies and getattr(self, name) != self.default(name):
            raise ValueError(
                f"{name} belongs to policy {', '.join(policies)}: leave it out of {self.policy}"
            )

    @classmethod
    def default(cls, name: str) -> Any:
        """Return the default of a parameter."""
        return cls.model_fields[name].default

    @property
    def controller(self) -> str:
        return self.policy

    @property
    def given_slos(self) -> dict[str, float]:
        """SLOs in seconds by workload, as `slos` gives them; empty for the rule of `k`."""
        pairs = (one.split("=") for one in (self.slos or "").split())
        return {name: int(text.removesuffix("ms")) / 1000 for name, text in pairs}

    @property
    def planned(self) -> bool:
        """True if the policy uses the plan."""
        return self.policy in PLANNED

    @property
    def levels(self) -> int:
        """Priorities of the network; 0 for one per workload."""
        return 7

    @property
    def constant(self) -> bool:
        """True if planner and enforcer charge requests by one base time (figure 10)."""
        return False

    @property
    def as_planned(self) -> bool:
        """True if the plan's priorities and token buckets are enforced unchanged."""
        return not self.constant

    def contents(self) -> str:
        """Return the traces: they are made once for the cells that share them."""
        real = f" {self.traces} {self.trace_windows} {self.trace_load}" if self.traces else ""
        return f"{self.scenario}{self._shape()} {self.seconds:g}{real}"

    def _shape(self) -> str:
        return ""

    def label(self) -> str:
        """Return a short text for people: ``disk pm k=2``."""
        parts: list[str] = [self.scenario, self.policy]
        for name in type(self).model_fields:
            value = getattr(self, name)
            shown = name == "k" and self.slos is None
            if name in ("scenario", "policy") or (not shown and value == self.default(name)):
                continue
            parts.append(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}")
        return " ".join(parts)


class Copied(PmCell):
    """Scenario with a large file copy (workload L) in parallel, with requests of `copy_kib` KiB
    that are not interrupted."""

    copy_kib: int = Field(default=1024, ge=4, le=16384)


class OneDisk(Copied):
    """A, B, C and the copy L on one disk (figures 5, 6, 10, 11).

    Attributes:
        network_share: A, B and C send this share of Table 2's network load. A smaller share
            makes the requests of their storage load less sequential.
        permutation: figure 11: the multiples of one base that are the SLOs of A, B and C; with
            `slos`, their numbers in this order, 1 for the smallest.
        estimator: cost estimator of planner and enforcer; `constant` is figure 10's.
    """

    scenario: Literal["disk"]
    permutation: str | None = Field(default=None, pattern="^[124]{3}$")
    estimator: Literal["profile", "constant"] = "profile"
    network_share: float = Field(default=1.0, gt=0, le=1)

    @model_validator(mode="after")
    def _each_once(self) -> OneDisk:
        if self.permutation is not None and sorted(self.permutation) != sorted(MULTIPLES):
            raise ValueError(f"permutation holds each of {', '.join(MULTIPLES)} once, such as 124")
        return self

    @property
    def constant(self) -> bool:
        return self.estimator == "constant"

    def _shape(self) -> str:
        return f" {self.network_share:g} {self.copy_kib}"


class OneBurst(Copied):
    """One latency-sensitive workload and the copy L (figures 1 and 7).

    Attributes:
        burst: the workload.
        gaps: its times between arrivals: exponentials of balanced means, or `sharp`: bursts in
            which requests come `sharpness` times as often as on average; the same C_A^2.
        access: places of F, G and H: random, as in section 6.2, or `mixed`: partly sequential,
            in smaller and more requests of the same loads.
        sharpness: rate of requests within a burst over the mean rate, for sharp gaps.
    """

    scenario: Literal["burst"]
    burst: Label
    gaps: Literal["balanced", "sharp"] = "balanced"
    sharpness: float = Field(default=10.0, gt=1, le=100)
    access: Literal["random", "mixed"] = "random"

    @model_validator(mode="after")
    def _sharp(self) -> OneBurst:
        if self.sharpness != self.default("sharpness") and self.gaps != "sharp":
            raise ValueError(f"sharpness is of sharp gaps, and this cell has {self.gaps} ones")
        return self

    def _shape(self) -> str:
        return f" {self.burst} {self.gaps} {self.sharpness:g} {self.access} {self.copy_kib}"


class Misbehave(PmCell):
    """C and D (figure 8); with `misbehaves`, D sends E's requests."""

    scenario: Literal["misbehave"]
    misbehaves: bool = False


class Network(PmCell):
    """C, I, J and K, a device each (figure 9).

    Attributes:
        bottleneck: the server's link out, or the clients' link in.
        network_levels: priorities of the network; 0 for one per workload.
    """

    scenario: Literal["network"]
    bottleneck: Literal["egress", "ingress"] = "egress"
    network_levels: int = Field(default=7, ge=0, le=64)

    @property
    def levels(self) -> int:
        return self.network_levels

    def _shape(self) -> str:
        return f" {self.bottleneck}"


class Buckets(PmCell):
    """B, A and C in this order of priorities (figure 4).

    Attributes:
        misbehaves: True if B has far more work than announced for 40 s.
        limiters: all of B's token buckets, or one that is fast and shallow, or one that is slow and
            deep.
    """

    scenario: Literal["buckets"]
    misbehaves: bool = False
    limiters: Literal["all", "fast", "slow"] = "all"

    @model_validator(mode="after")
    def _limited(self) -> Buckets:
        self._of_policies(("pm",), "limiters")
        return self

    @property
    def as_planned(self) -> bool:
        return self.limiters == "all"


class Levels(PmCell):
    """Twelve workloads on one link (section 4.7), with `network_levels` priorities of the network;
    0 for one per workload."""

    scenario: Literal["levels"]
    network_levels: int = Field(default=7, ge=0, le=64)

    @property
    def levels(self) -> int:
        return self.network_levels


class Table2(PmCell):
    """The traces themselves."""

    scenario: Literal["table2"]


PM: Cells[PmCell] = Cells(
    *(OneDisk, OneBurst, Misbehave, Network, Buckets, Levels, Table2), by=("scenario",)
)
