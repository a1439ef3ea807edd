"""Topology of a plan: hosts, links, devices, and workloads with SLOs, from one YAML file; and the
limits of its network.

A plan for machines uses their real limits: the share of a link left for workloads, its frames, and
its hosts' possible token buckets. They are a topology's (`links:`), a testbed's (`htb_links`) or
those of a ground of experiments (`mixes.PmMachines`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from controllers.prioritymeister.prioritizer import FRAME, PlannedWorkload
from schemas.errors import UserError, not_allowed
from schemas.mistakes import mistake
from schemas.model import Model
from schemas.yaml_file import read_mapping
from testbed.spec.quantities import BitsPerSecond, Bytes, Seconds
from testbed.stores.nfs.shaping import MANAGEMENT_SHARE, bucket
from testbed.stores.nfs.wire import ETHERNET_MTU, frame_of

NetworkStage = Literal["network-in", "network-out"]
NETWORK_STAGES: tuple[NetworkStage, ...] = ("network-in", "network-out")
LINK_SHARE = 1 - MANAGEMENT_SHARE - 0.005
"""Share of a testbed's link that remains after ssh and HTB's small guarantee to every class."""


@dataclass(frozen=True)
class Links:
    """Limits that a plan assumes; by default ideal links and enforcers.

    Attributes:
        share: share of every link that is always left for workloads.
        frame: bytes of the largest frame, by the time that it occupies a link.
        overshoot: bytes that a token bucket lets through beyond its burst.
        bucket: the token bucket (bytes per second, bytes) that replaces a planned one; None if any
            bucket is possible. The replacement lets more through, never less.
    """

    share: float = 1.0
    frame: float = FRAME
    overshoot: float = 0.0
    bucket: Callable[[float, float], tuple[float, float]] | None = None

    def kept(self, tenant: PlannedWorkload) -> PlannedWorkload:
        """Return a workload with the token buckets that the network can keep."""
        if self.bucket is None:
            return tenant
        limiters = dict(tenant.limiters)
        for stage in NETWORK_STAGES:
            found = limiters[stage]
            pairs = [self.bucket(*p) for p in zip(found.rates, found.bursts, strict=True)]
            rates, bursts = np.array(pairs, np.float64).T
            limiters[stage] = replace(found, rates=rates, bursts=bursts)
        return replace(tenant, limiters=limiters)


def htb_links(frame: int) -> Links:
    """Return the limits of a testbed's hosts and switch (`testbed.stores.nfs.shaping`) with a
    largest frame of `frame` bytes. HTB charges a packet after sending it: with any token left it
    lets a whole packet through."""
    return Links(LINK_SHARE, frame, float(frame), partial(bucket, frame=frame))


class TopologyModel(Model):
    """Part of a topology: all its numbers are finite."""

    model_config = ConfigDict(allow_inf_nan=False)


class LinkSettings(TopologyModel):
    """A topology's `links`: limits of its network for a plan.

    `enforcer`: the hosts' token buckets. `exact` keeps any bucket. `htb`, the kernel's, has a burst
    of at least a frame and at most 270 s of its rate, and lets one more frame through. `overshoot`
    replaces that frame, or the zero of `exact`. `share`: share of every link that is always left
    for workloads.
    """

    share: float = Field(default=1.0, gt=0, le=1)
    mtu: int = Field(default=ETHERNET_MTU, ge=1280, le=65520)
    overshoot: Bytes | None = Field(default=None, ge=0)
    enforcer: Literal["exact", "htb"] = "exact"

    def kept(self) -> Links:
        """Return the limits for the planner."""
        frame = frame_of(self.mtu)
        made = htb_links(frame) if self.enforcer == "htb" else Links(frame=frame)
        if self.overshoot is not None:
            made = replace(made, overshoot=float(self.overshoot))
        return replace(made, share=self.share)


SWITCH = "switch"
"""Name of the switch if a topology names none."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


_SLO = "write slo: {latency: 50ms} or slo: {completion: 10min}"


class Slo(TopologyModel):
    """Either `latency`, the longest time of a request, or `completion`, the time for the whole
    trace (a throughput SLO, section 3.2)."""

    latency: Seconds | None = Field(default=None, gt=0)
    completion: Seconds | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one(self) -> Slo:
        if (self.latency is None) == (self.completion is None):
            raise ValueError("an SLO has either latency or completion, one of both")
        return self


class StorageDevice(TopologyModel):
    """A storage device: the file of its profile, next to the topology file, and its speed relative
    to the profile. `profile`: file of the device's profile, next to the topology file; `speed`:
    speed relative to the profile."""

    profile: str
    speed: float = Field(default=1.0, gt=0)


