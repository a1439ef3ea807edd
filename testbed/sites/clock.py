"""Clock of the sites: lease ends and pauses between polls. Tests replace it."""

from __future__ import annotations

import time


class Clock:
    """The machine's own clock."""

    def now(self) -> float:
        """Return seconds since the epoch, for times that other machines know too, such as the end
        of a lease. A step of the wall clock moves it."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds that never go back nor jump, for durations."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        time.sleep(max(seconds, 0.0))
