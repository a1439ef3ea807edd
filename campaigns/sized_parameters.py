"""A controller's parameters that grow with the store: a limit that fits eight OSDs is none that
fits a thousand. A campaign says them for each OSD (`Campaign.controller_parameters_per_osd`)."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from campaigns.cell_parameters import CellParameters
from schemas.campaign import Campaign
from schemas.errors import UserError


def with_size(parameters: CellParameters, campaign: Campaign) -> CellParameters:
    """`parameters` with what its controller is given for each OSD, times the cell's OSDs; a cell on
    the testbed's own size stays as it is, and what a cell itself says comes first."""
    shares = campaign.controller_parameters_per_osd.get(parameters.controller.replace("_", "-"))
    if parameters.osds is None or not shares:
        return parameters
    grown = {name: share * parameters.osds for name, share in shares.items()}
    return parameters.model_copy(
        update={"controller_parameters": grown | parameters.controller_parameters}
    )


def refuse_unknown(campaign: Campaign, file: Path, known: Collection[str]) -> None:
    """Refuse parameters for a controller that there is not. (What it takes, it says itself.)

    Raises:
        UserError: names it.
    """
    for name in campaign.controller_parameters_per_osd:
        if name not in known:
            raise UserError(
                f"{file}: controller_parameters_per_osd: there is no controller {name!r}; there "
                f"are {', '.join(sorted(known)) or 'none'} (more with --controllers-dir)."
            )
