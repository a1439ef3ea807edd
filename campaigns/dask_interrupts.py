"""Preloaded by workers of this machine: a terminal's Ctrl-C goes to every process of its group, and
what runs is ended by the command that started the workers, not by each of them with a traceback.

Ignored, not handled: the simulators that a worker starts ignore it too, and end with their worker.
"""

from __future__ import annotations

import signal


def dask_setup(worker: object) -> None:
    """Called by Dask in the worker's main thread before it takes work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
