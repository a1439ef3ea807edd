"""What a cell needs of its ground, as small pieces that a fake can stand in for."""

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
    from campaigns.lease import Tenure


@dataclass(frozen=True)
class Facts:
    """What is known of a deployed testbed: a run's provenance, and part of its identity."""

    site: str
    versions: Mapping[str, str]
    hosts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    signal: str | None = None
    calibration: Mapping[str, Any] = field(default_factory=dict)
    osd_count: int | None = None


@dataclass(frozen=True)
class CellSetting:
    """One cell as the services see it: `parameters` in the paper's time, and everything drawn from
    `seed` (hot nodes, moves) the same for every cell of the block."""

    parameters: DlrCell
    seed: int
    block: int
    time_scale: float
    folder: Path
    run_id: str = "by-hand"
    controllers_dir: Path | None = None

    @property
    def duration_s(self) -> float:
        """The workload's duration in real time."""
        return self.parameters.duration_s * self.time_scale

    @property
    def interval_s(self) -> float:
        """The control interval in real time."""
        return self.parameters.interval_s * self.time_scale


@dataclass(frozen=True)
class Load:
    """Load seen while the workload ran; None where it cannot be told.

    `outside_cores`: cores used by what is not the testbed's; `steal`: share 0..1 of the machine's
    time; `client_share`: the load generator's use of its CPU share, 0..1; `stalled`: share 0..1 of
    the time in which the recorder, which looks every second, was kept from it; `settings`: those of
    the nodes as read back, by path in a run's calibration, where the site can."""

    outside_cores: float | None = None
    steal: float | None = None
    client_share: float | None = None
    stalled: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def as_summary(self) -> dict[str, float]:
        """The values that are known."""
        values = {
            "outside_cores": self.outside_cores,
            "steal": self.steal,
            "client_share": self.client_share,
            "stalled": self.stalled,
        }
        return {name: value for name, value in values.items() if value is not None}


class Services(Protocol):
    """Every step of one cell. Errors are HotbedError; context managers undo what they did, also
    after an error, and may be left twice."""

    def signal(self) -> str | None:
        """Name of the signal that the controller gets, as a run records it."""

    def clean(self) -> None:
        """Weights and affinities 1, no upmaps, all PGs active+clean, deletions finished, our own
        load stopped. Load that is not ours is refused with its node and process id."""

    def restore(self) -> bool:
        """Put the store back to its snapshot; False when the site has none."""

    def prefill(self) -> None:
        """Make sure that there are enough objects to read."""

    def drop_caches(self) -> None:
        """Empty the page caches of the nodes and the store's own."""

    def disturbance(self) -> AbstractContextManager[None]:
        """Starts the scenario's load; entered when it runs at its steady rate."""

    def recorder(self) -> AbstractContextManager[None]:
        """Records the nodes' counters once a second."""

    def controller(self) -> AbstractContextManager[None]:
        """The controller on the admin node; leaving it puts the store back as found."""

    def wait(self, seconds: float) -> None:
        """Let `seconds` of the ground's own time pass."""

    def usage(self) -> AbstractContextManager[None]:
        """Measures `Load` between entering and leaving."""

    def workload(self) -> None:
        """Run the benchmark to its end."""

    def load(self) -> Load:
        """What `usage` saw, and what `collect`, which comes before, found in the recording."""

    def not_restored(self) -> list[str]:
        """What the controller left changed in the store, in words."""

    def collect(self) -> Summary:
        """Write samples, latency, journal and raw output into the folder; what they come to."""


class Ground(Protocol):
    """A testbed that carries cells."""

    name: str

    def facts(self) -> Facts:
        """Versions and hosts, asked of the nodes."""

    def offers(self) -> Needs:
        """What the ground's store can sense and change (`Store.offers`): which controllers can
        run here."""

    def services(self, setting: CellSetting) -> Services:
        """The steps of one cell."""

    def lock_path(self) -> Path | None:
        """A file that stands for the testbed: one campaign at a time; None where campaigns do not
        disturb each other."""

    def tenure(self) -> Tenure | None:
        """Until when the testbed is ours, and who is asked for more; None where it stays."""