class TopologyHost(TopologyModel):
    """A machine with a full-duplex link to a switch, and its storage devices.

    `link` is the rate of both directions; `egress` and `ingress` replace it in one direction.
    `switch`: name of the switch; needed with several switches; `devices`: storage devices by name,
    each with its profile's file.
    """

    link: BitsPerSecond = Field(default=1e9, gt=0)
    egress: BitsPerSecond | None = Field(default=None, gt=0)
    ingress: BitsPerSecond | None = Field(default=None, gt=0)
    switch: str | None = None
    devices: dict[str, StorageDevice] = Field(default_factory=dict)

    @field_validator("devices", mode="before")
    @classmethod
    def _short(cls, devices: object) -> object:
        """Expand `ssd0: profile.json` to `ssd0: {profile: profile.json}`."""
        if not isinstance(devices, dict):
            return devices
        return {k: {"profile": v} if isinstance(v, str) else v for k, v in devices.items()}


class Trunk(TopologyModel):
    """A full-duplex link between two switches. `between`: the two switches; `link`: rate of both
    directions, such as 10Gbit."""

    between: tuple[str, str]
    link: BitsPerSecond = Field(gt=0)


class PmWorkload(TopologyModel):
    """A workload: its client, its trace, and its SLO.

    A workload without `server` must still be placed (`hotbed pm place`). `trace` is a file next to
    the topology file, `format` is as in the trace reader, `disk` selects one disk of a trace.
    `duration` replaces the time between the first and the last arrival for the mean rate. `route`
    names the switches from client to server, if there is more than one. `client`: host of the
    client; `device`: device of the server; needed if the server has several; `slo`: latency of
    every request, or completion of the whole trace.
    """

    name: str
    client: str
    server: str | None = None
    device: str | None = None
    trace: str
    format: str = "auto"
    disk: int | None = Field(default=None, ge=0)
    duration: Seconds | None = Field(default=None, gt=0)
    slo: Slo
    route: tuple[str, ...] | None = Field(default=None, min_length=1)

    @field_validator("name")
    @classmethod
    def _plain_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError("a name is 1 to 63 letters, digits, dots, - or _")
        return name


