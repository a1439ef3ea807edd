"""Parameters of enforcers from a plan: at devices, at hosts and at the switch's ports.

The functions are pure, except `load_addresses`. The same numbers go to the NFS proxy and the
network of a real testbed, and to the simulator.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from campaigns.papers.prioritymeister.topology import Topology, Workload
from controllers.prioritymeister.plan import Plan, StagePlan
from schemas.errors import UserError

POLICIES = ("pm", "ps", "cake", "edf", "byslo", "mclock", "none")
"""Policies of the enforcer (section 5.3, mClock, and first come first served)."""
PLANNED = frozenset({"pm", "mclock"})
"""Policies that take parameters from a plan."""
MODES = ("hold", "best-effort")

NetworkMode = Literal["priority", "levels", "fifo"]
NETWORK_OF: Mapping[str, NetworkMode] = {"pm": "priority", "byslo": "levels"}
"""Network enforcement by policy; the others have none (section 5.3)."""

_CLASSES = 7  # class selectors above best effort: cs1 to cs7
_DEEPEST = 65536  # the enforcer's limit
_MOST_LEVELS = 63  # DSCP has six bits, and 0 is best effort
_ANY: Mapping[str, Sequence[str]] = {}


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Level(_Frozen):
    """A level of the network, 1 is the first, and the mark of its packets."""

    level: int
    dscp: int
    name: str


class NetworkFlow(_Frozen):
    """Messages of a workload from a host: its requests (``network-in``) or its server's replies.

    `pairs` are (bytes per second, bytes) of token buckets that all apply; empty means no limit.
    `source` and `destination` are addresses, empty if unknown.
    """

    workload: str
    stage: Literal["network-in", "network-out"]
    to: str
    level: int
    dscp: int
    pairs: tuple[tuple[float, float], ...]
    source: tuple[str, ...] = ()
    destination: tuple[str, ...] = ()


class HostNetwork(_Frozen):
    """Outgoing link of a host: its queue, rate in bytes per second, and flows."""

    queue: str
    rate: float
    flows: tuple[NetworkFlow, ...]


class NetworkParameters(_Frozen):
    """Network enforcement (section 4.6) at every host that sends, and at switch ports.

    `ports` are the queues after the first of every route, with their rates in bytes per second.
    They serve by strict priority of `dscp` and limit nothing.
    """

    policy: str
    mode: NetworkMode
    levels: tuple[Level, ...]
    hosts: dict[str, HostNetwork]
    ports: dict[str, float]


class Parameters(_Frozen):
    """All parameters: the NFS proxy's ``parameters`` by device queue, and the network's."""

    policy: str
    storage: dict[str, dict[str, Any]]
    network: NetworkParameters


def check_policy(policy: str, mode: str, plan: Plan | None) -> None:
    """Raise UserError if the policy or mode is unknown, or the policy needs a plan."""
    if policy not in POLICIES:
        raise UserError(f"policy {policy!r}: there are {', '.join(POLICIES)}.")
    if mode not in MODES:
        raise UserError(f"mode {mode!r}: there are {' and '.join(MODES)}.")
    if plan is None and policy in PLANNED:
        raise UserError(f"policy {policy} takes its parameters from a plan: make one first.")


def load_addresses(path: Path) -> dict[str, tuple[str, ...]]:
    """Return addresses by host or workload from a JSON file: ``{name: [address, ...]}``.

    Raises:
        UserError: the file cannot be read, or has other content.
    """
    try:
        text = json.loads(path.read_text())
        return TypeAdapter(dict[str, tuple[str, ...]]).validate_python(text)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from error
    except (ValueError, ValidationError) as error:
        raise UserError(
            f"{path}: is not a JSON object of addresses: write {{name: [address, ...]}}."
        ) from error


def device_queue(topology: Topology, workload: Workload) -> str:
    """Return the name of the queue of a workload's device, ``server:device``."""
    return topology.routes(workload)["storage"][0]


def device_queues(topology: Topology) -> tuple[str, ...]:
    """Return the devices that workloads use, in the order of the workloads."""
    used = (device_queue(topology, w) for w in topology.workloads if w.server is not None)
    return tuple(dict.fromkeys(used))


