"""What a spec says of a network that its site does not make."""

from __future__ import annotations

from schemas.errors import UserError
from testbed.spec import NetworkSpec, TestbedSpec

_SET = ("mtu", "congestion_control")


def refuse_settings(spec: TestbedSpec, kind: str) -> None:
    """Refuse what would have to be set on machines whose network is their owner's. Their switch's
    `priority_levels` are only told.

    Raises:
        UserError: names the first of them.
    """
    usual = NetworkSpec()
    for key in _SET:
        wanted = getattr(spec.network or usual, key)
        if wanted != getattr(usual, key):
            raise UserError(
                f"testbed {spec.name}: network.{key} is {wanted}, and machines of site {kind} keep "
                "the network that they have: leave it out, or use site local."
            )
