"""The parameters of the controllers `ursa` and `htoc`."""

from __future__ import annotations

from dataclasses import dataclass

from controllers.common.parameters import choice, flag, integer, number

LEADER, REPLICA = "leader", "replica"


@dataclass(frozen=True)
class Parameters:
    """When an OSD is hot, what moving costs, and how much may be under way at a time.

    Loads are operations a second, reads and writes weighted (section 5.2: w1 reads/s + w2
    writes/s); a write loads every replica, a read the primary.
    """

    capacity: float = number(
        0.0, 0, 1e9, "operations a second that an OSD carries (T); 0: not known, see relative"
    )
    threshold: float = number(0.7, 0.01, 1, "part of the capacity above which an OSD is hot")
    relative: float = number(
        1.2, 1, 100, "without a capacity: an OSD is hot above this many times the mean load"
    )
    tolerance: float = number(
        0.05, 0, 1, "excess over the threshold that is taken for noise of the measurement"
    )
    read_weight: float = number(1.0, 0, 1e6, "load of one read at the primary")
    write_weight: float = number(1.0, 0, 1e6, "load of one write at each replica")
    observe_s: float = number(10.0, 0, 86_400, "seconds at rest over which loads are averaged")
    background: bool = flag(True, "count load that no placement group explains as immovable")
    host_cost: float = number(0.5, 0, 1e6, "cost of a move within a host")
    rack_cost: float = number(1.0, 0, 1e6, "cost of a move within a rack")
    far_cost: float = number(5.0, 0, 1e6, "cost of a move to another rack")
    copied_by: str = choice(
        REPLICA, (REPLICA, LEADER), "from where the cost of a move counts: Ceph's leaders send"
    )
    fault_domain: str = choice("host", ("host", "rack"), "where no two replicas may meet")
    max_swaps: int = integer(256, 0, 100_000, "swaps in one step; 0: none ever")
    max_moves: int = integer(16, 0, 100_000, "moves in one step; 0: none ever")
    max_recovery_mb: float = number(
        4096.0, 1, 1e12, "data on the way at a time, 10^6 bytes; one move is always allowed"
    )
    max_decisions: int = integer(
        0, 0, 1_000_000, "decide so often at most, as the paper does once; 0: whenever needed"
    )
    dry_run: bool = flag(False, "decide and journal, but change nothing")
    restore_on_stop: bool = flag(True, "put the store back when the controller is stopped")
