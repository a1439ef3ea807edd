"""Claims for campaigns whose grids ask for the precision of a claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schemas.campaign import Campaign
    from schemas.precision import Statistic


def claims(campaign: Campaign, name: str) -> Statistic:
    """Return the statistic of a claim; see `analysis.core.precision.statistic_of`."""
    from analysis.core.precision import statistic_of  # imported only where a grid names a claim

    return statistic_of(campaign, name)
