"""Contract of every site: machines on request, and everything that only a site knows about them.

A site turns a `TestbedSpec` into nodes that answer ssh as root, and removes them again. No other
package asks which site it uses: differences between sites are values on a `Node` (devices, signal,
shares) or abilities beyond the contract: such a site is also a `SnapshotSite`, a `UsageSite`, ...
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

from schemas.errors import HotbedError, UserError
from testbed import html
from testbed.checks import CheckResult
from testbed.spec import NetworkSpec, TestbedSpec
from testbed.spec.quantities import format_bytes, format_s, moment

Progress = Callable[[str, float], None]
"""Called with a phase's name and the finished share of the whole, 0 to 1."""


def silent(phase: str, share: float) -> None:
    """Ignore progress: a `Progress` without output."""


class State(StrEnum):
    """State of a testbed."""

    ABSENT = "absent"
    PENDING = "pending"  # requested; may start later (a lease in the future)
    BUILDING = "building"  # partly made: another provision resumes, release removes it
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True)
class Node:
    """One machine of a testbed, as all code above the sites sees it.

    `devices` maps a use to a path on the node: ``osd`` (a raw device that a store may wipe),
    ``scratch`` (a device for files such as fio's, on the same disk as ``osd``), and ``osd1``,
    ``osd2``, ... if the node has more disks. `rack` is None for a node in no rack. Other nodes use
    `address`; we use `public_address` if it is set. `via` is the node or gateway of the testbed
    that ssh goes through. `signal` is the source of the pressure on the node's disk: ``iowait``
    (%iowait of /proc/stat) or ``io_pressure`` (the share of time in which any task waited for I/O,
    from `pressure_file`). `facts` describe the machine (type, image), for runs' provenance.
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
        """Address that we, or the machine on the way, connect to."""
        return self.public_address or self.address

    @property
    def osd_devices(self) -> tuple[str, ...]:
        """Paths of the store's devices, in the order of the disks."""
        uses = (use for use in self.devices if re.fullmatch(r"osd\d*", use))
        return tuple(self.devices[use] for use in sorted(uses, key=lambda use: int(use[3:] or 0)))

    def _repr_html_(self) -> str:
        """Return the node as a table for Jupyter."""
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
    """A machine outside the nodes through which ssh reaches nodes (`Node.via`). Its host key is in
    the testbed's known_hosts; `ssh_key` None lets ssh choose (an agent, default keys).
    """

    name: str
    address: str
    ssh_user: str
    ssh_port: int = 22
    ssh_key: Path | None = None


@dataclass(frozen=True)
class Testbed:
    """A named set of nodes, with all that is needed to reach them over ssh."""

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
        """Return the node called `name`; KeyError if there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    def with_role(self, role: str) -> tuple[Node, ...]:
        """Return every node that has `role`, in the spec's order."""
        return tuple(node for node in self.nodes if role in node.roles)

    @property
    def osds(self) -> int:
        """Number of the store's OSDs here: one for each device of every node with the role."""
        return sum(len(node.osd_devices) for node in self.with_role("osd"))

    @property
    def admin(self) -> Node:
        """Node with the control plane."""
        return self.with_role("admin")[0]

    def __repr__(self) -> str:
        names = ", ".join(node.name for node in self.nodes)
        return f"Testbed({self.name!r} on site {self.site}: {names})"

    def _repr_html_(self) -> str:
        """Return the nodes as a table for Jupyter."""
        return _nodes_html(self.nodes, f"testbed {self.name} on site {self.site}")


@dataclass(frozen=True)
class Status:
    """Current state of a testbed, as its site knows it."""

    state: State
    detail: str
    nodes: Mapping[str, str] = field(default_factory=dict)  # node -> running | stopped | lost ...
    ends_at_s: float | None = None  # end of the lease, seconds since the epoch

    def lease(self, now_s: float | None = None) -> str | None:
        """Return the lease's end and remaining time in words; None without a lease."""
        if self.ends_at_s is None:
            return None
        left_s = self.ends_at_s - (time.time() if now_s is None else now_s)
        if left_s <= 0:
            return f"ended {moment(self.ends_at_s)}"
        hours = f", {len(self.nodes) * left_s / 3600:.1f} node-hours" if self.nodes else ""
        return f"ends {moment(self.ends_at_s)}, in {format_s(left_s)}{hours}"

    def _repr_html_(self) -> str:
        """Return the status as a table for Jupyter."""
        lines = [("state", f"{self.state}: {self.detail}")]
        lease = self.lease()
        if lease is not None:
            lines.append(("lease", lease))
        return html.pairs([*lines, *self.nodes.items()])


