"""Campaigns of microstores (``system: mos``), declared for `campaigns.engine.kind`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from campaigns.engine.display import Progress
from campaigns.engine.identity import Recipe, Sameness
from campaigns.engine.job import Make
from campaigns.engine.kind import Computed, Kind, OnTestbed, Prepared
from campaigns.engine.provenance import Facts
from campaigns.papers.mos import simulated
from campaigns.papers.mos.profile.points import place
from controllers.registry import find
from schemas.campaign import Campaign
from schemas.cells.mos import MosCell, PerfCell, TwoStores
from testbed import closure
from testbed.deploy import bundle

SIM, LOCAL = "sim", "local"

OTHER_S = 14.0
"""Seconds of a cell in addition to its load: cleaning, dividing, starting, finishing requests,
collecting. Measured: 7 to 18, on a busy machine."""
CONTROLLER_S = 3.0


def planned_s(parameters: MosCell) -> float:
    """Return the estimated seconds of a cell on a testbed; finished cells correct the estimate."""
    from campaigns.papers.mos.cell import length_s

    return OTHER_S + length_s(parameters) + (CONTROLLER_S if parameters.controlled else 0.0)


def own(parameters: MosCell) -> tuple[str, ...]:
    """Return the code of the controller, and the points that MOS++ plans with."""
    if not isinstance(parameters, TwoStores):
        return ()
    points = (_points(parameters.profile),)  # refuses an unknown profile in any setup
    if parameters.plans:
        return (_folder(parameters.setup), *points)
    return (_folder(parameters.setup),) if parameters.controlled else ()


def own_of_simulated(parameters: PerfCell) -> tuple[str, ...]:
    """Return the code of the controller, and the points for judge and model."""
    controllers = (_folder(parameters.policy),) if parameters.policy != "static" else ()
    return (_points(parameters.profile), *controllers)


def _points(profile: str) -> str:
    return closure.entry(place(profile))


def _folder(controller: str) -> str:
    return closure.entry(find(controller).folder)


@contextmanager
def on_testbed(prepared: Prepared, shown: Progress) -> Iterator[tuple[Facts, Make]]:
    """Open the campaign's testbed for exclusive measurements, and restore its layout at the end."""
    from campaigns.grounds.testbed import open_live, read_facts, shares_by_speed
    from campaigns.papers.mos.cell import make
    from campaigns.papers.mos.swift import Swift
    from workloads.cosbench.driver import install

    assert prepared.spec_file is not None
    with open_live(
        prepared.testbed, prepared.spec_file, Swift, say=shown.message, restore=Swift.restore
    ) as swift:
        for client in dict.fromkeys(swift.clients.values()):
            install(swift.live.shell_to(client))
        with shares_by_speed(swift.live, prepared, shown.message) as scaled:
            yield read_facts(swift.live), scaled(partial(make, swift))


def notes(_pending: Sequence[Any], campaign: Campaign) -> Sequence[str]:
    """Return a dry run's notes on a testbed's time."""
    if campaign.ground == SIM:
        return ()
    return ("objects are written before the first cell that reads them",)


CODE = (
    *("campaigns/papers/mos/cell.py", "dataplane/cmd/cosdrive", *bundle.CODE),
    *("playbooks/roles/base", "playbooks/roles/swift"),
)

SAME = Sameness(
    code=("campaigns/papers/mos/simulated.py",), libraries=("numpy", "scipy", "pydantic")
)

KIND: Kind[Any] = Kind(
    does="runs COSBench's workloads on microstores",
    grounds={
        LOCAL: OnTestbed(code=CODE, own=own, planned_s=planned_s, open=on_testbed),
        SIM: Computed(
            site="cosperf",
            code=SAME.code,
            own=own_of_simulated,
            libraries=("numpy", "scipy"),
            planned_s=simulated.planned_s,
            recipe=Recipe(simulated.make, SAME),
            calibration={"profiles": "campaigns/papers/mos/profile", "simulated": True},
        ),
    },
    notes=notes,
    resolves=True,
)
