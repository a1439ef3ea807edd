"""A spec's description of the testbed's store, and of its deployer.

The store is a Ceph cluster, NFS servers, object servers, or Swift microstores (MOS, sections 4 and
6) with their tenants and shares.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from schemas.numbers import plain
from testbed.spec.quantities import BitsPerSecond, Bytes

LAST_FILESTORE = 17
"""Major version of the last Ceph with FileStore (Quincy)."""
KINDS = ("own", "ceph-ansible", "cephadm")
_KEY = re.compile(r"[a-z][a-z0-9_]*")
DEVICE = re.compile(r"/dev/[A-Za-z0-9._/:+=@-]+")
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._:/@-]*")

GENERATED = frozenset(
    (
        *("ceph_conf_overrides", "ceph_origin", "ceph_repository", "ceph_mirror"),
        *("ceph_stable_release", "cephx", "cluster", "configure_firewall"),
        *("containerized_deployment", "copy_admin_key", "dashboard_enabled", "devices", "fsid"),
        *("generate_fsid", "lvm_volumes", "osd_auto_discovery", "osd_objectstore", "pools"),
        *("public_network", "radosgw_address_block", "radosgw_frontend_port"),
        *("user_config", "yes_i_know"),
    )
)
"""Variables of ceph-ansible that follow from the spec; `variables` may not set them."""
TOLERATED = frozenset({"radosgw_frontend_port"})
"""Accepted without effect, because older testbeds' specs may have them; a deployment refuses."""


class SpecModel(BaseModel):
    """Model that refuses unknown keys: a misspelt option must not be silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _device(path: str) -> str:
    if not DEVICE.fullmatch(path) or ".." in path:
        raise ValueError(
            f"{path!r} is no device: write a path such as /dev/disk/by-id/wwn-0x5000c500a1b2c3d4 "
            "or /dev/sdb"
        )
    return path


def as_list(value: object) -> object:
    """Return one value as a list of it."""
    return [value] if isinstance(value, str) else value


Device = Annotated[str, AfterValidator(_device)]
"""Path of a block device."""
Devices = Annotated[tuple[Device, ...], BeforeValidator(as_list)]
"""One path or several."""


class OwnDeployer(SpecModel):
    """The role `ceph`: the distribution's packages, raw devices, no LVM, no containers."""

    kind: Literal["own"] = "own"


class CephAnsibleDeployer(SpecModel):
    """ceph-ansible's branch for a release, at a pinned commit.

    `packages` selects Ceph's own archive (community, `mirror` instead of download.ceph.com) or
    the distribution, which must have the release. `osds` lvm lets ceph-ansible make OSDs; with raw
    it brings the other daemons, and the role `ceph` adds OSDs on raw devices, for kernels without
    a device mapper. `variables` are further group variables.
    """

    kind: Literal["ceph-ansible"] = "ceph-ansible"
    release: Literal["reef", "squid"] = "squid"
    packages: Literal["community", "distro"] = "community"
    osds: Literal["lvm", "raw"] = "lvm"
    mirror: str | None = None
    variables: dict[str, Any] = Field(default_factory=dict)

    @field_validator("variables")
    @classmethod
    def _others(cls, variables: dict[str, Any]) -> dict[str, Any]:
        for name in variables:
            if not _KEY.fullmatch(name):
                raise ValueError(f"variables: {name!r} is no name of a variable")
            if name in GENERATED - TOLERATED or name.startswith("ansible_"):
                raise ValueError(
                    f"variables: {name} follows from the rest of the spec: say it there"
                )
        return variables

    @model_validator(mode="after")
    def _one_source(self) -> CephAnsibleDeployer:
        if self.mirror is not None and not self.mirror.startswith(("http://", "https://")):
            raise ValueError("mirror is an address such as https://download.ceph.com")
        if self.osds == "raw" and self.packages != "distro":
            raise ValueError(
                "osds: raw takes Ceph from the distribution on all nodes: say packages: distro"
            )
        return self


