"""The PG map: the OSDs that serve each placement group now.

Source: one `pg map` per PG, sent concurrently to the monitors, which compute it from the current
OSD map. `pg dump` comes from the manager, which hears from the OSDs every few seconds. After a
change, `pg dump` showed the new primaries 2 to 6.6 s late. 128 `pg map` took 17 to 28 ms and were
right at once (docs/ceph-store.md). Only a PG's bytes, which may be seconds old, come from the
manager.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from schemas.errors import StoreError
from testbed.stores.ceph.connection import Connection, Reply, together
from testbed.stores.contract import Osd, Pg

# ----------------------------------------------------------------------------------------------
# The OSD map as parsed from the monitors' `osd dump` and `osd tree`; Ceph 16 to 19.


@dataclass(frozen=True)
class CephPool:
    """A pool. Only `replicated` pools can have their primaries swapped. `read_balance` is the read
    balance score, which Ceph reports from Reef on."""

    id: int
    name: str
    pg_num: int
    size: int
    min_size: int
    replicated: bool = True
    read_balance: float | None = None

    def pgids(self) -> tuple[str, ...]:
        """Return the ids of its placement groups."""
        return tuple(f"{self.id}.{number:x}" for number in range(self.pg_num))


@dataclass(frozen=True)
class OsdMap:
    """The part of one map epoch that controllers use."""

    epoch: int
    osds: Mapping[int, Osd]
    pools: Mapping[str, CephPool]
    require_min_compat_client: str = "luminous"
    pg_upmap: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    pg_upmap_items: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    pg_upmap_primary: Mapping[str, int] = field(default_factory=dict)

    def pinned(self, pgid: str) -> bool:
        """Return True if an explicit upmap of any kind pins the placement group."""
        return pgid in self.pg_upmap or pgid in self.pg_upmap_items or pgid in self.pg_upmap_primary


def parse_osd_map(
    dump: Mapping[str, Any], tree: Mapping[str, Any], nodes: Mapping[int, str] | None = None
) -> OsdMap:
    """Return an `OsdMap` from the JSON of `osd dump` and `osd tree`. `nodes`: the node of each OSD;
    an OSD that it lacks gets its CRUSH host."""
    hosts, racks, weights = _places(tree)
    names = dict(nodes or {})
    osds: dict[int, Osd] = {}
    for item in dump["osds"]:
        number = int(item["osd"])
        osds[number] = Osd(
            id=number,
            node=names.get(number) or hosts.get(number, ""),
            up=bool(item["up"]),
            in_=bool(item["in"]),
            primary_affinity=_short(item["primary_affinity"]),
            reweight=_short(item["weight"]),
            crush_weight=weights.get(number, 0.0),
            rack=racks.get(number, ""),
        )
    return OsdMap(
        epoch=int(dump["epoch"]),
        osds=dict(sorted(osds.items())),
        pools={pool["pool_name"]: _pool(pool) for pool in dump["pools"]},
        require_min_compat_client=str(dump.get("require_min_compat_client", "")),
        pg_upmap={
            item["pgid"]: tuple(int(osd) for osd in item["osds"])
            for item in dump.get("pg_upmap", ())
        },
        pg_upmap_items={
            item["pgid"]: tuple((int(m["from"]), int(m["to"])) for m in item["mappings"])
            for item in dump.get("pg_upmap_items", ())
        },
        pg_upmap_primary={
            item["pgid"]: int(item["primary_osd"]) for item in dump.get("pg_upmap_primaries", ())
        },
    )


def _short(weight: float) -> float:
    # Ceph keeps weights in 16 bits: 0.1 comes back as 0.0999908447265625.
    return round(float(weight), 4)


def _pool(data: Mapping[str, Any]) -> CephPool:
    score = data.get("read_balance", {}).get("score_acting")
    return CephPool(
        id=int(data["pool"]),
        name=str(data["pool_name"]),
        pg_num=int(data["pg_num"]),
        size=int(data["size"]),
        min_size=int(data["min_size"]),
        replicated=int(data["type"]) == 1,
        read_balance=None if score is None else float(score),
    )


def _places(tree: Mapping[str, Any]) -> tuple[dict[int, str], dict[int, str], dict[int, float]]:
    """Return the CRUSH host, the CRUSH rack (if there is one above) and the CRUSH weight by OSD."""
    items = {int(item["id"]): item for item in tree["nodes"]}
    hosts: dict[int, str] = {}
    racks: dict[int, str] = {}
    weights: dict[int, float] = {}
    for item in items.values():
        if item["type"] == "host":
            hosts |= dict.fromkeys(_osds_below(item, items), str(item["name"]))
        elif item["type"] == "rack":
            racks |= dict.fromkeys(_osds_below(item, items), str(item["name"]))
        elif item["type"] == "osd":
            weights[int(item["id"])] = float(item["crush_weight"])
    return hosts, racks, weights


def _osds_below(bucket: Mapping[str, Any], items: Mapping[int, Mapping[str, Any]]) -> list[int]:
    found: list[int] = []
    for child in bucket.get("children", ()):
        if child >= 0:
            found.append(int(child))
        elif child in items:
            found += _osds_below(items[child], items)
    return found


QUERY_CONCURRENCY = 16  # more gives no speed-up, and the admin node has few cores
CLEAN = "active+clean"
_POLL_S = 0.02


class PgReader:
    """Reader of the OSD map and of the PG map of `pools`; reads the PG map only in a new epoch."""

    def __init__(
        self, connection: Connection, pools: Sequence[str], nodes: Mapping[int, str] | None = None
    ) -> None:
        self._connection = connection
        self._pools = tuple(pools)
        self._nodes = dict(nodes or {})
        # One tuple: a stall measurement in the background cannot separate the epoch from its map.
        self._known: tuple[int, tuple[Pg, ...]] = (-1, ())

    def osd_map(self) -> OsdMap:
        """Return the current OSD map. Raises StoreError."""
        dump, tree = self._connection.together(
            [
                partial(self._connection.mon, "osd dump"),
                partial(self._connection.mon, "osd tree"),
            ]
        )
        return parse_osd_map(dump.checked("osd dump"), tree.checked("osd tree"), nodes=self._nodes)

    def pools(self, osd_map: OsdMap) -> list[CephPool]:
        """Return the pools in use (all pools if none were named)."""
        pools = osd_map.pools.values()
        return [pool for pool in pools if not self._pools or pool.name in self._pools]

    def read_balance(self, osd_map: OsdMap) -> dict[str, float]:
        """Return the score of each pool in use that has one."""
        scores = {pool.name: pool.read_balance for pool in self.pools(osd_map)}
        return {name: score for name, score in scores.items() if score is not None}

    def pgids(self, osd_map: OsdMap) -> list[str]:
        """Return every PG of the pools in use."""
        return [pgid for pool in self.pools(osd_map) for pgid in pool.pgids()]

    def pgs(self, osd_map: OsdMap, *, with_bytes: bool = False) -> tuple[Pg, ...]:
        """Return the PG map at (or after) `osd_map`'s epoch. Raises StoreError."""
        epoch, pgs = self._known
        if osd_map.epoch != epoch:
            maps = self._map(self.pgids(osd_map))
            pgs = tuple(
                Pg(
                    id=str(item["pgid"]),
                    up=_osds(item["up"]),
                    acting=_osds(item["acting"]),
                    upmap=osd_map.pinned(str(item["pgid"])),
                )
                for item in maps
            )
            # A change between the two reads shows in the answers' epochs: do not cache a mixture.
            epochs = {int(item["epoch"]) for item in maps}
            self._known = (osd_map.epoch if epochs <= {osd_map.epoch} else -1, pgs)
        if not with_bytes:
            return pgs
        stats = pg_stats(self._connection)
        sizes = {pg: int(item["stat_sum"]["num_bytes"]) for pg, item in stats.items()}
        return tuple(Pg(pg.id, pg.up, pg.acting, pg.upmap, sizes.get(pg.id, 0)) for pg in pgs)

    def _map(self, pgids: Sequence[str]) -> list[Mapping[str, Any]]:
        calls: list[Callable[[], Reply]] = [
            partial(self._connection.mon, "pg map", pgid=pgid) for pgid in pgids
        ]
        replies = together(calls, self._connection.timeout_s * 2, QUERY_CONCURRENCY)
        return [reply.checked(f"pg map {pgid}") for pgid, reply in zip(pgids, replies, strict=True)]


