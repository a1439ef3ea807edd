"""Campaigns on real object servers (``objects: twochoice``); see `campaigns.engine.kind`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from campaigns.engine.display import Progress
from campaigns.engine.job import Make
from campaigns.engine.kind import Kind, OnTestbed, Prepared
from campaigns.engine.provenance import Facts
from schemas.cells.twochoice import Jobs, MeasuredBurst, ObjectCell, RedirectTable
from testbed.deploy import bundle
from workloads.burst_applications import TABLE2, bursts_of

CLEAN_S = 25.0
SMALL_S, TABLE_S = 4.0, 0.0065
"""Seconds of a cell of figure 11 or Table I on 16 servers, and of an operation of figure 12."""
SERVER_S = 1.2e-6
"""Seconds of a server per byte, including its disk's seeks, if it writes 1 MB a second."""
SERVERS = 64
RADOS_CLEAN_S = 45.0
RADOS_SERVER_S = 0.45e-6
"""The same for an OSD with a disk that writes 3 MB a second."""
RADOS_SERVERS = 8


def planned_s(parameters: ObjectCell) -> float:
    """Return the estimated seconds of a cell on a testbed; finished cells correct the estimate."""
    if not isinstance(parameters, Jobs):
        operations = parameters.operations if isinstance(parameters, RedirectTable) else 0
        return SMALL_S + TABLE_S * operations
    processes = parameters.nodes * parameters.processes
    writes = 0.0
    if isinstance(parameters, MeasuredBurst):
        writes += processes * parameters.writes
    if parameters.table2:
        for row in TABLE2:
            bursts, each = bursts_of(row, parameters.processes, parameters.volume)
            writes += row.jobs * row.share * processes * bursts * each
    size = writes * parameters.size * parameters.copies
    if parameters.backend == "rados":
        return RADOS_CLEAN_S + parameters.lead_s + 2 * size * RADOS_SERVER_S / RADOS_SERVERS
    return CLEAN_S + parameters.lead_s + 1.5 * size * SERVER_S / SERVERS


@contextmanager
def on_testbed(prepared: Prepared, shown: Progress) -> Iterator[tuple[Facts, Make]]:
    """Open the campaign's testbed for exclusive measurements, and restore its settings at the
    end."""
    from campaigns.grounds.testbed import open_live, read_facts, shares_by_speed
    from campaigns.papers.twochoice.objects import ObjectCells
    from campaigns.papers.twochoice.servers import ObjectServers

    assert prepared.spec_file is not None
    with (
        open_live(
            prepared.testbed,
            prepared.spec_file,
            ObjectServers,
            say=shown.message,
            restore=ObjectServers.restore,
        ) as servers,
        shares_by_speed(servers.live, prepared, shown.message) as scaled,
    ):
        yield read_facts(servers.live), scaled(ObjectCells(servers).make)


def own(parameters: ObjectCell) -> tuple[str, ...]:
    """Return the code of the cell's controller, if it has one."""
    return ("controllers/dlr",) if parameters.controller == "dlr" else ()


CODE = (
    *("campaigns/papers/twochoice/objects.py", *bundle.CODE),
    *("dataplane/cmd/twochoicebench", "dataplane/cmd/twochoiced"),
    *(f"playbooks/roles/{name}" for name in ("base", "scratch", "objectdisks", "ceph")),
    "playbooks/roles/twochoice_agent",
)

KIND = Kind(
    does="writes bursts to object servers",
    grounds={"local": OnTestbed(code=CODE, own=own, planned_s=planned_s, open=on_testbed)},
    resolves=True,
)
