"""Keep a machine awake while a campaign measures on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from campaigns.grounds.testbed import LiveGround
from campaigns.papers.dlr.cell import StoreGround
from testbed.sites.contract import AwakeSite, Site


@contextmanager
def kept_awake(site: Site | None, say: Callable[[str], None]) -> Iterator[bool | None]:
    """Keep the machine of `site` awake, if it can fall asleep.

    Args:
        site: the testbed's site; None for a simulated testbed.
        say: called with a message when processors are kept awake.

    Returns:
        True if the CPUs are kept awake, False if not, None if the site cannot tell.

    Raises:
        UserError: HOTBED_AWAKE has a value that is not allowed.
    """
    if not isinstance(site, AwakeSite):
        yield None
        return
    with site.kept_awake() as awake:
        if awake:
            say("processors are kept awake meanwhile; HOTBED_AWAKE=no leaves them alone")
        yield awake


def site_of(ground: StoreGround) -> Site | None:
    """Return the site of a ground's testbed; None without real machines."""
    return ground.site if isinstance(ground, LiveGround) else None