def pg_stats(connection: Connection) -> dict[str, Mapping[str, Any]]:
    """Return the primaries' last reports to the manager by PG, seconds old. Raises StoreError."""
    return parse_pg_dump(connection.mgr("pg dump", dumpcontents=["pgs"]).checked("pg dump"))


def parse_pg_dump(dump: Any) -> dict[str, Mapping[str, Any]]:
    """Return the report of each PG in every form of `pg dump` (whole or part ``pgs``, Ceph 16 to
    19)."""
    stats = dump.get("pg_map", dump)["pg_stats"] if isinstance(dump, Mapping) else dump
    return {str(item["pgid"]): item for item in stats}


def _osds(items: Iterable[int]) -> tuple[int, ...]:
    # CRUSH marks a place that it could not map with 2^31-1.
    return tuple(int(osd) for osd in items if 0 <= int(osd) < 2**31 - 1)


def pg_states(connection: Connection, pgids: Sequence[str]) -> dict[str, int]:
    """Return how many of `pgids` are in each state, from the PGs: the manager's data are late.

    A PG that does not answer (it is being created, or its OSDs are down) counts as ``unknown``.
    """
    calls = [partial(connection.pg, pgid, "query") for pgid in pgids]
    states: dict[str, int] = {}
    for reply in together(calls, connection.timeout_s * 2, QUERY_CONCURRENCY):
        known = reply.ok and isinstance(reply.data, dict)
        state = str(reply.data["state"]) if known else "unknown"
        states[state] = states.get(state, 0) + 1
    return states


