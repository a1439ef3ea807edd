"""Local site: nodes as containers on this machine, with disks that queue."""

from testbed.sites.local.site import LocalSite

__all__ = ["LocalSite"]
