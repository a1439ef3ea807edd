"""The class `CephStore`: a deployed Ceph for controllers (see testbed/stores/contract)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, cast

from schemas.errors import StoreError
from testbed.stores.ceph.activity import ActivitySensor
from testbed.stores.ceph.connection import Connection
from testbed.stores.ceph.features import Features, parse_features
from testbed.stores.ceph.pgs import PgReader
from testbed.stores.ceph.saved import restore, save
from testbed.stores.ceph.steps import Steps, grouped
from testbed.stores.contract import (
    ACTIVITY,
    BALANCER,
    HOT,
    PG_UPMAP,
    PGS,
    PRESSURE,
    PRIMARY_AFFINITY,
    Action,
    ClearUpmap,
    Effect,
    MoveReplica,
    Needs,
    Observation,
    ReweightByUtilization,
    SetBalancer,
    SetPrimaryAffinity,
    SwapPrimary,
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
        pools: pools whose PGs are read and changed; all if empty.
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
        self.features = self._features()
        self._steps = Steps(connection, self.reader, upmap_primary=self.features.upmap_primary)
        self._started = self._sensed = time.monotonic()

    def offers(self) -> Needs:
        """See `Store.offers`; depends on version and connected clients."""
        needs = self.features.needs()
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
        activity = None
        if ACTIVITY in senses:
            self._activity = self._activity or ActivitySensor(self.connection)
            activity = self._activity.read([osd.id for osd in osd_map.osds.values() if osd.up], pgs)
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
        if kind == PG_UPMAP:
            swaps = cast("Sequence[SwapPrimary | ClearUpmap | MoveReplica]", group)
            return self._steps.upmaps(swaps)
        if kind == BALANCER:
            return [self._steps.balancer(a) for a in cast("Sequence[SetBalancer]", group)]
        return [self._steps.reweight(a) for a in cast("Sequence[ReweightByUtilization]", group)]

    def save(self) -> Mapping[str, Any]:
        """See `Store.save`: affinities, weights, upmaps of every kind, balancer."""
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
