"""In-memory store with the state of a Ceph cluster.

Affinities and upmaps have Ceph's semantics. An upmap replaces a PG's up set. The first OSD of the
up set that accepts becomes primary. An OSD with an affinity below 1 declines if a hash of (PG, OSD)
says so. If all decline, the first one serves. (Ceph hashes with rjenkins, this store with BLAKE2:
the same law, other PGs.) The test supplies the pressures. No run on this store is a measurement.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from random import Random
from typing import Any

from schemas.durable import write_file
from schemas.errors import StoreError
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
    REWEIGHT_BY_UTILIZATION,
    SIZE_BALANCER,
    Action,
    Activity,
    ClearUpmap,
    ClearUpmapPrimary,
    Effect,
    MoveReplica,
    Needs,
    Observation,
    OpRates,
    Osd,
    OsdLatency,
    Pg,
    ReweightByUtilization,
    RunReadBalancer,
    RunSizeBalancer,
    SetBalancer,
    SetOption,
    SetPrimaryAffinity,
    SetUpmapPrimary,
    SwapPrimary,
)

EVERYTHING = Needs(
    senses=frozenset({PRESSURE, OSDS, PGS, HOT, ACTIVITY, LATENCY, READ_BALANCE}),
    acts=frozenset(
        {
            *(PRIMARY_AFFINITY, REWEIGHT_BY_UTILIZATION, PG_UPMAP, BALANCER),
            *(BALANCER_READ, PG_UPMAP_PRIMARY, READ_BALANCER, SIZE_BALANCER, *OPTIONS),
        }
    ),
)

Pressures = Callable[[int], Mapping[int, float]]
"""Function from the number of the sense (from 0) to percent by OSD."""


def passed_over(pg: str, osd: int, affinity: float) -> bool:
    """Return True if an OSD with `affinity` declines to be primary of `pg`; fixed for each pair."""
    if affinity >= 1:
        return False
    digest = hashlib.blake2b(f"{pg}/{osd}".encode(), digest_size=2).digest()
    return int.from_bytes(digest, "big") >= affinity * 0x10000


def acting_set(pg: str, up: Sequence[int], affinity: Mapping[int, float]) -> tuple[int, ...]:
    """Return `up` with the primary moved to the front."""
    for osd in up:
        if not passed_over(pg, osd, affinity[osd]):
            return (osd, *(other for other in up if other != osd))
    return tuple(up)


def place(osds: Sequence[int], pg_count: int, size: int, seed: int) -> dict[str, tuple[int, ...]]:
    """Return random replica sets, as CRUSH would draw them with one OSD per node."""
    random = Random(seed)
    return {f"1.{n:x}": tuple(random.sample(list(osds), size)) for n in range(pg_count)}


class FakeStore:
    """A store with `osd_count` OSDs, one on each node ``node<i>``.

    Args:
        pressures: the sensed pressures; calm everywhere by default.
        fail_senses, fail_acts: numbers (from 0) of the calls that raise StoreError.
        path: file that keeps the OSD map, so that the map outlives the process.
        racks: number of racks; OSDs are assigned to them in turn; 0 for none.
        rates: client rates of each PG; an absent PG is idle.
        latency: the sensed latency of OSDs; none by default.
        recovery: number of senses until a moved PG is clean.
    """

    def __init__(
        self,
        osd_count=8,
        pg_count=128,
        size=2,
        *,
        seed=0,
        pressures=None,
        hot=None,
        fail_senses=frozenset(),
        fail_acts=frozenset(),
        interval_s=20.0,
        path=None,
        racks=0,
        rates=None,
        recovery=0,
        latency=None,
    ):
        self.osds = {
            i: Osd(i, f"node{i}", rack=f"rack{i % racks}" if racks else "")
            for i in range(osd_count)
        }
        self.crush = place(range(osd_count), pg_count, size, seed)
        self.upmaps: dict[str, tuple[int, ...]] = {}
        self.upmap_primaries: dict[str, int] = {}
        self.options: dict[str, str] = {}
        self.latency: dict[int, OsdLatency] = dict(latency or {})
        self.balancer = "none"
        self.epoch = 1
        self.senses = 0
        self.acts = 0
        self.fail_restores = 0  # number of restores that fail before one works
        self.rates = dict(rates or {})
        self.sizes: dict[str, int] = {}  # bytes by PG; 0 where absent
        self._recovery = recovery
        self._moving: dict[str, int] = {}  # PG -> senses until the PG is clean
        self._pressures = pressures or (lambda _: dict.fromkeys(self.osds, 5.0))
        self._hot = hot
        self._fail_senses = fail_senses
        self._fail_acts = fail_acts
        self._interval_s = interval_s
        self._path = path
        if path is not None and path.exists():
            self._apply(json.loads(path.read_text()))

    def offers(self) -> Needs:
        """See `Store`."""
        return EVERYTHING

    def sense(self, senses: frozenset[str]) -> Observation:
        """See `Store`."""
        number, self.senses = self.senses, self.senses + 1
        if number in self._fail_senses:
            raise StoreError(f"sense {number} failed")
        return Observation(
            t_s=number * self._interval_s,
            interval_s=self._interval_s,
            pressure=dict(self._pressures(number)) if PRESSURE in senses else {},
            osds=tuple(self.osds.values()) if OSDS in senses else (),
            pgs=self.pgs() if PGS in senses else (),
            hot=self._hot(number) if HOT in senses and self._hot else None,
            activity=self.activity() if ACTIVITY in senses else None,
            latency=self.latency if LATENCY in senses else None,
            read_balance=self.read_balance() if READ_BALANCE in senses else None,
        )

    def read_balance(self) -> dict[str, float]:
        """Return the most primaries of an OSD, relative to the mean."""
        counts = self.primaries()
        return {"bench": max(counts.values()) * len(counts) / len(self.crush)}

    def activity(self) -> Activity:
        """Return the loads under the current map; each call advances recovery by one sense."""
        reads, writes = dict.fromkeys(self.osds, 0.0), dict.fromkeys(self.osds, 0.0)
        for pg in self.pgs():
            rate = self.rates.get(pg.id, OpRates())
            reads[pg.primary] += rate.reads
            for osd in pg.acting:
                writes[osd] += rate.writes
        unclean = tuple(sorted(self._moving))
        self._moving = {pg: left - 1 for pg, left in self._moving.items() if left > 1}
        for osd, found in (self.latency or {}).items():
            reads[osd] = found.reads / self._interval_s
        osds = {osd: OpRates(reads[osd], writes[osd]) for osd in self.osds}
        return Activity(dict(self.rates), osds, unclean)

    def pgs(self) -> tuple[Pg, ...]:
        """Return the current PG map."""
        affinity = {osd.id: osd.primary_affinity for osd in self.osds.values()}
        result = []
        for pg, crush in self.crush.items():
            up = acting_set(pg, self.upmaps.get(pg, crush), affinity)
            first = self.upmap_primaries.get(pg)
            if first in up:
                up = (first, *(osd for osd in up if osd != first))
            size = self.sizes.get(pg, 0)
            pinned = pg in self.upmaps or pg in self.upmap_primaries
            result.append(Pg(pg, up, up, pinned, size))
        return tuple(result)

    def primaries(self) -> dict[int, int]:
        """Return the number of PGs that each OSD serves."""
        counts = dict.fromkeys(self.osds, 0)
        for pg in self.pgs():
            counts[pg.primary] += 1
        return counts

    def act(self, actions: Sequence[Action]) -> Sequence[Effect]:
        """See `Store`. Actions of one kind share one epoch."""
        number, self.acts = self.acts, self.acts + 1
        if number in self._fail_acts:
            raise StoreError(f"act {number} failed")
        effects = [self._one(action) for action in actions]
        self.epoch += len({action.kind for action in actions})
        self._keep()
        return effects

    def _one(self, action: Action) -> Effect:
        if isinstance(action, SetPrimaryAffinity):
            osd = self.osds[action.osd]
            self.osds[action.osd] = replace(osd, primary_affinity=round(action.value, 4))
        elif isinstance(action, SwapPrimary):
            up = self.upmaps.get(action.pg, self.crush[action.pg])
            if action.osd not in up:
                return Effect(False, f"osd.{action.osd} holds no replica of {action.pg}")
            self.upmaps[action.pg] = (action.osd, *(osd for osd in up if osd != action.osd))
        elif isinstance(action, ClearUpmap):
            self.upmaps.pop(action.pg, None)
        elif isinstance(action, MoveReplica):
            up = self.upmaps.get(action.pg, self.crush[action.pg])
            moved = (action.target if osd == action.source else osd for osd in up)
            self.upmaps[action.pg] = tuple(moved)
            if self._recovery:
                self._moving[action.pg] = self._recovery
        elif isinstance(action, (ReweightByUtilization, RunSizeBalancer)):
            # All OSDs are equally full, so nothing changes, as under a fio hotspot.
            return Effect(True, "no change", detail={"weights_changed": 0, "bytes_moved": 0})
        elif isinstance(action, SetBalancer):
            self.balancer = action.mode
        elif isinstance(action, SetUpmapPrimary):
            self.upmap_primaries[action.pg] = action.osd
        elif isinstance(action, ClearUpmapPrimary):
            self.upmap_primaries.pop(action.pg, None)
        elif isinstance(action, RunReadBalancer):
            self._even()
        elif isinstance(action, SetOption):
            self.options[action.option] = action.value
        return Effect(True)

    def _even(self) -> None:
        """Give each PG to the one of its OSDs that leads the fewest."""
        counts = dict.fromkeys(self.osds, 0)
        for pg in self.pgs():
            first = min(pg.up, key=lambda osd: counts[osd])
            counts[first] += 1
            self.upmap_primaries[pg.id] = first

    def save(self) -> Mapping[str, Any]:
        """See `Store`."""
        return {
            "osds": [asdict(osd) for osd in self.osds.values()],
            "upmaps": {pg: list(osds) for pg, osds in self.upmaps.items()},
            "balancer": self.balancer,
            "upmap_primaries": dict(self.upmap_primaries),
            "options": dict(self.options),
        }

    def restore(self, saved: Mapping[str, Any]) -> Sequence[Effect]:
        """See `Store`."""
        if self.fail_restores:
            self.fail_restores -= 1
            raise StoreError("the restore failed")
        before = json.dumps(self.save())
        self._apply(saved)
        self._keep()
        return [] if json.dumps(self.save()) == before else [Effect(True, "put back")]

    def _apply(self, saved: Mapping[str, Any]) -> None:
        self.osds = {osd["id"]: Osd(**osd) for osd in saved["osds"]}
        self.upmaps = {pg: tuple(osds) for pg, osds in saved["upmaps"].items()}
        self.balancer = saved["balancer"]
        self.upmap_primaries = dict(saved["upmap_primaries"])
        self.options = dict(saved["options"])

    def _keep(self) -> None:
        if self._path is not None:
            write_file(self._path, json.dumps(self.save()), sync=False)
