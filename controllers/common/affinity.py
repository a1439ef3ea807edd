"""Primary affinities as policies handle them."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.stores.contract import Observation, Osd, SetPrimaryAffinity

RESOLUTION = 1e-3
"""Affinities closer than this are the same: Ceph keeps them as multiples of 1/65536."""


def sensed(observation: Observation) -> dict[int, tuple[Osd, float]]:
    """The OSDs that are up, in, and whose pressure could be sensed, each with its pressure."""
    return {
        osd.id: (osd, observation.pressure[osd.id])
        for osd in observation.osds
        if osd.up and osd.in_ and osd.id in observation.pressure
    }


def changes(observation: Observation, wanted: Mapping[int, float]) -> list[SetPrimaryAffinity]:
    """The actions that bring the OSDs of `wanted` from what was observed to what is wanted."""
    return [
        SetPrimaryAffinity(osd.id, wanted[osd.id])
        for osd in sorted(observation.osds, key=lambda osd: osd.id)
        if osd.id in wanted and abs(wanted[osd.id] - osd.primary_affinity) > RESOLUTION
    ]
