"""Utilization of microstores and rates of tenants, from the counters of all nodes' daemons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from testbed.stores.microstores import AssignableMachine, Microstore, Microstores, Tenant
from testbed.stores.swift import accesslog
from testbed.stores.swift.cluster import (
    SwiftCluster,
    SwiftState,
    held,
    proxy_share,
    storage_share,
)

_NUMBER, _TIME, _CPU, _NET, _BUSY = range(5)  # of a slot
SLOTS = 100
"""Time slots of an epoch, each 1 % of it (MOS, section 6, footnote 2)."""

Sums = Mapping[str, Any]


@dataclass(frozen=True)
class Interval:
    """A node over an interval of `seconds`: cores used by group, bytes per second that its
    interface received and sent, its busiest disk (0 to 1); the same by slot, 1 % of the interval or
    a slot of the daemon if that is longer; sums by tenant."""

    seconds: float
    cores: Mapping[str, float] = field(default_factory=dict)
    net: tuple[float, float] = (0.0, 0.0)
    busy: float | None = None
    slots: tuple[Interval, ...] = ()
    tenants: Mapping[str, Sums] = field(default_factory=dict)


def interval_of(before: Mapping[str, Any], now: Mapping[str, Any]) -> Interval | None:
    """Return two answers of a node's daemon as an interval; None if it restarted in between."""
    if not before["slots"] or not now["slots"]:
        return None
    first, slots = before["slots"][-1], now["slots"]
    if slots[0][_NUMBER] <= first[_NUMBER]:
        return None
    each = max(1, round(len(slots) / SLOTS))
    line = [first, *slots][::-each][::-1]
    fine = tuple(one for old, new in pairwise(line) if (one := _between(old, new)))
    whole = _between(first, slots[-1])
    if whole is None:
        return None
    tenants = {
        tenant: difference(before["tenants"].get(tenant), sums)
        for tenant, sums in now["tenants"].items()
    }
    return Interval(whole.seconds, whole.cores, whole.net, whole.busy, fine, tenants)


def _between(old: Sequence[Any], new: Sequence[Any]) -> Interval | None:
    seconds = new[_TIME] - old[_TIME]
    if seconds <= 0.01:
        return None
    cores = {
        group: max(0.0, used - old[_CPU].get(group, 0.0)) / seconds
        for group, used in new[_CPU].items()
    }
    net = tuple(max(0, n - o) / seconds for o, n in zip(old[_NET], new[_NET], strict=True))
    busy = [
        min(1.0, max(0, n - o) / 1000 / seconds)
        for o, n in zip(old[_BUSY], new[_BUSY], strict=False)
    ]
    return Interval(seconds, cores, (net[0], net[1]), max(busy) if busy else None)


def difference(before: Sums | None, now: Sums) -> dict[str, Any]:
    """Return the difference of a tenant's sums since `before`."""
    old = before or {}
    if any(now[key] < old.get(key, 0) for key in ("requests", "failed")):
        old = {}  # the daemon restarted
    found: dict[str, Any] = {
        key: now[key] - old.get(key, 0)
        for key in ("requests", "failed", "writes", "bytes", "seconds")
    }
    for key in ("latencies", "sizes"):
        was = old.get(key, {})
        found[key] = {
            bucket: count - was.get(bucket, 0)
            for bucket, count in now[key].items()
            if count > was.get(bucket, 0)
        }
    return found


def together(parts: Sequence[Sums]) -> dict[str, Any]:
    """Add up several proxies' sums of a tenant."""
    counts = ("requests", "failed", "writes", "bytes", "seconds")
    total: dict[str, Any] = {key: sum(part[key] for part in parts) for key in counts}
    for key in ("latencies", "sizes"):
        total[key] = Counter[str]()
        for part in parts:
            total[key].update(part[key])
    return total


