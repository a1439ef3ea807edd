"""Assignment of machines and devices to the nodes of a spec."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from pydantic import Field, model_validator

from schemas.errors import UserError, unknown
from testbed.deploy.inventory import GROUPS
from testbed.sites.inventory.hosts import (
    DevicesOfNode,
    HostOptions,
    InventoryOptions,
    ListedMachines,
)
from testbed.spec import GroupSpec, TestbedSpec
from testbed.spec.stores import SpecModel


class Member(SpecModel):
    """A node with its machine and devices; name, group and roles are the spec's."""

    node: str
    group: str
    roles: tuple[str, ...]
    memory_bytes: int
    host: HostOptions
    devices: dict[str, str] = Field(default_factory=dict)
    rack: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_record(cls, data: dict[str, Any]) -> dict[str, Any]:
        host = dict(data["host"])
        if "jump" in host:
            host["proxy_jump"] = host.pop("jump")
        return {**data, "host": host}


def assign(
    spec: TestbedSpec,
    options: InventoryOptions,
    machines: ListedMachines,
    taken: Collection[Hashable] = (),
) -> tuple[Member, ...]:
    """Assign machines to the nodes of `spec`, in the spec's order.

    `options.nodes` counts first for a node, then for its group, then for a role of the group; then
    the inventory's group with the name of the spec's group, or its groups for the roles as
    ceph-ansible names them. Other nodes may be on any machine. Machines are taken in the order in
    which they are named, but no node keeps the only machine that is left for another node. `taken`:
    machines (`HostOptions.where`) that other testbeds hold. UserError: a name is unknown, there are
    not enough machines, or a device is missing.
    """
    hosts = {host.name: host.with_defaults(options) for host in machines.hosts}
    _check_names(spec, options, [*hosts, *machines.unusable])
    wanted: dict[str, Sequence[str]] = {}
    for node, names in _candidates(spec, options, machines):
        wanted.setdefault(node, names)
    for node in spec.node_names():
        wanted.setdefault(node, tuple(hosts))
    where: dict[str, Hashable] = {name: name for name in machines.unusable}
    where |= {name: host.where for name, host in hosts.items() if host.where not in taken}
    chosen = _match(wanted, where)
    for node, name in chosen.items():
        if name in machines.unusable:
            raise UserError(
                f"{machines.unusable[name].rstrip('.')}. It would be node {node}",
                do="mend that, or name other machines for the node in site.options.nodes",
            )
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
    for node in spec.node_names():
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


def _match(wanted: Mapping[str, Sequence[str]], where: Mapping[str, Hashable]) -> dict[str, str]:
    """Choose a name for each node from its candidates, by augmenting paths. `where`: the machine
    behind each name that may be used: two names may be one machine's."""
    chosen: dict[str, str] = {}
    holders: dict[Hashable, str] = {}

    def place(node: str, tried: set[Hashable]) -> bool:
        """Take a free machine, or one from a node that can have another."""
        names = [name for name in wanted[node] if name in where]
        for name in sorted(names, key=lambda name: where[name] in holders):
            machine = where[name]
            if machine in tried:
                continue
            tried.add(machine)
            if machine not in holders or place(holders[machine], tried):
                chosen[node], holders[machine] = name, node
                return True
        return False

    for node, names in wanted.items():
        if not place(node, set()):
            raise UserError(
                f"no machine is left for node {node}: {some(names) or 'none'} can be it, and the "
                "others among the nodes or another testbed have them",
                do="name more machines, or lower the count of its group",
            )
    for names in set(wanted.values()):  # nodes with the same candidates take them in order
        nodes = [node for node in wanted if wanted[node] == names]
        order = sorted((chosen[node] for node in nodes), key=names.index)
        chosen |= zip(nodes, order, strict=True)
    return chosen


def _check_names(spec: TestbedSpec, options: InventoryOptions, hosts: Sequence[str]) -> None:
    roles = [role for group in spec.groups for role in group.roles]
    nodes = spec.node_names()
    keys = dict.fromkeys([*(group.name for group in spec.groups), *roles, *nodes])
    named: tuple[tuple[str, str, Iterable[str], Collection[str]], ...] = (
        ("nodes", "node, group or role", options.nodes, keys),
        ("devices", "node, group or role", options.devices, keys),
        ("nodes", "machine", chain(*options.nodes.values()), hosts),
        ("wipe", "node", [each.rpartition("@")[2] for each in options.wipe], nodes),
    )
    for option, what, names, known in named:
        for name in names:
            if name not in known:
                raise unknown(what, name, known, where=f"site.options.{option}")


def some(names: Iterable[str], most: int = 12, separator: str = ", ") -> str:
    """Return the first names, and the number of the others."""
    listed = list(names)
    more = f"{separator}and {len(listed) - most} more" if len(listed) > most else ""
    return separator.join(listed[:most]) + more


def devices_of(group: GroupSpec, node: str, options: Mapping[str, DevicesOfNode]) -> dict[str, str]:
    """Return paths by use, as in `testbed.sites.contract.Node.devices`. UserError: the spec's disks
    and the devices in the options do not fit."""
    keys = (node, group.name, *group.roles)
    given = next((options[key] for key in keys if key in options), DevicesOfNode())
    if group.disk is None:
        if node in options or group.name in options:
            raise UserError(
                f"group {group.name} has no disk block in the spec, so nothing would be done with "
                "its devices",
                where="site.options.devices",
            )
        return {}
    if len(given.osd) != group.disks:
        raise UserError(
            f"the spec has {group.disks} disk(s) a node in group {group.name}, and "
            f"site.options.devices names {len(given.osd)}",
            where=f"node {node}",
            do=f"write devices: {{{group.name}: {{osd: [/dev/...]}}}}, one for each disk",
        )
    if bool(group.disk.scratch) != (given.scratch is not None):
        raise UserError(
            f"disk.scratch of group {group.name} is {group.disk.scratch} bytes in the spec, and "
            f"the device for scratch in site.options.devices is {given.scratch or 'not named'}",
            where=f"node {node}",
            do=(
                f"write devices: {{{group.name}: {{osd: ..., scratch: /dev/...}}}}, best two "
                "partitions of one disk; or set disk.scratch to 0 and name none"
            ),
        )
    devices = {} if given.scratch is None else {"scratch": given.scratch}
    return devices | {f"osd{number or ''}": path for number, path in enumerate(given.osd)}
