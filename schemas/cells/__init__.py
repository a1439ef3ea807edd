"""Parameters of the cells of all campaigns: a model for each operation or scenario, in a union for
each kind."""

from __future__ import annotations

from typing import Any

from schemas.campaign import Kind
from schemas.cells.base import CellParameters, Cells, SizedCell

__all__ = ["CellParameters", "Cells", "SizedCell", "cells_of"]


def cells_of(kind: Kind, ground: str) -> Cells[Any]:
    """Return the cells of a kind on a ground."""
    if kind == "dlr":
        from schemas.cells.dlr import DLR

        return DLR
    if kind == "ursa":
        from schemas.cells.ursa import URSA

        return URSA
    if kind == "prioritymeister":
        from schemas.cells.prioritymeister import PM

        return PM
    if kind == "mos":
        from schemas.cells.mos import COSPERF, MOS

        return COSPERF if ground == "sim" else MOS
    from schemas.cells.twochoice import BURSTS, OBJECTS

    return BURSTS if kind == "twochoice" else OBJECTS
