"""Results of a simulation: for the controller since its last look, and for the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from testbed.simulated.cosperf.demand import STATIONS, Array
from testbed.simulated.cosperf.machines import ObjectClass
from testbed.stores.microstores import Microstore, Resources, Tenant, resources_to_json

SIGNIFICANT = 6
"""Significant digits of stored values."""


@dataclass(frozen=True)
class Chunk:
    """Consecutive slots in which nothing was changed.

    Attributes:
        ends_s, seconds: virtual time.
        workers, rate, latency_s, failed: shape (slots, tenants); operations a second.
        utilization: of every tenant's microstore, shape (slots, tenants, stations).
        held, mapped: by microstore and by tenant.
    """

    ends_s: float
    seconds: float
    workers: Array
    rate: Array
    latency_s: Array
    failed: Array
    utilization: Array
    held: Mapping[str, Resources]
    mapped: Mapping[str, str]

    def mean_latency_s(self, tenant: int) -> float:
        """Mean over operations: slots count by their operations."""
        rate = self.rate[:, tenant]
        return float(np.sum(rate * self.latency_s[:, tenant]) / max(float(np.sum(rate)), 1e-12))


@dataclass
class SimulationRecord:
    """Chunks of a simulation, in order."""

    tenants: Sequence[str]
    stores: Sequence[str]
    chunks: list[Chunk] = field(default_factory=list)
    _seen: int = 0

    def add(self, chunk: Chunk) -> None:
        """Append a chunk."""
        self.chunks.append(chunk)

    def since_sensed(self) -> list[Chunk]:
        """Return the chunks since the previous call."""
        found = self.chunks[self._seen :]
        self._seen = len(self.chunks)
        return found

    def series(self, classes: Sequence[ObjectClass]) -> dict[str, Any]:
        """Return lists over time: ``t_s`` (ends), ``seconds``; by tenant ``requests_s``,
        ``bytes_s``, ``latency_s``, ``workers``, ``failed_s``, ``utilization`` (the most used
        resource); by microstore its holding, by resource."""
        chunks = self.chunks
        tenants = {}
        for index, (tenant, one) in enumerate(zip(self.tenants, classes, strict=True)):
            rates = [float(chunk.rate[:, index].mean()) for chunk in chunks]
            tenants[tenant] = {
                "requests_s": _short(rates),
                "bytes_s": _short([rate * one.payload for rate in rates]),
                "latency_s": _short([chunk.mean_latency_s(index) for chunk in chunks]),
                "workers": _short([float(chunk.workers[:, index].mean()) for chunk in chunks]),
                "failed_s": _short([float(chunk.failed[:, index].mean()) for chunk in chunks]),
                "utilization": _short(
                    [float(chunk.utilization[:, index].max(axis=1).mean()) for chunk in chunks]
                ),
            }
        held = {
            store: _columns([resources_to_json(chunk.held[store]) for chunk in chunks])
            for store in self.stores
        }
        return {
            "t_s": _short([chunk.ends_s for chunk in chunks]),
            "seconds": _short([chunk.seconds for chunk in chunks]),
            "tenants": tenants,
            "held": held,
        }


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    names = rows[0] if rows else {}
    return {name: _short([row[name] for row in rows]) for name in names}


def _short(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.{SIGNIFICANT}g}") for value in values]


def microstore_seen(
    name: str, resources: Resources, tenants: Sequence[str], chunks: Sequence[Chunk]
) -> Microstore:
    """Return the monitor's view of a microstore: the busiest unit's utilization of every resource.
    A microstore without tenants is idle."""
    found: list[Array] = []
    for chunk in chunks:
        mine = [index for index, tenant in enumerate(tenants) if chunk.mapped[tenant] == name]
        slots = len(chunk.rate)
        none = np.zeros((slots, len(STATIONS)))
        found.append(chunk.utilization[:, mine].max(axis=1) if mine else none)
    if not found:
        return Microstore(name, resources)
    used = np.concatenate(found)
    means = used.mean(axis=0)
    return Microstore(
        name,
        resources,
        {measure: float(f"{mean:.4f}") for measure, mean in zip(STATIONS, means, strict=True)},
        tuple(np.round(used.max(axis=1), 4).tolist()),
    )


def tenant_seen(
    index: int, tenant: str, store: str, workload: ObjectClass, chunks: Sequence[Chunk]
) -> Tenant:
    """Return the monitor's view of a tenant. The 95th percentile is not modelled: None."""
    if not chunks:
        return Tenant(tenant, store)
    seconds = sum(chunk.seconds for chunk in chunks)
    rate = _mean(chunks, seconds, lambda chunk: chunk.rate[:, index])
    latency = sum(
        chunk.mean_latency_s(index) * float(chunk.rate[:, index].mean()) * chunk.seconds
        for chunk in chunks
    )
    return Tenant(
        name=tenant,
        microstore=store,
        requests_s=rate,
        bytes_s=rate * workload.payload,
        failed_s=_mean(chunks, seconds, lambda chunk: chunk.failed[:, index]),
        mean_latency_s=latency / max(rate * seconds, 1e-12),
        p95_latency_s=None,
        sizes=_sizes(workload, rate * seconds),
        write_share=workload.write / (workload.read + workload.write),
        workers=_mean(chunks, seconds, lambda chunk: chunk.workers[:, index]),
    )


def _mean(chunks: Sequence[Chunk], seconds: float, of: Any) -> float:
    return sum(float(of(chunk).mean()) * chunk.seconds for chunk in chunks) / seconds


def _sizes(workload: ObjectClass, operations: float) -> dict[int, int]:
    """Return the operations by the exponent of the power of two that bounds the object's size."""
    found, below, exponent = {}, 0.0, 0
    while below < 1:
        upto = workload.share_up_to(2.0**exponent)
        count = round((upto - below) * operations)
        if count:
            found[exponent] = count
        below, exponent = upto, exponent + 1
    return found
