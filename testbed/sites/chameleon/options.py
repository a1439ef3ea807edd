"""Options of a spec's site block and Blazar's filters of hosts, checked before any request.

A filter is comparisons that must all hold: ``["and", [operator, "$property", value], ...]``, or in
a spec a mapping such as ``{architecture.smt_size: ">=48", node_name: P3-SSD-046}``. Blazar reads
only the first part of an ``and`` inside another ``and``, and refuses ``or``
(``blazar/utils/plugins.py``).
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from schemas.errors import UserError, unknown
from schemas.mistakes import checked
from testbed.spec import GroupSpec, TestbedSpec
from testbed.spec.stores import Device, Devices, SpecModel, as_list

HOUR_S = 3600.0
MAX_LEASE_HOURS = 7 * 24.0
"""Chameleon's policy for bare metal."""
MAX_VIRTUAL_LEASE_HOURS = 182 * 24.0
"""Six months for virtual machines without GPUs (documentation of KVM@TACC, Hardware)."""
SYSTEM_BYTES = 8 * 2**30
"""Share of a virtual machine's disk for the operating system and a store's packages."""
NAME_NOBODY = frozenset(
    {
        *("site", "node_type", "flavor", "image", "lease", "floating_ip", "media", "signal"),
        *("host_keys", "patience"),
    }
)
"""Options that may be published: they name no machine and no person, except a lease's name."""
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
NUMBERS = frozenset({"vcpus", "memory_mb", "local_gb", "hypervisor_version"})
"""Properties that Blazar compares as numbers: its own columns. It compares the properties that
operators added as text (``host_get_all_by_queries``), so "8" is above "48"."""

Filter = tuple[tuple[str, str, str], ...]
"""Comparisons (operator, property, value) that must all hold."""
_SHORT = re.compile(r"\s*(==|!=|<=|>=|=|<|>)?\s*(.+?)\s*")
_EXAMPLE = '[">=", "$architecture.smt_size", "48"]'


def read_filter(given: object) -> Filter:
    """Return a filter given as JSON text, a list or a mapping; raise ValueError if it is wrong."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise ValueError(f"filter {given!r} is not JSON ({error})") from error
    if isinstance(given, Mapping):
        return tuple(_short(str(name), value) for name, value in given.items())
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ValueError(f"{given!r} is no filter, which is such as {_EXAMPLE}")
    if not given:
        return ()
    first, *rest = given
    if first == "or":
        raise ValueError("Blazar does not take `or`, only comparisons joined by `and`")
    if first == "and" and rest:
        return tuple(part for each in rest for part in read_filter(each))
    if first in COMPARE and len(rest) == 2 and re.fullmatch(r"\$.+", str(rest[0])):
        return ((str(first), str(rest[0])[1:], str(rest[1])),)
    raise ValueError(f"{json.dumps(list(given))} is no filter, which is such as {_EXAMPLE}")


def _short(name: str, value: object) -> tuple[str, str, str]:
    match = _SHORT.fullmatch(str(value))
    if match is None or not name:
        raise ValueError(f"filter {name!r}: {value!r} is no value, such as '>=48' or 'storage'")
    return (match[1] or "==", name.removeprefix("$"), match[2])


def text_of(given: Filter) -> str:
    """Return the filter as Blazar stores it: JSON, empty for no filter."""
    parts = [[compare, f"${name}", value] for compare, name, value in given]
    if len(parts) > 1:
        return json.dumps(["and", *parts])
    return json.dumps(parts[0]) if parts else ""


def same(one: str, other: str) -> bool:
    """Return True if two of Blazar's texts state the same filter, in any order."""

    def comparisons(text: str) -> set[tuple[str, str, str]]:
        return {(each[0].replace("==", "="), *each[1:]) for each in read_filter(text or ())}

    try:
        return comparisons(one) == comparisons(other)
    except ValueError:  # a person's own lease may have any text
        return one == other


def holds(given: Filter, host: Mapping[str, Any]) -> bool:
    """Return True if a host of Blazar passes in Blazar's comparison (see `NUMBERS`)."""
    return all(_passes(host.get(name), compare, name, value) for compare, name, value in given)


def _passes(found: Any, compare: str, name: str, value: str) -> bool:
    if found is None:
        return False
    if name not in NUMBERS:
        return COMPARE[compare](str(found), value)
    try:
        return COMPARE[compare](float(found), float(value))
    except ValueError:
        return False