def changed_primaries(before: Iterable[Pg], after: Iterable[Pg]) -> dict[str, int]:
    """Return the new primary of each PG with a changed primary."""
    old = {pg.id: pg.primary for pg in before}
    return {pg.id: pg.primary for pg in after if old.get(pg.id, pg.primary) != pg.primary}


def bytes_moved(before: Iterable[Pg], after: Iterable[Pg], sizes: Mapping[str, int]) -> int:
    """Return the bytes to copy after a change of up sets: a PG's bytes per new member."""
    old = {pg.id: set(pg.up) for pg in before}
    return sum(len(set(pg.up) - old.get(pg.id, set(pg.up))) * sizes.get(pg.id, 0) for pg in after)


def wait_active(
    connection: Connection, wanted: Mapping[str, int], *, start: float, timeout_s: float
) -> tuple[float, int]:
    """Wait until every PG of `wanted` is active under its new primary, by asking the primaries.
    Return the seconds from `start`, and the number of PGs that are late.

    Args:
        wanted: primary by PG.
        start: `time.monotonic()` when the change began; seconds count from `start`.
        timeout_s: time after which the remaining PGs are late.
    """
    left = dict(wanted)
    while left:
        ids = list(left)
        calls = [partial(connection.pg, pgid, "query") for pgid in ids]
        try:
            replies = together(calls, connection.timeout_s + 1, QUERY_CONCURRENCY)
        except StoreError:
            break
        for pgid, reply in zip(ids, replies, strict=True):
            if _serves(reply, left[pgid]):
                del left[pgid]
        if time.monotonic() - start > timeout_s:
            break
        if left:
            time.sleep(_POLL_S)
    return time.monotonic() - start, len(left)


def _serves(reply: Reply, osd: int) -> bool:
    if not reply.ok or not isinstance(reply.data, dict):
        return False
    acting = _osds(reply.data.get("acting", ()))
    return bool(acting) and acting[0] == osd and "active" in str(reply.data.get("state"))
