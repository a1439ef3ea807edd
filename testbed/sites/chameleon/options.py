"""The `options` of a spec's site block, checked before anything is asked of anybody."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from schemas.errors import UserError
from testbed.sites.chameleon.filters import Filter, both, has_or, read_filter
from testbed.spec import GroupSpec, TestbedSpec, explain
from testbed.store_spec import Strict

VIRTUAL = "KVM@"
"""Sites of virtual machines begin so; the others lease whole machines."""
HOUR_S = 3600.0
MAX_LEASE_HOURS = 7 * 24.0
"""Chameleon's policy for bare metal (facts, and its user documentation)."""
MAX_VIRTUAL_LEASE_HOURS = 182 * 24.0
"""Six months for virtual machines without GPUs (the documentation of KVM@TACC, Hardware)."""
SYSTEM_BYTES = 8 * 2**30
"""What the operating system and a store's packages take of a virtual machine's disk."""

Paths = str | tuple[str, ...]
_DEVICE = re.compile(r"/dev/[A-Za-z0-9._/+:@-]+")


class Prolong(Strict):
    """How long a lease may become by being prolonged, as a whole."""

    upto_hours: float = Field(gt=0)


class LeaseOptions(Strict):
    """`start` is ``now``, ``next-free`` (the first time at which all machines are free), or a time
    with its offset, such as ``2026-12-01T08:00Z``. A lease of this `name` and owner that is there
    is used; without a name the lease has the testbed's. Blazar keeps 80 characters of it."""

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
        """Seconds since the epoch; None when no time is given."""
        return self.start.astimezone(UTC).timestamp() if isinstance(self.start, datetime) else None


class DeviceOptions(Strict):
    """Devices that are divided already: `osd` one or several, `scratch` for files."""

    osd: Paths
    scratch: str | None = None


class Patience(Strict):
    """Seconds to wait at most."""

    lease_s: float = Field(default=600.0, gt=0)
    servers_s: float = Field(default=2400.0, gt=0)
    ssh_s: float = Field(default=900.0, gt=0)


class Options(Strict):
    """See docs/chameleon.md. What may differ between groups is one value, or a mapping by group.

    `devices` names disks of a group's nodes: whole ones, which are divided as the spec's disk
    block says, or parts (`DeviceOptions`). Without it, whole machines use their disks that hold no
    file system, in order, and virtual machines files on their only disk.
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
    devices: dict[str, Paths | DeviceOptions] = Field(default_factory=dict)
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

    @field_validator("devices")
    @classmethod
    def _device_paths(
        cls, devices: dict[str, Paths | DeviceOptions]
    ) -> dict[str, Paths | DeviceOptions]:
        for name, given in devices.items():
            for path in _paths_of(given):
                if not _DEVICE.fullmatch(path) or ".." in path:
                    raise ValueError(f"{name}: {path!r} is no device, such as /dev/sdb")
        return devices

    @model_validator(mode="after")
    def _one_kind(self) -> Options:
        if self.virtual and (self.node_type is not None or self.filters is not None):
            raise ValueError(f"{self.site} has virtual machines: give flavor, not node_type")
        if not self.virtual and self.flavor is not None:
            raise ValueError(f"{self.site} has whole machines: give node_type, not flavor")
        if not self.virtual and self.node_type is None and self.filters is None:
            raise ValueError(f"{self.site} needs a node_type, such as compute_skylake, or filters")
        if self.virtual and self.media != "any":
            raise ValueError(f"{self.site} has virtual machines, whose disks are not chosen")
        longest = self.longest_hours
        if self.lease.hours > longest:
            raise ValueError(f"lease.hours: {self.site} gives at most {longest:g} at a time")
        return self

    @property
    def virtual(self) -> bool:
        """Virtual machines, not whole ones."""
        return self.site.startswith(VIRTUAL)

    @property
    def longest_hours(self) -> float:
        """What the policy lets a lease have ahead of it."""
        return MAX_VIRTUAL_LEASE_HOURS if self.virtual else MAX_LEASE_HOURS

    @property
    def lease_s(self) -> float:
        """Length of a lease in seconds."""
        return self.lease.hours * HOUR_S

    def filter_of(self, group: str) -> Filter:
        """What a host of this group must be."""
        kind = _of_group(self.node_type, group)
        of_type: Filter = ["==", "$node_type", kind] if kind else []
        return both(of_type, read_filter(self.filters) if self.filters is not None else [])

    def flavor_of(self, group: str) -> str | None:
        """Name of the group's flavor; None: the smallest that fits."""
        return _of_group(self.flavor, group)

    def devices_of(self, group: str, node: str) -> Paths | DeviceOptions | None:
        """What is named for a node, by its own name or its group's."""
        return self.devices.get(node, self.devices.get(group))


