"""The class `CephStore`: a deployed Ceph for controllers (see testbed/stores/contract)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol, cast

from schemas.errors import StoreError
from testbed.stores.ceph.connection import Connection
from testbed.stores.ceph.perf import ActivitySensor, IntervalCounters, latencies
from testbed.stores.ceph.pgs import PgReader
from testbed.stores.ceph.steps import (
    Steps,
    UpmapAction,
    balancer_modes,
    grouped,
    has_osdmaptool,
    has_size_balancer,
    offered_options,
    restore,
    save,
)
from testbed.stores.contract import (
    ACTIVITY,
    BALANCER,
    BALANCER_READ,
    HOT,
    LATENCY,
    OPTIONS,
    OSDS,
    PG_UPMAP,
    PG_UPMAP_PRIMARY,
    PGS,
    PRESSURE,
    PRIMARY_AFFINITY,
    READ_BALANCE,
    READ_BALANCER,
    READ_MODES,
    REWEIGHT_BY_UTILIZATION,
    SIZE_BALANCER,
    Action,
    Effect,
    Needs,
    Observation,
    ReweightByUtilization,
    RunSizeBalancer,
    SetBalancer,
    SetOption,
    SetPrimaryAffinity,
)

# ----------------------------------------------------------------------------------------------
# Features of a Ceph version, as far as the connected clients allow them.

RELEASES = {
    "jewel": 10,
    "kraken": 11,
    "luminous": 12,
    "mimic": 13,
    "nautilus": 14,
    "octopus": 15,
    "pacific": 16,
    "quincy": 17,
    "reef": 18,
    "squid": 19,
    "tentacle": 20,
}
_LUMINOUS = RELEASES["luminous"]
_REEF = RELEASES["reef"]
_VERSION = re.compile(r"ceph version (\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True)
class Features:
    """Version and clients of a cluster. `oldest` is the oldest daemon's version. `modes` are the
    modes of the manager's balancer; `options` are those of `OPTIONS` that have an effect."""

    version: str
    oldest: tuple[int, int, int]
    clients: frozenset[str]  # releases that connected clients report
    require_min_compat_client: str
    read_balance: bool = False  # the monitors report read balance scores
    modes: frozenset[str] = frozenset()
    osdmaptool: bool = False  # with the option --read
    size_balancer: bool = False  # its program is in the admin node's path
    options: frozenset[str] = frozenset()

    @property
    def upmap(self) -> bool:
        """True if pg-upmap is usable: the map demands clients that understand Luminous' maps."""
        return release(self.require_min_compat_client) >= _LUMINOUS

    @property
    def upmap_primary(self) -> bool:
        """True if pg-upmap-primary is usable (from Reef on).

        Ceph documents it as unsafe with kernel clients, which report Luminous at most. So any
        client that reports less than Reef forbids it. The map must also demand Reef, which is an
        operator's decision: Hotbed never raises the demand.
        """
        return (
            self.oldest[0] >= _REEF
            and release(self.require_min_compat_client) >= _REEF
            and all(release(client) >= _REEF for client in self.clients)
        )

    def needs(self) -> Needs:
        """Return what the store offers with these features."""
        senses = {PRESSURE, OSDS, PGS, ACTIVITY, LATENCY}
        if self.read_balance:
            senses.add(READ_BALANCE)
        acts = {PRIMARY_AFFINITY, REWEIGHT_BY_UTILIZATION, *self.options}
        if self.upmap:
            acts |= {PG_UPMAP, BALANCER}
            if self.size_balancer:
                acts.add(SIZE_BALANCER)
        if self.upmap_primary:
            acts.add(PG_UPMAP_PRIMARY)
            if self.modes >= READ_MODES:
                acts.add(BALANCER_READ)
            if self.osdmaptool or self.modes >= READ_MODES:
                acts.add(READ_BALANCER)
        return Needs(senses=frozenset(senses), acts=frozenset(acts))


def release(name: str) -> int:
    """Return the major version of a release name; an unknown name counts as the oldest."""
    return RELEASES.get(name, 0)


