"""The typed parameters of one cell of COSPerf: section 8.2's fourteen hours under one policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from campaigns.kinds.parameters import KindParameters

Policy = Literal["static", "mos", "mos-pp"]
Profile = Literal["paper", "local"]
Runs = Literal["disjoint", "same"]

ADAPTING = ("mos", "mos-pp")
"""Policies that change the pool's division; Static leaves it as it begins."""

STAGES_MINUTES = 840.0


class SimParameters(KindParameters):
    """One cell. The defaults are the paper's where it gives a value (sections 8.1 and 8.2); what
    it does not give is ours (docs/mos.md).

    Attributes:
        policy: who divides the pool: ``static``, the same number of machines for each;
            ``mos``, whole machines; ``mos-pp``, shares.
        profile: whose measurements the model is made of: the paper's section 3, or this project's
            local testbed.
        runs: what the optimiser's cospurf is made of: runs that the judge knows nothing of, or the
            very ones.
        model_error: cospurf's curves are wrong by this part, each up or down as the seed says.
        learns: MOS++ corrects its model by what it measures.
        cost_factor: times of reconfigurations are multiplied by it.
        pools: so many times the 50 machines.
        minutes: all four stages together.
        epoch_s: the control interval.
        sla: what tenants are promised, as a part of what their load would get of an idle pool.
    """

    ALLOWED: ClassVar[Mapping[str, str]] = {}

    policy: Policy
    profile: Profile = "paper"
    runs: Runs = "disjoint"
    model_error: float = Field(default=0.0, ge=0, le=0.9)
    learns: bool = True
    cost_factor: float = Field(default=1.0, ge=0, le=100)
    pools: int = Field(default=1, ge=1, le=20)
    minutes: float = Field(default=STAGES_MINUTES, ge=60, le=10_000)
    epoch_s: float = Field(default=180.0, ge=10, le=3600)
    sla: float = Field(default=0.9, gt=0, le=1)

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, values: Any) -> Any:
        """Without what the policy does not have: one cell has one way to be written."""
        if not isinstance(values, Mapping) or values.get("policy") == "mos-pp":
            return values
        for name in ("model_error", "runs", "learns", "sla"):
            if name in values and values[name] != cls.model_fields[name].default:
                raise ValueError(f"{name}: only mos-pp has a model and SLAs: leave it out")
        return values

    @property
    def controller(self) -> str:
        """The policy, as the engine counts."""
        return self.policy

    def contents(self) -> str:
        """What cells share: the pool and the load over time."""
        return f"{self.profile}-{self.pools}-{self.minutes:g}"

    def label(self) -> str:
        """A short text for people: ``mos-pp, paper's profile, model 20 % off``."""
        parts = [self.policy, f"{self.profile} profile"]
        if self.pools != 1:
            parts.append(f"{50 * self.pools} machines")
        if self.model_error:
            parts.append(f"model {100 * self.model_error:g} % off")
        if self.runs == "same":
            parts.append("the judge's own runs")
        if not self.learns:
            parts.append("learns nothing")
        if self.cost_factor != 1:
            parts.append(f"costs x {self.cost_factor:g}")
        return ", ".join(parts)
