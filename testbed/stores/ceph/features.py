"""Features of a Ceph version, as far as the connected clients allow them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.errors import StoreError
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
"""Offered in addition to `PG_UPMAP` if pg-upmap-primary carries out a swap."""

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
        acts = {PRIMARY_AFFINITY, REWEIGHT_BY_UTILIZATION}
        if self.upmap:
            acts |= {PG_UPMAP, BALANCER}
        if self.upmap_primary:
            acts.add(PG_UPMAP_PRIMARY)
        return Needs(senses=frozenset({PRESSURE, OSDS, PGS, ACTIVITY}), acts=frozenset(acts))


def release(name: str) -> int:
    """Return the major version of a release name; an unknown name counts as the oldest."""
    return RELEASES.get(name, 0)


def parse_version(text: str) -> tuple[int, int, int]:
    """Return (16, 2, 15) for ``ceph version 16.2.15 (...) pacific (stable)``.

    Raises:
        StoreError: the text holds no version number.
    """
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
