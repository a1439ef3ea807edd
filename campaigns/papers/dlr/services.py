"""Interfaces between a cell and its ground, small enough for fakes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from schemas.cells.dlr import DlrCell
from schemas.run import Summary
from testbed.stores.contract import Needs

if TYPE_CHECKING:
    from campaigns.engine.lease import Tenure


@dataclass(frozen=True)
class Facts:
    """Facts about a deployed testbed: a run's provenance, and part of its identity."""

    site: str
    versions: Mapping[str, str]
    hosts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    signal: str | None = None
    calibration: Mapping[str, Any] = field(default_factory=dict)
    osd_count: int | None = None


@dataclass(frozen=True)
class CellSetting:
    """One cell's settings for the services. `parameters` are in the paper's time. Draws from `seed`
    (hot nodes, moves) are the same for every cell of a block."""

    parameters: DlrCell
    seed: int
    block: int
    time_scale: float
    folder: Path
    run_id: str = "by-hand"
    controllers_dir: Path | None = None

    @property
    def duration_s(self) -> float:
        """The workload's duration in real time, in seconds."""
        return self.parameters.duration_s * self.time_scale

    @property
    def interval_s(self) -> float:
        """The control interval in real time, in seconds."""
        return self.parameters.interval_s * self.time_scale


@dataclass(frozen=True)
class Load:
    """Load while the workload ran; None if unknown.

    `outside_cores`: cores used outside the testbed. `steal`: share 0..1 of the machine's time.
    `client_share`: the load generator's use of its CPU share, 0..1. `stalled`: share 0..1 of the
    time in which the recorder missed its one-second samples. `settings`: the nodes' settings as
    read back, by path in a run's calibration, if possible."""

    outside_cores: float | None = None
    steal: float | None = None
    client_share: float | None = None
    stalled: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def as_summary(self) -> dict[str, float]:
        """Return the known values."""
        values = {
            "outside_cores": self.outside_cores,
            "steal": self.steal,
            "client_share": self.client_share,
            "stalled": self.stalled,
        }
        return {name: value for name, value in values.items() if value is not None}


class Services(Protocol):
    """Steps of one cell. Errors are HotbedError. Context managers undo their changes, also after an
    error, and may be left twice."""

    def signal(self) -> str | None:
        """Return the name of the controller's signal, for the run's record."""

    def clean(self) -> None:
        """Clean the store: weights and affinities 1, no upmaps, all PGs active+clean, deletions
        finished, Hotbed's load stopped. Raise for other load, with its node and process id."""

    def restore(self) -> bool:
        """Restore the store's snapshot; return False if the site has none."""

    def prefill(self) -> None:
        """Ensure that there are enough objects to read."""

    def drop_caches(self) -> None:
        """Empty the page caches of the nodes and the store's own caches."""

    def disturbance(self) -> AbstractContextManager[None]:
        """Run the scenario's load; the block begins when the load has its steady rate."""

    def recorder(self) -> AbstractContextManager[None]:
        """Record the nodes' counters once a second."""

    def controller(self) -> AbstractContextManager[None]:
        """Run the controller on the admin node; on exit, restore the store as it was found."""

    def wait(self, seconds: float) -> None:
        """Let `seconds` of the ground's own time pass."""

    def usage(self) -> AbstractContextManager[None]:
        """Measure `Load` inside the block."""

    def workload(self) -> None:
        """Run the benchmark to its end."""

    def load(self) -> Load:
        """Return the load from `usage` and from the recording, which `collect` reads before."""

    def not_restored(self) -> list[str]:
        """Return the controller's remaining changes of the store, as text."""

    def collect(self) -> Summary:
        """Write samples, latency, journal and raw output into the folder; return their summary."""


class Ground(Protocol):
    """A testbed that runs cells."""

    name: str

    def facts(self) -> Facts:
        """Read versions and hosts from the nodes."""

    def offers(self) -> Needs:
        """Return the signals and actions of the ground's store (`Store.offers`); they decide which
        controllers can run here."""

    def services(self, setting: CellSetting) -> Services:
        """Return the steps of one cell."""

    def lock_path(self) -> Path | None:
        """Return a lock file of the testbed for one campaign at a time; None if campaigns do not
        disturb each other."""

    def tenure(self) -> Tenure | None:
        """Return the testbed's tenure, which may be extended; None if the testbed never ends."""
