"""What every site offers: machines on request, and everything about them that only a site knows.

A site turns a `TestbedSpec` into nodes that answer ssh as root, and takes them away again. No
other room asks which site it is on: what differs between sites is a value on a `Node` (devices,
signal, shares) or an optional capability named in `Site.capabilities`.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from schemas.errors import HotbedError
from testbed import html
from testbed.checks import Finding
from testbed.quantities import format_bytes, format_s, moment
from testbed.spec import TestbedSpec

Progress = Callable[[str, float], None]
"""Called with a phase's name and the share of the whole that is done, 0 to 1."""


def silent(phase: str, share: float) -> None:
    """A `Progress` that tells nobody."""


class State(StrEnum):
    """Where a testbed stands."""

    ABSENT = "absent"
    PENDING = "pending"  # asked for, may start later (a lease in the future)
    BUILDING = "building"  # partly there: provision again resumes, release removes it
    READY = "ready"
    FAILED = "failed"


class Capability(StrEnum):
    """What a site may offer beyond the contract."""

    SNAPSHOT = "snapshot"  # freeze and bring back whole nodes with their disks
    SHAPING = "shaping"  # switch the disks' service times off while filling
    LINKS = "links"  # cut and restore a node's link
    DISK_FAULTS = "disk-faults"  # slow a node's disk down, make it fail
    USAGE = "usage"  # tell load on the machine that is not the testbed's


@dataclass(frozen=True)
class Node:
    """One machine of a testbed, as everything above the sites sees it.

    `devices` maps a use to a path on the node: ``osd`` (a raw device that a store may wipe),
    ``scratch`` (a device for files such as fio's, on the same disk as ``osd``), and ``osd1``,
    ``osd2``, ... where the node has more disks. `rack` is None for a node in none.
    `address` is what the other nodes reach it by, `public_address` what we reach it by, where that
    is another one; `via` names the node or gateway of the testbed that ssh goes through.
    `signal` names how pressure on the node's disk is sensed: ``iowait`` (%iowait of /proc/stat)
    or ``io_pressure`` (the share of time in which some task waited for I/O, from `pressure_file`).
    `facts` are what the site knows of the machine (its type, its image), for runs' provenance.
    """

    name: str
    address: str
    roles: frozenset[str]
    group: str
    ssh_user: str = "root"
    ssh_port: int = 22
    devices: Mapping[str, str] = field(default_factory=dict)
    signal: str = "iowait"
    pressure_file: str | None = None
    cpus: float | None = None
    memory_bytes: int | None = None
    rack: str | None = None
    public_address: str | None = None
    via: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def reached_at(self) -> str:
        """The address that we, or whom we go through, connect to."""
        return self.public_address or self.address

    @property
    def osd_devices(self) -> tuple[str, ...]:
        """Paths of the store's devices, in the order of the disks."""
        uses = (use for use in self.devices if re.fullmatch(r"osd\d*", use))
        return tuple(self.devices[use] for use in sorted(uses, key=lambda use: int(use[3:] or 0)))

    def _repr_html_(self) -> str:
        """For Jupyter."""
        return _nodes_html((self,), f"node {self.name}")


def _nodes_html(nodes: Sequence[Node], title: str) -> str:
    columns = ("node", "address", "roles", "cpus", "memory", "devices", "pressure from")
    rows = (
        (
            node.name,
            node.address,
            ", ".join(sorted(node.roles)),
            "" if node.cpus is None else f"{node.cpus:g}",
            "" if node.memory_bytes is None else format_bytes(node.memory_bytes),
            ", ".join(use for use in sorted(node.devices) if use.startswith(("osd", "scratch"))),
            node.signal,
        )
        for node in nodes
    )
    return html.table(columns, rows, title=title)


@dataclass(frozen=True)
class Gateway:
    """A machine that is no node, through which ssh goes to nodes (`Node.via`). Its host key is in
    the testbed's known_hosts; `ssh_key` None leaves the choice to ssh (an agent, default keys).
    """

    name: str
    address: str
    ssh_user: str
    ssh_port: int = 22
    ssh_key: Path | None = None


@dataclass(frozen=True)
class Testbed:
    """A set of nodes under one name, with what is needed to reach them over ssh."""

    __test__ = False  # pytest: not a test class

    name: str
    site: str
    nodes: tuple[Node, ...]
    ssh_key: Path
    known_hosts: Path
    directory: Path
    spec_hash: str
    gateways: tuple[Gateway, ...] = ()

    def node(self, name: str) -> Node:
        """The node called `name`; KeyError when there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    def with_role(self, role: str) -> tuple[Node, ...]:
        """Every node that has `role`, in the spec's order."""
        return tuple(node for node in self.nodes if role in node.roles)

    @property
    def osds(self) -> int:
        """How many OSDs a store has here: one a device of every node with the role."""
        return sum(len(node.osd_devices) for node in self.with_role("osd"))

    @property
    def admin(self) -> Node:
        """The node on which the control plane lives."""
        return self.with_role("admin")[0]

    def __repr__(self) -> str:
        names = ", ".join(node.name for node in self.nodes)
        return f"Testbed({self.name!r} on site {self.site}: {names})"

    def _repr_html_(self) -> str:
        """For Jupyter."""
        return _nodes_html(self.nodes, f"testbed {self.name} on site {self.site}")


