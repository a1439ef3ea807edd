"""Campaigns on a Ceph store: benchmarks under a controller, simulated or on a testbed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from campaigns.engine.kind import Kind, OnStore
from campaigns.grounds.sim import CODE as SIMULATED_CODE
from campaigns.grounds.sim import KIND as SIM
from campaigns.grounds.sim import SIMULATIONS
from campaigns.grounds.testbed import OTHER, open_ground
from schemas import extensions
from schemas.cells.dlr import DlrCell
from testbed import sites
from testbed.deploy import bundle

CODE = (
    *(
        "campaigns/papers/dlr/cell.py",
        "campaigns/papers/dlr/live.py",
        *bundle.CODE,
    ),
    *(f"playbooks/roles/{name}" for name in ("base", "scratch", "fio", "ceph")),
)
"""Entry points of a cell's code on a deployed testbed (`testbed.closure`), without the controller
and the site."""

GATEWAY_CODE = (
    *(
        "campaigns/papers/dlr/gateway.py",
        "dataplane/cmd/cosdrive",
        "playbooks/roles/radosgw",
    ),
)
"""Additional entry points of cells with an object gateway."""


READY_S = 0.7  # the previous record is committed, the waiting notebook starts
CLEAN_S = 1.3
RESTORE_S = 20.0  # a filled snapshot is restored up to HEALTH_OK
OPEN_LOOP_S = 30.0  # requests in flight end, and moved data is moved back
GATEWAY_S = 10.0  # the driver is copied to its node and started, its archive fetched
STEADY_S = 0.5  # fio starts; it reaches its steady rate while the controller runs
COLLECT_S = 5.2  # controller and benchmark start, last reads end, all is stopped, files fetched
SIMULATED_S = 1.0  # for a virtual minute of a small testbed; finished cells correct it
SIZED_CELL_S = 1.0  # for a simulated cell with its own number of OSDs, in addition
OSD_MINUTE_S = 0.009  # CPU seconds for one OSD's virtual minute


def planned_s(parameters: DlrCell, time_scale: float) -> float:
    """Return the wall time of one cell in seconds, with cleaning and settling."""
    total = READY_S + CLEAN_S + COLLECT_S + parameters.lead_s(time_scale)
    total += parameters.duration_s * time_scale
    if parameters.scenario != "none":
        total += STEADY_S
    extra = {"write": RESTORE_S, "open": OPEN_LOOP_S, "s3": GATEWAY_S}
    return total + extra.get(parameters.op, 0.0)


def simulated_s(parameters: DlrCell, time_scale: float) -> float:
    """Return the seconds that simulating one cell takes in the engine's process: its own time is
    virtual."""
    minutes = parameters.duration_s * time_scale / 60
    if parameters.osds is None:
        return SIMULATED_S * minutes
    minutes += parameters.lead_s(time_scale) / 60
    return SIZED_CELL_S + OSD_MINUTE_S * parameters.osds * minutes


def code(cells: Mapping[str, Sequence[Any]], site: str) -> tuple[str, ...]:
    """Return the entry points of the code of cells on a testbed."""
    gateway = any(parameters.op == "s3" for typed in cells.values() for parameters in typed)
    of_site = sites.code_of(site) if site in sites.kinds() else ()
    every = (parameters for typed in cells.values() for parameters in typed)
    names = sorted({one.workload for one in every if one.op == "other"})
    others = [entry for name in names for entry in extensions.code("workload", name)]
    own = ("campaigns/papers/dlr/other.py",) if names else ()
    return (*CODE, *(GATEWAY_CODE if gateway else ()), *own, *others, *of_site)


_on_testbed = partial(OnStore, code=code, planned_s=planned_s)

KIND: Kind[Any] = Kind(
    does="runs benchmarks on a Ceph store",
    grounds={
        SIM: OnStore(
            code=lambda cells, site: SIMULATED_CODE,
            open=partial(open_ground, SIM),
            planned_s=simulated_s,
            same=SIMULATIONS,
        ),
        **{
            name: _on_testbed(open=partial(open_ground, name))
            for name in ("local", "chameleon", "inventory", OTHER, "fake")
        },
    },
    options=frozenset(
        {"--ground", "--testbed", "--controllers-dir", "--model", "--extend-lease", "--spec"}
    ),
    resolves=True,
)
