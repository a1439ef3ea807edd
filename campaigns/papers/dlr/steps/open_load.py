"""Load of Ursa's section 5.2: open-loop writes, more to a few nodes than to the others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from campaigns.papers.dlr.services import CellSetting
from schemas.cells.dlr import OpenLoop as OpenLoopCell
from schemas.durable import write_file
from schemas.errors import HotbedError
from testbed.agent.openloop.plan import BALLAST_BYTES
from workloads.open_loop import OpenLoop
from workloads.skew import hot_osds, rates_on_one, skewed_rates, worst_miss

MOST_IN_FLIGHT = 1024
MOST_IN_FLIGHT_BYTES = 2**30
FILL_S = 0.5
TOO_FAR_OFF = 0.05
"""Largest allowed relative error of an OSD's load."""


@dataclass(frozen=True)
class SkewedLoad:
    """Hot OSDs, and the writes a second of each PG.

    `off` is the relative error of the worst OSD's load."""

    hot: tuple[int, ...]
    rates: Mapping[str, float]
    off: float


def cell_of(setting: CellSetting) -> OpenLoopCell:
    """Return the parameters of a cell with open-loop writes."""
    assert isinstance(setting.parameters, OpenLoopCell)
    return setting.parameters


def load_of(
    parameters: OpenLoopCell, placement: Mapping[str, Sequence[int]], seed: int
) -> SkewedLoad:
    """Return the load of one cell on the PGs of `placement` (OSDs by PG).

    Raises:
        HotbedError: with this placement, no rates come near the requested load.
    """
    osds = sorted({osd for members in placement.values() for osd in members})
    hot = hot_osds(osds, parameters.hot_count(len(osds)), seed)
    if parameters.scenario == "single":
        return SkewedLoad(hot, rates_on_one(placement, hot[0], parameters.rate), 0.0)
    share = parameters.cold_share
    targets = {osd: parameters.rate * (1.0 if osd in hot else share) for osd in osds}
    rates = skewed_rates(placement, targets)
    off = worst_miss(placement, rates, targets)
    if off > TOO_FAR_OFF:
        raise HotbedError(
            f"the placement groups of OSDs {', '.join(map(str, hot))} cannot be written to so that "
            f"these get {parameters.rate:g} writes a second and the others {share:g} of that: some "
            f"OSD is off by {100 * off:.0f} %. Take another seed, or more groups."
        )
    return SkewedLoad(hot, rates, off)


def open_loop(setting: CellSetting, pool: str, rates: Mapping[str, float]) -> OpenLoop:
    """Return the writer of one cell; its objects must exist."""
    parameters = cell_of(setting)
    return OpenLoop(
        pool=pool,
        object_bytes=parameters.object_size,
        duration_s=setting.duration_s,
        seed=setting.seed,
        rates=dict(rates),
        max_in_flight=min(MOST_IN_FLIGHT, MOST_IN_FLIGHT_BYTES // parameters.object_size),
        objects_per_pg=parameters.objects_per_pg,
        ballast_per_pg=ballast_per_pg(parameters),
        prefill=False,
        keep_requests=True,
    )


def filling(setting: CellSetting, pool: str, pgs: Sequence[str]) -> OpenLoop:
    """Return a writer that writes every object once, and almost nothing afterwards."""
    whole = open_loop(setting, pool, dict.fromkeys(pgs, 0.01))
    return whole.model_copy(
        update={"duration_s": FILL_S, "prefill": True, "keep_requests": False, "drain_s": 30.0}
    )


def ballast_per_pg(parameters: OpenLoopCell) -> int:
    """Return a PG's number of unused objects, see `testbed.agent.openloop.plan`."""
    return -(-parameters.ballast_mb * 2**20 // BALLAST_BYTES)


def bytes_per_pg(parameters: OpenLoopCell) -> int:
    """Return the bytes of a PG, which a move of the PG copies."""
    written = parameters.objects_per_pg * parameters.object_size
    return written + ballast_per_pg(parameters) * BALLAST_BYTES


def lacking(parameters: OpenLoopCell, pgs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the PGs that lack objects."""
    whole = bytes_per_pg(parameters)
    return sorted(pg for pg, told in pgs.items() if int(told["bytes"]) < whole)


def write_load(setting: CellSetting, load: SkewedLoad, placement: Mapping[str, Any]) -> None:
    """Keep the load and the placement with the run."""
    body = {
        "hot_osds": list(load.hot),
        "off": load.off,
        "rates": dict(sorted(load.rates.items())),
        "placement": placement,
    }
    write_file(setting.folder / "logs" / "load.json", json.dumps(body, indent=1) + "\n")
