"""The kinds of campaigns: which file is of which, and what it declares."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schemas.campaign import (
    BurstCampaign,
    Campaign,
    MosCampaign,
    ObjectCampaign,
    PlannerCampaign,
    ReplayCampaign,
)
from schemas.errors import UserError

if TYPE_CHECKING:
    from campaigns.kinds.kind import Kind


@dataclass(frozen=True)
class Registered:
    """A kind: a campaign's file says ``key: value``, `schema` is what else it may say, and the
    module has a `campaigns.kinds.kind.Kind` called ``KIND``. (It is imported when it is needed:
    most of them take long to.)"""

    key: str
    value: str
    schema: type[Campaign]
    module: str


KINDS: tuple[Registered, ...] = (
    Registered("planner", "ursa", PlannerCampaign, "campaigns.ursa.kind"),
    Registered("simulation", "twochoice", BurstCampaign, "campaigns.twochoice.kind"),
    Registered("system", "prioritymeister", ReplayCampaign, "campaigns.prioritymeister.kind"),
    Registered("system", "mos", MosCampaign, "campaigns.mos.kind"),
    Registered("objects", "twochoice", ObjectCampaign, "campaigns.twochoice.live.kind"),
)
"""Every kind but that of a Ceph testbed's campaigns, whose files say nothing of the sort."""


def schema_of(data: Mapping[str, object], file: Path) -> type[Campaign]:
    """What a campaign's file is held against.

    Raises:
        UserError: its kind is none; names those there are.
    """
    for key in dict.fromkeys(one.key for one in KINDS if one.key in data):
        known = {one.value: one.schema for one in KINDS if one.key == key}
        found = known.get(str(data[key]))
        if found is None:
            raise UserError(
                f"{file}: {key}: there is no {data[key]!r}; there is {', '.join(known)}."
            )
        return found
    return Campaign


def kind_of(campaign: Campaign) -> Kind[Any] | None:
    """Return what a campaign's kind declares; None for one of a Ceph testbed."""
    return kind_named(campaign.kind)


def kind_named(name: str) -> Kind[Any] | None:
    """Return what the kind declares; None for that of a Ceph testbed."""
    for one in KINDS:
        if one.schema.kind == name:
            found: Kind[Any] = importlib.import_module(one.module).KIND
            return found
    return None
