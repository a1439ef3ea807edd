"""The OSD map as parsed from the monitors' `osd dump` and `osd tree`; Ceph 16 to 19."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.stores.contract import Osd


@dataclass(frozen=True)
class Pool:
    """A pool. Only `replicated` pools can have their primaries swapped."""

    id: int
    name: str
    pg_num: int
    size: int
    min_size: int
    replicated: bool = True

    def pgids(self) -> tuple[str, ...]:
        """Return the ids of its placement groups."""
        return tuple(f"{self.id}.{number:x}" for number in range(self.pg_num))


@dataclass(frozen=True)
class OsdMap:
    """The part of one map epoch that controllers use."""

    epoch: int
    osds: Mapping[int, Osd]
    pools: Mapping[str, Pool]
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
    """Return an `OsdMap` from the JSON of `osd dump` and `osd tree`.

    Args:
        nodes: the node of each OSD; an OSD that it lacks gets its CRUSH host.
    """
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


def _pool(data: Mapping[str, Any]) -> Pool:
    return Pool(
        id=int(data["pool"]),
        name=str(data["pool_name"]),
        pg_num=int(data["pg_num"]),
        size=int(data["size"]),
        min_size=int(data["min_size"]),
        replicated=int(data["type"]) == 1,
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
