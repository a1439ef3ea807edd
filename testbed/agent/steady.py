"""Clock for times of events that no clock adjustment changes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SteadyClock:
    """Clock of seconds since the epoch, fixed to the wall clock at its creation. Later steps of the
    wall clock change neither its times nor the intervals between them."""

    epoch_s: float = field(default_factory=lambda: time.time() - time.monotonic())

    def __call__(self) -> float:
        """Return the time now."""
        return self.at(time.monotonic())

    def at(self, monotonic_s: float) -> float:
        """Return the time at which the monotonic clock of this machine says `monotonic_s`."""
        return self.epoch_s + monotonic_s
