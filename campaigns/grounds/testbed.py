"""Grounds of real nodes, and the function that opens a campaign's ground."""

from __future__ import annotations

import importlib.util
import os
from functools import cached_property
from pathlib import Path
from typing import cast

from campaigns.engine.lease import SiteTenure, Tenure
from campaigns.engine.lock import path_in
from campaigns.papers.dlr.services import CellSetting, Facts, Ground, Services
from schemas.errors import UserError
from testbed.agent.contract import Agent
from testbed.sites.contract import Site, Testbed
from testbed.stores.contract import Needs

FAKE_GROUND = "HOTBED_FAKE_GROUND"
"""Environment variable for tests: a Python file with ``open_ground(testbed: str) -> Ground``."""


class LiveGround:
    """A `Ground`: a deployed testbed on real nodes, reached only by ssh to its admin node."""

    def __init__(self, site: str, name: str) -> None:
        """Raise UserError if `site` has no testbed called `name`, or if the testbed is not up."""
        from testbed.choose import ready
        from testbed.sites import open_site

        self.name = name
        self.site: Site = open_site(site)
        self.testbed: Testbed = ready(self.site, name)

    @cached_property
    def agent(self) -> Agent:
        """The admin node's agent."""
        from testbed.client import agent_client

        return agent_client(self.testbed)

    def facts(self) -> Facts:
        """See `Ground.facts`."""
        from campaigns.papers.dlr.steps.facts import read_facts, require_current

        require_current(self.testbed)
        return read_facts(self.site, self.testbed, self.agent)

    def offers(self) -> Needs:
        """See `Ground.offers`."""
        from campaigns.papers.dlr.steps.facts import read_offers

        return read_offers(self.testbed)

    def services(self, setting: CellSetting) -> Services:
        """See `Ground.services`."""
        from campaigns.papers.dlr.steps.live import LiveServices
        from campaigns.papers.dlr.steps.live_open import OpenLoopServices

        if setting.parameters.op == "s3":
            from campaigns.papers.dlr.steps.live_gateway import GatewayServices

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


def open_ground(
    kind: str,
    testbed: str,
    site: str | None = None,
    spec: Path | None = None,
    model: Path | None = None,
) -> Ground:
    """Return the ground `kind` on the testbed `testbed`, which must be up and deployed, except for
    `sim`.

    Args:
        kind: a campaign's `ground`.
        testbed: the testbed's name.
        site: kind of the site; by default the ground's.
        spec: the testbed's file, the only input of `sim`; without it, `testbed` names a spec (see
            `campaigns.grounds.sim.open_sim`).
        model: constants of `sim`'s model, if not the default.

    Raises:
        UserError: there is no such testbed; the message has the next step.
    """
    if model is not None and kind != "sim":
        raise UserError(f"a model belongs to the ground sim, not to {kind}: leave out --model.")
    if kind == "fake":
        return _fake(testbed)
    if kind == "sim":
        from campaigns.grounds.sim import open_sim

        return open_sim(testbed, spec, model)
    return LiveGround(site or kind, testbed)


def _fake(testbed: str) -> Ground:
    file = os.environ.get(FAKE_GROUND)
    if not file:
        raise UserError(
            "the ground fake exists only in Hotbed's own tests: use local, chameleon or inventory."
        )
    spec = importlib.util.spec_from_file_location("hotbed_fake_ground", Path(file))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(Ground, module.open_ground(testbed))
