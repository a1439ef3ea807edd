"""Upper bounds on reads per second, computed from the latencies of disks that journals hold.

Controllers that sense latencies keep, for every step, each OSD's reads and their latency, and where
each placement group is. Of a block's runs with the same hotspots:

1. Reads and seconds of each OSD are added up between two moves of the hotspots, without steps that
   changed primaries or moved data.
2. latency = delay + service * (1 + queue found) (`schemas.closed_network`), the queue by Little's
   law. Service is the lower quartile over the OSDs; the rest of a latency is the delay behind other
   users. Requests in flight that are at no disk are at the client or on the way.
3. `placed`: no choice of primaries passes this rate. `free`: nor does any placement of replicas.

Both are bounds of the model; sampling moves them by some percent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.core.load import LoadedRun
from schemas.closed_network import Station, best_shares, placed_bound, seen_of

SENSING = ("dlr-even", "dlr-fast", "dlr-move", "oracle-move")
"""Controllers with the reads and latencies of every OSD in their journals."""


def bounds(runs: Sequence[LoadedRun]) -> dict[str, float]:
    """Return the reads per second that no controller passes in the runs of one block with the same
    hotspots: ``placed`` and ``free``. Empty without a journal that shows reads."""
    sensing = [one for one in runs if one.run.parameters["controller"] in SENSING]
    made = [one.reduced("reads of OSDs between moves", _measured) for one in sensing]
    if not (parts := sorted({part for one in made for part in one["parts"]})):
        return {}
    in_flight = float(sensing[0].run.parameters["concurrency"])
    weights = [size for size, _ in made[0]["pgs"]]
    loads = [size / math.fsum(weights) for size in weights]
    found: dict[str, list[float]] = {"placed": [], "free": []}
    for part in parts:
        sums = np.sum([one["parts"][part] for one in made if part in one["parts"]], axis=0)
        disks, think_s = stations_of(sums, in_flight)
        places = [up for _, up in made[0]["pgs"]]
        found["free"].append(best_shares(disks, in_flight, think_s).rate)
        found["placed"].append(placed_bound(disks, loads, places, in_flight, think_s))
    return {name: math.fsum(rates) / len(rates) for name, rates in found.items()}


def stations_of(sums: npt.NDArray[np.float64], in_flight: float) -> tuple[list[Station], float]:
    """Return the disks, and the seconds that a request is at no disk. `sums`, shape (OSDs, 3): an
    OSD's reads, the seconds of all of them together, and the seconds in which they were counted. An
    OSD that served no read counts as undisturbed, so that the bound stays one."""
    reads, took, seconds = np.maximum(sums, 1e-9).T
    served = sums[:, 0] > 0
    waiting = 1 + seen_of(in_flight) * took / seconds
    alone = took / reads / waiting
    service = np.sort(alone[served])[(served.sum() - 1) // 4]
    own = np.where(served, np.minimum(alone, service), service)
    delays = np.where(served, np.maximum(took / reads - own * waiting, 0.0), 0.0)
    idle = in_flight - (took / seconds)[served].sum()
    disks = [Station(float(delay), float(one)) for delay, one in zip(delays, own, strict=True)]
    return disks, max(0.0, float(idle / (reads / seconds)[served].sum()))


def _measured(loaded: LoadedRun) -> dict[str, Any]:
    """Return the sums of a run by number of the move, and bytes and OSDs (by index) of every PG."""
    run, parts, pgs = loaded.run, dict[str, list[list[float]]](), list[Any]()
    every_s = math.inf
    if run.parameters["scenario"] == "interference":
        every_s = run.parameters["move_every_s"] * run.time_scale
    began, acted = math.nan, False
    for step in loaded.journal():
        if not (seen := step.get("observation")):
            continue
        osds = sorted(osd["id"] for osd in seen["osds"])
        if not pgs:
            pgs = [[pg["bytes"], [osds.index(osd) for osd in pg["up"]]] for pg in seen["pgs"]]
        disturbed = acted or bool((seen.get("activity") or {}).get("unclean"))
        acted = bool(step.get("actions"))
        latency = seen.get("latency") or {}
        end, length = float(seen["t_s"]), float(seen["interval_s"])
        if not any(found[0] for found in latency.values()):
            continue
        if math.isnan(began):  # the benchmark began within this step, up to `length` later
            began = end - length
            continue
        first, last = ((at - began) / every_s for at in (end - 2 * length, end))
        if disturbed or acted or math.floor(first) != math.floor(last):
            continue
        rows = (latency.get(str(osd), (0, None)) for osd in osds)
        sums = [[float(found[0]), found[0] * (found[1] or 0.0), length] for found in rows]
        old = parts.get(str(math.floor(last)))
        parts[str(math.floor(last))] = sums if old is None else np.add(old, sums).tolist()
    return {"parts": parts, "pgs": pgs}
