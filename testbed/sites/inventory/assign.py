"""Assignment of machines and devices to the nodes of a spec."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

from schemas.errors import UserError
from testbed.deploy.inventory import GROUPS
from testbed.sites.inventory.hosts import (
    DevicesOfNode,
    HostOptions,
    InventoryOptions,
    ListedMachines,
)
from testbed.spec import GroupSpec, TestbedSpec


@dataclass(frozen=True)
class Jump:
    """A machine that ssh goes through."""

    address: str
    user: str | None
    port: int


@dataclass(frozen=True)
class InventoryHost:
    """A machine with the parameters of the first login; `user` None: ssh's default."""

    name: str
    address: str
    port: int = 22
    user: str | None = None
    key: str | None = None
    jump: Jump | None = None
    private_address: str | None = None
    host_key: str | None = None

    @property
    def where(self) -> tuple[str, int, Jump | None]:
        """The machine's identity among those of the inventory."""
        return self.address, self.port, self.jump


@dataclass(frozen=True)
class Member:
    """A node with its machine and devices; name, group and roles are the spec's."""

    node: str
    group: str
    roles: tuple[str, ...]
    memory_bytes: int
    host: InventoryHost
    devices: Mapping[str, str] = field(default_factory=dict)
    rack: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the member as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Member:
        """Return the member from `to_json`."""
        host = dict(data["host"])
        jump = host.pop("jump")
        found = InventoryHost(**host, jump=Jump(**jump) if jump else None)
        return cls(**{**data, "host": found, "roles": tuple(data["roles"])})


def _host(host: HostOptions, options: InventoryOptions) -> InventoryHost:
    """Fill in the options for all machines."""
    jump = host.proxy_jump or options.proxy_jump
    return InventoryHost(
        name=host.name,
        address=host.address,
        port=host.port or options.port or 22,
        user=host.user or options.user,
        key=host.key or options.key,
        jump=Jump(jump.address, jump.user, jump.port) if jump else None,
        private_address=host.private_address,
        host_key=host.host_key,
    )


def assign(
    spec: TestbedSpec,
    options: InventoryOptions,
    machines: ListedMachines,
    taken: Collection[tuple[str, int, Jump | None]] = (),
) -> tuple[Member, ...]:
    """Assign machines to the nodes of `spec`, in the spec's order.

    `options.nodes` counts first for a node, then for its group, then for a role of the group; then
    the inventory's group with the name of the spec's group, or its groups for the roles as
    ceph-ansible names them. Other nodes may be on any machine. Machines are taken in the order in
    which they are named, but no node keeps the only machine that is left for another node.

    Args:
        taken: machines (`InventoryHost.where`) that other testbeds hold.

    Raises:
        UserError: a name is unknown, there are not enough machines, or a device is missing.
    """
    hosts = {host.name: _host(host, options) for host in machines.hosts}
    _check_names(spec, options, [*hosts, *machines.unusable])
    named: dict[str, Sequence[str]] = {}
    for node, names in _candidates(spec, options, machines):
        named.setdefault(node, names)
    where: dict[str, Hashable] = {name: name for name in machines.unusable}
    where |= {name: host.where for name, host in hosts.items() if host.where not in taken}
    chosen = _match(spec, named, tuple(hosts), where, machines)
    racks = spec.rack_of()
    return tuple(
        Member(
            node=node,
            group=group.name,
            roles=tuple(group.roles),
            memory_bytes=group.memory,
            host=hosts[chosen[node]],
            devices=devices_of(group, node, options.devices),
            rack=racks.get(node),
        )
        for group in spec.groups
        for node in group.node_names()
    )