@dataclass(frozen=True)
class Status:
    """What a site knows of a testbed now."""

    state: State
    detail: str
    nodes: Mapping[str, str] = field(default_factory=dict)  # node -> running | stopped | lost ...
    ends_at_s: float | None = None  # end of the lease, seconds since the epoch

    def lease(self, now_s: float | None = None) -> str | None:
        """When the lease ends and what is still to come of it, in words; None without one."""
        if self.ends_at_s is None:
            return None
        left_s = self.ends_at_s - (time.time() if now_s is None else now_s)
        if left_s <= 0:
            return f"ended {moment(self.ends_at_s)}"
        hours = f", {len(self.nodes) * left_s / 3600:.1f} node-hours" if self.nodes else ""
        return f"ends {moment(self.ends_at_s)}, in {format_s(left_s)}{hours}"

    def _repr_html_(self) -> str:
        """For Jupyter."""
        lines = [("state", f"{self.state}: {self.detail}")]
        lease = self.lease()
        if lease is not None:
            lines.append(("lease", lease))
        return html.pairs([*lines, *self.nodes.items()])


@dataclass(frozen=True)
class Cost:
    """What a testbed takes. `node_hours` is 0 on one's own machines; `hours` is the length of the
    lease, None where there is none.
    """

    node_hours: float
    nodes: int
    disk_bytes: int
    memory_bytes: int
    detail: str
    hours: float | None = None

    def _repr_html_(self) -> str:
        """For Jupyter."""
        lines = [("nodes", str(self.nodes)), ("node-hours", f"{self.node_hours:.1f}")]
        if self.hours is not None:
            lines.append(("lease", f"{self.hours:g} h"))
        sizes = (("memory", self.memory_bytes), ("disks", self.disk_bytes))
        lines += [(name, format_bytes(size)) for name, size in sizes if size]
        return html.pairs([*lines, ("", self.detail)])


@dataclass(frozen=True)
class Usage:
    """Load on the machine over an interval: what spoils a run (design, Clean before).

    `outside_cores` are cores used by anything that is not the testbed's, `steal` a share 0..1,
    `node_cores` cores used by each node.
    """

    interval_s: float
    outside_cores: float
    steal: float
    node_cores: Mapping[str, float]


@runtime_checkable
class Site(Protocol):
    """Where machines come from. Every call is synchronous, resumable and safe to repeat.

    Errors are `schemas.errors.UserError` (the spec or the caller is wrong) or
    `testbed.sites.contract.SiteError` (says whether and when to try again).
    """

    kind: str
    capabilities: frozenset[Capability]

    def plan(self, spec: TestbedSpec) -> Cost:
        """Dry run: validate `spec` against this site and tell what it takes. Changes nothing."""

    def provision(self, spec: TestbedSpec, progress: Progress = silent) -> Testbed:
        """Bring `spec` up; resumes what an interrupted call left, returns a READY testbed."""

    def status(self, name: str) -> Status:
        """State of the testbed called `name` (ABSENT when there is none)."""

    def find(self, name: str, *, partly: bool = False) -> Testbed | None:
        """Return the testbed called `name`, or None if it was not brought up whole.

        Args:
            name: the testbed.
            partly: return also a testbed that is only partly there, for looking and stopping.
        """

    def folder(self, name: str) -> Path:
        """Return the folder of the testbed called `name`; it is missing if there is none."""

    def names(self) -> Sequence[str]:
        """Every testbed this site knows something of, also half-made or half-removed ones."""

    def extend(self, name: str, seconds: float) -> Status:
        """Ask for `seconds` more of lease; a site without leases returns its status."""

    def release(self, name: str, progress: Progress = silent) -> None:
        """Remove the testbed and everything made for it, also after a crash at any moment."""


@runtime_checkable
class SnapshotSite(Site, Protocol):
    """`Capability.SNAPSHOT`."""

    def snapshot(self, name: str, label: str) -> None:
        """Freeze the stopped-and-synced state of every node as `label` and go on from it."""

    def restore(self, name: str, label: str, progress: Progress = silent) -> Testbed:
        """Put every node back to `label`: nodes are stopped hard, disks rewound, nodes started."""

    def snapshots(self, name: str) -> Sequence[str]:
        """Labels, oldest first."""

    def delete_snapshot(self, name: str, label: str) -> None:
        """Delete the snapshot `label`; the testbed and its other snapshots stay as they are.

        Raises:
            UserError: there is no such snapshot.
        """


@runtime_checkable
class ShapingSite(Site, Protocol):
    """`Capability.SHAPING`."""

    def shape(self, name: str, on: bool) -> None:
        """Switch every disk's service times (and link rates) on, or off for filling."""


