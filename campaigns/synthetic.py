"""Campaigns that are of no Ceph testbed: each kind has a session of its own, found here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from schemas.campaign import BurstCampaign, Campaign, PlannerCampaign, ReplayCampaign

if TYPE_CHECKING:
    from campaigns.engine import CampaignResult
    from campaigns.progress import Progress
    from campaigns.session import DryRunReport, Request
    from campaigns.workers import Workers


class Session(Protocol):
    """What `campaigns.session` does, for one kind of campaign."""

    def dry_run(self, request: Request, *, workers: Workers | None = None) -> DryRunReport:
        """See `campaigns.session.dry_run`."""

    def run(
        self,
        request: Request,
        *,
        progress: Progress | None = None,
        workers: Workers | None = None,
    ) -> CampaignResult:
        """See `campaigns.session.run`."""


def session_of(campaign: Campaign) -> Session | None:
    """Who runs the campaign's cells; None for one of a Ceph testbed."""
    if isinstance(campaign, PlannerCampaign):
        from campaigns.ursa import session as planner

        return planner
    if isinstance(campaign, BurstCampaign):
        from campaigns.twochoice import session as bursts

        return bursts
    if isinstance(campaign, ReplayCampaign):
        from campaigns.prioritymeister import session as replays

        return replays
    return None
