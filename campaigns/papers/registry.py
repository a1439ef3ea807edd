"""Registry of the kinds of campaigns, by a key of the campaign's file."""

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
from schemas.campaign import Kind as KindName
from schemas.errors import unknown

if TYPE_CHECKING:
    from campaigns.engine.kind import Kind


@dataclass(frozen=True)
class Registered:
    """A kind: its campaigns' files contain ``key: value``, and `schema` is the schema of the files.
    The module has a `campaigns.engine.kind.Kind` called ``KIND``. The module is imported on demand,
    because most of them take long to import."""

    key: str
    value: str
    schema: type[Campaign]
    module: str


KINDS: tuple[Registered, ...] = (
    Registered("planner", "ursa", PlannerCampaign, "campaigns.papers.ursa.kind"),
    Registered("simulation", "twochoice", BurstCampaign, "campaigns.papers.twochoice.kind"),
    Registered(
        "system", "prioritymeister", ReplayCampaign, "campaigns.papers.prioritymeister.kind"
    ),
    Registered("system", "mos", MosCampaign, "campaigns.papers.mos.kind"),
    Registered("objects", "twochoice", ObjectCampaign, "campaigns.papers.twochoice.objects_kind"),
)
"""Every kind except dlr (`campaigns.papers.dlr.kind`), which has no such key."""


def schema_of(data: Mapping[str, object], file: Path) -> type[Campaign]:
    """Return the schema of a campaign's file.

    Raises:
        UserError: the kind is unknown; the message lists the known kinds.
    """
    for key in dict.fromkeys(one.key for one in KINDS if one.key in data):
        known = {one.value: one.schema for one in KINDS if one.key == key}
        found = known.get(str(data[key]))
        if found is None:
            raise unknown(key, str(data[key]), known, where=file)
        return found
    return Campaign


def kind_of(campaign: Campaign) -> Kind[Any]:
    """Return the declaration of a campaign's kind."""
    return kind_named(campaign.kind)


def kind_named(name: KindName) -> Kind[Any]:
    """Return the declaration of a kind by its name (`schemas.campaign.Kind`)."""
    modules = {one.schema.kind: one.module for one in KINDS}
    module = modules.get(name, "campaigns.papers.dlr.kind")
    kind: Kind[Any] = importlib.import_module(module).KIND
    return kind
