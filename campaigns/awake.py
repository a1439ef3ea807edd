"""A machine that is kept awake while a campaign measures on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from campaigns.grounds import LiveGround
from campaigns.services import Ground
from testbed.sites.contract import AwakeSite, Site


@contextmanager
def kept_awake(site: Site | None, say: Callable[[str], None]) -> Iterator[bool | None]:
    """Keep the machine of `site` awake, where it is one that falls asleep.

    Args:
        site: where the testbed is; None for one that is computed.
        say: is told when processors are kept awake.

    Returns:
        Whether they are; None for a site of which it is not known whether its machines sleep.

    Raises:
        UserError: HOTBED_AWAKE says what it may not.
    """
    if not isinstance(site, AwakeSite):
        yield None
        return
    with site.kept_awake() as awake:
        if awake:
            say("processors are kept awake meanwhile; HOTBED_AWAKE=no leaves them alone")
        yield awake


def site_of(ground: Ground) -> Site | None:
    """The site of a ground's testbed; None where nothing is real."""
    return ground.site if isinstance(ground, LiveGround) else None
