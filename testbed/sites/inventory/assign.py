"""Which machine becomes which node, and with which devices."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

from schemas.errors import UserError
from testbed.sites.inventory.ansible_hosts import Machines
from testbed.sites.inventory.options import DevicesOfNode, HostOptions, InventoryOptions
from testbed.spec import GroupSpec, TestbedSpec

ANSIBLE_GROUPS = {
    "admin": "admins",
    "mon": "mons",
    "mgr": "mgrs",
    "osd": "osds",
    "rgw": "rgws",
    "client": "clients",
    "nfs": "servers",
    "object": "objects",
    "proxy": "proxies",
    "storage": "storages",
}
"""Names of groups in inventories for Ansible, as the playbooks and ceph-ansible have them."""


@dataclass(frozen=True)
class Jump:
    """A machine that ssh goes through."""

    address: str
    user: str | None
    port: int


@dataclass(frozen=True)
class Host:
    """A machine and how it is logged in on the first time; `user` None: ssh's default."""

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
        """What tells one machine from another."""
        return self.address, self.port, self.jump


@dataclass(frozen=True)
class Member:
    """A node to be: its name and group in the spec, its machine and devices."""

    node: str
    group: str
    roles: tuple[str, ...]
    memory_bytes: int
    host: Host
    devices: Mapping[str, str] = field(default_factory=dict)
    rack: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Member:
        """The inverse of `to_json`."""
        host = dict(data["host"])
        jump = host.pop("jump")
        found = Host(**host, jump=Jump(**jump) if jump else None)
        return cls(**{**data, "host": found, "roles": tuple(data["roles"])})


def hosts_of(machines: Machines, options: InventoryOptions) -> dict[str, Host]:
    """Every machine by name, with what is said for all filled in."""
    return {host.name: _filled(host, options) for host in machines.hosts}


def _filled(host: HostOptions, options: InventoryOptions) -> Host:
    jump = host.proxy_jump or options.proxy_jump
    return Host(
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
    machines: Machines,
    taken: Collection[tuple[str, int, Jump | None]] = (),
) -> tuple[Member, ...]:
    """The nodes of `spec` on machines, in the spec's order.

    What `options.nodes` says of a node comes first, then of its group, then of a role of the group;
    then the inventory's group with the name of the spec's group, or its groups for the roles as
    ceph-ansible names them. Other nodes may be on any machine. Machines are taken in the order in
    which they are named, but no node keeps the only machine that is left for another one.

    Args:
        taken: machines (`Host.where`) that other testbeds hold.

    Raises:
        UserError: a name is none, there are not enough machines, or a device is missing.
    """
    hosts = hosts_of(machines, options)
    _check_names(spec, options, [*hosts, *machines.unusable])
    named: dict[str, Sequence[str]] = {}
    for said in (_for_nodes, _for_groups, _for_ansible_groups):
        for group in spec.groups:
            for node, names in said(group, options, machines).items():
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


Wanted = Mapping[str, Sequence[str]]
"""Candidate machines by node."""


def _for_nodes(group: GroupSpec, options: InventoryOptions, machines: Machines) -> Wanted:
    if group.count == 1:
        return {}  # node and group have one name
    return {node: options.nodes[node] for node in group.node_names() if node in options.nodes}


def _for_groups(group: GroupSpec, options: InventoryOptions, machines: Machines) -> Wanted:
    for name in (group.name, *group.roles):
        if name in options.nodes:
            return dict.fromkeys(group.node_names(), options.nodes[name])
    return {}


def _for_ansible_groups(group: GroupSpec, options: InventoryOptions, machines: Machines) -> Wanted:
    for name in (group.name, f"{group.name}s"):
        if machines.groups.get(name):
            return dict.fromkeys(group.node_names(), machines.groups[name])
    of_roles = (machines.groups.get(ANSIBLE_GROUPS[role], ()) for role in group.roles)
    names = tuple(dict.fromkeys(chain(*of_roles)))
    return dict.fromkeys(group.node_names(), names) if names else {}


