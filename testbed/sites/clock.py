"""Time as sites see it: the end of a lease, the pause between two looks. Tests move it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time and lets it pass."""

    def now(self) -> float:
        """Seconds since the epoch: for what begins or ends at a time that others know too, such as
        a lease. A step of the wall clock moves it."""

    def monotonic(self) -> float:
        """Seconds that never go back nor jump: for how long something takes."""

    def sleep(self, seconds: float) -> None:
        """Come back after so many seconds."""


class SystemClock:
    """The machine's own."""

    def now(self) -> float:
        """See `Clock.now`."""
        return time.time()

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        time.sleep(max(seconds, 0.0))
