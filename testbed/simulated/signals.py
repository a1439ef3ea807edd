"""Pressure for a policy, from the simulator's cumulative signals of every node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import sub
from typing import Literal

from testbed.stores.ceph.perf import latency_pressure

Signal = Literal["node", "osd", "op_r_latency"]
SIGNAL_NAMES: Mapping[str, str] = {
    "node": "io_pressure",
    "osd": "osd_pressure",
    "op_r_latency": "op_r_latency",
}
"""Name of each signal in a run's record, as on a real testbed (testbed/agent/sense.py)."""

_NODE, _OSD, _READS, _READ_TIME, _OF_NODE = 0, 1, 2, 3, 4
"""Offsets of a node's numbers (simbridge's ``signals``): seconds in which a task of the node, and
of the OSD, waited for I/O; client reads, and the seconds that these took."""


def pressure(
    signal: Signal, before: Sequence[float], now: Sequence[float], interval_s: float
) -> dict[int, float]:
    """Return the pressure by OSD, in percent, over the `interval_s` seconds up to `now`."""
    if signal == "op_r_latency":
        reads = _differences(before, now, _READS)
        seconds = _differences(before, now, _READ_TIME)
        pairs = enumerate(zip(seconds, reads, strict=True))
        return latency_pressure({osd: took / count for osd, (took, count) in pairs if count > 0})
    if interval_s <= 0:
        return dict.fromkeys(range(len(now) // _OF_NODE), 0.0)
    scale = 100.0 / interval_s
    waited = _differences(before, now, _NODE if signal == "node" else _OSD)
    shares = [scale * seconds for seconds in waited]
    if min(shares) < 0.0 or max(shares) > 100.0:  # due to rounding
        shares = [min(100.0, max(0.0, share)) for share in shares]
    return dict(enumerate(shares))


def _differences(before: Sequence[float], now: Sequence[float], which: int) -> list[float]:
    if len(now) != len(before):
        raise ValueError(f"{len(now)} numbers after {len(before)}")
    return list(map(sub, now[which::_OF_NODE], before[which::_OF_NODE]))
