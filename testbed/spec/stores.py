"""A spec's description of the testbed's store: a Ceph cluster, NFS servers, object servers, or
Swift microstores."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from schemas.numbers import plain
from testbed.spec.deployer import DeployerSpec, OwnDeployer
from testbed.spec.quantities import Bytes
from testbed.spec.swift import SwiftSpec

STORES = {
    "ceph": ("mon", "mgr", "osd", "client"),
    "nfs": ("nfs", "client"),
    "twochoice": ("object", "client"),
    "swift": ("proxy", "storage", "client"),
}
"""Kinds of stores, and the roles that each needs."""
TenantName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
_EXPORT = re.compile(r"/[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


class Strict(BaseModel):
    """Model that refuses unknown keys: a misspelt option must not be silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PoolSpec(Strict):
    """A replicated pool."""

    name: str
    pg_num: int = Field(default=128, ge=1, le=65536)
    size: int = Field(default=2, ge=1, le=10)
    min_size: int = Field(default=1, ge=1, le=10)

    @model_validator(mode="after")
    def _can_be_written(self) -> PoolSpec:
        if self.min_size > self.size:
            raise ValueError(
                f"min_size is {self.min_size} and size {self.size}: a pool takes no I/O with fewer "
                "than min_size replicas, so give a min_size of at most size"
            )
        return self


class TwoChoiceSpec(Strict):
    """The two-choice scheduler's agents and their cluster file (docs/twochoice-server.md).

    `port` is the port of a node's first agent; `memory` limits an agent's memory. `scheduler` and
    `choices` are the clients' defaults. `maintainer` has keys of the cluster file's block of that
    name, with durations in the same form.
    """

    port: int = Field(default=7100, ge=1024, le=65000)
    copies: Literal[1, 2] = 1
    scheduler: Literal[
        "fixed", "random", "two-choice", "collaborative", "preassign", "both", "prequal"
    ] = "both"
    choices: Literal["home+random", "random+random"] = "home+random"
    maintainer: dict[str, Annotated[bool | int | float | str, BeforeValidator(plain)]] = Field(
        default_factory=dict
    )
    memory: Bytes = Field(default=256 * 2**20, ge=2**26)


class ObjectsSpec(TwoChoiceSpec):
    """Object servers on local files: an agent for each disk of the nodes with the role object. Data
    are on the disk's scratch part (the whole disk if scratch is 0)."""

    kind: Literal["twochoice"] = "twochoice"


class CephSpec(Strict):
    """A Ceph cluster: its pools, and settings in addition to the role's defaults (ceph.conf names).

    `objectstore` filestore keeps objects as files on the scratch file system, together with fio's.
    There reweight-by-utilization sees the space of fio's files, as in the paper. `failure_domain`:
    no two replicas of a placement group share a host, or a rack. With `twochoice` every OSD has its
    own pool and an agent in front (docs/twochoice-rados.md). `tenants` are users of the object
    gateway (S3), each with its own keys. `deployer` deploys the cluster (docs/deployers.md).
    """

    kind: Literal["ceph"] = "ceph"
    pools: tuple[PoolSpec, ...] = (PoolSpec(name="bench"),)
    config: dict[str, dict[str, str | int | float | bool]] = Field(default_factory=dict)
    objectstore: Literal["bluestore", "filestore"] = "bluestore"
    failure_domain: Literal["host", "rack"] = "host"
    twochoice: TwoChoiceSpec | None = None
    tenants: tuple[TenantName, ...] = ()
    deployer: DeployerSpec = OwnDeployer()

    @model_validator(mode="after")
    def _deployer_can(self) -> CephSpec:
        kind = self.deployer.kind
        if kind == "own":
            return self
        if self.objectstore == "filestore":
            raise ValueError(
                f"objectstore filestore is known to Ceph up to 17 (quincy), and {kind} brings a "
                "later one: choose bluestore, or deployer own"
            )
        if self.twochoice is not None:
            raise ValueError(
                f"twochoice names OSDs by numbers that {kind} gives out as it likes: choose "
                "deployer own"
            )
        if self.tenants:
            raise ValueError(
                f"tenants are made where deployer own has started the object gateway, and not with "
                f"{kind}: choose deployer own, or leave tenants out"
            )
        return self

    @model_validator(mode="after")
    def _tenants_differ(self) -> CephSpec:
        again = [name for name in self.tenants if self.tenants.count(name) > 1]
        if again:
            raise ValueError(f"tenants names {again[0]!r} twice; give each a name of its own")
        return self


class NfsSpec(Strict):
    """NFS servers, each an nfs-ganesha on the node's disk behind PriorityMeister's proxy.

    Clients reach the proxy at the node's address; the server itself listens on the loopback only.
    The proxy charges requests by `profile` (docs/prioritymeister.md): in a spec file the name of a
    JSON file next to it, by default a profile from the model of the group's disk. The other fields
    are the proxy's parameters until others are put into force (`hotbed pm apply`).
    """

    kind: Literal["nfs"] = "nfs"
    export: str = "/export"
    port: int = Field(default=2049, ge=1, le=65535)
    mount_port: int = Field(default=20048, ge=1, le=65535)
    metrics_port: int = Field(default=9811, ge=1, le=65535)
    server_port: int = Field(default=12049, ge=1, le=65535)
    server_mount_port: int = Field(default=12048, ge=1, le=65535)
    profile: dict[str, Any] | None = None
    policy: Literal["pm", "ps", "cake", "edf", "byslo", "mclock", "none"] = "none"
    depth: int = Field(default=8, ge=0, le=65536)
    unknown: Literal["refuse", "best-effort"] = "refuse"

    @model_validator(mode="after")
    def _fits(self) -> NfsSpec:
        if not _EXPORT.fullmatch(self.export):
            raise ValueError(
                f"export is {self.export!r}; write a name after a slash, such as /export"
            )
        ports = {
            name: getattr(self, name)
            for name in ("port", "mount_port", "metrics_port", "server_port", "server_mount_port")
        }
        for name, port in ports.items():
            others = [other for other in ports if other != name and ports[other] == port]
            if others:
                raise ValueError(f"{name} and {others[0]} are both {port}; give each its own")
        return self


def _store_kind(store: Any) -> str:
    """Return the kind of a store; ceph if a spec names no kind."""
    kind = store.get("kind", "ceph") if isinstance(store, dict) else getattr(store, "kind", "ceph")
    return kind if isinstance(kind, str) and kind in STORES else "none"


def _known_store(store: Any) -> Any:
    if isinstance(store, dict) and _store_kind(store) == "none":
        *first, last = STORES
        there = f"{', '.join(first)} and {last}"
        raise ValueError(f"kind is {store['kind']!r}; there are {there}")
    return store


Store = Annotated[
    Annotated[CephSpec, Tag("ceph")]
    | Annotated[NfsSpec, Tag("nfs")]
    | Annotated[ObjectsSpec, Tag("twochoice")]
    | Annotated[SwiftSpec, Tag("swift")],
    Discriminator(_store_kind),
    BeforeValidator(_known_store),
]
