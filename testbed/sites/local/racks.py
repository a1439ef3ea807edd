"""Racks in a testbed's network: a bridge for each, joined to the core bridge by a narrow link.

All parts are in the namespace of the testbed's switch and disappear with it. Traffic within a rack
stays on the rack's bridge. Packets that leave a rack pass its uplink's token bucket, and packets
that enter pass another of the same rate. So two racks communicate at the rate of one uplink, and
flows of one rack share it. A spec without an uplink for racks gets no bridges: its network is flat.
"""

from __future__ import annotations

import json

from testbed.sites.local import network
from testbed.sites.local.names import LocalNames
from testbed.sites.local.process import run
from testbed.spec import TestbedSpec


def bridges(spec: TestbedSpec) -> dict[str, str]:
    """Return the bridge by rack, racks in order; empty for a flat network."""
    if spec.racks is None or spec.racks.uplink is None:
        return {}
    racks = dict.fromkeys(spec.rack_of().values())
    return {rack: f"rack{number}" for number, rack in enumerate(racks)}


def bridge_of(spec: TestbedSpec, node: str) -> str:
    """Return the bridge that a node's link joins."""
    rack = spec.rack_of().get(node)
    return network.CORE if rack is None else bridges(spec).get(rack, network.CORE)


def make(places: LocalNames, name: str, spec: TestbedSpec) -> None:
    """Make every rack's bridge and uplink, unless they exist."""
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
    """Return the uplink's ends: the end on the rack's bridge, and the end on the core's."""
    return f"{bridge}-up", f"{bridge}-down"


def set_rate(places: LocalNames, name: str, spec: TestbedSpec, bits_per_s: float | None) -> None:
    """Shape both directions of every uplink; None: unshaped."""
    for bridge in bridges(spec).values():
        for end in ends(bridge):
            network.shape(
                places.switch(name), end, bits_per_s, levels=spec.priority_levels, mtu=spec.mtu
            )
