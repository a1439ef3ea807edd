"""DLR with windows as short as dlr-fast's, which shows what a short interval alone gains.

Algorithm 1 is unchanged. Only the interval in which it measures and decides is shorter.
"""

from __future__ import annotations

from dataclasses import dataclass

from controllers.common.parameters import number
from controllers.dlr.policy import Dlr, DlrParameters


@dataclass(frozen=True)
class DlrShortParameters(DlrParameters):
    """DLR's thresholds, and the window."""

    window_s: float = number(2.0, 0.1, 3600, "seconds of a window, at most one interval")


class DlrShort(Dlr):
    """DLR with a short interval."""

    name = "dlr-short"
    parameters_type = DlrShortParameters


create = DlrShort.create
