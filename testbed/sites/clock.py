"""Clock of the sites: lease ends and pauses between polls. Tests replace it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Source of the current time and of pauses."""

    def now(self) -> float:
        """Return seconds since the epoch, for times that other machines know too, such as the end
        of a lease. A step of the wall clock moves it."""

    def monotonic(self) -> float:
        """Return seconds that never go back nor jump, for durations."""

    def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        """See `Clock.now`."""
        return time.time()

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        time.sleep(max(seconds, 0.0))
