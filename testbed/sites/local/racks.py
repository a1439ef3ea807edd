"""Racks in a testbed's network: a bridge for each, joined to the core bridge by a narrow link.

All of it lives in the namespace of the testbed's switch and goes away with that. Traffic within a
rack stays on the rack's bridge; what leaves a rack passes its uplink's token bucket, and what comes
in passes one of the same rate: two racks talk at the rate of one uplink, and flows of one rack
share it. A spec whose racks have no uplink gets no bridges: its network is flat.
"""

from __future__ import annotations

import json

from testbed.sites.local import network
from testbed.sites.local.names import Places
from testbed.sites.local.tools import run
from testbed.spec import TestbedSpec


def bridges(spec: TestbedSpec) -> dict[str, str]:
    """Bridge by rack, racks in order; empty where the network is flat."""
    if spec.racks is None or spec.racks.uplink is None:
        return {}
    racks = dict.fromkeys(spec.rack_of().values())
    return {rack: f"rack{number}" for number, rack in enumerate(racks)}


def bridge_of(spec: TestbedSpec, node: str) -> str:
    """The bridge that a node's link goes to."""
    rack = spec.rack_of().get(node)
    return network.CORE if rack is None else bridges(spec).get(rack, network.CORE)


def make(places: Places, name: str, spec: TestbedSpec) -> None:
    """Make every rack's bridge and uplink; nothing of what is there already."""
    found = bridges(spec).values()
    if not found:
        return
    assert spec.racks is not None
    switch = places.switch(name)
    there = {link["ifname"] for link in json.loads(run("ip", "-n", switch, "-j", "link"))}
    commands, mtu = [], spec.mtu
    for bridge in found:
        up, down = ends(bridge)
        if bridge not in there:
            commands.append(f"link add {bridge} type bridge forward_delay 0")
        if up not in there:
            commands.append(f"link add {up} type veth peer name {down}")
        commands += [
            f"link set {bridge} mtu {mtu} up",
            f"link set {up} mtu {mtu}",
            f"link set {down} mtu {mtu}",
            f"link set {up} master {bridge} up",
            f"link set {down} master {network.CORE} up",
        ]
    network.batch(switch, *commands)
    set_rate(places, name, spec, spec.racks.uplink)


def ends(bridge: str) -> tuple[str, str]:
    """The uplink's ends: the one on the rack's bridge, and the one on the core's."""
    return f"{bridge}-up", f"{bridge}-down"


def set_rate(places: Places, name: str, spec: TestbedSpec, bits_per_s: float | None) -> None:
    """Shape both directions of every uplink; None: unshaped."""
    for bridge in bridges(spec).values():
        for end in ends(bridge):
            network.shape(
                places.switch(name), end, bits_per_s, levels=spec.priority_levels, mtu=spec.mtu
            )