class Topology(TopologyModel):
    """A whole topology; `buckets` is the maximum of token buckets of a workload at a stage. `links`
    are the network's limits for a plan (None means no limits). `hosts`: machines by name; `trunks`:
    links between switches; `workloads`: the workloads; `network_levels`: priorities of the network;
    null for one per workload; `blocking`: true plans with the bound that counts requests and
    packets in service."""

    hosts: dict[str, TopologyHost] = Field(min_length=1)
    trunks: tuple[Trunk, ...] = ()
    workloads: tuple[PmWorkload, ...] = Field(min_length=1)
    network_levels: int | None = Field(default=7, ge=1, le=64)
    buckets: int = Field(default=8, ge=1, le=64)
    blocking: bool = False
    links: LinkSettings | None = None

    @model_validator(mode="after")
    def _whole(self) -> Topology:
        names = [w.name for w in self.workloads]
        twice = sorted({n for n in names if names.count(n) > 1}) if len(names) > 1 else []
        if twice:
            raise ValueError(f"two workloads are called {twice[0]}: names must differ")
        self._check_names()
        joined: set[frozenset[str]] = set()
        for trunk in self.trunks:
            ends = frozenset(trunk.between)
            if len(ends) < 2 or ends in joined:
                what = "joins a switch to itself" if len(ends) < 2 else "is there twice"
                raise ValueError(f"trunk {'-'.join(trunk.between)} {what}: leave it out")
            joined.add(ends)
            _known(trunk.between, self.switches(), f"trunk {'-'.join(trunk.between)}", "switch")
        for workload in self.workloads:
            self.check(workload)
        return self

    def _check_names(self) -> None:
        """Raise for invalid or clashing names: hosts, switches and devices name the queues."""
        for end in {end for trunk in self.trunks for end in trunk.between}:
            if not _NAME.fullmatch(end):
                raise ValueError(
                    f"trunks: {end!r} is no name: write 1 to 63 letters, digits, dots, - or _"
                )
        for name, host in self.hosts.items():
            for one in (name, *host.devices, *([host.switch] if host.switch else ())):
                if not _NAME.fullmatch(one):
                    raise ValueError(
                        f"host {name}: {one!r} is no name: write 1 to 63 letters, digits, dots, - "
                        "or _"
                    )
            if name in self.switches():
                raise ValueError(f"host {name} is called as a switch: names must differ")

    @property
    def kept(self) -> Links:
        """The network's limits for a plan."""
        return Links() if self.links is None else self.links.kept()

    def switches(self) -> frozenset[str]:
        """Return the switches of hosts, and switches without a host that several trunks join."""
        joins = Counter(end for trunk in self.trunks for end in trunk.between)
        between = {name for name, count in joins.items() if count > 1}
        return frozenset(between | {host.switch or SWITCH for host in self.hosts.values()})

    def _server(self, workload: PmWorkload) -> tuple[str, TopologyHost]:
        assert workload.server is not None, "asked for before it was placed"
        return workload.server, self.hosts[workload.server]

    def device_name(self, workload: PmWorkload) -> str:
        """Return the device's name at its server."""
        return workload.device or next(iter(self._server(workload)[1].devices))

    def device_of(self, workload: PmWorkload) -> StorageDevice:
        """Return the device of a workload that has a server."""
        return self._server(workload)[1].devices[self.device_name(workload)]

    def queues(self) -> dict[str, float]:
        """Return every queue's bandwidth: bytes per second of a link's direction, 1 of a device."""
        found: dict[str, float] = {}
        for name, host in self.hosts.items():
            switch = host.switch or SWITCH
            found[f"{name}->{switch}"] = (host.egress or host.link) / 8
            found[f"{switch}->{name}"] = (host.ingress or host.link) / 8
            found |= {f"{name}:{device}": 1.0 for device in host.devices}
        for trunk in self.trunks:
            a, b = trunk.between
            found[f"{a}->{b}"] = found[f"{b}->{a}"] = trunk.link / 8
        return found

    def routes(self, workload: PmWorkload) -> dict[str, tuple[str, ...]]:
        """Return the queues that a workload's requests pass at each stage."""
        switches = workload.route or (self.hosts[workload.client].switch or SWITCH,)
        server = self._server(workload)[0]
        nodes = (workload.client, *switches, server)
        there = tuple(f"{a}->{b}" for a, b in pairwise(nodes))
        back = tuple(f"{b}->{a}" for a, b in pairwise(nodes))[::-1]
        device = f"{server}:{self.device_name(workload)}"
        return {"network-in": there, "storage": (device,), "network-out": back}

    def check(self, workload: PmWorkload) -> None:
        """Raise ValueError if a workload names something that this topology lacks."""
        where = f"workload {workload.name}"
        _known((workload.client,), self.hosts, f"{where}: client", "host")
        if workload.server is None:
            return
        _known((workload.server,), self.hosts, f"{where}: server", "host")
        devices = self.hosts[workload.server].devices
        if not devices:
            raise ValueError(f"{where}: server {workload.server} has no device: give it one")
        if workload.device is not None:
            _known((workload.device,), devices, f"{where}: server {workload.server}", "device")
        elif len(devices) > 1:
            raise ValueError(
                f"{where}: server {workload.server} has several devices: choose one of "
                f"{', '.join(sorted(devices))} as device"
            )
        if workload.client == workload.server:
            raise ValueError(
                f"{where}: its path is cyclic, it leaves host {workload.client} and comes back to "
                "it: name another client or server"
            )
        self._check_route(workload, workload.server, where)

    def _check_route(self, workload: PmWorkload, server: str, where: str) -> None:
        first = self.hosts[workload.client].switch or SWITCH
        last = self.hosts[server].switch or SWITCH
        route = workload.route or (first,)
        _known(route, self.switches(), f"{where}: route", "switch")
        again = [name for place, name in enumerate(route) if name in route[:place]]
        if again:
            raise ValueError(
                f"{where}: its path is cyclic, it passes switch {again[0]} twice: "
                f"{' -> '.join(route)}"
            )
        if (route[0], route[-1]) != (first, last):
            raise ValueError(
                f"{where}: its route must begin at the client's switch {first} and end at the "
                f"server's switch {last}; write route: [{first}, ..., {last}]"
            )
        trunks = {frozenset(trunk.between) for trunk in self.trunks}
        for pair in pairwise(route):
            if frozenset(pair) not in trunks:
                raise ValueError(f"{where}: there is no trunk between {pair[0]} and {pair[1]}")


def _known(
    names: tuple[str, ...], known: Mapping[str, object] | frozenset[str], where: str, kind: str
) -> None:
    for name in names:
        if name not in known:
            raise ValueError(
                f"{where}: there is no {kind} {name!r}; known are {', '.join(sorted(known))}"
            )


def load_topology(path: Path) -> Topology:
    """Read and check a topology file; traces are not opened yet. A UserError names file and
    place."""
    data = read_mapping(path, "a topology is a mapping with hosts and workloads")
    try:
        return Topology.model_validate(data)
    except ValidationError as error:
        raise _explained(error, path, data) from error


def _explained(error: ValidationError, path: Path, data: Mapping[str, Any]) -> UserError:
    found = mistake(error, Topology)
    steps = list(found.place)
    place = ".".join(str(step) for step in steps)
    if len(steps) > 1 and steps[0] == "workloads" and isinstance(steps[1], int):
        entry = data["workloads"][steps[1]]
        name = entry.get("name") if isinstance(entry, dict) else None
        place = ".".join([f"workload {name or steps[1]}", *(str(step) for step in steps[2:])])
        absent = isinstance(entry, dict) and entry.get("slo") is None
        if steps[2:] == ["slo"] and absent:
            return UserError("has no SLO", where=f"{path}: workload {name or steps[1]}", do=_SLO)
        if steps[2:] == ["slo"] and not isinstance(entry["slo"], dict):
            return not_allowed(f"{path}: {place}", entry["slo"], _SLO)
    where = ": ".join(part for part in (str(path), place) if part)
    return UserError("is missing" if found.kind == "missing" else found.words, where=where)
