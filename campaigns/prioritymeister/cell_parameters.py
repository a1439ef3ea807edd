"""The typed parameters of one cell: which experiment of section 6, under which policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from campaigns.kinds import parameters as kinds
from campaigns.kinds.parameters import KindParameters

Scenario = Literal["disk", "burst", "misbehave", "network", "buckets", "levels", "table2"]
Policy = Literal["pm", "ps", "cake", "edf", "byslo", "mclock", "none", "inputs"]
Burst = Literal["B", "D", "F", "G", "H"]

PLANNED = ("pm", "mclock")
"""Policies that are told something of the plan."""
INPUTS = "inputs"
"""The policy of a cell that runs nothing and describes the traces (Table 2)."""
MULTIPLES = "124"
"""Figure 11: the three SLO numbers are so many times the same base."""
COPIED = ("disk", "burst")
"""Scenarios in which a large file copy (workload L) runs too."""

_OF: dict[str, tuple[tuple[str, ...], str]] = {
    "burst": (("burst",), "the latency-sensitive workload of the scenario burst"),
    "gaps": (("burst",), "of the scenario burst"),
    "sharpness": (("burst",), "of the scenario burst"),
    "access": (("burst",), "of the scenario burst"),
    "network_share": (("disk",), "of the scenario disk"),
    "copy_kib": (COPIED, "of the scenarios disk and burst"),
    "permutation": (("disk",), "of the scenario disk"),
    "estimator": (("disk",), "of the scenario disk"),
    "misbehaves": (("misbehave", "buckets"), "of the scenarios misbehave and buckets"),
    "bottleneck": (("network",), "of the scenario network"),
    "limiters": (("buckets",), "of the scenario buckets"),
    "network_levels": (("network", "levels"), "of the scenarios network and levels"),
}


class PmParameters(KindParameters):
    """One cell.

    Attributes:
        scenario: which workloads share what: `disk` (A, B, C and the copy L on one disk: figures 5,
            6, 10, 11), `burst` (one workload and L: figures 1 and 7), `misbehave` (C and D: figure
            8), `network` (C, I, J and K, a device each: figure 9), `buckets` (B, A and C in this
            order: figure 4), `levels` (twelve workloads on one link: section 4.7), `table2` (the
            traces themselves).
        policy: whose enforcement; `inputs` runs nothing and describes the traces.
        mode: of pm: what becomes of a request that is out of profile.
        k: SLOs are so many times what a workload has alone.
        slo_percentile: percentile of the latency alone that k multiplies; 100 is the longest.
        seconds: length of the traces; requests that arrive in the second half count.
        burst: the workload of the scenario `burst`.
        gaps: its times between arrivals: exponentials of balanced means, or `sharp`: bursts in
            which requests come `sharpness` times as often as on average; the same C_A^2.
        sharpness: of sharp gaps.
        access: where F, G and H read and write: anywhere, as in section 6.2, or `mixed`: partly
            one after the other, in smaller and more requests of the same loads.
        permutation: figure 11: which multiple of one base is whose SLO, of A, B and C.
        estimator: what planner and enforcer think that requests cost; `constant` is figure 10's.
        misbehaves: D sends what E does; or B has 40 s of far more work than it announced.
        bottleneck: the server's link out, or the clients' link in.
        limiters: figure 4: all of B's token buckets, or one that is fast and shallow, or one that
            is slow and deep.
        buckets: token buckets of a workload at a stage.
        network_levels: priorities of the network; 0 for as many as there are workloads.
        cake_upper: Cake's upper bound of SLO compliance, which the paper "increased".
        copy_share: part of the disk that the copy L asks for.
        copy_in_flight: requests of the copy that are outstanding.
        copy_kib: size of the copy's requests, which are not interrupted, in KiB.
        network_share: A, B and C send so much of Table 2's network load: the less, the less
            sequential are the requests that make up their storage load.
        blocking: plan with the bound that counts requests and packets in service.
        depth: requests that a device is given at a time.
        frame: bytes of the modelled network's largest packets; jumbo frames, of which there are
            six times fewer to simulate than of 1538 bytes. A testbed's are those of its spec.
        device_profile: another disk than `disk7200.json`, a profile's file.
        traces: a folder of real traces, ``A.csv`` and so on, for the workloads that it has.
        trace_windows: blocks are windows of these from random places, or ``consecutive``: the first
            block has the first `seconds` of each, the second those that follow; none overlaps.
        trace_load: how fast they are played: until they load the device as Table 2 says, or at
            their ``own`` speed.
    """

    scenario: Scenario
    policy: Policy = "pm"
    mode: Literal["hold", "best-effort"] = "hold"
    k: float = Field(default=2.0, gt=0, le=1000)
    slo_percentile: float = Field(default=99.9, ge=50, le=100)
    seconds: float = Field(default=600.0, ge=10, le=86400)
    burst: Burst | None = None
    gaps: Literal["balanced", "sharp"] = "balanced"
    sharpness: float = Field(default=10.0, gt=1, le=100)
    access: Literal["random", "mixed"] = "random"
    permutation: str | None = Field(default=None, pattern="^[124]{3}$")
    estimator: Literal["profile", "constant"] = "profile"
    misbehaves: bool = False
    bottleneck: Literal["egress", "ingress"] = "egress"
    limiters: Literal["all", "fast", "slow"] = "all"
    buckets: int = Field(default=8, ge=1, le=64)
    network_levels: int = Field(default=7, ge=0, le=64)
    cake_upper: float = Field(default=1.2, ge=1, le=100)
    copy_share: float = Field(default=0.25, gt=0, le=0.9)
    copy_in_flight: int = Field(default=4, ge=1, le=256)
    copy_kib: int = Field(default=1024, ge=4, le=16384)
    network_share: float = Field(default=1.0, gt=0, le=1)
    blocking: bool = False
    depth: int = Field(default=1, ge=1, le=256)
    frame: float = Field(default=9038.0, ge=100, le=1e9)
    device_profile: str | None = None
    traces: str | None = None
    trace_windows: Literal["random", "consecutive"] = "random"
    trace_load: Literal["table2", "own"] = "table2"

    @model_validator(mode="after")
    def _together(self) -> PmParameters:
        for name, (scenarios, words) in _OF.items():
            if self.scenario not in scenarios and getattr(self, name) != _default(name):
                raise ValueError(f"{name} is {words}, and this cell has {self.scenario}")
        for name in ("trace_windows", "trace_load"):
            if self.traces is None and getattr(self, name) != _default(name):
                raise ValueError(f"{name} is of real traces: name their folder as traces")
        if self.mode != "hold" and self.policy != "pm":
            raise ValueError(f"mode {self.mode} is pm's, and this cell has {self.policy}")
        if self.limiters != "all" and self.policy != "pm":
            raise ValueError(f"limiters are pm's, and this cell has {self.policy}")
        if self.blocking and not self.planned:
            raise ValueError(f"blocking is of plans, and this cell has {self.policy}")
        if self.sharpness != _default("sharpness") and self.gaps != "sharp":
            raise ValueError(f"sharpness is of sharp gaps, and this cell has {self.gaps} ones")
        if self.cake_upper != _default("cake_upper") and self.policy != "cake":
            raise ValueError(f"cake_upper is cake's, and this cell has {self.policy}")
        if (self.scenario == "burst") is (self.burst is None):
            raise ValueError("burst names the workload of the scenario burst, B, D, F, G or H")
        if self.permutation is not None and sorted(self.permutation) != sorted(MULTIPLES):
            raise ValueError(f"permutation holds each of {', '.join(MULTIPLES)} once, such as 124")
        if (self.scenario == "table2") is not (self.policy == INPUTS):
            raise ValueError("the scenario table2 and the policy inputs go together")
        return self

    @property
    def controller(self) -> str:
        """The policy, as the engine counts."""
        return self.policy

    @property
    def planned(self) -> bool:
        """Whether the policy is told something of the plan."""
        return self.policy in PLANNED

    def contents(self) -> str:
        """The traces: cells that share them follow each other, and they are made once for them."""
        shape = f"{self.burst} {self.gaps} {self.sharpness:g} {self.access}"
        copy = f"{self.network_share:g} {self.copy_kib}"
        real = f" {self.traces} {self.trace_windows} {self.trace_load}" if self.traces else ""
        return f"{self.scenario} {shape} {copy} {self.bottleneck} {self.seconds:g}{real}"

    def label(self) -> str:
        """A short text for people: ``disk pm k=2``."""
        parts: list[str] = [self.scenario, self.policy]
        for name in PmParameters.model_fields:
            value = getattr(self, name)
            if name in ("scenario", "policy") or (name != "k" and value == _default(name)):
                continue
            parts.append(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}")
        return " ".join(parts)


def _default(name: str) -> object:
    return PmParameters.model_fields[name].default


def check(values: Mapping[str, Any], where: str) -> PmParameters:
    """`values` as typed parameters; see `campaigns.kinds.parameters.check`."""
    return kinds.check(PmParameters, values, where)
