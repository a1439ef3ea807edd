"""Placement: the admission test for a workload, and first-fit placement on servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from campaigns.papers.prioritymeister.study import Measured, Tell, planned
from campaigns.papers.prioritymeister.topology import Topology, Workload
from controllers.prioritymeister.plan import Plan, Tenant
from schemas.errors import UserError


@dataclass(frozen=True)
class Place:
    """Place of a workload: its server and device, or None for both if no device can take it."""

    workload: str
    server: str | None
    device: str | None
    given: bool


@dataclass(frozen=True)
class Placement:
    """Places of all workloads, and the plan of the placed workloads."""

    placed: bool
    places: tuple[Place, ...]
    plan: Plan | None


def place(
    topology: Topology,
    file: Path,
    tell: Tell = lambda _: None,
    progress: Callable[[str, float], None] = lambda _name, _share: None,
) -> Placement:
    """Place workloads in the order of the file, each on the first device where all SLOs hold.

    Workloads with a server stay there. A device admits a workload if, with it, every workload
    placed so far meets its SLO by its bound. If no device admits it, it has no place, and later
    workloads are tried without it.

    Args:
        topology: checked.
        file: the topology's file.
        tell: see `Measured`.
        progress: called with a workload's name and the share of workloads that are done.

    Raises:
        UserError: a file is wrong, no host has a requested device, or the workloads with a server
            do not meet their SLOs.
    """
    known = sorted({device for host in topology.hosts.values() for device in host.devices})
    for workload in topology.workloads:
        if workload.device is not None and workload.device not in known:
            raise UserError(
                f"{file}: workload {workload.name}: no host has a device {workload.device!r}; "
                f"known are {', '.join(known)}."
            )
    measured = Measured(file.resolve().parent, tell)
    tenants = [measured.tenant(topology, w) for w in topology.workloads if w.server is not None]
    plan = _fitting(topology, tenants) if tenants else None
    if tenants and plan is None:
        raise UserError(
            f"{file}: the workloads that have a server do not all meet their SLOs: "
            "see hotbed pm plan, with those alone."
        )
    places = []
    for done, workload in enumerate(topology.workloads):
        progress(workload.name, done / len(topology.workloads))
        if workload.server is not None:
            device = topology.device_name(workload)
            places.append(Place(workload.name, workload.server, device, given=True))
            continue
        found = Place(workload.name, None, None, given=False)
        for candidate in _candidates(topology, workload):
            tenant = measured.tenant(topology, candidate)
            more = _fitting(topology, [*tenants, tenant])
            if more is not None:
                tenants.append(tenant)
                plan = more
                found = Place(workload.name, candidate.server, candidate.device, given=False)
                break
        places.append(found)
    return Placement(all(p.server is not None for p in places), tuple(places), plan)


def _fitting(topology: Topology, tenants: list[Tenant]) -> Plan | None:
    """Return the plan if all SLOs hold, else None."""
    try:
        plan = planned(topology, tenants)
    except UserError:  # loaded above 100 %
        return None
    return plan if plan.met else None


def _candidates(topology: Topology, workload: Workload) -> Iterator[Workload]:
    """Yield the workload on every device that it can reach, in the order of the file."""
    for name, host in topology.hosts.items():
        for device in host.devices:
            if workload.device not in {None, device}:
                continue
            candidate = workload.model_copy(update={"server": name, "device": device})
            try:
                topology.check(candidate)
            except ValueError:  # on another switch, or the client itself
                continue
            yield candidate
