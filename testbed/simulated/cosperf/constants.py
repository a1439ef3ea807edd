"""Constants of the model: costs of an operation, and costs of a reconfiguration."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def canonical(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return self.model_dump(mode="json")


class Constants(_Frozen):
    """Costs of one operation. `hotbed mos profile` fits the first six to measured runs. Disks are
    from data sheets (SATA drives of 7,200 rpm, SATA SSDs), as no run varies them alone.

    Attributes:
        proxy_request_s, proxy_byte_s: core seconds at a proxy, of an operation and of each byte
            that passes it (a write's bytes pass it once a replica).
        storage_request_s, storage_byte_s: core seconds at a storage server, for each replica.
        network_efficiency: payload of a network share, relative to its nominal rate.
        burst_bytes: bytes that pass a share of the network at the link's own rate: its token
            bucket. An assumption: it holds a small object.
        network_request_bytes: network bytes of an operation in addition to its payload.
        hdd_access_s, hdd_byte_s, ssd_access_s, ssd_byte_s: a disk's time for one access.
        replicas: replicas of every object.
        idle_s: time of an operation outside all modelled resources.
    """

    proxy_request_s: float = Field(gt=0, le=10)
    proxy_byte_s: float = Field(gt=0, le=1e-3)
    storage_request_s: float = Field(gt=0, le=10)
    storage_byte_s: float = Field(gt=0, le=1e-3)
    network_efficiency: float = Field(gt=0, le=1)
    network_request_bytes: float = Field(default=1000.0, ge=0, le=1e7)
    burst_bytes: float = Field(default=131_072.0, ge=0, le=1e9)
    hdd_access_s: float = Field(default=0.008, ge=0, le=1)
    hdd_byte_s: float = Field(default=1 / 150e6, ge=0, le=1e-3)
    ssd_access_s: float = Field(default=0.0001, ge=0, le=1)
    ssd_byte_s: float = Field(default=1 / 500e6, ge=0, le=1e-3)
    replicas: int = Field(default=3, ge=1, le=10)
    idle_s: float = Field(default=0.002, ge=0, le=60)


class Costs(_Frozen):
    """Costs of a reconfiguration, in seconds. Measured on a small testbed under load (docs/mos.md):
    shares of CPU (0.5 s) and network (at once), proxies' workers, a node's servers, a ring that the
    proxies have loaded. The speed of migration and its share of the disks were not measured on
    machines of the paper's size: they are assumptions, and `factor` varies them.

    Attributes:
        network_s, workers_s, node_s, ring_s: time until an addition serves.
        migration_s: time for each added or removed disk.
        migration_share: share of the disks' time taken while data moves.
        failed_share: share of the operations that fail while workers are exchanged.
        factor: multiplier of all times; 0: no costs.
    """

    network_s: float = Field(default=0.0, ge=0, le=3600)
    workers_s: float = Field(default=1.8, ge=0, le=3600)
    node_s: float = Field(default=3.1, ge=0, le=3600)
    ring_s: float = Field(default=15.0, ge=0, le=3600)
    migration_s: float = Field(default=14.0, ge=0, le=86_400)
    migration_share: float = Field(default=0.15, ge=0, lt=1)
    failed_share: float = Field(default=2 / 2240, ge=0, le=1)
    factor: float = Field(default=1.0, ge=0, le=100)
