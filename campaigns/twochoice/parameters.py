"""The typed parameters of one cell: the cluster, the burst, and who schedules it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from campaigns.kinds.parameters import SizedParameters

Scheduler = Literal[
    "fixed",
    "random",
    "two-choice",
    "collaborative",
    "preassign",
    "both",
    "prequal",
    "oracle",
]
Choices = Literal["random+random", "home+random"]
History = Literal["learned", "cold"]

LEARNING: frozenset[str] = frozenset({"preassign", "both", "prequal"})
"""Schedulers whose servers have a history: of decisions, P(load), or (Prequal) of latencies."""

PROBING = LEARNING | {"two-choice", "collaborative"}
"""Schedulers that choose between servers whose loads they have asked for."""

BASE_MIB = 8.0
SERVER_BYTES = 6000
PROCESS_BYTES = 1700


class BurstParameters(SizedParameters):
    """One cell. `size` stands for servers and processes (``1K-10K``).

    The defaults are figure 3's where the paper gives a value: 1 MB, 5 ms, stragglers with 5 times
    the load. What it does not give is inferred (docs/twochoice-experiments.md).

    Attributes:
        scheduler: who decides where a write goes.
        choices: which two servers a write has to choose from (section III or V.A).
        processes_per_node: processes that share a scheduler instance; what collaborates.
        straggler_ratio: part of the servers that are stragglers, others in each round.
        straggler_factor: how many times the others' load they have.
        load_mean, load_sd: normal distribution of the writes that a server holds when a burst
            begins, rounded to whole ones.
        service_s: a server's time for one write.
        round_trip_s: between a compute node and a server.
        link_s: a compute node's network link's time for one write.
        spread_s: processes' nodes begin a burst within this time of each other.
        history: ``learned``, what servers know from `learn_rounds` that do not count; ``cold``,
            nothing: it is forgotten before each round.
        rounds: bursts that count, in each run.
        redirects: a write counts when its home server has recorded where it went (section V.A).
        cache_s: for how long servers' knowledge of others' loads is used.
        prior_weight: for as many decisions a server's first guess of P(load), one half, counts.
    """

    SIZED: ClassVar[tuple[str, str]] = ("servers", "processes")
    SIZE_EXAMPLE: ClassVar[str] = "1K-10K"

    scheduler: Scheduler
    choices: Choices = "random+random"
    servers: int = Field(default=1000, ge=2, le=1_000_000)
    processes: int = Field(default=10_000, ge=1, le=10_000_000)
    processes_per_node: int = Field(default=8, ge=1, le=65_536)
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
    history: History = "learned"
    learn_rounds: int = Field(default=20, ge=0, le=10_000)
    rounds: int = Field(default=10, ge=1, le=10_000)
    redirects: bool = False

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, values: Any) -> Any:
        """Without what the scheduler does not have: one cell has one way to be written."""
        if not isinstance(values, Mapping):
            return values
        plain = dict(values)
        scheduler = plain.get("scheduler")
        if scheduler not in LEARNING:
            if plain.get("history", "learned") != "learned":
                raise ValueError(f"history: {scheduler} has none: leave it out")
            plain["learn_rounds"] = 0
        elif plain.get("history") == "cold":
            plain["learn_rounds"] = 0
        if scheduler not in PROBING and plain.get("choices", "random+random") != "random+random":
            raise ValueError(f"choices: {scheduler} asks no server for its load: leave it out")
        return plain

    @property
    def controller(self) -> str:
        """The scheduler, as the engine counts."""
        return self.scheduler

    @property
    def memory_mib(self) -> float:
        """Memory that the simulator needs at most, about."""
        return BASE_MIB + (SERVER_BYTES * self.servers + PROCESS_BYTES * self.processes) / 2**20

    def contents(self) -> str:
        """Nothing is shared between cells but their size."""
        return self.size

    def label(self) -> str:
        """A short text for people: ``1K-10K both, 10 % stragglers``."""
        parts = [self.size, self.scheduler]
        if self.choices != "random+random":
            parts.append(self.choices)
        if self.history == "cold":
            parts.append("cold")
        if self.processes_per_node != BurstParameters.model_fields["processes_per_node"].default:
            parts.append(f"{self.processes_per_node} a node")
        return f"{' '.join(parts)}, {100 * self.straggler_ratio:g} % stragglers"
