"""Looks after a lease while a cell runs, which may take longer than the lease does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from campaigns.lease import AGAIN_S, Lease

GRACE_S = 90.0
"""Time for an interrupted cell to put the testbed back, as after Ctrl-C."""


@contextmanager
def watching(
    lease: Lease | None, over: Callable[[str], None], kill: Callable[[], None]
) -> Iterator[None]:
    """While the block runs, call `over` with the reason, once, when the lease is due to end or the
    testbed is gone; and `kill`, when the block has not ended long after that: a cell may hang on
    machines that are not there any more. Both are called in a thread of its own; without a lease
    never."""
    if lease is None:
        yield
        return
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(AGAIN_S):
            why = lease.due()
            if why is not None:
                over(why)
                if not ended.wait(GRACE_S):
                    kill()
                return

    thread = threading.Thread(target=watch, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