def parameters_of(
    topology: Topology,
    plan: Plan | None,
    *,
    policy: str = "pm",
    mode: str = "hold",
    depth: int = 1,
    addresses: Mapping[str, Sequence[str]] = _ANY,
) -> Parameters:
    """Return the parameters of all devices and of the network; see the two functions below.

    Raises:
        UserError: `depth` is out of range, or the plan is for other workloads.
    """
    if not 0 <= depth <= _DEEPEST:
        raise UserError(f"depth {depth}: write 0 (any number) to {_DEEPEST}.")
    return Parameters(
        policy=policy,
        storage={
            device: storage_parameters(
                topology,
                plan,
                device,
                policy=policy,
                mode=mode,
                depth=depth,
                addresses=addresses,
            )
            for device in device_queues(topology)
        },
        network=network_parameters(topology, plan, policy=policy, addresses=addresses),
    )


def storage_parameters(
    topology: Topology,
    plan: Plan | None,
    device: str,
    *,
    policy: str = "pm",
    mode: str = "hold",
    depth: int = 1,
    addresses: Mapping[str, Sequence[str]] = _ANY,
    cake: Mapping[str, float] | None = None,
    weights: Mapping[str, float] | None = None,
    reservations: Mapping[str, float] | None = None,
    slos: Mapping[str, float] | None = None,
    only: Collection[str] | None = None,
) -> dict[str, Any]:
    """Return the ``parameters`` of nfsproxy's configuration, for the enforcer of a device.

    Args:
        topology: with the workloads' SLOs; schedulers of requests ignore a completion SLO.
        plan: priorities and token buckets (pm) and mean rates (mclock); other policies accept None.
        device: queue of the device, ``server:device``.
        policy: one of `POLICIES`.
        mode: one of `MODES`, for pm.
        depth: concurrent requests at the device; 0 means any number.
        addresses: clients' addresses, by workload or by host; a workload's own take precedence.
        cake: Cake's own parameters (interval, percentile, step, upper, floor).
        weights: weights by workload, by default 1.
        reservations: mclock's by workload, seconds per second; by default the rate of the slowest
            bucket, which is the workload's mean.
        slos: latency SLOs in seconds that replace the topology's.
        only: leave out all other workloads.

    Raises:
        UserError: the policy, mode or device is unknown, or a plan is needed.
    """
    check_policy(policy, mode, plan)
    found = []
    for workload in topology.workloads:
        chosen = only is None or workload.name in only
        if workload.server is None or device_queue(topology, workload) != device or not chosen:
            continue
        entry: dict[str, Any] = {
            "name": workload.name,
            "clients": list(addresses.get(workload.name) or addresses.get(workload.client) or ()),
            "weight": float((weights or {}).get(workload.name, 1.0)),
        }
        slo = (slos or {}).get(workload.name, workload.slo.latency)
        if slo is not None:
            entry["slo"] = slo
        if policy == "pm":
            stage = _stage(plan, workload.name, "storage")
            entry |= {"priority": stage.priority, "pairs": [list(pair) for pair in stage.pairs]}
        if policy == "mclock":
            entry["reservation"] = _reservation(plan, workload.name, reservations)
        found.append(entry)
    if not found:
        raise UserError(
            f"device {device}: no workload uses it; those in use are "
            f"{', '.join(device_queues(topology))}."
        )
    made: dict[str, Any] = {"policy": policy, "depth": depth, "workloads": found}
    if policy == "pm":
        made["mode"] = mode
    if policy == "cake" and cake:
        made["cake"] = dict(cake)
    return made


