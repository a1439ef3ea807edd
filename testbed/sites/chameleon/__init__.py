"""Machines leased on the Chameleon testbed: bare metal, and virtual machines on KVM@TACC."""

from testbed.sites.chameleon.site import ChameleonSite

__all__ = ["ChameleonSite"]