class CephadmDeployer(SpecModel):
    """cephadm: current releases, every daemon in a container of `engine`.

    `image` defaults to the image that the release's cephadm names.
    """

    kind: Literal["cephadm"] = "cephadm"
    release: Literal["reef", "squid", "tentacle"] = "tentacle"
    engine: Literal["podman", "docker"] = "podman"
    image: str | None = None

    @field_validator("image")
    @classmethod
    def _reference(cls, image: str | None) -> str | None:
        if image is not None and not _IMAGE.fullmatch(image):
            raise ValueError("image is a reference such as example.org/ceph/ceph:v20")
        return image


def _by_name(deployer: Any) -> Any:
    """Accept the name alone, as in ``deployer: cephadm``."""
    return {"kind": deployer} if isinstance(deployer, str) else deployer


DeployerSpec = Annotated[
    OwnDeployer | CephAnsibleDeployer | CephadmDeployer,
    Field(discriminator="kind"),
    BeforeValidator(_by_name),
]


TOGETHER, EVEN = "default", "static"
"""Layouts of every spec, both with even shares. In the first all microstores serve every tenant
(MOS's monolithic Default), in the second each serves its own."""
_NAME = re.compile(r"[a-z][a-z0-9]{0,19}")
_LAYOUT = re.compile(r"[a-z][a-z0-9+-]{0,29}")
_FILES = ("cluster", "node", "secrets")
"""Our own files in the folder of the tenants' files, which have the tenants' names."""
_PROXY = "proxy"
"""Name of the proxy's shares on a node; a microstore's servers use the microstore's name."""
_NEAR = 1e-6


class ShareSpec(SpecModel):
    """A microstore's share of the pool: cores of its proxies and of its storage servers, and bits a
    second that its proxies may send. An omitted value means an even share. `proxy_cores`,
    `storage_cores`: cores of all proxies, or of all storage servers; `network`: rate at which the
    proxies may send, such as 120Mbit."""

    proxy_cores: float | None = Field(default=None, gt=0, le=1024)
    storage_cores: float | None = Field(default=None, gt=0, le=1024)
    network: BitsPerSecond | None = Field(default=None, ge=1e6)


class StepSpec(SpecModel):
    """Smallest share that can be assigned: MOS++'s container. `proxy_cores`, `storage_cores`: cores
    of a step; `network`: rate of a step, such as 20Mbit."""

    proxy_cores: float = Field(default=0.1, gt=0, le=64)
    storage_cores: float = Field(default=0.1, gt=0, le=64)
    network: BitsPerSecond = Field(default=20e6, ge=1e6)


class MicrostorePoolSpec(SpecModel):
    """Resources that all microstores share. With `machine` every proxy node is a machine of that
    size, which basic MOS assigns as a whole; proxy nodes without a microstore are free at first.
    The machine's storage cores go to the microstore's servers; if omitted, these keep shares.
    Without `machine` only shares move. `proxy_cores`, `storage_cores`: cores of all proxies, and of
    all storage servers; `network`: rate at which all proxies together may send, such as 400Mbit;
    `step`: smallest share that can be assigned."""

    proxy_cores: float = Field(default=0.8, gt=0, le=1024)
    storage_cores: float = Field(default=0.8, gt=0, le=1024)
    network: BitsPerSecond = Field(default=400e6, ge=1e6)
    step: StepSpec = StepSpec()
    machine: ShareSpec | None = None

    @model_validator(mode="after")
    def _whole_steps(self) -> MicrostorePoolSpec:
        for name in ("proxy_cores", "storage_cores", "network"):
            count = getattr(self, name) / getattr(self.step, name)
            if abs(count - round(count)) > _NEAR * max(1.0, count):
                raise ValueError(
                    f"pool.{name} is {getattr(self, name):g}, which is not a whole number of steps "
                    f"of {getattr(self.step, name):g}"
                )
        machine = self.machine
        if machine is not None and (machine.proxy_cores is None or machine.network is None):
            raise ValueError("pool.machine needs proxy_cores and network")
        return self