def _paths_of(given: Paths | DeviceOptions) -> tuple[str, ...]:
    if isinstance(given, DeviceOptions):
        return _paths_of(given.osd) + ((given.scratch,) if given.scratch else ())
    return (given,) if isinstance(given, str) else given


def osd_paths(given: Paths | DeviceOptions) -> tuple[str, ...]:
    """Paths of the store's devices."""
    return _paths_of(given.osd if isinstance(given, DeviceOptions) else given)


def _of_group(value: str | dict[str, str] | None, group: str) -> str | None:
    return value.get(group) if isinstance(value, dict) else value


def read_options(options: Mapping[str, object], where: str = "site.options") -> Options:
    """The options of a spec.

    Raises:
        UserError: one sentence for the first that is wrong.
    """
    try:
        return Options.model_validate(dict(options))
    except ValidationError as error:
        raise explain(error, where, Options) from error


def check_spec(spec: TestbedSpec, options: Options) -> None:
    """Do the options speak of this spec's groups and disks?

    Raises:
        UserError: one sentence for the first thing that is wrong.
    """
    groups = {group.name: group for group in spec.groups}
    # Not where options are read, which are those of records too: they must stay readable.
    if options.filters is not None and has_or(read_filter(options.filters)):
        raise UserError(
            f"spec {spec.name}: site.options.filters: Blazar does not take `or`, only comparisons "
            "joined by `and`: give groups another node_type each, or name what all hosts have."
        )
    for option, value in (("node_type", options.node_type), ("flavor", options.flavor)):
        if isinstance(value, dict):
            _known(spec, f"site.options.{option}", value, set(groups))
            if option == "node_type" and options.filters is None:
                _complete(spec, value, set(groups))
    _known(spec, "site.options.devices", options.devices, {*groups, *spec.node_names()})
    for group in spec.groups:
        for node in group.node_names():
            _check_devices(spec, group, node, options.devices_of(group.name, node))


def _known(spec: TestbedSpec, where: str, value: Mapping[str, object], names: set[str]) -> None:
    for name in value:
        if name not in names:
            raise UserError(
                f"spec {spec.name}: {where} speaks of {name!r}; there are: "
                f"{', '.join(sorted(names))}."
            )


def _complete(spec: TestbedSpec, value: Mapping[str, str], groups: set[str]) -> None:
    missing = sorted(groups - set(value))
    if missing:
        raise UserError(
            f"spec {spec.name}: site.options.node_type names none for group {missing[0]!r}."
        )


def _check_devices(
    spec: TestbedSpec, group: GroupSpec, node: str, given: Paths | DeviceOptions | None
) -> None:
    if given is None:
        return
    where = f"spec {spec.name}: site.options.devices of {node!r}"
    if group.disk is None:
        raise UserError(f"{where}: group {group.name!r} has no disk block, so it needs none.")
    count = len(osd_paths(given))
    if count != group.disks:
        raise UserError(f"{where}: {count} for the store; the group has disks: {group.disks}.")
    has_scratch = isinstance(given, DeviceOptions) and given.scratch is not None
    if isinstance(given, DeviceOptions) and bool(group.disk.scratch) != has_scratch:
        raise UserError(
            f"{where}: give scratch a device if and only if the group's disk has scratch; or name "
            "a whole disk alone, which is divided."
        )


def root_bytes(group: GroupSpec) -> int:
    """What a virtual machine of this group needs of its only disk."""
    return SYSTEM_BYTES + (group.disk.size * group.disks if group.disk else 0)