def parse_version(text: str) -> tuple[int, int, int]:
    """Return (16, 2, 15) for ``ceph version 16.2.15 (...) pacific (stable)``. StoreError: the text
    holds no version number."""
    found = _VERSION.search(text)
    if found is None:
        raise StoreError(
            f"a daemon reports {text!r}, which holds no version number such as 16.2.15; install a "
            "released Ceph, or build yours with -DENABLE_GIT_VERSION=ON."
        )
    major, minor, patch = (int(part) for part in found.groups())
    return major, minor, patch


def parse_features(versions: Any, features: Any, require_min_compat_client: str) -> Features:
    """Return the features that follow from three answers of the monitors.

    Args:
        versions: answer to `ceph versions`.
        features: answer to `ceph features`.
        require_min_compat_client: the OSD map's demand on clients.

    Raises:
        StoreError: an answer has another shape, or no version number.
    """
    daemons = versions.get("overall") if isinstance(versions, Mapping) else None
    if not isinstance(daemons, Mapping) or not daemons:
        raise StoreError(f"`ceph versions` names no daemon: {str(versions)[:200]!r}.")
    oldest = min(parse_version(text) for text in daemons)
    groups = features.get("client", ()) if isinstance(features, Mapping) else None
    if not isinstance(groups, Sequence) or not all(
        isinstance(group, Mapping) and "release" in group for group in groups
    ):
        # Up to Luminous all groups have the same key, and a JSON parser keeps only the last one.
        raise StoreError(
            "`ceph features` has no list of clients with their releases, which Ceph prints from "
            f"Mimic (13) on; this cluster runs {'.'.join(map(str, oldest))}."
        )
    return Features(
        version=".".join(map(str, oldest)),
        oldest=oldest,
        clients=frozenset(str(group["release"]) for group in groups),
        require_min_compat_client=require_min_compat_client,
    )


class Sensor(Protocol):
    """Source of pressure."""

    @property
    def signal(self) -> str:
        """Name of the signal in observations and runs."""

    @property
    def lost(self) -> Mapping[str, str]:
        """Nodes or OSDs that could not be sensed last time, and why."""

    def pressure(self) -> dict[int, float]:
        """Return percent by OSD, the mean since the previous call; a failed OSD is absent."""

    def close(self) -> None:
        """Release the open resources."""


