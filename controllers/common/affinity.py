"""Primary affinities as policies handle them."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.stores.contract import Observation, Osd, SetPrimaryAffinity

RESOLUTION = 1e-3
"""Affinities closer than this count as equal: Ceph keeps them as multiples of 1/65536."""


def sensed(observation: Observation) -> dict[int, tuple[Osd, float]]:
    """Map the id of every OSD that is up, in and sensed to the OSD and its pressure."""
    return {
        osd.id: (osd, observation.pressure[osd.id])
        for osd in observation.osds
        if osd.up and osd.in_ and osd.id in observation.pressure
    }


def changes(observation: Observation, wanted: Mapping[int, float]) -> list[SetPrimaryAffinity]:
    """Return the actions that change the observed affinities to the `wanted` ones."""
    return [
        SetPrimaryAffinity(osd.id, wanted[osd.id])
        for osd in sorted(observation.osds, key=lambda osd: osd.id)
        if osd.id in wanted and abs(wanted[osd.id] - osd.primary_affinity) > RESOLUTION
    ]
