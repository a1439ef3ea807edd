"""The Ceph store: sensed and changed through librados, from the admin node."""

from testbed.stores.ceph.connection import Connection, connect
from testbed.stores.ceph.store import CephStore, Sensor

__all__ = ["CephStore", "Connection", "Sensor", "connect"]
