"""Parameters of dlr-pg."""

from __future__ import annotations

from dataclasses import dataclass

from controllers.common.parameters import choice, integer, number


@dataclass(frozen=True)
class DlrPgParameters:
    """DLR's thresholds, the capacity of a hot disk, and the price of swapping."""

    theta_h: float = number(50.0, 0, 100, "pressure, percent, above which an OSD may be hot")
    theta_i: float = number(0.2, 0, 1, "relative excess over the mean that counts as imbalance")
    theta_l: float = number(20.0, 0, 100, "pressure, percent, below which an OSD is calm")
    full: float = number(90.0, 1, 100, "pressure, percent, at which a hot OSD has hot_capacity")
    hot_capacity: float = number(0.35, 0.01, 1, "load of a saturated OSD relative to a calm one")
    weigh: str = choice("bytes", ("bytes", "count"), "what a PG's load is taken to follow")
    in_flight_per_osd: float = number(2.0, 0.1, 1000, "requests in flight for each OSD")
    margin: float = number(0.2, 0, 10, "excess over break-even that one swap must bring")
    max_swaps: int = integer(64, 1, 100_000, "swaps in one step")
    stall_s: float = number(1.0, 0, 60, "seconds that readers stall for each map epoch (peering)")
    stall_share: float = number(0.1, 0.001, 1, "share of the time that may be spent stalling")
    stall_burst_s: float = number(2.0, 0, 600, "seconds of stall that may be saved up")
    horizon: float = number(4.0, 1, 1000, "intervals within which a step must pay for its stall")
    calm_steps: int = integer(2, 1, 1000, "intervals of calm after which all swaps are undone")
