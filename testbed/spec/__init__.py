"""Typed description of a testbed: its machines with their disks, links and shares, and its store.

One YAML file serves every site; only the `site` block changes. The machines are groups of nodes
with their disks and links, racks, and the network between them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    model_validator,
)

from schemas.durable import read_json
from schemas.errors import UserError
from schemas.mistakes import Place, checked, mistake
from schemas.yaml_file import no_file, read_mapping
from testbed.spec.quantities import BitsPerSecond, Bytes, BytesPerSecond, Seconds, parse_bits_per_s
from testbed.spec.stores import (
    STORES,
    CephSpec,
    NfsSpec,
    ObjectsSpec,
    PoolSpec,
    SpecModel,
    Store,
    SwiftSpec,
    TwoChoiceSpec,
    check_nodes,
)
from testbed.stores.nfs.wire import ETHERNET_MTU

SPECS = Path(__file__).resolve().parents[1] / "specs"
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


class DiskSpec(SpecModel):
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


class GroupSpec(SpecModel):
    """`count` identical nodes, named <group>0, <group>1, ... (<group> alone if count is 1).

    A node has `disks` disks like `disk`, each for one daemon of the store. Only nodes with one disk
    hold files (scratch), so that fio and the OSD use the same disk. `root_size` limits what a node
    of the local site writes outside its disks (logs, configuration, a monitor's store), all
    snapshots together; real machines have their own roots. `name`: name of the group, and of its
    node if there is one; `roles`: tasks of the nodes; `cpus`: processors of a node; the local site
    limits a node to them; `memory`: memory of a node, such as 1536MiB; `network`: rate of a node's
    link, such as 1Gbit.
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


class RackSpec(SpecModel):
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


class NetworkSpec(SpecModel):
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


class SiteSpec(SpecModel):
    """Site of the machines; the site itself checks `options`."""

    kind: str = "local"
    options: dict[str, object] = Field(default_factory=dict)


__all__ = [
    "SIZE_SLACK",
    "CephSpec",
    "DiskSpec",
    "GroupSpec",
    "NetworkSpec",
    "NfsSpec",
    "ObjectsSpec",
    "PoolSpec",
    "RackSpec",
    "Role",
    "SiteSpec",
    "SwiftSpec",
    "TestbedSpec",
    "TwoChoiceSpec",
    "load_spec",
    "no_spec",
    "renamed",
    "with_suite",
]


class TestbedSpec(SpecModel):
    """A whole testbed. `name`: name of the testbed in commands; `site`: the machines; `groups`:
    groups of identical nodes; one node has the role admin; `store`: the store; a Ceph cluster if
    omitted, null for none; `racks`: assignment of nodes to racks; `network`: packet handling of the
    network; `metrics`: metrics for Prometheus on the admin node (docs/metrics.md)."""

    __test__ = False

    name: Name
    site: SiteSpec = SiteSpec()
    groups: tuple[GroupSpec, ...] = Field(min_length=1)
    store: Store | None = CephSpec()
    racks: RackSpec | None = None
    network: NetworkSpec | None = None
    metrics: bool = False

    @model_validator(mode="after")
    def _metrics_are_brought(self) -> TestbedSpec:
        if self.metrics and isinstance(self.store, CephSpec) and self.store.deployer.kind != "own":
            raise ValueError(
                f"metrics need the deployer own, and this is {self.store.deployer.kind}: leave out "
                "metrics, or the deployer"
            )
        return self

    @model_validator(mode="after")
    def _roles(self) -> TestbedSpec:
        names = self.node_names()
        if len(set(names)) != len(names):
            raise ValueError("two nodes would have the same name: give groups distinct names")
        admins = [g for g in self.groups if "admin" in g.roles]
        if len(admins) != 1 or admins[0].count != 1:
            raise ValueError("exactly one node must have the role admin")
        if self.store is not None:
            for role in STORES[self.store.kind]:
                if not any(role in group.roles for group in self.groups):
                    raise ValueError(f"store {self.store.kind} needs a node with the role {role}")
        return self

    @model_validator(mode="after")
    def _no_templates(self) -> TestbedSpec:
        """Refuse templates: Ansible would run their code on the engine's machine."""
        text = self.model_dump_json(exclude={"site"})
        found = next((mark for mark in ("{{", "{%", "{#") if mark in text), None)
        if found is not None:
            raise ValueError(f"a text holds {found}, which begins a template: write out its value")
        return self

    @model_validator(mode="after")
    def _racks_hold_nodes(self) -> TestbedSpec:
        if self.racks is None:
            return self
        if self.racks.count is not None:
            osd_nodes = len(self._osd_names())
            if self.racks.count > osd_nodes:
                raise ValueError(
                    f"racks.count is {self.racks.count} with {osd_nodes} nodes of role osd: "
                    "a rack must get one at least"
                )
            return self
        known, seen = set(self.node_names()), dict[str, str]()
        for rack, nodes in (self.racks.members or {}).items():
            for node in nodes:
                if node not in known:
                    raise ValueError(f"rack {rack!r} names node {node!r}, which no group makes")
                if node in seen:
                    raise ValueError(f"node {node!r} is in rack {seen[node]!r} and in {rack!r}")
                seen[node] = rack
        return self

    @model_validator(mode="after")
    def _microstores_fit(self) -> TestbedSpec:
        if isinstance(self.store, SwiftSpec):
            check_nodes(
                self.store,
                {group.name: group.node_names() for group in self.groups},
                {name: group.roles for group in self.groups for name in group.node_names()},
                {name: group.cpus for group in self.groups for name in group.node_names()},
            )
        return self

    @model_validator(mode="after")
    def _store_fits(self) -> TestbedSpec:
        if not isinstance(self.store, CephSpec):
            return self
        if self.store.tenants and not any("rgw" in group.roles for group in self.groups):
            raise ValueError(
                "tenants are users of the object gateway, and no node is one: give one the role rgw"
            )
        hosts = self._osd_names()
        for group in self.groups:
            lacks_files = group.disk is not None and not group.disk.scratch
            if self.store.objectstore == "filestore" and "osd" in group.roles and lacks_files:
                raise ValueError(
                    f"objectstore filestore keeps objects on scratch, and group {group.name!r} has "
                    "none: give disk.scratch a size"
                )
        racks = self.rack_of()
        homeless = [host for host in hosts if host not in racks]
        domains, what = len(hosts), "nodes"
        if self.store.failure_domain == "rack":
            if homeless:
                raise ValueError(
                    f"failure_domain rack needs a rack for every node of role osd, and "
                    f"{homeless[0]!r} has none"
                )
            domains, what = len({racks[host] for host in hosts}), "racks"
        for pool in self.store.pools:
            if pool.size > domains:
                raise ValueError(
                    f"pool {pool.name!r} keeps {pool.size} replicas on {domains} {what}"
                )
        return self

    def node_names(self) -> tuple[str, ...]:
        """Return the names of all nodes, in order."""
        return tuple(name for group in self.groups for name in group.node_names())

    def _osd_names(self) -> tuple[str, ...]:
        return tuple(n for group in self.groups if "osd" in group.roles for n in group.node_names())

    def disks(self) -> dict[str, DiskSpec]:
        """Return the disk block of every node that has one."""
        return {
            name: group.disk
            for group in self.groups
            if group.disk is not None
            for name in group.node_names()
        }

    def osd_disks(self) -> tuple[DiskSpec, ...]:
        """Return the disk of every OSD, in the order of OSD numbers."""
        return tuple(
            group.disk
            for group in self.groups
            if "osd" in group.roles and group.disk is not None
            for _ in range(group.count * group.disks)
        )

    def rack_of(self) -> dict[str, str]:
        """Return the rack by node, racks in order; nodes at the core are left out."""
        if self.racks is None:
            return {}
        if self.racks.members is not None:
            return {node: rack for rack, nodes in self.racks.members.items() for node in nodes}
        assert self.racks.count is not None
        nodes, count = self._osd_names(), self.racks.count
        return {node: f"rack{place * count // len(nodes)}" for place, node in enumerate(nodes)}

    def ceph(self) -> CephSpec:
        """Return the store of this testbed, which must be Ceph. UserError: the testbed has another
        store, or none."""
        if not isinstance(self.store, CephSpec):
            kind = self.store.kind if self.store else "none"
            raise UserError(
                f"has the store {kind}, and this needs ceph",
                where=f"testbed {self.name}",
                do="bring up another spec, such as testbed/specs/dlr.yaml",
            )
        return self.store

    @property
    def mtu(self) -> int:
        """Largest IP packet of the requested network, in bytes."""
        return self.network.mtu if self.network else ETHERNET_MTU

    @property
    def priority_levels(self) -> int:
        """Priority levels of the switch's ports; 0: none."""
        return self.network.priority_levels if self.network else 0

    def digest(self) -> str:
        """Return the SHA-256 (hex) of everything in the spec except its name and site options.

        Later additions with default values are left out: an old spec keeps its digest and results.
        """
        body = self.model_dump(mode="json", exclude={"name", "site"})
        _leave_out(body, "racks", None)
        _leave_out(body, "metrics", False)
        usual = NetworkSpec().model_dump().items()
        body["network"] = dict((body["network"] or {}).items() - usual)
        _leave_out(body, "network", {})
        for group in body["groups"]:
            _leave_out(group, "disks", 1)
            _leave_out(group, "root_size", ROOT_SIZE)
        if isinstance(self.store, CephSpec):
            _leave_out(body["store"], "failure_domain", "host")
            _leave_out(body["store"], "twochoice", None)
            _leave_out(body["store"], "tenants", [])
            _leave_out(body["store"], "deployer", {"kind": "own"})
            if self.store.deployer.kind == "ceph-ansible":
                _leave_out(body["store"]["deployer"], "release", "squid")
                _leave_out(body["store"]["deployer"], "osds", "lvm")
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _leave_out(body: dict[str, Any], key: str, default: object) -> None:
    if body.get(key) == default:
        del body[key]


def load_spec(path: Path) -> TestbedSpec:
    """Read and validate a spec file. UserError: the file is missing, is not YAML or does not fit
    the schema; one sentence."""
    if not path.exists():
        raise no_spec(path)
    data = read_mapping(path, "a spec is a mapping with name, groups and store")
    _read_profile(data.get("store"), path)
    _locate(data.get("site"), path.parent)
    try:
        return TestbedSpec.model_validate(data)
    except ValidationError as error:
        found = mistake(error, TestbedSpec)
        raise replace(found, place=_by_group(found.place, data)).error(path) from error


def _by_group(place: Place, data: Mapping[str, Any]) -> Place:
    """Return `place` with the group's name, or else its number from 1, for ``groups`` and a number
    from 0."""
    if place[:1] != ("groups",) or len(place) < 2 or not isinstance(place[1], int):
        return place
    entry = data["groups"][place[1]]
    name = entry.get("name") if isinstance(entry, dict) and place[2:] != ("name",) else None
    return (f"group {name if isinstance(name, str) else place[1] + 1}", *place[2:])


def no_spec(path: Path) -> UserError:
    """Return the mistake of a missing spec file, with the nearest name of Hotbed's and others."""
    return no_file(path, SPECS.glob("*.yaml"))


FILE_OPTIONS = ("inventory", "key", "known_hosts")
"""Site options that name files; a relative path in a spec is relative to the spec's folder."""


def _locate(options: object, folder: Path) -> None:
    """Make file paths in a site's options absolute, also in those of single machines."""
    if isinstance(options, list):
        for each in options:
            _locate(each, folder)
    if not isinstance(options, dict):
        return
    for name, value in options.items():
        if name in FILE_OPTIONS and isinstance(value, str) and value:
            options[name] = str((folder / Path(value).expanduser()).absolute())
        else:
            _locate(value, folder)


def _read_profile(store: object, path: Path) -> None:
    """Replace the name of a profile's file, relative to the spec, by the file's content."""
    name = store.get("profile") if isinstance(store, dict) else None
    if not isinstance(store, dict) or not isinstance(name, str):
        return
    store["profile"] = read_json(path.parent / name, f"{path}: store.profile: {name}")


def renamed(spec: TestbedSpec, name: str) -> TestbedSpec:
    """Return `spec` under another name. UserError: `name` is not a name."""
    return checked(TestbedSpec, {**spec.model_dump(), "name": name}, "--name")


def with_suite(spec: TestbedSpec, suite: str) -> TestbedSpec:
    """Return `spec` with this Debian suite in the site's options; the site checks the suite."""
    site = spec.site.model_copy(update={"options": {**spec.site.options, "suite": suite}})
    return spec.model_copy(update={"site": site})
