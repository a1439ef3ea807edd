"""A spec's description of Swift microstores (MOS, sections 4 and 6), their tenants and shares."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from testbed.spec.quantities import BitsPerSecond

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


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ShareSpec(_Strict):
    """A microstore's share of the pool: cores of its proxies and of its storage servers, and bits a
    second that its proxies may send. An omitted value means an even share."""

    proxy_cores: float | None = Field(default=None, gt=0, le=1024)
    storage_cores: float | None = Field(default=None, gt=0, le=1024)
    network: BitsPerSecond | None = Field(default=None, ge=1e6)


class StepSpec(_Strict):
    """Smallest share that can be assigned: MOS++'s container."""

    proxy_cores: float = Field(default=0.1, gt=0, le=64)
    storage_cores: float = Field(default=0.1, gt=0, le=64)
    network: BitsPerSecond = Field(default=20e6, ge=1e6)


class PoolSpec(_Strict):
    """Resources that all microstores share. With `machine` every proxy node is a machine of that
    size, which basic MOS assigns as a whole; proxy nodes without a microstore are free at first.
    The machine's storage cores go to the microstore's servers; if omitted, these keep shares.
    Without `machine` only shares move."""

    proxy_cores: float = Field(default=0.8, gt=0, le=1024)
    storage_cores: float = Field(default=0.8, gt=0, le=1024)
    network: BitsPerSecond = Field(default=400e6, ge=1e6)
    step: StepSpec = StepSpec()
    machine: ShareSpec | None = None

    @model_validator(mode="after")
    def _whole_steps(self) -> PoolSpec:
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


class MicrostoreSpec(_Strict):
    """A microstore: its proxies and storage nodes, by the names of groups or nodes.

    Microstores on the same storage nodes see the same objects, each through its own servers and
    shares. So a tenant can move to another microstore without a move of its data.
    """

    name: str
    proxies: tuple[str, ...] = Field(min_length=1)
    storage: tuple[str, ...] = Field(min_length=1)

    @field_validator("name")
    @classmethod
    def _is_name(cls, name: str) -> str:
        return _named(name, _PROXY)


class TenantSpec(_Strict):
    """A tenant with its own account; the account's key is made at deployment. `microstore` serves
    it; in the layout ``default`` all microstores on the same storage nodes do."""

    name: str
    microstore: str

    @field_validator("name")
    @classmethod
    def _is_name(cls, name: str) -> str:
        return _named(name, *_FILES)


class SwiftSpec(_Strict):
    """Swift microstores (docs/swift.md).

    `part_power` and `replicas` are the rings', `proxy_workers` is the number of processes of a
    proxy, and `s3` puts the S3 API before authentication. `layouts` names shares by microstore. A
    deployment applies `layout`, and `hotbed swift layout` another one. A proxy uses `port`, and
    storage servers the ports from `storage_port` upwards.
    """

    kind: Literal["swift"] = "swift"
    microstores: tuple[MicrostoreSpec, ...] = Field(min_length=1, max_length=50)
    tenants: tuple[TenantSpec, ...] = Field(min_length=1)
    pool: PoolSpec = PoolSpec()
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
    """Raise an error unless a store fits a testbed's nodes.

    Args:
        groups: nodes by group.
        roles: roles by node.
        cpus: cores of each node.

    Raises:
        ValueError: one clause with the misfit.
    """
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


def _check_machines(pool: PoolSpec, count: int) -> None:
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
            raise ValueError(f"{what}: {name!r} is there twice")