class MicrostoreSpec(SpecModel):
    """A microstore: its proxies and storage nodes, by the names of groups or nodes.

    Microstores on the same storage nodes see the same objects, each through its own servers and
    shares. So a tenant can move to another microstore without a move of its data. `proxies`,
    `storage`: groups or nodes with the role proxy, and with the role storage.
    """

    name: Annotated[str, AfterValidator(lambda name: _named(name, _PROXY))]
    proxies: tuple[str, ...] = Field(min_length=1)
    storage: tuple[str, ...] = Field(min_length=1)


class TenantSpec(SpecModel):
    """A tenant with its own account; the account's key is made at deployment. `microstore` serves
    it; in the layout ``default`` all microstores on the same storage nodes do."""

    name: Annotated[str, AfterValidator(lambda name: _named(name, *_FILES))]
    microstore: str


class SwiftSpec(SpecModel):
    """Swift `microstores`, and `tenants` that they serve (docs/swift.md).

    `part_power` and `replicas` are the rings', `proxy_workers` is the number of processes of a
    proxy, and `s3` puts the S3 API before authentication. `layouts` names shares by microstore. A
    deployment applies `layout`, and `hotbed swift layout` another one. A proxy uses `port`, and
    storage servers the ports from `storage_port` upwards. `pool`: resources that the microstores
    share.
    """

    kind: Literal["swift"] = "swift"
    microstores: tuple[MicrostoreSpec, ...] = Field(min_length=1, max_length=50)
    tenants: tuple[TenantSpec, ...] = Field(min_length=1)
    pool: MicrostorePoolSpec = MicrostorePoolSpec()
    layouts: dict[str, dict[str, ShareSpec]] = Field(default_factory=dict)
    layout: str = EVEN
    replicas: int = Field(default=2, ge=1, le=8)
    part_power: int = Field(default=8, ge=1, le=20)
    proxy_workers: int = Field(default=1, ge=1, le=64)
    s3: bool = True
    port: int = Field(default=8080, ge=1024, le=65535)
    storage_port: int = Field(default=6200, ge=1024, le=60000)

    @model_validator(mode="after")
    def _names_fit(self) -> SwiftSpec:
        names = [store.name for store in self.microstores]
        _once(names, "microstores")
        _once([tenant.name for tenant in self.tenants], "tenants")
        for tenant in self.tenants:
            if tenant.microstore not in names:
                raise ValueError(
                    f"tenant {tenant.name!r} is served by {tenant.microstore!r}, and the "
                    f"microstores are {', '.join(names)}"
                )
        for layout, shares in self.layouts.items():
            if layout in {TOGETHER, EVEN} or not _LAYOUT.fullmatch(layout):
                raise ValueError(
                    f"layouts: {layout!r} is no name for a layout; {TOGETHER} and {EVEN} are there "
                    "anyway"
                )
            unknown = sorted(set(shares) - set(names))
            if unknown:
                raise ValueError(
                    f"layouts.{layout} names microstore {unknown[0]!r}; there are "
                    f"{', '.join(names)}"
                )
        if self.layout not in self.layout_names():
            raise ValueError(
                f"layout is {self.layout!r}; there are {', '.join(self.layout_names())}"
            )
        return self

    @model_validator(mode="after")
    def _shares_fit(self) -> SwiftSpec:
        for layout in self.layout_names():
            self._layout_fits(layout)
        return self

    def _layout_fits(self, layout: str) -> None:
        for name in ("proxy_cores", "storage_cores", "network"):
            total, step = getattr(self.pool, name), getattr(self.pool.step, name)
            shares = self.shares(layout, name)
            for store, share in shares.items():
                if share < step * (1 - _NEAR):
                    raise ValueError(
                        f"layout {layout}: microstore {store!r} would get {share:g} of "
                        f"pool.{name}; a step of {step:g} is the least"
                    )
            if sum(shares.values()) > total * (1 + _NEAR):
                raise ValueError(
                    f"layout {layout}: the microstores together get {sum(shares.values()):g} of "
                    f"pool.{name}, which is {total:g}"
                )

    def layout_names(self) -> tuple[str, ...]:
        """Return every layout's name."""
        return (TOGETHER, EVEN, *self.layouts)

    def shares(self, layout: str, name: str) -> dict[str, float]:
        """Return the share of `name` (proxy_cores, storage_cores: cores; network: bits/s) by
        microstore. The others get even parts of the rest, in whole steps."""
        said = {
            store: value
            for store, share in self.layouts.get(layout, {}).items()
            if (value := getattr(share, name)) is not None
        }
        step = getattr(self.pool.step, name)
        rest = [store.name for store in self.microstores if store.name not in said]
        left = getattr(self.pool, name) - sum(said.values())
        steps = int(left / step + _NEAR)
        even = {
            store: step * (steps // len(rest) + (place < steps % len(rest)))
            for place, store in enumerate(rest)
        }
        return {store.name: (said | even)[store.name] for store in self.microstores}


def check_nodes(
    store: SwiftSpec,
    groups: Mapping[str, Sequence[str]],
    roles: Mapping[str, Sequence[str]],
    cpus: Mapping[str, float],
) -> None:
    """Raise an error unless a store fits a testbed's nodes. `groups`: nodes by group. `roles`:
    roles by node. `cpus`: cores of each node. ValueError: one clause with the misfit."""
    proxy_of: dict[str, str] = {}
    for microstore in store.microstores:
        where = f"microstore {microstore.name!r}"
        for node in members(microstore.proxies, groups, f"{where}: proxies"):
            if "proxy" not in roles[node]:
                raise ValueError(f"{where}: node {node!r} is a proxy without the role proxy")
            if node in proxy_of:
                raise ValueError(
                    f"proxy {node!r} is in {proxy_of[node]!r} and in {microstore.name!r}"
                )
            proxy_of[node] = microstore.name
        nodes = members(microstore.storage, groups, f"{where}: storage")
        for node in nodes:
            if "storage" not in roles[node]:
                raise ValueError(f"{where}: node {node!r} stores without the role storage")
        if len(nodes) < store.replicas:
            raise ValueError(
                f"{where} keeps {store.replicas} replicas on {len(nodes)} storage nodes"
            )
    sets = {frozenset(members(m.storage, groups, "")) for m in store.microstores}
    for one in sets:
        for other in sets:
            if one != other and one & other:
                raise ValueError(
                    f"storage node {min(one & other)!r} is in two sets of storage nodes: "
                    "microstores have the same ones, or none in common"
                )
    _check_machines(store.pool, sum("proxy" in of for of in roles.values()))
    for node, have in cpus.items():
        most = max(
            (_of_a_proxy(store) if "proxy" in roles[node] else 0.0),
            (store.pool.storage_cores / store.replicas if "storage" in roles[node] else 0.0),
        )
        if have < most * (1 - _NEAR):
            raise ValueError(
                f"node {node!r} has cpus {have:g}, and its share may become {most:g}: give it more"
            )


def _of_a_proxy(store: SwiftSpec) -> float:
    """Return the most cores that a proxy node may get."""
    machine = store.pool.machine
    return (machine.proxy_cores if machine is not None else None) or store.pool.proxy_cores


def _check_machines(pool: MicrostorePoolSpec, count: int) -> None:
    for name in ("proxy_cores", "storage_cores", "network"):
        one = getattr(pool.machine, name, None) or 0.0
        total = getattr(pool, name)
        if count * one > total * (1 + _NEAR):
            raise ValueError(
                f"pool.machine: {count} machines of {one:g} {name} are more than pool.{name}, "
                f"{total:g}"
            )


def members(
    names: Sequence[str], groups: Mapping[str, Sequence[str]], where: str
) -> tuple[str, ...]:
    """Return the nodes named by groups or nodes, each once and in order; ValueError names a word
    that is neither."""
    nodes = {node for listed in groups.values() for node in listed}
    found: dict[str, None] = {}
    for name in names:
        if name in nodes:
            found[name] = None
        elif name in groups:
            found.update(dict.fromkeys(groups[name]))
        else:
            raise ValueError(f"{where}: there is no group or node {name!r}")
    return tuple(found)


def _named(name: str, *taken: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("a name is 1 to 20 lower-case letters or digits, a letter first")
    if name in taken:
        raise ValueError(
            f"Hotbed calls something of its own {name!r} on the nodes: take another name"
        )
    return name


def _once(names: Sequence[str], what: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{what} names {name!r} twice; give each a name of its own")


STORES = {
    "ceph": ("mon", "mgr", "osd", "client"),
    "nfs": ("nfs", "client"),
    "twochoice": ("object", "client"),
    "swift": ("proxy", "storage", "client"),
}
"""Kinds of stores, and the roles that each needs."""
TenantName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
_EXPORT = re.compile(r"/[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


class PoolSpec(SpecModel):
    """A replicated pool. `pg_num`: number of placement groups; `size`: number of replicas;
    `min_size`: least number of replicas with which the pool takes I/O."""

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


class TwoChoiceSpec(SpecModel):
    """The two-choice scheduler's agents and their cluster file (docs/twochoice.md).

    `port` is the port of a node's first agent; `memory` limits an agent's memory. `scheduler` and
    `choices` are the clients' defaults. `maintainer` has keys of the cluster file's block of that
    name, with durations in the same form. `copies`: copies of redirected writes.
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


class CephSpec(SpecModel):
    """A Ceph cluster: its `pools`, and settings (`config`, ceph.conf names) that the role lacks.

    `objectstore` filestore keeps objects as files on the scratch file system, together with fio's.
    There reweight-by-utilization sees the space of fio's files, as in the paper. `failure_domain`:
    no two replicas of a placement group share a host, or a rack. With `twochoice` every OSD has its
    own pool and an agent in front (docs/twochoice.md). `tenants` are users of the object
    gateway (S3), each with its own keys. `deployer` deploys the cluster (docs/another-ceph.md).
    """

    kind: Literal["ceph"] = "ceph"
    pools: tuple[PoolSpec, ...] = (PoolSpec(name="bench"),)
    config: dict[str, dict[str, str | int | float | bool]] = Field(default_factory=dict)
    objectstore: Literal["bluestore", "filestore"] = "bluestore"
    failure_domain: Literal["host", "rack"] = "host"
    twochoice: TwoChoiceSpec | None = None
    tenants: tuple[TenantName, ...] = ()
    deployer: DeployerSpec = OwnDeployer()

    @property
    def on_lvm(self) -> bool:
        """True if OSDs are on logical volumes, which need a kernel with the device mapper."""
        if isinstance(self.deployer, CephAnsibleDeployer):
            return self.deployer.osds == "lvm"
        return self.deployer.kind != "own"

    @model_validator(mode="after")
    def _fits_together(self) -> CephSpec:
        kind = self.deployer.kind
        _once(self.tenants, "tenants")
        if kind == "own":
            return self
        if self.objectstore == "filestore":
            raise ValueError(
                f"objectstore filestore is known to Ceph up to {LAST_FILESTORE}, and {kind} brings "
                "a later one: choose bluestore, or deployer own"
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


class NfsSpec(SpecModel):
    """NFS servers, each an nfs-ganesha on the node's disk behind PriorityMeister's proxy.

    Clients reach the proxy at the node's address; the server itself listens on the loopback only.
    The proxy charges requests by `profile` (docs/prioritymeister.md): in a spec file the name of a
    JSON file next to it, by default a profile from the model of the group's disk. The other fields
    are the proxy's parameters until others are put into force (`hotbed pm apply`). `export`: path
    that clients mount; `port`, `mount_port`: ports of the proxy for NFS and for mounts;
    `metrics_port`: port of the proxy's metrics; `server_port`, `server_mount_port`: ports of the
    NFS server behind the proxy; `policy`: policy of the proxy; `depth`: requests that the proxy
    gives to the server at a time; 0 for no limit; `unknown`: treatment of requests that belong to
    no workload.
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


def _ceph_by_default(store: Any) -> Any:
    return {"kind": "ceph", **store} if isinstance(store, dict) else store


Store = Annotated[
    CephSpec | NfsSpec | ObjectsSpec | SwiftSpec,
    Field(discriminator="kind"),
    BeforeValidator(_ceph_by_default),
]
