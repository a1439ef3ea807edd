"""Check of misbehaving workloads: requests must not be larger than announced.

A misbehaving workload is limited by its token buckets, and breaks no bound of other workloads
(section 3.2). A request larger than any announced request can break a bound. It holds the device
longer than `bound_blocking` assumes, and passes a bucket that is smaller than the request.
"""

from __future__ import annotations

from pathlib import Path

from campaigns.papers.prioritymeister.mixes import Mix
from workloads.traces.reader import TraceReader


def larger(mix: Mix) -> str | None:
    """Return a workload that sends larger reads or writes than its announced trace; None if there
    is none."""
    for load in mix.loads:
        announced = mix.base / load.trace
        if load.replay.file == announced:
            continue
        told, sent = _largest(announced), _largest(load.replay.file)
        if any(there > known for there, known in zip(sent, told, strict=True)):
            return load.name
    return None


def _largest(trace: Path) -> tuple[int, int]:
    """Return the bytes of a trace's largest read and write; 0 if there is none."""
    read = write = 0
    for block in TraceReader(trace):
        read = max(read, int(block.size[block.read].max(initial=0)))
        write = max(write, int(block.size[~block.read].max(initial=0)))
    return read, write
