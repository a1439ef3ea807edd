"""oracle-move: knows the hot nodes, and places primaries and replicas by the disks' measured rates.

It decides as dlr-move does, but the OSDs under the disturbance are known from the first window on.
The gap between dlr-move and oracle-move is the price of sensing. The gap between oracle-move and
`schemas.closed_network.best_shares` is the price of moving data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controllers.common.parameters import integer, number, read
from controllers.dlr_even.rates import DiskRates
from controllers.dlr_move.policy import DlrMove, DlrMoveParameters
from testbed.stores.contract import HOT, Needs, Observation


@dataclass(frozen=True)
class OracleMoveParameters(DlrMoveParameters):
    """dlr-move's parameters; known hot OSDs need no confirmation."""

    confirm: int = integer(1, 1, 100, "disturbed windows that make an OSD hot")
    settle_s: float = number(0.0, 0, 3600, "seconds with the same hot OSDs before any plan")


class OracleMove(DlrMove):
    """dlr-move with the ground truth."""

    name = "oracle-move"
    needs = Needs(DlrMove.needs.senses | {HOT}, DlrMove.needs.acts)

    def _disturbed(self, now: DiskRates, observation: Observation) -> frozenset[int]:
        return now.disturbed if observation.hot is None else observation.hot


def create(parameters: Mapping[str, object], seed: int) -> OracleMove:
    """Create the policy; `seed` is the planner's."""
    return OracleMove(read(OracleMoveParameters, "oracle-move", parameters), seed)
