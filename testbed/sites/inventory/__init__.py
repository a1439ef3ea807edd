"""Any machines that answer ssh, from an Ansible inventory or a short list of hosts."""

from testbed.sites.inventory.site import InventorySite

__all__ = ["InventorySite"]
