"""Check of a spec's network settings at a site that does not make the network."""

from __future__ import annotations

from schemas.errors import UserError
from testbed.spec import NetworkSpec, TestbedSpec

_SET = ("mtu", "congestion_control")


def refuse_settings(spec: TestbedSpec, kind: str) -> None:
    """Refuse settings of a network that belongs to the machines' owner. The switch's
    `priority_levels` only describe it, and pass.

    Raises:
        UserError: names the first such setting.
    """
    usual = NetworkSpec()
    for key in _SET:
        wanted = getattr(spec.network or usual, key)
        if wanted != getattr(usual, key):
            raise UserError(
                f"network.{key} is {wanted}, and machines of site {kind} keep the network "
                "that they have",
                where=f"testbed {spec.name}",
                do="leave it out, or use site local",
            )
