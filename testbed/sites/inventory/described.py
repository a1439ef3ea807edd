"""A testbed of machines of one's own, as its record tells."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.sites import keys
from testbed.sites.contract import Node, Testbed
from testbed.sites.inventory import fitness
from testbed.sites.inventory.assign import Member
from testbed.sites.inventory.fitness import KIND
from testbed.sites.inventory.look import gateway_name, gateways_of
from testbed.spec import TestbedSpec

__all__ = ["KIND", "facts_of", "members_of", "testbed_of"]


def members_of(known: Mapping[str, Any]) -> tuple[Member, ...]:
    """The nodes and their machines in a record."""
    return tuple(Member.from_json(each) for each in known["members"])


def testbed_of(folder: Path, known: Mapping[str, Any]) -> Testbed:
    """The testbed whose record is kept in `folder`."""
    members = members_of(known)
    return Testbed(
        name=folder.name,
        site=KIND,
        nodes=tuple(_node(member, known) for member in members),
        ssh_key=folder / keys.LOGIN,
        known_hosts=folder / "known_hosts",
        directory=folder,
        spec_hash=TestbedSpec.model_validate(known["spec"]).digest(),
        gateways=gateways_of(members),
    )


def _node(member: Member, known: Mapping[str, Any]) -> Node:
    address, facts = known["addresses"][member.node], known["facts"][member.node]
    host, signal = member.host, known["signal"]
    return Node(
        name=member.node,
        address=address,
        roles=frozenset(member.roles),
        group=member.group,
        ssh_port=host.port,
        devices=dict(member.devices),
        signal=signal,
        pressure_file=fitness.PSI_FILE if signal == "io_pressure" else None,
        cpus=float(facts["cpus"]),
        memory_bytes=min(member.memory_bytes, facts["memory_bytes"]),
        rack=member.rack,
        public_address=host.address if host.address != address else None,
        via=gateway_name(host.jump) if host.jump else None,
        facts=facts["told"],
    )


def facts_of(survey: Mapping[str, Any]) -> dict[str, Any]:
    """What is remembered of a machine; `told` goes into the provenance of results."""
    disks = {
        f"disk {path}": f"{seen.get('model') or 'no model'}, {seen['bytes']} bytes"
        for path, seen in survey["devices"].items()
    }
    told = {
        "distribution": survey["distribution_name"],
        "kernel": survey["kernel"],
        "cpus": str(survey["cpus"]),
        "cpu": survey["cpu_model"],
        "memory_bytes": str(survey["memory_bytes"]),
        **disks,
    }
    return {"cpus": survey["cpus"], "memory_bytes": survey["memory_bytes"], "told": told}
