"""A spec's description of the machines: groups of nodes with their disks and links, racks, the
network between them, and their site.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from testbed.spec.quantities import BitsPerSecond, Bytes, BytesPerSecond, Seconds, parse_bits_per_s
from testbed.spec.stores import Strict
from testbed.stores.nfs.wire import ETHERNET_MTU

_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")
Role = Literal["admin", "mon", "mgr", "osd", "rgw", "client", "nfs", "object", "proxy", "storage"]


def _named(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("a name is 1 to 20 lower-case letters, digits or -, a letter first")
    return name


Name = Annotated[str, AfterValidator(_named)]


def _algorithm(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,14}", name):
        raise ValueError(
            "it is the kernel's name of an algorithm, such as reno or cubic: 1 to 15 lower-case "
            "letters, digits or _, a letter first"
        )
    return name


SIZE_SLACK = 0.9
"""Smallest share of a requested size that a device must have: a partition is a little smaller."""


ROOT_SIZE = 2 * 2**30


class DiskSpec(Strict):
    """One disk of a node.

    `size` holds a raw part for the store and a `scratch` part for files (fio's); with scratch 0 the
    whole disk is the store's. `positioning` is the mean time to a random offset and `bandwidth` the
    transfer rate of the local site's queue disk; `queue_depth` is the device's nr_requests. Real
    machines have their own disks: they ignore the last three, and `size` is a minimum.
    """

    size: Bytes = Field(default=12 * 2**30, ge=2**30)
    scratch: Bytes = Field(default=3 * 2**30, ge=0)
    positioning: Seconds = Field(default=0.004, ge=0, le=1)
    bandwidth: BytesPerSecond = Field(default=60e6, ge=1e6)
    queue_depth: int = Field(default=32, ge=4, le=1024)

    @model_validator(mode="after")
    def _fits(self) -> DiskSpec:
        if self.scratch > self.size - 2**29:
            raise ValueError("scratch must leave at least 512 MiB of the disk's size to the store")
        if 0 < self.scratch < 2**28:
            raise ValueError("scratch must be 0 (no files) or at least 256 MiB")
        return self


class GroupSpec(Strict):
    """`count` identical nodes, named <group>0, <group>1, ... (<group> alone if count is 1).

    A node has `disks` disks like `disk`, each for one daemon of the store. Only nodes with one disk
    hold files (scratch), so that fio and the OSD use the same disk. `root_size` limits what a node
    of the local site writes outside its disks (logs, configuration, a monitor's store), all
    snapshots together; real machines have their own roots.
    """

    name: Name
    count: int = Field(default=1, ge=1, le=10_000)
    roles: tuple[Role, ...] = Field(min_length=1)
    cpus: float = Field(default=1.0, gt=0, le=1024)
    memory: Bytes = Field(default=2**30, ge=2**27)
    network: BitsPerSecond = Field(default=1e9, ge=1e6)
    root_size: Bytes = Field(default=ROOT_SIZE, ge=2**28)
    disk: DiskSpec | None = None
    disks: int = Field(default=1, ge=1, le=24)

    @model_validator(mode="after")
    def _osd_has_disk(self) -> GroupSpec:
        for role in ("osd", "nfs", "object", "storage"):
            if role in self.roles and self.disk is None:
                raise ValueError(
                    f"group {self.name!r} has the role {role} and so needs a disk block"
                )
        if self.disks > 1 and (self.disk is None or self.disk.scratch):
            raise ValueError(
                f"group {self.name!r} has {self.disks} disks a node, which only a store may use: "
                "give it a disk block with scratch 0"
            )
        return self

    def node_names(self) -> tuple[str, ...]:
        """Names of the group's nodes in order."""
        if self.count == 1:
            return (self.name,)
        return tuple(f"{self.name}{index}" for index in range(self.count))


class RackSpec(Strict):
    """Assignment of nodes to racks, and the rate of each rack's uplink.

    Either `count` racks (rack0, rack1, ...) that share the nodes with the role osd evenly and in
    order, or `members`, the nodes by rack. Nodes in no rack are at the core, like a distant client.
    With `uplink` all traffic between a rack and other racks or the core shares a link of this rate
    each way (Ursa's scenario Controlled). Without it the network is flat (Random), and only the
    store
    uses the racks. Real machines have their own network and ignore `uplink`.
    """

    count: int | None = Field(default=None, ge=1, le=1000)
    members: dict[str, tuple[str, ...]] | None = None
    uplink: Annotated[
        float | None, BeforeValidator(lambda text: None if text is None else parse_bits_per_s(text))
    ] = Field(default=None, ge=1e6)

    @model_validator(mode="after")
    def _either(self) -> RackSpec:
        if (self.count is None) == (self.members is None):
            raise ValueError("give either count (of racks) or members (nodes by rack)")
        for rack, nodes in (self.members or {}).items():
            if not _NAME.fullmatch(rack):
                raise ValueError(
                    f"rack {rack!r}: a name is 1 to 20 lower-case letters, digits or -, "
                    "a letter first"
                )
            if not nodes:
                raise ValueError(f"rack {rack!r} has no node")
        return self


class NetworkSpec(Strict):
    """Packet handling of the network, at a site that makes its own network.

    With `priority_levels` n each of the switch's ports serves DSCP CS7 (level 1) down to CS(8 - n)
    by strict priority, and everything else after them (section 5.4 of PriorityMeister; its switch
    had 7); 0: first come, first served. `mtu` is the largest IP packet of every link in bytes.
    `congestion_control` is the TCP algorithm of the nodes (None: the site's choice, reno on the
    local one). Real machines keep their own two: their sites refuse values other than the defaults.
    """

    priority_levels: int = Field(default=0, ge=0, le=7)
    mtu: int = Field(default=ETHERNET_MTU, ge=1280, le=65520)
    congestion_control: Annotated[str, AfterValidator(_algorithm)] | None = None


class SiteSpec(Strict):
    """Site of the machines; the site itself checks `options`."""

    kind: str = "local"
    options: dict[str, object] = Field(default_factory=dict)
