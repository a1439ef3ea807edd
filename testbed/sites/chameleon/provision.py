"""Bringing a testbed up on Chameleon, from a lease to nodes that answer ssh as root."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from testbed.sites import keys
from testbed.sites.chameleon.asks import Ask, asks_of, choose_flavors, match_reservations
from testbed.sites.chameleon.cloud import Cloud, Flavor, FloatingIp, Lease, Server
from testbed.sites.chameleon.errors import when
from testbed.sites.chameleon.lease import hold_lease, look_for_slot
from testbed.sites.chameleon.options import Options
from testbed.sites.chameleon.prepare import (
    Contact,
    Prepared,
    Scan,
    Shells,
    own_host_keys,
    signal_of,
)
from testbed.sites.chameleon.servers import (
    Base,
    cloud_config,
    hold_floating_ip,
    hold_servers,
    make_base,
    wanted_servers,
)
from testbed.sites.chameleon.work import Work
from testbed.sites.clock import Clock
from testbed.sites.contract import Node, Testbed
from testbed.sites.records import Record
from testbed.spec import TestbedSpec


def outlook(
    spec: TestbedSpec,
    options: Options,
    cloud: Cloud,
    clock: Clock,
) -> str:
    """When the testbed could start, and on what, in words. Asks, and changes nothing.

    Raises:
        UserError: the site has no such machines, or not that many.
        SiteError: it cannot be asked.
    """
    nowhere = Record(Path("/nonexistent"), {"tag": "00000000"})
    work = Work(nowhere, spec, options, cloud, clock)
    work.set_clock()
    flavors = _flavors(work)
    slot = look_for_slot(work, asks_of(spec, options, flavors))
    if flavors is not None:
        return "as " + ", ".join(f"{group}: {flavor.name}" for group, flavor in flavors.items())
    if slot is None or slot.start_s is None:
        return "where it is not told what is free"
    if slot.start_s <= work.now():
        return "free now"
    return f"free from {when(slot.start_s)}"


def build(work: Work, shells: Shells, see: Scan) -> None:
    """Everything that is missing, then the nodes' description into the record.

    Raises:
        SiteError, UserError: see `Site.provision`.
    """
    record = work.record
    record.data["phase"] = "building"
    record.save()
    flavors = _flavors(work)
    asks = asks_of(work.spec, work.options, flavors)
    base = make_base(work)
    lease = hold_lease(work, asks)
    servers = _servers(work, base, lease, asks)
    public = None
    if work.options.floating_ip == "admin":
        work.progress("giving the admin node its address", 0.72)
        public = hold_floating_ip(work, servers[_admin(work.spec)])
    draft = _draft(work, servers, public)
    prepared = Contact(work, draft, servers, shells, see).prepare()
    types = _types(work, servers, flavors)
    record.data["nodes"] = [
        _described(
            work=work,
            node=node,
            prepared=prepared[node.name],
            server=servers[node.name],
            base=base,
            kind=types[node.name],
        )
        for node in draft.nodes
    ]
    record.data["phase"] = "ready"
    record.save()


def _flavors(work: Work) -> dict[str, Flavor] | None:
    """The flavor of each group of virtual machines; None for whole ones."""
    if not work.options.virtual:
        return None
    known = work.ask("looking for flavors", work.cloud.flavors)
    return choose_flavors(work.spec, work.options, known)


def _servers(work: Work, base: Base, lease: Lease, asks: list[Ask]) -> dict[str, Server]:
    """Server by node."""
    host_keys = own_host_keys(work)
    data = {node: cloud_config(node, host_keys.get(node)) for node in work.spec.node_names()}
    flavors = work.ask("looking for flavors", work.cloud.flavors)
    served = match_reservations(lease, asks)
    found = hold_servers(work, wanted_servers(work, base, served, flavors, data))
    return {node: found[work.server_name(node)] for node in work.spec.node_names()}


def _admin(spec: TestbedSpec) -> str:
    return next(group.name for group in spec.groups if "admin" in group.roles)


def _draft(work: Work, servers: Mapping[str, Server], public: FloatingIp | None) -> Testbed:
    """The testbed as it can be reached before its nodes are set up: by the image's user."""
    admin, racks = _admin(work.spec), work.spec.rack_of()
    folder = work.record.folder
    nodes = tuple(
        Node(
            name=name,
            address=servers[name].addresses[0],
            roles=frozenset(group.roles),
            group=group.name,
            ssh_user=work.options.ssh_user,
            memory_bytes=group.memory,
            rack=racks.get(name),
            public_address=public.address if public is not None and name == admin else None,
            via=admin if public is not None and name != admin else None,
        )
        for group in work.spec.groups
        for name in group.node_names()
    )
    return Testbed(
        name=work.record.name,
        site="chameleon",
        nodes=nodes,
        ssh_key=folder / keys.LOGIN,
        known_hosts=folder / "known_hosts",
        directory=folder,
        spec_hash=work.spec.digest(),
    )


def _described(
    *,
    work: Work,
    node: Node,
    prepared: Prepared,
    server: Server,
    base: Base,
    kind: str,
) -> dict[str, Any]:
    """A node as the record keeps it: the fields of `Node`."""
    signal, pressure = signal_of(work.options.signal, prepared.facts)
    facts = {
        "site": work.options.site,
        "machine": server.host,
        "type": kind,
        "image": f"{base.image.name} ({base.image.id})",
        "product": str(prepared.facts.get("product", "")),
    }
    return asdict(node) | {
        "roles": sorted(node.roles),
        "ssh_user": "root",
        "devices": dict(prepared.devices),
        "signal": signal,
        "pressure_file": pressure,
        "cpus": float(prepared.facts["cpus"]),
        "facts": {name: value for name, value in facts.items() if value},
    }


def _types(
    work: Work, servers: Mapping[str, Server], flavors: Mapping[str, Flavor] | None
) -> dict[str, str]:
    """Flavor, or type of the machine where Nova tells us which one it is, of every node."""
    if flavors is not None:
        return {n: flavors[g.name].name for g in work.spec.groups for n in g.node_names()}
    hosts = work.if_allowed("looking at the machines", work.cloud.hosts) or ()
    types = {host.name: host.node_type for host in hosts}
    return {node: types.get(server.host, "") for node, server in servers.items()}
