"""The papers that a report can be made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.claims import Claim
from analysis.figures import FigureEntry, Table
from schemas.errors import UserError


@dataclass(frozen=True)
class Paper:
    """A paper's claims and figures, or those of a sweep beyond it.

    `command` makes the runs of a figure; `sized`: the runs are those of stores made in any size
    (`analysis.load.is_sized`), which nothing else is made of; `tables`: from the table of runs.
    """

    short: str
    title: str
    claims: tuple[Claim, ...]
    figures: tuple[FigureEntry, ...]
    command: str
    sized: bool = False
    tables: Callable[[pd.DataFrame], Sequence[Table]] = lambda _: ()


SCALE = "dlr-scale"
SHORT_NAMES = ("dlr", SCALE)


def paper(short: str) -> Paper:
    """The paper with the short name; UserError names the known ones."""
    if short == "dlr":
        from analysis.dlr.catalogue import FIGURES
        from analysis.dlr.claims import CLAIMS

        title = "Taming Performance Hotspots in Cloud Storage with Dynamic Load Redistribution"
        return Paper("dlr", title, CLAIMS, FIGURES, "hotbed run dlr-full --figure {figure}")
    if short == SCALE:
        from analysis.dlr.catalogue import SCALE_FIGURES
        from analysis.dlr.scale import tables
        from analysis.dlr.scale_claims import CLAIMS as SCALE_CLAIMS

        return Paper(
            SCALE,
            "DLR at scale: where it stops helping",
            SCALE_CLAIMS,
            SCALE_FIGURES,
            "hotbed scale --figure {figure}",
            sized=True,
            tables=tables,
        )
    known = ", ".join(SHORT_NAMES)
    raise UserError(f"report {short}: no such paper; the ones with a report are: {known}.")
