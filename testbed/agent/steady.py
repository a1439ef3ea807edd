"""Times of events on a clock that nobody sets while they happen."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SteadyClock:
    """Seconds since the epoch as the wall clock said when this clock was made; a later step of the
    wall clock moves none of them, and so no interval between two."""

    epoch_s: float = field(default_factory=lambda: time.time() - time.monotonic())

    def __call__(self) -> float:
        """Return the time now."""
        return self.at(time.monotonic())

    def at(self, monotonic_s: float) -> float:
        """Return the time at which the monotonic clock of this machine says `monotonic_s`."""
        return self.epoch_s + monotonic_s
