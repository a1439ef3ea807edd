"""Whether workloads that do not keep to their traces still send no larger requests than announced.

A misbehaving workload is held to its token buckets, and takes no bound away from the others
(section 3.2). A request that is larger than any that was announced does: it is not interrupted for
longer than `bound_blocking` counts, and passes a bucket that is smaller than it.
"""

from __future__ import annotations

from pathlib import Path

from campaigns.prioritymeister.mixes import Mix
from workloads.traces.reader import TraceReader


def larger(mix: Mix) -> str | None:
    """A workload that sends larger reads or writes than in the trace that it announced; None: there
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
    """Bytes of the largest read and write of a trace, 0 where it has none."""
    read = write = 0
    for block in TraceReader(trace):
        read = max(read, int(block.size[block.read].max(initial=0)))
        write = max(write, int(block.size[~block.read].max(initial=0)))
    return read, write
