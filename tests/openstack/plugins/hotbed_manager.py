"""Blazar's manager, which looks every second instead of every ten for leases that begin or end."""

from blazar.cmd import manager
from blazar.manager import service

service.EVENT_INTERVAL = 1

if __name__ == "__main__":
    manager.main()
