"""Ceph's mClock scheduler with the profile high_client_ops, as a baseline.

The profile divides an OSD's capacity between clients, recovery and background work. It knows no
load outside the OSD. Reef's default profile is ``balanced``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controllers.common.once import Once
from controllers.common.parameters import choice, read
from testbed.stores.contract import MCLOCK_PROFILE, OPTIONS, SetOption

NAME = "mclock"


@dataclass(frozen=True)
class MclockParameters:
    """The profile."""

    profile: str = choice(
        "high_client_ops", OPTIONS[MCLOCK_PROFILE].pattern.split("|"), "profile of the OSDs"
    )


def create(parameters: Mapping[str, object], seed: int) -> Once:
    """Create the policy; `seed` is not used."""
    given = read(MclockParameters, NAME, parameters)
    return Once(NAME, [MCLOCK_PROFILE], [SetOption(MCLOCK_PROFILE, given.profile)], given)