class Prolong(SpecModel):
    """Longest total time of a lease that is prolonged. `upto_hours`: hours of the lease with all
    prolongations."""

    upto_hours: float = Field(gt=0)


class LeaseOptions(SpecModel):
    """Lease of a testbed.

    `start` is ``now``, ``next-free`` (the first time at which all machines are free) or a time with
    its offset, such as ``2026-12-01T08:00Z``. A lease that the user made under this `name` is used
    and kept; otherwise a new lease has this name and the testbed's tag. Blazar keeps 80 characters.
    `hours`: hours of the lease; `prolong`: permission to prolong the lease.
    """

    name: str | None = Field(default=None, min_length=1, max_length=80)
    hours: float = Field(default=24.0, gt=0, le=MAX_VIRTUAL_LEASE_HOURS)
    start: Literal["now", "next-free"] | datetime = "now"
    prolong: Prolong | None = None

    @field_validator("start")
    @classmethod
    def _zoned(cls, start: str | datetime) -> str | datetime:
        if isinstance(start, datetime) and start.tzinfo is None:
            raise ValueError("a time needs its offset: 2026-12-01T08:00Z, or ...+01:00")
        return start

    @model_validator(mode="after")
    def _grows(self) -> LeaseOptions:
        if self.prolong is not None and self.prolong.upto_hours < self.hours:
            raise ValueError("prolong.upto_hours must not be below hours")
        return self

    @property
    def start_s(self) -> float | None:
        """Seconds since the epoch, None if `start` is no time."""
        return self.start.astimezone(UTC).timestamp() if isinstance(self.start, datetime) else None


class DeviceOptions(SpecModel):
    """Existing partitions of a node: `osd` one or several, `scratch` for files."""

    osd: Devices
    scratch: Device | None = None


NodeDevices = Annotated[Devices | DeviceOptions, BeforeValidator(as_list)]
"""Whole disks, or partitions."""


class Patience(SpecModel):
    """Longest waiting times in seconds. `lease_s`, `servers_s`, `ssh_s`: time for the lease, for
    the machines, and for ssh."""

    lease_s: float = Field(default=600.0, gt=0)
    servers_s: float = Field(default=2400.0, gt=0)
    ssh_s: float = Field(default=900.0, gt=0)


class ChameleonOptions(SpecModel):
    """Options of the site (docs/chameleon.md); some take one value or a mapping by group.

    `devices` names disks of a group's nodes: whole disks, which are divided as the spec's disk
    block states, or parts (`DeviceOptions`). Without `devices`, whole machines use their unused
    disks in order and virtual machines use files on their only disk. `site`: the site, such as
    CHI@TACC, or KVM@TACC for virtual machines; `project`: project to charge; by default the project
    of the credentials; `node_type`: type of whole machines, one or by group; `filters`: properties
    of the machines, such as {node_name: P3-SSD-046}; `flavor`: size of virtual machines, one or by
    group; by default the smallest that fits; `image`: image of the machines; `network`: network of
    the nodes; `floating_ip`: admin gives the admin node a public address; `media`: kind of disks
    for the store; `signal`: measure of a disk's load; auto is iowait on up to 4 CPUs, else
    io_pressure; `ssh_user`: user of the image for the first contact; `host_keys`: source of host
    keys, the site's console (given), or the first contact.
    """

    site: str = Field(pattern=r"^[A-Za-z0-9]+@[A-Za-z0-9_-]+$")
    project: str | None = None
    node_type: str | dict[str, str] | None = None
    filters: Any = None
    flavor: str | dict[str, str] | None = None
    image: str = "CC-Ubuntu22.04"
    lease: LeaseOptions = LeaseOptions()
    network: str = "sharednet1"
    floating_ip: Literal["admin", "none"] = "admin"
    devices: dict[str, NodeDevices] = Field(default_factory=dict)
    media: Literal["any", "rotational", "solid"] = "any"
    signal: Literal["auto", "iowait", "io_pressure"] = "auto"
    ssh_user: str = "cc"
    host_keys: Literal["given", "first-contact"] = "given"
    patience: Patience = Patience()

    @field_validator("filters")
    @classmethod
    def _filters(cls, given: object) -> object:
        if given is not None:
            read_filter(given)
        return given

    @model_validator(mode="after")
    def _one_kind(self) -> ChameleonOptions:
        if self.virtual and (self.node_type is not None or self.filters is not None):
            raise ValueError(f"{self.site} has virtual machines: give flavor, not node_type")
        if not self.virtual and self.flavor is not None:
            raise ValueError(f"{self.site} has whole machines: give node_type, not flavor")
        if not self.virtual and self.node_type is None and self.filters is None:
            raise ValueError(f"{self.site} needs a node_type, such as compute_skylake, or filters")
        if self.virtual and self.media != "any":
            raise ValueError(f"{self.site} has virtual machines, and their disks are not chosen")
        longest = self.longest_hours
        if self.lease.hours > longest:
            raise ValueError(f"lease.hours: {self.site} gives at most {longest:g} at a time")
        return self

    @property
    def virtual(self) -> bool:
        """True if the site has virtual machines, False if it has whole machines."""
        return self.site.startswith("KVM@")

    @property
    def longest_hours(self) -> float:
        """Longest remaining time of a lease in hours by the site's policy."""
        return MAX_VIRTUAL_LEASE_HOURS if self.virtual else MAX_LEASE_HOURS

    @property
    def lease_s(self) -> float:
        """Length of a lease in seconds."""
        return self.lease.hours * HOUR_S

    def filter_of(self, group: str) -> Filter:
        """Return the filter for hosts of this group."""
        kind = _of_group(self.node_type, group)
        of_type: Filter = (("==", "node_type", kind),) if kind else ()
        return of_type + read_filter(self.filters or ())

    def flavor_of(self, group: str) -> str | None:
        """Return the name of the group's flavor; None means the smallest that fits."""
        return _of_group(self.flavor, group)

    def devices_of(self, group: str, node: str) -> Devices | DeviceOptions | None:
        """Return the devices given for a node, by its own name or its group's."""
        return self.devices.get(node, self.devices.get(group))


