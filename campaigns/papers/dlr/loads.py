"""Loads of a cell: the disturbance, the objects to read, and open-loop writes to a few hot nodes.

They follow from the cell's settings alone, so live and simulated cells get the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from campaigns.papers.dlr.cell import CellSetting
from schemas.cells.dlr import Bench, Disturbed, Mixed, SpreadBench
from schemas.cells.dlr import OpenLoopWrites as OpenLoopCell
from schemas.durable import write_file
from schemas.errors import HotbedError
from testbed.agent.openloop.plan import BALLAST_BYTES
from testbed.spec import TestbedSpec
from workloads.disturbance import DisturbancePlan, Scenario, plan_disturbance
from workloads.open_loop import OpenLoop
from workloads.prefill import PrefillPlan, disk_bound_iops, plan_prefill, usable_bytes
from workloads.skew import hot_osds, rates_on_one, skewed_rates, worst_miss

MOST_IN_FLIGHT = 1024
MOST_IN_FLIGHT_BYTES = 2**30
FILL_S = 0.5
TOO_FAR_OFF = 0.05
"""Largest allowed relative error of an OSD's load."""


def disturbance_of(setting: CellSetting, nodes: tuple[str, ...]) -> DisturbancePlan:
    """Return the plan of loads by node and time, the same for every controller of the block.
    Open-loop writes are the load themselves, so their plan is empty."""
    parameters = setting.parameters
    scenario, every_s, design = "none", setting.duration_s, None
    if isinstance(parameters, Disturbed):
        if parameters.hot_design is not None:
            number = setting.block if parameters.hot_set is None else parameters.hot_set
            design = (parameters.hot_design, number)
        scenario, every_s = parameters.scenario, parameters.move_every_s * setting.time_scale
    return plan_disturbance(
        cast("Scenario", scenario),
        nodes,
        seed=setting.seed,
        duration_s=setting.duration_s,
        hot_nodes=parameters.hot_count(len(nodes)),
        move_every_s=every_s,
        mix=parameters.mix if isinstance(parameters, Mixed) else None,
        spread=parameters.spread if isinstance(parameters, SpreadBench) else None,
        design=design,
    )


def objects_to_read(setting: CellSetting, spec: TestbedSpec) -> PrefillPlan:
    """Return the plan of the objects that a cell with a benchmark needs."""
    parameters, disks = setting.parameters, list(spec.osd_disks())
    assert isinstance(parameters, Bench)
    ceph = spec.ceph()
    return plan_prefill(
        object_size=parameters.object_size,
        duration_s=setting.duration_s,
        max_iops=disk_bound_iops(disks, parameters.object_size),
        usable=usable_bytes(disks, ceph.pools[0].size, filestore=ceph.objectstore == "filestore"),
        concurrency=parameters.concurrency,
    )


# Ursa's section 5.2: open-loop writes, more to a few nodes than to the others.


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


def skewed_load(
    parameters: OpenLoopCell, placement: Mapping[str, Sequence[int]], seed: int
) -> SkewedLoad:
    """Return the load of one cell on the PGs of `placement` (OSDs by PG). HotbedError: with this
    placement, no rates come near the requested load."""
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
    writer = open_loop(setting, pool, dict.fromkeys(pgs, 0.01))
    return writer.model_copy(
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
    wanted = bytes_per_pg(parameters)
    return sorted(pg for pg, known in pgs.items() if int(known["bytes"]) < wanted)


def placed_writer(setting: CellSetting, pool: str, placement: Mapping[str, Any]) -> OpenLoop:
    """Return the writer of one cell on a placement; keep the load and the placement with the run.
    `pool`: name of the pool. `placement`: answer of the agent's verb placement: OSDs and bytes of
    PGs, nodes of OSDs."""
    where = {pg: one["up"] for pg, one in placement["pgs"].items()}
    load = skewed_load(cell_of(setting), where, setting.seed)
    body = {
        "hot_osds": list(load.hot),
        "off": load.off,
        "rates": dict(sorted(load.rates.items())),
        "placement": placement,
    }
    write_file(setting.folder / "logs" / "load.json", json.dumps(body, indent=1) + "\n")
    return open_loop(setting, pool, load.rates)
