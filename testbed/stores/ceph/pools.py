"""Removal of pools, which needs `mon_allow_pool_delete`, and waiting for it."""

from __future__ import annotations

import time
from collections.abc import Callable

from schemas.errors import StoreError
from testbed.stores.ceph.connection import Connection
from testbed.stores.ceph.perf import perf_dumps

_POOL_POLL_S = 0.25


def remove_pool(connection: Connection, name: str) -> None:
    """Begin to remove a pool. Raises StoreError if Ceph refuses."""
    connection.mon(
        "osd pool delete", pool=name, pool2=name, yes_i_really_really_mean_it=True
    ).checked(f"osd pool delete {name}")


def wait_removed(connection: Connection, names: str, timeout_s: float) -> None:
    """Wait until the OSDs delete no PGs; StoreError with `names` on time-out."""
    wait_for(
        lambda: removing(connection) == 0, timeout_s, f"the OSDs were still deleting pool {names}"
    )


def removing(connection: Connection) -> int:
    """Return the number of PGs that the OSDs still delete (`numpg_removing` over all up OSDs)."""
    dump = connection.mon("osd dump").checked("osd dump")
    up = [int(item["osd"]) for item in dump["osds"] if item["up"]]
    dumps = perf_dumps(connection, up).values()
    return sum(int(dump["osd"].get("numpg_removing", 0)) for dump in dumps)


def wait_for(done: Callable[[], bool], timeout_s: float, otherwise: str) -> float:
    """Poll until `done()`; return the seconds. Raise StoreError(`otherwise`) after `timeout_s`."""
    start = time.monotonic()
    while not done():
        if time.monotonic() - start > timeout_s:
            raise StoreError(f"{otherwise} within {timeout_s:g} s.")
        time.sleep(_POOL_POLL_S)
    return time.monotonic() - start
