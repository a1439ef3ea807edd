"""Site as a user of this cloud sees it: the environment, the site, a spec for it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.sites.chameleon import ChameleonSite
from testbed.sites.chameleon.work import POLL_S
from testbed.sites.clock import Clock
from testbed.sites.records import Records
from testbed.spec import TestbedSpec
from tests.openstack.config import REGION
from tests.testbed.sites.fake_shells import FakeShells

_LOOK_S = 0.5


class QuickClock(Clock):
    """Machine clock with short pauses, because nothing here takes minutes.

    The later pauses before a retry stay seconds: Blazar refuses to delete a lease for as long as it
    starts it, which takes seconds on a busy machine.
    """

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / 3 if seconds > POLL_S else min(max(seconds, 0.0), _LOOK_S))


def a_site(state: Path) -> ChameleonSite:
    """Return the site with its records below `state`, and played nodes."""
    records = Records(ChameleonSite.kind, state)
    return ChameleonSite(clock=QuickClock(), records=records, contact=FakeShells())


def a_spec(
    name: str = "it",
    *,
    osds: int = 1,
    node_type: str | Mapping[str, str] = "compute_skylake",
    site: str = REGION,
    **options: Any,
) -> TestbedSpec:
    """Return an admin node and `osds` disk nodes of `node_type`; `options` go to the site."""
    kind: Mapping[str, object] = {"node_type": node_type} if site == REGION else {}
    disk = {"size": "4GiB", "scratch": "1GiB"}
    return TestbedSpec.model_validate(
        {
            "name": name,
            "site": {
                "kind": "chameleon",
                "options": {
                    "site": site,
                    "lease": {"hours": 2},
                    "patience": {"lease_s": 120, "servers_s": 90, "ssh_s": 60},
                    **kind,
                    **options,
                },
            },
            "groups": [
                {"name": "admin", "roles": ["admin", "client"], "memory": "1GiB"},
                {"name": "osd", "count": osds, "roles": ["osd"], "memory": "1GiB", "disk": disk},
            ],
            "store": None,
        }
    )
