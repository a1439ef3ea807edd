"""Ignore Ctrl-C in this machine's workers, which preload this module before anything that is slow.

A terminal sends Ctrl-C to every process of its group. The command that started the workers ends
them, without tracebacks. SIGINT is ignored, not handled: simulators inherit that, and end with
their worker."""

from __future__ import annotations

import signal


def dask_setup(worker: object) -> None:
    """Ignore SIGINT; Dask calls this in the worker's main thread before the worker starts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