def _candidates(
    spec: TestbedSpec, options: InventoryOptions, machines: ListedMachines
) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield nodes with the machines named for them, the most explicit names first."""
    for group in spec.groups:
        if group.count > 1:  # a single node has its group's name
            for node in group.node_names():
                if node in options.nodes:
                    yield node, options.nodes[node]
    for group in spec.groups:
        keys = [key for key in (group.name, *group.roles) if key in options.nodes]
        for node in group.node_names() if keys else ():
            yield node, options.nodes[keys[0]]
    for group in spec.groups:
        keys = [key for key in (group.name, f"{group.name}s") if machines.groups.get(key)]
        of_roles = (machines.groups.get(GROUPS[role], ()) for role in group.roles)
        names = machines.groups[keys[0]] if keys else tuple(dict.fromkeys(chain(*of_roles)))
        for node in group.node_names() if names else ():
            yield node, names


def _match(
    spec: TestbedSpec,
    named: Mapping[str, Sequence[str]],
    anything: Sequence[str],
    where: Mapping[str, Hashable],
    machines: ListedMachines,
) -> dict[str, str]:
    """Match nodes with names of machines.

    Args:
        named: candidates for nodes, the most explicit first.
        anything: candidates for the other nodes.
        where: the machine behind each name that may be used: two names may be one machine's.
    """
    group_of = {node: group for group in spec.groups for node in group.node_names()}
    wanted = dict(named)
    for node in group_of:
        wanted.setdefault(node, anything)
    chosen: dict[str, str] = {}
    for node in wanted:
        if not _place(node, wanted, where, chosen):
            raise _left_out(spec, group_of[node], node, named.get(node), machines)
    for group in spec.groups:  # nodes with the same candidates take them in order
        for names in {wanted[node] for node in group.node_names()}:
            nodes = [node for node in group.node_names() if wanted[node] == names]
            order = sorted((chosen[node] for node in nodes), key=names.index)
            chosen |= zip(nodes, order, strict=True)
    for node, name in chosen.items():
        if name in machines.unusable:
            raise UserError(
                f"{machines.unusable[name].rstrip('.')}. It would be node {node}",
                do=(
                    "mend that, or name other machines for it (site.options.nodes: "
                    f"{{{group_of[node].name}: [...]}})"
                ),
            )
    return chosen


def _place(
    node: str,
    wanted: Mapping[str, Sequence[str]],
    where: Mapping[str, Hashable],
    chosen: dict[str, str],
) -> bool:
    """Choose a machine for one more node: a free machine, or that of a node that can have another
    (an augmenting path, breadth first). Return False if there is none."""
    holders = {where[name]: holder for holder, name in chosen.items()}
    reached: dict[Hashable, tuple[str, str]] = {}
    queue = [node]
    for asking in queue:
        for name in wanted[asking]:
            machine = where.get(name)
            if machine is None or machine in reached:
                continue
            reached[machine] = asking, name
            if machine in holders:
                queue.append(holders[machine])
                continue
            while machine is not None:  # each on the path takes what the next one leaves
                taker, taken = reached[machine]
                left, chosen[taker] = chosen.get(taker), taken
                machine = None if left is None else where[left]
            return True
    return False


def _left_out(
    spec: TestbedSpec,
    group: GroupSpec,
    node: str,
    named: Sequence[str] | None,
    machines: ListedMachines,
) -> UserError:
    """Return the reason why there is no machine for a node."""
    if named is not None:
        return UserError(
            f"site inventory: node {node} (group {group.name}, {group.count} nodes) is left "
            f"without a machine: those named for it are {', '.join(named)}, and they are "
            "other nodes or another testbed's",
            do="name more",
        )
    bad = [f"{name} cannot be used ({why.rstrip('.')})" for name, why in machines.unusable.items()]
    more = f"; of the others, {'; '.join(bad[:3])}" if bad else ""
    return UserError(
        f"it has {len(spec.node_names())} nodes, and of the inventory's {len(machines.hosts)} "
        f"machines none is left for {node}",
        where=f"testbed {spec.name}",
        do=f"name more machines, or lower the count of group {group.name}{more}",
    )


def _check_names(spec: TestbedSpec, options: InventoryOptions, hosts: Sequence[str]) -> None:
    nodes, groups = spec.node_names(), [group.name for group in spec.groups]
    roles = [role for group in spec.groups for role in group.roles]
    for option, keys in (("nodes", options.nodes), ("devices", options.devices)):
        for key in keys:
            if key not in {*nodes, *groups, *roles}:
                raise UserError(
                    f"site.options.{option}: {key!r} is no node, group or role of testbed "
                    f"{spec.name}",
                    allowed=_some([*groups, *dict.fromkeys(roles), *nodes]),
                )
    for key, names in options.nodes.items():
        for name in names:
            if name not in hosts:
                raise UserError(
                    f"site.options.nodes: {key}: {name!r} is no machine of the inventory",
                    allowed=_some(hosts),
                )
    for consent in options.wipe:
        if consent.rpartition("@")[2] not in nodes:
            raise UserError(
                f"site.options.wipe: {consent!r} names no node of testbed {spec.name}; its "
                f"nodes are: {_some(nodes)}"
            )


def _some(names: Iterable[str], most: int = 12) -> str:
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def devices_of(group: GroupSpec, node: str, options: Mapping[str, DevicesOfNode]) -> dict[str, str]:
    """Return paths by use, as in `testbed.sites.contract.Node.devices`.

    Raises:
        UserError: the spec's disks and the devices in the options do not fit.
    """
    keys = (node, group.name, *group.roles)
    found = next((options[key] for key in keys if key in options), None)
    if group.disk is None:
        if found is not None and (node in options or group.name in options):
            raise UserError(
                f"site.options.devices: group {group.name} has no disk block in the spec, so "
                "nothing would be done with the devices given for it"
            )
        return {}
    given = found or DevicesOfNode()
    if len(given.osd) != group.disks:
        example = "[/dev/sdb, /dev/sdc]" if group.disks > 1 else "/dev/sdb"
        raise UserError(
            f"the spec has {group.disks} disk(s) a node in group {group.name}, and "
            f"site.options.devices names {len(given.osd)}",
            where=f"node {node}",
            do=f"write devices: {{{group.name}: {{osd: {example}}}}}",
        )
    if group.disk.scratch and given.scratch is None:
        raise UserError(
            f"the spec keeps files (disk.scratch of group {group.name}), and no device is "
            "named for them",
            where=f"node {node}",
            do=(
                f"write devices: {{{group.name}: {{osd: {given.osd[0]}, scratch: /dev/...}}}}, "
                "best two partitions of one disk, or set disk.scratch to 0"
            ),
        )
    if given.scratch is not None and not group.disk.scratch:
        raise UserError(
            f"a scratch device {given.scratch} is named, and the spec keeps no files "
            f"(disk.scratch of group {group.name} is 0)",
            where=f"node {node}",
            do="leave it out, or give scratch a size",
        )
    devices = {} if given.scratch is None else {"scratch": given.scratch}
    for number, path in enumerate(given.osd):
        devices[f"osd{number or ''}"] = path
    return devices