@dataclass(frozen=True)
class Cost:
    """Resources of a testbed. `node_hours` is 0 on one's own machines; `hours` is the length of the
    lease, None without a lease.
    """

    node_hours: float
    nodes: int
    disk_bytes: int
    memory_bytes: int
    detail: str
    hours: float | None = None

    @classmethod
    def of(cls, spec: TestbedSpec, detail: str, hours: float | None = None) -> Cost:
        """Return the cost of what `spec` requests."""
        nodes = sum(group.count for group in spec.groups)
        return cls(
            node_hours=nodes * (hours or 0.0),
            nodes=nodes,
            disk_bytes=sum(g.count * g.disks * g.disk.size for g in spec.groups if g.disk),
            memory_bytes=sum(group.count * group.memory for group in spec.groups),
            detail=detail,
            hours=hours,
        )

    def _repr_html_(self) -> str:
        """Return the cost as a table for Jupyter."""
        lines = [("nodes", str(self.nodes)), ("node-hours", f"{self.node_hours:.1f}")]
        if self.hours is not None:
            lines.append(("lease", f"{self.hours:g} h"))
        sizes = (("memory", self.memory_bytes), ("disks", self.disk_bytes))
        lines += [(name, format_bytes(size)) for name, size in sizes if size]
        return html.pairs([*lines, ("", self.detail)])


def other_spec(name: str) -> UserError:
    """Return the mistake of a spec for a testbed that was made of another one."""
    return UserError(
        f"a testbed {name!r} of another spec is there",
        do=f"take it down first (`hotbed down {name}`) or give this one another name (--name)",
    )


def refuse_network(spec: TestbedSpec, kind: str) -> None:
    """Raise UserError for settings of a network that belongs to the machines' owner. The switch's
    `priority_levels` only describe it, and pass."""
    usual = NetworkSpec()
    for key in ("mtu", "congestion_control"):
        wanted = getattr(spec.network or usual, key)
        if wanted != getattr(usual, key):
            raise UserError(
                f"network.{key} is {wanted}, and machines of site {kind} keep the network "
                "that they have",
                where=f"testbed {spec.name}",
                do="leave it out, or use site local",
            )


@dataclass(frozen=True)
class MachineUsage:
    """Load on the machine over an interval, which can spoil a run (design, Clean before).

    `outside_cores` are cores used by anything outside the testbed, `steal` is a share 0..1, and
    `node_cores` are cores used by each node.
    """

    interval_s: float
    outside_cores: float
    steal: float
    node_cores: Mapping[str, float]


@runtime_checkable
class Site(Protocol):
    """Source of machines. Every call is synchronous, resumable and safe to repeat.

    Errors are `schemas.errors.UserError` (the spec or the caller is wrong) or
    `testbed.sites.contract.SiteError` (says whether and when to retry).
    """

    kind: str

    def plan(self, spec: TestbedSpec) -> Cost:
        """Validate `spec` against this site and return its cost. A dry run: changes nothing."""

    def provision(self, spec: TestbedSpec, progress: Progress = silent) -> Testbed:
        """Bring `spec` up and return a READY testbed; resume an interrupted call."""

    def status(self, name: str) -> Status:
        """Return the state of the testbed called `name` (ABSENT if there is none)."""

    def find(self, name: str, *, partly: bool = False) -> Testbed | None:
        """Return the testbed called `name`, or None if it was not brought up completely. `name`:
        the testbed. `partly`: also return an incomplete testbed, for status and stop."""

    def folder(self, name: str) -> Path:
        """Return the folder of the testbed called `name`; it is missing if there is none."""

    def names(self) -> Sequence[str]:
        """Return every testbed with a trace on this site, also half-made or half-removed ones."""

    def extend(self, name: str, seconds: float) -> Status:
        """Ask for `seconds` more of lease; a site without leases returns its status."""

    def release(self, name: str, progress: Progress = silent) -> None:
        """Remove the testbed and everything made for it, also after a crash at any moment."""


@runtime_checkable
class SnapshotSite(Site, Protocol):
    """A site that freezes and restores whole nodes with their disks."""

    def snapshot(self, name: str, label: str) -> None:
        """Freeze the stopped-and-synced state of every node as `label` and continue from it."""

    def restore(self, name: str, label: str, progress: Progress = silent) -> Testbed:
        """Restore every node to `label`: stop the nodes hard, rewind the disks, start the nodes."""

    def snapshots(self, name: str) -> Sequence[str]:
        """Return the labels, oldest first."""

    def delete_snapshot(self, name: str, label: str) -> None:
        """Delete the snapshot `label`; the testbed and its other snapshots stay unchanged.
        UserError: there is no such snapshot."""


@runtime_checkable
class ShapingSite(Site, Protocol):
    """A site that can switch off the disks' service times, for filling."""

    def shape(self, name: str, on: bool) -> None:
        """Switch every disk's service times (and link rates) on, or off for filling."""


@runtime_checkable
class FaultSite(Site, Protocol):
    """A site that cuts and limits links, makes disks slow or faulty, and stops nodes."""

    def link(self, name: str, node: str, up: bool) -> None:
        """Cut or restore the node's link."""

    def check_link(self, name: str, node: str, *, packets: bool) -> None:
        """Raise if `shape_link` cannot limit the node's link, or not delay and lose its `packets`.
        UserError: the reason."""

    def shape_link(
        self,
        name: str,
        node: str,
        *,
        bits_per_s: float | None = None,
        delay_s: float = 0.0,
        loss: float = 0.0,
    ) -> None:
        """Limit both directions of the node's link to a rate (None: the spec's), delay every packet
        and lose a share of the packets (0 to 1)."""

    def power(self, name: str, node: str, on: bool) -> None:
        """Stop the node hard, or start it with its disk and wait for its ssh."""

    def disk_fault(self, name: str, node: str, *, slow: float = 1.0, error: bool = False) -> None:
        """Multiply the disk's service times by `slow`, or let every request fail."""


