"""What a Ceph version can do, and what its connected clients allow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.stores.contract import (
    ACTIVITY,
    BALANCER,
    OSDS,
    PG_UPMAP,
    PGS,
    PRESSURE,
    PRIMARY_AFFINITY,
    REWEIGHT_BY_UTILIZATION,
    Needs,
)

PG_UPMAP_PRIMARY = "pg-upmap-primary"
"""Offered beside `PG_UPMAP` where a swap is carried out by pg-upmap-primary."""

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
    """Version and clients of a cluster. `oldest` is the oldest daemon's version."""

    version: str
    oldest: tuple[int, int, int]
    clients: frozenset[str]  # releases that connected clients report
    require_min_compat_client: str

    @property
    def upmap(self) -> bool:
        """pg-upmap: every client must understand Luminous' maps, and the map must demand it."""
        return release(self.require_min_compat_client) >= _LUMINOUS

    @property
    def upmap_primary(self) -> bool:
        """pg-upmap-primary, Reef on.

        It is documented as unsafe with kernel clients: they report Luminous at most, so any
        client that reports less than Reef forbids it, and the map must demand Reef (an operator's
        decision: this never raises it).
        """
        return (
            self.oldest[0] >= _REEF
            and release(self.require_min_compat_client) >= _REEF
            and all(release(client) >= _REEF for client in self.clients)
        )

    def needs(self) -> Needs:
        """What the store offers under these features."""
        acts = {PRIMARY_AFFINITY, REWEIGHT_BY_UTILIZATION}
        if self.upmap:
            acts |= {PG_UPMAP, BALANCER}
        if self.upmap_primary:
            acts.add(PG_UPMAP_PRIMARY)
        return Needs(senses=frozenset({PRESSURE, OSDS, PGS, ACTIVITY}), acts=frozenset(acts))


def release(name: str) -> int:
    """The major version of a release's name; an unknown one counts as the oldest."""
    return RELEASES.get(name, 0)


def parse_version(text: str) -> tuple[int, int, int]:
    """(16, 2, 15) of ``ceph version 16.2.15 (...) pacific (stable)``; ValueError otherwise."""
    found = _VERSION.search(text)
    if found is None:
        raise ValueError(f"not a Ceph version: {text!r}")
    major, minor, patch = (int(part) for part in found.groups())
    return major, minor, patch


def parse_features(
    versions: Mapping[str, Any], features: Mapping[str, Any], require_min_compat_client: str
) -> Features:
    """Features from the JSON of `versions` and `features` and the OSD map's demand on clients."""
    daemons = [parse_version(text) for text in versions.get("overall", {})]
    if not daemons:
        raise ValueError("`ceph versions` names no daemon")
    oldest = min(daemons)
    return Features(
        version=".".join(str(part) for part in oldest),
        oldest=oldest,
        clients=frozenset(str(group["release"]) for group in features.get("client", ())),
        require_min_compat_client=require_min_compat_client,
    )