@runtime_checkable
class FaultSite(Site, Protocol):
    """`Capability.LINKS` and `Capability.DISK_FAULTS`."""

    def link(self, name: str, node: str, up: bool) -> None:
        """Cut or restore the node's link."""

    def disk_fault(self, name: str, node: str, *, slow: float = 1.0, error: bool = False) -> None:
        """Multiply the disk's service times by `slow`, or let every request fail."""


@dataclass(frozen=True)
class Doomed:
    """A device on which provisioning would destroy something."""

    node: str
    device: str
    bytes: int
    holds: tuple[str, ...]  # such as ``ext4 'data'``
    model: str | None = None

    @property
    def name(self) -> str:
        """How people name it when they allow it: ``/dev/sdb@osd0``."""
        return f"{self.device}@{self.node}"

    def sentence(self) -> str:
        """For people: what it is and what is on it."""
        model = f"{self.model}, " if self.model else ""
        return (
            f"{self.device} of node {self.node} ({model}{format_bytes(self.bytes)}) holds "
            f"{', '.join(self.holds)}"
        )


@runtime_checkable
class CautiousSite(Site, Protocol):
    """A site of machines that are somebody's: what they hold, and who they are, is asked first.

    Until it is allowed, `provision` refuses in a sentence, before anything is changed.
    """

    def doomed(self, spec: TestbedSpec, progress: Progress = silent) -> Sequence[Doomed]:
        """Devices on which provisioning would destroy something that nobody allowed it to yet."""

    def allow(self, devices: Collection[str] = (), *, host_keys: bool = False) -> None:
        """Allow the next `provision` to wipe these (`Doomed.name`), and to trust host keys that
        nobody vouches for. UserError when one is not written that way."""

    def leftovers(self, name: str, progress: Progress = silent) -> Sequence[Doomed]:
        """Devices of a testbed that is up which hold something and are in nobody's use: a
        deployment would refuse them unless they hold its own."""

    def wipe(self, name: str, devices: Collection[str], progress: Progress = silent) -> None:
        """Wipe these (`Doomed.name`) of a testbed that is up: none that is in use, and none that
        becomes another in between. UserError, before anything is wiped, when one cannot be."""


@runtime_checkable
class InspectingSite(Site, Protocol):
    """A site whose machines can be looked at before anything is made of them."""

    def inspect(self, spec: TestbedSpec, progress: Progress = silent) -> Sequence[HostFindings]:
        """What each machine has of what `spec` needs. Changes nothing."""


@runtime_checkable
class UsageSite(Site, Protocol):
    """`Capability.USAGE`."""

    def usage_counters(self, name: str) -> Mapping[str, float]:
        """Counters in seconds to be differenced by `usage_between`."""

    def usage_between(self, before: Mapping[str, float], after: Mapping[str, float]) -> Usage:
        """Load between two readings of `usage_counters`."""


@dataclass(frozen=True)
class Setting:
    """A setting of `node` (or of a rack) as read back, and as the spec has it.

    `where` is the mapping of a run's calibration that holds it (``groups.osd``), `name` its path
    below (``disk.positioning``). Numbers are in `unit`. `set_back` puts the spec's into force.
    """

    node: str
    where: str
    name: str
    found: float | str
    wanted: float | str
    unit: str
    set_back: Callable[[], object]

    @property
    def differs(self) -> bool:
        """True if the setting is not the spec's; the kernel rounds a little."""
        if isinstance(self.found, str) or isinstance(self.wanted, str):
            return self.found != self.wanted
        return not math.isclose(self.found, self.wanted, rel_tol=0.001)

    def sentence(self) -> str:
        """Name the setting, the value found and the spec's."""
        found, wanted = (
            each if isinstance(each, str) else f"{each:g} {self.unit}".rstrip()
            for each in (self.found, self.wanted)
        )
        return f"{self.name} of node {self.node} is {found}, and the spec's is {wanted}"


@runtime_checkable
class SettingsSite(Site, Protocol):
    """A site that reads back what is in force of the spec's disks, links and shares."""

    def settings(
        self, name: str, disks: Mapping[str, Sequence[tuple[float, float]]]
    ) -> Sequence[Setting]:
        """Return every setting of the testbed called `name`, read anew.

        Args:
            name: the testbed's.
            disks: by node, where an experiment has chosen its disks: mean positioning time
                (seconds) and bandwidth (bytes/s) of each, in place of the spec's.
        """


@runtime_checkable
class AwakeSite(Site, Protocol):
    """A site whose machine may be virtual, and can be kept awake while something is measured."""

    def kept_awake(self) -> AbstractContextManager[bool]:
        """The time in which something is measured; gives whether processors are kept awake."""

    def awake_s(self) -> float:
        """Processor time, in seconds, that went to it so far; 0 where nothing is kept awake."""


@dataclass(frozen=True)
class HostFindings:
    """Answers of checks on one machine; `machine` is what people call it."""

    node: str
    machine: str
    findings: tuple[Finding, ...]


class SiteError(HotbedError):
    """A site could not do what was asked. `retry_after_s` None means: trying again won't help."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