@dataclass(frozen=True)
class Doomed:
    """A device on which provisioning would destroy data."""

    node: str
    device: str
    bytes: int
    holds: tuple[str, ...]  # such as ``ext4 'data'``
    model: str | None = None

    @property
    def name(self) -> str:
        """Name by which people allow the wipe: ``/dev/sdb@osd0``."""
        return f"{self.device}@{self.node}"

    def sentence(self) -> str:
        """Return a sentence for people: the device and its content."""
        model = f"{self.model}, " if self.model else ""
        return (
            f"{self.device} of node {self.node} ({model}{format_bytes(self.bytes)}) holds "
            f"{', '.join(self.holds)}"
        )


@runtime_checkable
class CautiousSite(Site, Protocol):
    """A site of machines with owners: it first asks about their data and their host keys.

    Until both are allowed, `provision` refuses with a sentence, before it changes anything.
    """

    def doomed(self, spec: TestbedSpec, progress: Progress = silent) -> Sequence[Doomed]:
        """Return the devices on which provisioning would destroy data without permission."""

    def allow(self, devices: Collection[str] = (), *, host_keys: bool = False) -> None:
        """Allow the next `provision` to wipe these (`Doomed.name`), and to trust host keys without
        a known origin. UserError if a name has another form."""

    def leftovers(self, name: str, progress: Progress = silent) -> Sequence[Doomed]:
        """Return the unused devices with content of a running testbed: a deployment would refuse
        them unless the content is its own."""

    def wipe(self, name: str, devices: Collection[str], progress: Progress = silent) -> None:
        """Wipe these devices (`Doomed.name`) of a running testbed: none in use, and none that
        another device replaces meanwhile. UserError, before any wipe, if one cannot be wiped."""


@runtime_checkable
class InspectingSite(Site, Protocol):
    """A site that can inspect its machines before it changes them."""

    def inspect(self, spec: TestbedSpec, progress: Progress = silent) -> Sequence[HostFindings]:
        """Return each machine's findings on the needs of `spec`. Changes nothing."""


@runtime_checkable
class UsageSite(Site, Protocol):
    """A site that measures load on its machines from outside the testbed."""

    def usage_counters(self, name: str) -> Mapping[str, float]:
        """Return counters in seconds, for the differences of `usage_between`."""

    def usage_between(
        self, before: Mapping[str, float], after: Mapping[str, float]
    ) -> MachineUsage:
        """Return the load between two readings of `usage_counters`."""


@dataclass(frozen=True)
class EnforcedSetting:
    """A setting of `node` (or of a rack): the value read back, and the spec's value.

    `where` is the mapping of a run's calibration that holds it (``groups.osd``), `name` its path
    below (``disk.positioning``). Numbers are in `unit`. `set_back` applies the spec's value.
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
        """True if the setting is not the spec's, apart from the kernel's rounding."""
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
    """A site that reads back the settings in force for the spec's disks, links and shares."""

    def settings(
        self, name: str, disks: Mapping[str, Sequence[tuple[float, float]]]
    ) -> Sequence[EnforcedSetting]:
        """Return every setting of the testbed called `name`, freshly read. `name`: the testbed's
        name. `disks`: by node, if an experiment has set its disks: mean positioning time (seconds)
        and bandwidth (bytes/s) of each disk, in place of the spec's."""


@runtime_checkable
class CpuSharesSite(Site, Protocol):
    """A site of nodes that share this machine's processors."""

    def processors(self) -> int:
        """Return the number of processors that nodes can use."""

    def scale_cpus(self, name: str, factor: float) -> None:
        """Let each node of the testbed called `name` use `factor` times the spec's cores, until
        the next call or `provision`. Groups inside a node keep at most the node's cores."""


@runtime_checkable
class CountedDisksSite(Protocol):
    """A site that reports its disks' counters."""

    def disks_stats(self, name: str, node: str) -> Sequence[Mapping[str, object]]:
        """Return the counters of each of a node's disks, in order."""


@runtime_checkable
class AwakeSite(Site, Protocol):
    """A site with a possibly virtual machine that can be kept awake during a measurement."""

    def kept_awake(self) -> AbstractContextManager[bool]:
        """Keep processors awake inside the context, if needed; gives True if they are."""

    def awake_s(self) -> float:
        """Return the processor seconds spent on this so far; 0 if nothing is kept awake."""


@dataclass(frozen=True)
class HostFindings:
    """Results of the checks of one machine; `machine` is its name for people."""

    node: str
    machine: str
    findings: tuple[CheckResult, ...]


class SiteError(HotbedError):
    """Failure of a site to do a task. `retry_after_s` None means that a retry does not help."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
