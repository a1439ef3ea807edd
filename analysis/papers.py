"""The papers that a report can be made of."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.claims import Claim
from analysis.figures import FigureEntry
from schemas.errors import UserError


@dataclass(frozen=True)
class Paper:
    """A paper's claims and figures."""

    short: str
    title: str
    claims: tuple[Claim, ...]
    figures: tuple[FigureEntry, ...]


def paper(short: str) -> Paper:
    """The paper with the short name; UserError names the known ones."""
    if short == "dlr":
        from analysis.dlr.catalogue import FIGURES
        from analysis.dlr.claims import CLAIMS

        title = "Taming Performance Hotspots in Cloud Storage with Dynamic Load Redistribution"
        return Paper("dlr", title, CLAIMS, FIGURES)
    raise UserError(f"report {short}: no such paper; the ones with a report are: dlr.")