def _match(
    spec: TestbedSpec,
    named: Wanted,
    anything: Sequence[str],
    where: Mapping[str, Hashable],
    machines: Machines,
) -> dict[str, str]:
    """A machine for each node, by name: a matching of nodes and machines.

    Args:
        named: candidates of the nodes for which some are named, the most explicit first.
        anything: candidates of the other nodes.
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
    for group in spec.groups:  # those that may be on the same machines, in the order of these
        for names in {wanted[node] for node in group.node_names()}:
            nodes = [node for node in group.node_names() if wanted[node] == names]
            order = sorted((chosen[node] for node in nodes), key=names.index)
            chosen |= zip(nodes, order, strict=True)
    for node, name in chosen.items():
        if name in machines.unusable:
            raise UserError(
                f"{machines.unusable[name].rstrip('.')}. It would be node {node}: mend that, or "
                "name other machines for it "
                f"(site.options.nodes: {{{group_of[node].name}: [...]}})."
            )
    return chosen


def _place(
    node: str, wanted: Wanted, where: Mapping[str, Hashable], chosen: dict[str, str]
) -> bool:
    """Choose a machine for one more node: a free one, or that of a node that can have another (an
    augmenting path, breadth first). False if there is none."""
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
    spec: TestbedSpec, group: GroupSpec, node: str, named: Sequence[str] | None, machines: Machines
) -> UserError:
    """Return the reason why there is no machine for a node."""
    if named is not None:
        return UserError(
            f"site inventory: node {node} (group {group.name}, {group.count} nodes) is left "
            f"without a machine: those named for it are {', '.join(named)}, and they are other "
            "nodes or another testbed's; name more."
        )
    told = [f"{name} cannot be used ({why.rstrip('.')})" for name, why in machines.unusable.items()]
    more = f"; of the others, {'; '.join(told[:3])}" if told else ""
    return UserError(
        f"testbed {spec.name}: it has {len(spec.node_names())} nodes, and of the "
        f"inventory's {len(machines.hosts)} machines none is left for {node}: name more machines, "
        f"or lower the count of group {group.name}{more}."
    )


def _check_names(spec: TestbedSpec, options: InventoryOptions, hosts: Sequence[str]) -> None:
    nodes, groups = spec.node_names(), [group.name for group in spec.groups]
    roles = [role for group in spec.groups for role in group.roles]
    for option, keys in (("nodes", options.nodes), ("devices", options.devices)):
        for key in keys:
            if key not in {*nodes, *groups, *roles}:
                raise UserError(
                    f"site.options.{option}: {key!r} is no node, group or role of testbed "
                    f"{spec.name}; its groups are {', '.join(groups)}."
                )
    for key, names in options.nodes.items():
        for name in names:
            if name not in hosts:
                raise UserError(
                    f"site.options.nodes: {key}: {name!r} is no machine of the inventory; there "
                    f"are: {_some(hosts)}."
                )
    for consent in options.wipe:
        if consent.rpartition("@")[2] not in nodes:
            raise UserError(
                f"site.options.wipe: {consent!r} names no node of testbed {spec.name}; its nodes "
                f"are: {_some(nodes)}."
            )


def _some(names: Iterable[str], most: int = 12) -> str:
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def devices_of(group: GroupSpec, node: str, options: Mapping[str, DevicesOfNode]) -> dict[str, str]:
    """Use to path on the node, as `testbed.sites.contract.Node.devices` has it.

    Raises:
        UserError: the spec wants devices that the options do not name, or the other way round.
    """
    keys = (node, group.name, *group.roles)
    found = next((options[key] for key in keys if key in options), None)
    if group.disk is None:
        if found is not None and (node in options or group.name in options):
            raise UserError(
                f"site.options.devices: group {group.name} has no disk block in the spec, so "
                "nothing would be done with the devices given for it."
            )
        return {}
    given = found or DevicesOfNode()
    if len(given.osd) != group.disks:
        example = "[/dev/sdb, /dev/sdc]" if group.disks > 1 else "/dev/sdb"
        raise UserError(
            f"node {node}: the spec has {group.disks} disk(s) a node in group {group.name}, and "
            f"site.options.devices names {len(given.osd)}: write "
            f"devices: {{{group.name}: {{osd: {example}}}}}."
        )
    if group.disk.scratch and given.scratch is None:
        raise UserError(
            f"node {node}: the spec keeps files (disk.scratch of group {group.name}), and no "
            f"device is named for them: write devices: {{{group.name}: {{osd: {given.osd[0]}, "
            "scratch: /dev/...}}, best two partitions of one disk, or set disk.scratch to 0."
        )
    if given.scratch is not None and not group.disk.scratch:
        raise UserError(
            f"node {node}: a scratch device {given.scratch} is named, and the spec keeps no files "
            f"(disk.scratch of group {group.name} is 0): leave it out, or give scratch a size."
        )
    devices = {} if given.scratch is None else {"scratch": given.scratch}
    for number, path in enumerate(given.osd):
        devices[f"osd{number or ''}"] = path
    return devices
