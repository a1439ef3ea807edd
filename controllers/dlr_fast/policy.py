"""dlr-fast: the decision of dlr-even from short windows, for hotspots that move.

A control interval of DLR (20 s) averages over the pressure before and after a hotspot has moved, so
that DLR reacts after one interval and a half, and steps down from there. Here the loop steps every
`window_s`. An OSD is hot if two of its last three windows say so and the last one does: one window
of noise moves nothing, and an OSD is released by its first calm window. The stall of each map epoch
is paid from dlr-pg's budget, so hotspots that move faster than the budget allows are followed as
often as the budget allows.
"""

from __future__ import annotations

from dataclasses import dataclass

from controllers.common.parameters import integer, number
from controllers.dlr_even.policy import DlrEven, DlrEvenParameters


@dataclass(frozen=True)
class DlrFastParameters(DlrEvenParameters):
    """dlr-even's parameters with those of short windows."""

    fade: float = number(0.9, 0, 1, "weight of what was measured one window earlier")
    window_s: float = number(2.0, 0.1, 3600, "seconds of a window, at most one interval")
    confirm: int = integer(2, 1, 100, "disturbed windows that make an OSD hot")
    among: int = integer(3, 1, 100, "last windows among which these are counted")
    horizon: float = number(10.0, 1, 1000, "windows within which a step must pay for its stall")


class DlrFast(DlrEven):
    """dlr-even with the parameters of short windows."""

    name = "dlr-fast"
    parameters_type = DlrFastParameters


create = DlrFast.create