class CephStore:
    """One cluster through one librados connection; not thread-safe.

    Args:
        connection: see `testbed.stores.ceph.connection.connect`.
        sensor: the source of `Observation.pressure`; None for a store that is only changed.
        pools: pools with PGs to read and change; all if empty.
        nodes: the node of each OSD; an OSD that it lacks gets its CRUSH host.
        hot: returns the OSDs under a disturbance (ground truth for the oracle), if available.
    """

    def __init__(
        self,
        connection: Connection,
        sensor: Sensor | None = None,
        *,
        pools: Sequence[str] = (),
        nodes: Mapping[int, str] | None = None,
        hot: Callable[[], frozenset[int]] | None = None,
    ) -> None:
        self.connection = connection
        self.reader = PgReader(connection, pools, nodes)
        self._sensor = sensor
        self._hot = hot
        self._activity: ActivitySensor | None = None
        self._counters: IntervalCounters | None = None
        self.features = self._features()
        self._steps = Steps(connection, self.reader, upmap_primary=self.features.upmap_primary)
        self._started = self._sensed = time.monotonic()

    def offers(self) -> Needs:
        """See `Store.offers`; depends on version and connected clients."""
        needs = self._offered
        senses = set(needs.senses)
        if self._sensor is None:
            senses.discard(PRESSURE)
        if self._hot is not None:
            senses.add(HOT)
        return Needs(frozenset(senses), needs.acts)

    @property
    def lost(self) -> Mapping[str, str]:
        """Nodes (or OSDs) that the last `sense` could not reach, and why."""
        return {} if self._sensor is None else self._sensor.lost

    def sense(self, senses: frozenset[str]) -> Observation:
        """See `Store.sense`. OSDs are always read; anything else only if requested."""
        refused = senses - self.offers().senses
        if refused:
            raise StoreError(f"this store cannot sense {', '.join(sorted(refused))}")
        now = time.monotonic()
        pressure: dict[int, float] = {}
        signal = ""
        if PRESSURE in senses and self._sensor is not None:
            pressure, signal = self._sensor.pressure(), self._sensor.signal
        osd_map = self.reader.osd_map()
        mapped = ACTIVITY in senses or PGS in senses
        pgs = self.reader.pgs(osd_map, with_bytes=PGS in senses) if mapped else ()
        counters = {}
        if senses & {ACTIVITY, LATENCY}:
            self._counters = self._counters or IntervalCounters(self.connection)
            counters = self._counters.read([osd.id for osd in osd_map.osds.values() if osd.up])
        activity = None
        if ACTIVITY in senses:
            self._activity = self._activity or ActivitySensor(self.connection)
            activity = self._activity.read(pgs, counters)
        interval, self._sensed = now - self._sensed, now
        return Observation(
            t_s=now - self._started,
            interval_s=interval,
            signal=signal,
            pressure=pressure,
            osds=tuple(osd_map.osds.values()),
            pgs=pgs if PGS in senses else (),
            hot=self._hot() if HOT in senses and self._hot is not None else None,
            activity=activity,
            latency=latencies(counters) if LATENCY in senses else None,
            read_balance=self.reader.read_balance(osd_map) if READ_BALANCE in senses else None,
        )

    def act(self, actions: Sequence[Action]) -> list[Effect]:
        """See `Store.act`. Consecutive actions of one kind are one step, one map epoch."""
        offered = self.offers().acts
        effects: dict[int, Effect] = {}
        for positions in grouped(actions):
            group = [actions[position] for position in positions]
            kind = group[0].kind
            if kind not in offered:
                why = f"Ceph {self.features.version} does not offer {kind} to its clients"
                done = [Effect(False, why) for _ in group]
            else:
                done = self._step(kind, group)
            effects |= dict(zip(positions, done, strict=True))
        return [effects[position] for position in range(len(actions))]

    def _step(self, kind: str, group: Sequence[Action]) -> list[Effect]:
        if kind == PRIMARY_AFFINITY:
            return self._steps.affinities(cast("Sequence[SetPrimaryAffinity]", group))
        if kind in (PG_UPMAP, PG_UPMAP_PRIMARY):
            return self._steps.upmaps(cast("Sequence[UpmapAction]", group))
        if kind == BALANCER:
            return [self._steps.balancer(a) for a in cast("Sequence[SetBalancer]", group)]
        if kind == READ_BALANCER:
            return [self._steps.read_balancer() for _ in group]
        if kind == SIZE_BALANCER:
            return [self._steps.size_balancer(a) for a in cast("Sequence[RunSizeBalancer]", group)]
        if kind in OPTIONS:
            return [self._steps.option(a) for a in cast("Sequence[SetOption]", group)]
        return [self._steps.reweight(a) for a in cast("Sequence[ReweightByUtilization]", group)]

    def save(self) -> Mapping[str, Any]:
        """See `Store.save`: affinities, weights, upmaps of every kind, balancer, options."""
        return save(self.connection, self.reader.osd_map())

    def restore(self, saved: Mapping[str, Any]) -> list[Effect]:
        """See `Store.restore`."""
        self._steps.finish()
        return restore(self.connection, self.reader, json.loads(json.dumps(dict(saved))))

    def last_stall(self) -> float | None:
        """Return seconds from the last affinity step until its PGs were active; wait if needed."""
        return self._steps.finish()

    def close(self) -> None:
        """Disconnect."""
        if self._sensor is not None:
            self._sensor.close()
        self.connection.close()

    @cached_property
    def _offered(self) -> Needs:
        """Return what the cluster offers. Asked once, and only when a controller wants to know."""
        features, osd_map = self.features, self.reader.osd_map()
        modes = balancer_modes(self.connection) if features.upmap_primary else frozenset()
        return replace(
            features,
            read_balance=bool(self.reader.read_balance(osd_map)),
            modes=modes,
            osdmaptool=features.upmap_primary and not modes >= READ_MODES and has_osdmaptool(),
            size_balancer=has_size_balancer(),
            options=offered_options(self.connection, osd_map),
        ).needs()

    def _features(self) -> Features:
        versions, features, dump = self.connection.together(
            [
                partial(self.connection.mon, "versions"),
                partial(self.connection.mon, "features"),
                partial(self.connection.mon, "osd dump"),
            ]
        )
        return parse_features(
            versions.checked("versions"),
            features.checked("features"),
            str(dump.checked("osd dump").get("require_min_compat_client", "")),
        )
