"""Campaigns that replay traces (``system: prioritymeister``), declared for `campaigns.engine.kind`:
simulated, or on a testbed of NFS servers."""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from campaigns.engine.display import Progress
from campaigns.engine.engine import pending
from campaigns.engine.identity import Recipe, Sameness
from campaigns.engine.job import Job, Make
from campaigns.engine.kind import Computed, Kind, OnTestbed, Prepared
from campaigns.engine.plan import Cell
from campaigns.engine.provenance import Facts
from campaigns.engine.store import RunStore
from campaigns.papers.prioritymeister.cell import PmCellMaker, require_windows
from campaigns.papers.prioritymeister.experiment import measured_alone, slos
from campaigns.papers.prioritymeister.simulate import PmSimGround
from schemas.campaign import Campaign
from schemas.cells.prioritymeister import INPUTS, PmCell
from schemas.run import Run
from testbed import closure
from testbed.deploy import bundle

SIM, LOCAL = "sim", "local"
ALONE_FOLDER = ".alone"
"""Folder next to a real testbed's runs: latencies of workloads alone, by measuring code."""

LIVE_CODE = (
    *(f"campaigns/papers/prioritymeister/{name}.py" for name in ("cell", "live")),
    *("dataplane/cmd/nfsproxy", "dataplane/cmd/replay", *bundle.CODE),
    *(f"playbooks/roles/{name}" for name in ("base", "scratch", "ganesha", "nfsproxy")),
    *("playbooks/roles/replay", "playbooks/roles/netenforcer"),
)

# Approximate seconds of a cell.
FIXED_S = 0.5
REQUEST_S = {"network": 15e-6, "levels": 15e-6}
OTHER_REQUEST_S = 5e-6
RATES = {"disk": 400, "burst": 230, "misbehave": 180, "network": 1500, "levels": 1500}
SETTLE_S = 20.0
"""Seconds on a testbed in addition to the traces' time."""


@cache
def _maker() -> PmCellMaker:
    """Return this worker's maker, with its latest traces and measurements."""
    maker = PmCellMaker(PmSimGround())
    atexit.register(maker.close)
    return maker


def make(job: Job, folder: Path) -> Run:
    """Simulate a cell and write its folder."""
    return _maker().make(job, folder)


def planned_s(parameters: PmCell) -> float:
    """Return the estimated seconds of a simulated cell, including its share of the traces."""
    requests = RATES.get(parameters.scenario, 300) * parameters.seconds
    if parameters.policy == INPUTS:
        return FIXED_S + 2000 * parameters.seconds * OTHER_REQUEST_S
    return FIXED_S + requests * REQUEST_S.get(parameters.scenario, OTHER_REQUEST_S)


def live_s(parameters: PmCell) -> float:
    """Return the seconds of a cell on a testbed, without measurements of workloads alone."""
    return SETTLE_S + parameters.seconds


@contextmanager
def on_testbed(prepared: Prepared, shown: Progress) -> Iterator[tuple[Facts, Make]]:
    """Open the campaign's testbed for exclusive measurements. Only servers that pending cells use
    are measured.

    Raises:
        UserError: the testbed is not the campaign's, or a cell's traces are too short on it.
    """
    from campaigns.grounds.testbed import open_live, read_facts, shares_by_speed
    from campaigns.papers.prioritymeister.live import (
        LocalGround,
        NfsTestbed,
        laid_out,
        server_of,
        with_profiles,
    )

    assert prepared.spec_file is not None
    cells, say = pending(prepared.plan, prepared.store), shown.message
    with (
        open_live(prepared.testbed, prepared.spec_file, NfsTestbed.of, say=say) as nfs,
        shares_by_speed(nfs.live, prepared, say) as scaled,
    ):
        typed = [cell.parameters for cell in cells if isinstance(cell.parameters, PmCell)]
        servers = {server_of(parameters, nfs.places) for parameters in typed}
        ground = LocalGround(nfs, laid_out(nfs, say, servers), prepared.campaign.limits)
        maker = PmCellMaker(ground, remembered=_remembered(prepared.store), tell=say)
        try:
            maker.foresee(cells)
            yield with_profiles(read_facts(nfs.live), nfs), scaled(maker.make)
        finally:
            maker.close()


def _remembered(store: RunStore) -> Path:
    """Return the folder of latencies of workloads alone, as measured by the present code."""
    return store.folder / ALONE_FOLDER / closure.first(LIVE_CODE).digest[:12]


def alone_s(cells: Sequence[Cell], store: RunStore) -> float:
    """Return the seconds on a testbed for measuring workloads alone, each once per block."""
    known = _remembered(store)
    if known.is_dir() and any(known.iterdir()):
        return 0.0
    rounds = {
        (cell.block, where.contents(), name): live_s(where)
        for cell in cells
        if isinstance(cell.parameters, PmCell)
        for name, where in measured_alone(cell.parameters)
    }
    return sum(rounds.values())


def require(cells: Sequence[Cell], campaign: Campaign) -> None:
    """Check that given SLOs are of the cells' workloads, and that real traces have the windows that
    the cells need."""
    for cell in cells:
        if isinstance(cell.parameters, PmCell) and cell.parameters.slos is not None:
            slos(cell.parameters, {})
    require_windows(cells, PmSimGround.machines.disk if campaign.ground == SIM else None)


def notes(_pending: Sequence[PmCell], campaign: Campaign) -> Sequence[str]:
    """Return a dry run's notes on a testbed's time."""
    if campaign.ground == SIM:
        return ()
    return ("each workload also runs alone once a block, before the first cell that needs it",)


SAME = Sameness(
    code=(
        *(f"campaigns/papers/prioritymeister/{name}.py" for name in ("cell", "simulate")),
        "dataplane/cmd/pmsim",
    ),
    libraries=("numpy", "pandas", "pyarrow", "pydantic"),
    program="pmsim",
)

KIND = Kind(
    does="replays traces",
    grounds={
        SIM: Computed(
            site="modelled",
            code=SAME.code,
            planned_s=planned_s,
            recipe=Recipe(make, SAME),
            calibration={"disk": "disk7200.json"},
        ),
        LOCAL: OnTestbed(code=LIVE_CODE, planned_s=live_s, open=on_testbed, additional_s=alone_s),
    },
    require=require,
    notes=notes,
    resolves=True,
)