def microstores(
    cluster: SwiftCluster, state: SwiftState, nodes: Mapping[str, Interval]
) -> Microstores:
    """Return everything that MOS knows, from the intervals of the nodes that answered."""
    disks = sum(held(cluster, state, name).hdds for name in cluster.microstores)
    machine = cluster.machine
    return Microstores(
        stores=tuple(_microstore(cluster, state, name, nodes) for name in cluster.microstores),
        tenants=tuple(_tenant(state, name, nodes) for name in cluster.tenants),
        total=replace(cluster.total, ssds=0, hdds=disks),
        step=cluster.step,
        machines=tuple(
            AssignableMachine(node, machine, name) for node, name in state.proxies.items()
        )
        if machine is not None
        else (),
    )


def _microstore(
    cluster: SwiftCluster, state: SwiftState, name: str, nodes: Mapping[str, Interval]
) -> Microstore:
    found = utilization(cluster, state, name, nodes)
    count = min((len(nodes[n].slots) for n in _nodes_of(cluster, state, name) if n in nodes),
                default=0)  # fmt: skip
    slots = []
    for place in range(count):
        # The nodes' slots are equally long and begin within one slot of each other.
        at = {node: one.slots[-count + place] for node, one in nodes.items()
              if len(one.slots) >= count}  # fmt: skip
        part = utilization(cluster, state, name, at)
        if part:
            slots.append(max(part.values()))
    return Microstore(name, held(cluster, state, name), found, tuple(slots))


def _nodes_of(cluster: SwiftCluster, state: SwiftState, name: str) -> tuple[str, ...]:
    return (*state.proxies_of(name), *state.members[cluster.set_of(name)])


def utilization(
    cluster: SwiftCluster, state: SwiftState, name: str, nodes: Mapping[str, Interval]
) -> dict[str, float]:
    """Return the fraction of its share that a microstore used, by measure: CPU of its proxies and
    servers, bytes that proxies sent (or received, if more), its busiest disk."""
    found: dict[str, float] = {}
    proxies = [node for node in state.proxies_of(name) if node in nodes]
    if proxies:
        shares = [proxy_share(cluster, state, node) for node in proxies]
        used = sum(nodes[node].cores.get("proxy", 0.0) for node in proxies)
        found["proxy_cpu"] = _part(used, sum(share.proxy_cores for share in shares) * state.scale)
        sent = sum(max(nodes[node].net) for node in proxies)
        found["network"] = _part(sent, sum(share.network for share in shares))
    storage = [node for node in state.members[cluster.set_of(name)] if node in nodes]
    if storage:
        used = sum(nodes[node].cores.get(name, 0.0) for node in storage)
        each = storage_share(cluster, state, name) * state.scale
        found["storage_cpu"] = _part(used, each * len(storage))
        busy = [one for node in storage if (one := nodes[node].busy) is not None]
        if busy:
            found["disk"] = max(busy)
    return found


def _part(used: float, share: float) -> float:
    return min(1.0, used / share) if share > 0 else 0.0


def _tenant(state: SwiftState, name: str, nodes: Mapping[str, Interval]) -> Tenant:
    parts = [one.tenants[name] for one in nodes.values() if name in one.tenants]
    sums = together(parts)
    seconds = max((one.seconds for one in nodes.values() if name in one.tenants), default=0.0)
    served = state.tenants[name]
    if seconds <= 0:
        return Tenant(name, served[0])
    requests = sums["requests"]
    buckets = {int(bucket): count for bucket, count in sums["latencies"].items()}
    return Tenant(
        name=name,
        microstore=served[0],
        requests_s=requests / seconds,
        bytes_s=sums["bytes"] / seconds,
        failed_s=sums["failed"] / seconds,
        mean_latency_s=sums["seconds"] / requests if requests else None,
        p95_latency_s=accesslog.percentile(buckets, 0.95),
        sizes={int(exponent): count for exponent, count in sums["sizes"].items()},
        write_share=sums["writes"] / requests if requests else 0.0,
        # Little's law: the mean number of requests in flight.
        workers=sums["seconds"] / seconds,
    )
