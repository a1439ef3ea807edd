"""Campaigns of microstores (``system: mos``), as `campaigns.kinds` runs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from campaigns.in_process_executor import Make
from campaigns.kinds.kind import Kind, OnTestbed, Prepared
from campaigns.mos.loads import length_s
from campaigns.mos.parameters import MosParameters
from campaigns.mos.simulated import GROUND
from campaigns.mos.simulated_parameters import SimParameters
from campaigns.progress import Progress
from campaigns.services import Facts
from schemas.campaign import Campaign

SIM, LOCAL = "sim", "local"

BESIDE_S = 14.0
"""Seconds of a cell beside its load: cleaning, dividing, starting, what is under way at the end,
collecting. Seen: 7 to 18, on a busy machine."""
CONTROLLER_S = 3.0


def planned_s(parameters: MosParameters) -> float:
    """Seconds of a cell on a testbed, roughly; the cells that are done correct them."""
    return BESIDE_S + length_s(parameters) + (CONTROLLER_S if parameters.controlled else 0.0)


def digests() -> dict[str, str]:
    """Of all that can change a result on a testbed beside a cell's parameters
    and its controller."""
    from campaigns.mos.live import ground

    return ground.digests()


def of_controller(name: str) -> str:
    """Of what decides in cells of MOS and MOS++."""
    from campaigns.mos.live import ground

    return ground.of_controller(name)


@contextmanager
def on_testbed(prepared: Prepared, shown: Progress) -> Iterator[tuple[Facts, Make]]:
    """The campaign's testbed, with nobody else measuring on it."""
    from campaigns.mos.live.cell import Maker
    from campaigns.mos.live.ground import open_swift

    assert prepared.spec_file is not None
    with open_swift(prepared.testbed, prepared.spec_file, tell=shown.message) as (facts, swift):
        yield facts, Maker(swift).make


def notes(_pending: Sequence[Any], campaign: Campaign) -> Sequence[str]:
    """What a dry run tells of a testbed's time."""
    if campaign.ground == SIM:
        return ()
    return ("objects are written before the first cell that reads them",)


KIND: Kind[Any] = Kind(
    parameters=MosParameters,
    does="runs COSBench's workloads on microstores",
    grounds={
        LOCAL: OnTestbed(
            digests=digests, planned_s=planned_s, open=on_testbed, of_controller=of_controller
        ),
        SIM: GROUND,
    },
    of_ground={SIM: SimParameters},
    notes=notes,
    resolves=True,
)