def osd_paths(given: Devices | DeviceOptions) -> tuple[str, ...]:
    """Return paths of the store's devices."""
    return given.osd if isinstance(given, DeviceOptions) else given


def _of_group(value: str | dict[str, str] | None, group: str) -> str | None:
    return value.get(group) if isinstance(value, dict) else value


def read_options(options: Mapping[str, object], where: str = "site.options") -> ChameleonOptions:
    """Return the checked options of a spec. UserError: one sentence for the first wrong option."""
    return checked(ChameleonOptions, dict(options), where)


def check_spec(spec: TestbedSpec, options: ChameleonOptions) -> None:
    """Check the options against the spec's groups and disks. UserError: one sentence for the first
    mistake."""
    groups = [group.name for group in spec.groups]
    for option, value, known in (
        ("node_type", options.node_type, groups),
        ("flavor", options.flavor, groups),
        ("devices", options.devices, [*groups, *spec.node_names()]),
    ):
        for name in value if isinstance(value, dict) else ():
            if name not in known:
                where = f"spec {spec.name}: site.options.{option}"
                raise unknown("group or node", name, known, where=where)
    for group in spec.groups:
        typed = options.node_type
        if isinstance(typed, dict) and options.filters is None and group.name not in typed:
            raise UserError(
                f"group {group.name!r} has no type",
                where=f"spec {spec.name}: site.options.node_type",
                do="give it one",
            )
        for node in group.node_names():
            given = options.devices_of(group.name, node)
            if given is not None and (mistake := _devices_mistake(group, given)):
                where = f"spec {spec.name}: site.options.devices of {node!r}"
                raise UserError(mistake, where=where)


def _devices_mistake(group: GroupSpec, given: Devices | DeviceOptions) -> str | None:
    if group.disk is None:
        return f"group {group.name!r} has no disk block, so it needs none"
    if (count := len(osd_paths(given))) != group.disks:
        return f"{count} for the store; the group has disks: {group.disks}"
    if isinstance(given, DeviceOptions) and bool(group.disk.scratch) != bool(given.scratch):
        return (
            "give scratch a device if and only if the group's disk has scratch; or name a "
            "whole disk alone, which is divided"
        )
    return None


def root_bytes(group: GroupSpec) -> int:
    """Return the bytes that a virtual machine of this group needs on its only disk."""
    return SYSTEM_BYTES + (group.disk.size * group.disks if group.disk else 0)
