"""Settings of a testbed's nodes and uplinks, read back from the machine and compared with the spec.

Disks answer on their control sockets, tc shows links, and control groups show shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from testbed.sites.contract import EnforcedSetting
from testbed.sites.local import network, racks
from testbed.sites.local.nodes import LocalNodes, at_once
from testbed.sites.local.record import LocalRecord, PlannedNode
from testbed.spec import NfsSpec, SwiftSpec

ENFORCERS = {"1:", "5317:"}
"""Handles of the root queueing of Hotbed's enforcers on nodes (PriorityMeister's and Swift's).
These shape the node's outgoing packets in place of the site, and check the queueing themselves."""

Disks = Mapping[str, Sequence[tuple[float, float]]]


def read_back(nodes: LocalNodes, known: LocalRecord, disks: Disks) -> list[EnforcedSetting]:
    """Return every setting; see `SettingsSite.settings`. SiteError: a disk or a namespace does not
    answer."""
    places, spec = nodes.places, known.spec
    switch = places.switch(spec.name)
    at_switch = network.queueing(switch)

    def link(
        node: str, where: str, name: str, *, netns: str, device: str, rate: float
    ) -> EnforcedSetting:
        inside = netns != switch
        levels = 0 if inside else spec.priority_levels
        there = (network.queueing(netns) if inside else at_switch).get(device, [])
        found = network.rate_of(netns, device, there, rate, levels)
        enforced = isinstance(spec.store, (NfsSpec, SwiftSpec)) and inside
        if enforced and any(q.get("root") and q["handle"] in ENFORCERS for q in there):
            wanted: float | str = found
        else:
            wanted = rate
        shape = partial(network.shape, netns, device, rate, levels=levels, mtu=spec.mtu)
        return EnforcedSetting(node, where, name, found, wanted, "bits/s", shape)

    def of(member: PlannedNode) -> list[EnforcedSetting]:
        node, where, rate = member.name, f"groups.{member.group.name}", member.group.network
        own = places.netns(spec.name, node)
        return [
            *_shares(nodes, member, where),
            link(node, where, "network", netns=switch, device=places.port(node), rate=rate),
            link(node, where, "network_sent", netns=own, device="eth0", rate=rate),
            *_disks(nodes, member, where, disks.get(node)),
        ]

    found = [setting for each in at_once(of, known.members()) for setting in each]
    if spec.racks is not None and spec.racks.uplink is not None:
        rate = spec.racks.uplink
        for rack, bridge in racks.bridges(spec).items():
            for name, end in zip(("uplink", "downlink"), racks.ends(bridge), strict=True):
                found.append(link(rack, "racks", name, netns=switch, device=end, rate=rate))
    return found


def _shares(nodes: LocalNodes, member: PlannedNode, where: str) -> Iterator[EnforcedSetting]:
    group, spec = nodes.group(member.name), member.group
    limit = partial(nodes.cgroups.create, group, cpus=spec.cpus, memory=spec.memory)
    found = nodes.cgroups.limits(group)
    yield EnforcedSetting(member.name, where, "cpus", found["cpus"], spec.cpus, "cores", limit)
    yield EnforcedSetting(
        member.name, where, "memory", found["memory"], spec.memory, "bytes", limit
    )
    lift = partial(nodes.cgroups.unthrottle, group)
    yield EnforcedSetting(member.name, where, "io", found["io"], "none", "", lift)


def _disks(
    nodes: LocalNodes, member: PlannedNode, where: str, chosen: Sequence[tuple[float, float]] | None
) -> Iterator[EnforcedSetting]:
    for number, disk in enumerate(nodes.disks(member)):
        spec = disk.spec
        positioning, bandwidth = chosen[number] if chosen else (spec.positioning, spec.bandwidth)
        for name, found, wanted, unit in disk.settings(positioning, bandwidth):
            path = f"disk{number or ''}.{name}"
            yield EnforcedSetting(member.name, where, path, found, wanted, unit, disk.set_back)
