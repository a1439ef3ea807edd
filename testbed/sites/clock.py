"""Time as sites see it: a lease's length, the pause between two looks. Tests move it themselves."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time and lets it pass."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def sleep(self, seconds: float) -> None:
        """Come back after so many seconds."""


class SystemClock:
    """The machine's own."""

    def now(self) -> float:
        """See `Clock.now`."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        time.sleep(max(seconds, 0.0))