def network_parameters(
    topology: Topology,
    plan: Plan | None,
    *,
    policy: str = "pm",
    mode: NetworkMode | None = None,
    addresses: Mapping[str, Sequence[str]] = _ANY,
    slos: Mapping[str, float] | None = None,
    only: Collection[str] | None = None,
) -> NetworkParameters:
    """Return the parameters of hosts and switch ports.

    Levels and token buckets of pm are the plan's, separate for each direction. byslo has levels by
    SLO and no limits. All other policies do not enforce in the network (section 5.3); `mode` may
    change that. Arguments are as in `storage_parameters`.

    Raises:
        UserError: a plan is needed, or there are more levels than DSCP has values.
    """
    chosen = NETWORK_OF.get(policy, "fifo") if mode is None else mode
    if chosen == "priority" and plan is None:
        raise UserError("the network's priorities come from a plan: make one first.")
    bandwidth = topology.queues()
    by_slo = _levels_by_slo(topology, slos or {}) if chosen == "levels" else {}
    flows: dict[str, list[tuple[str, int, tuple[tuple[float, float], ...], Workload]]] = {}
    ports: dict[str, float] = {}
    for workload in topology.workloads:
        if workload.server is None or (only is not None and workload.name not in only):
            continue
        routes = topology.routes(workload)
        for stage in ("network-in", "network-out"):
            first, *rest = routes[stage]
            ports |= {queue: bandwidth[queue] for queue in rest}
            level = by_slo.get(workload.name, 1)
            pairs: tuple[tuple[float, float], ...] = ()
            if chosen == "priority":
                planned = _stage(plan, workload.name, stage)
                level, pairs = planned.level or 1, planned.pairs
            flows.setdefault(first, []).append((stage, level, pairs, workload))
    most = max((level for each in flows.values() for _, level, _, _ in each), default=0)
    marks = _marks(0 if chosen == "fifo" else most)
    dscp = {mark.level: mark.dscp for mark in marks}
    hosts = {}
    for queue, entries in flows.items():
        host = queue.split("->")[0]
        hosts[host] = HostNetwork(
            queue=queue,
            rate=bandwidth[queue],
            flows=tuple(_flow(entry, dscp.get(entry[1], 0), addresses) for entry in entries),
        )
    return NetworkParameters(
        policy=policy, mode=chosen, levels=marks, hosts=hosts, ports=dict(sorted(ports.items()))
    )


def _flow(
    entry: tuple[str, int, tuple[tuple[float, float], ...], Workload],
    dscp: int,
    addresses: Mapping[str, Sequence[str]],
) -> NetworkFlow:
    stage, level, pairs, workload = entry
    client = tuple(addresses.get(workload.name) or addresses.get(workload.client) or ())
    server = tuple(addresses.get(workload.server or "") or ())
    inwards = stage == "network-in"
    return NetworkFlow(
        workload=workload.name,
        stage="network-in" if inwards else "network-out",
        to=(workload.server or "") if inwards else workload.client,
        level=level,
        dscp=dscp,
        pairs=pairs,
        source=client if inwards else server,
        destination=server if inwards else client,
    )


def _stage(plan: Plan | None, workload: str, stage: str) -> StagePlan:
    for one in plan.workloads if plan is not None else ():
        if one.name == workload:
            return next(s for s in one.stages if s.stage == stage)
    raise UserError(f"workload {workload} is not in the plan: make a plan with it.")


def _reservation(plan: Plan | None, workload: str, given: Mapping[str, float] | None) -> float:
    if given is not None:
        return float(given.get(workload, 0.0))
    return min(rate for rate, _ in _stage(plan, workload, "storage").pairs)


def _levels_by_slo(topology: Topology, slos: Mapping[str, float]) -> dict[str, int]:
    """Return bySLO's levels: equal SLOs share a level, and workloads without a latency SLO get the
    last. If there are more SLOs than levels, SLOs are distributed evenly."""
    infinite = float("inf")
    each = {
        w.name: slos.get(w.name, infinite if w.slo.latency is None else w.slo.latency)
        for w in topology.workloads
    }
    ranks = {slo: rank for rank, slo in enumerate(sorted(set(each.values())))}
    count = topology.network_levels or len(ranks)
    fold = max(len(ranks), count)
    return {name: 1 + ranks[slo] * count // fold for name, slo in each.items()}


def _marks(most: int) -> tuple[Level, ...]:
    """Return the DSCP of levels 1 to `most`: cs7, cs6, .. cs1, or 63, 62, .. for more levels."""
    if most > _MOST_LEVELS:
        raise UserError(
            f"{most} network levels are more than DSCP can tell apart: write network_levels: "
            f"{_MOST_LEVELS} or fewer in the topology."
        )
    if most <= _CLASSES:
        classes = ((level, 1 + _CLASSES - level) for level in range(1, most + 1))
        return tuple(Level(level=k, dscp=8 * c, name=f"cs{c}") for k, c in classes)
    return tuple(
        Level(level=k, dscp=_MOST_LEVELS + 1 - k, name=str(_MOST_LEVELS + 1 - k))
        for k in range(1, most + 1)
    )
