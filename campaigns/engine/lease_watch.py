"""Watch a lease while a cell runs, because the cell may take longer than the lease."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from campaigns.engine.lease import AGAIN_S, Lease

GRACE_S = 90.0
"""Time for an interrupted cell to restore the testbed, as after Ctrl-C."""


@contextmanager
def watching(
    lease: Lease | None, over: Callable[[str], None], kill: Callable[[], None]
) -> Iterator[None]:
    """Watch the lease while the block runs. If the lease is about to end or the testbed is lost,
    call `over` once with the reason. If the block has not ended `GRACE_S` later, call `kill`: a
    cell may hang on lost machines. A separate thread makes the calls; without a lease there are
    none."""
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
