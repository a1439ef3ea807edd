"""Manager of Blazar that checks for starts and ends of leases every second, not every ten."""

from blazar.cmd import manager
from blazar.manager import service

service.EVENT_INTERVAL = 1

if __name__ == "__main__":
    manager.main()
