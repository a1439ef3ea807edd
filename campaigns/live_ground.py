"""A deployed testbed on real nodes, reached through its admin node by ssh alone."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from campaigns.lease import SiteTenure, Tenure
from campaigns.lock import path_in
from campaigns.services import CellSetting, Facts, Services
from testbed.agent.contract import Agent
from testbed.sites.contract import Site, Testbed
from testbed.stores.contract import Needs


class LiveGround:
    """A `Ground`: the site's testbed called `name`."""

    def __init__(self, site: str, name: str) -> None:
        """UserError when there is no such testbed, or it is not up."""
        from testbed.choose import ready
        from testbed.sites import open_site

        self.name = name
        self.site: Site = open_site(site)
        self.testbed: Testbed = ready(self.site, name)

    @cached_property
    def agent(self) -> Agent:
        """The admin node's agent."""
        from testbed.agent.client import agent_client

        return agent_client(self.testbed)

    def facts(self) -> Facts:
        """See `Ground.facts`."""
        from campaigns.steps.facts import read_facts, require_current

        require_current(self.testbed)
        return read_facts(self.site, self.testbed, self.agent)

    def offers(self) -> Needs:
        """See `Ground.offers`."""
        from campaigns.steps.facts import read_offers

        return read_offers(self.testbed)

    def services(self, setting: CellSetting) -> Services:
        """See `Ground.services`."""
        from campaigns.steps.live import LiveServices
        from campaigns.steps.live_open import OpenLoopServices

        if setting.parameters.op == "s3":
            from campaigns.steps.live_gateway import GatewayServices

            return GatewayServices(self.site, self.testbed, self.agent, setting)
        if setting.parameters.op == "open":
            return OpenLoopServices(self.site, self.testbed, self.agent, setting)
        return LiveServices(self.site, self.testbed, self.agent, setting)

    def lock_path(self) -> Path:
        """See `Ground.lock_path`."""
        return path_in(self.testbed.directory)

    def tenure(self) -> Tenure:
        """See `Ground.tenure`."""
        return SiteTenure(self.site, self.name)
