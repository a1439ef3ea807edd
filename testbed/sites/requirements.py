"""Requirements on the machine that runs Hotbed, by kind of site, as names of doctor's checks.

A site's `plan` checks the site's own limits (a quota, a busy lease); this module is about the
local machine.
"""

from __future__ import annotations

from pathlib import Path

ANY_SITE = ("ssh",)
"""Enough for machines that are only reached over ssh."""

LOCAL_SITE = (
    *("platform", "root", "nspawn", "debootstrap", "tools", "fuse", "loop", "cgroup", "pressure"),
    *("overlay", "network", "shaping", "ssh", "queuedisk", "disk", "memory", "cores"),
)

CHAMELEON_SITE = (*ANY_SITE, "chi")

_BY_KIND = {"local": LOCAL_SITE, "chameleon": CHAMELEON_SITE}


def requirements(kind: str) -> tuple[str, ...]:
    """Return the names of the checks that a testbed on a site of this `kind` needs."""
    return _BY_KIND.get(kind, ANY_SITE)


def state_folder(kind: str) -> Path | None:
    """Return the folder of a site's disks on this machine; None if it keeps none here."""
    if kind != "local":
        return None
    from testbed.sites.local.names import LocalNames

    return LocalNames.of_environment().state
