"""Creation and removal of pools. Removal needs `mon_allow_pool_delete`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from schemas.errors import StoreError, UserError
from testbed.stores.ceph.connection import Connection
from testbed.stores.ceph.perf import perf_dumps
from testbed.stores.ceph.pgs import CLEAN, parse_osd_map, pg_states

_POOL_POLL_S = 0.25


def create_pool(
    connection: Connection, name: str, *, pg_num: int, size: int, min_size: int, timeout_s: float
) -> None:
    """Create a replicated pool for the application rados; return when its PGs are active+clean.

    Safe to repeat. Raises UserError if a pool of that name has another shape, StoreError if Ceph
    refuses or the PGs are not clean within `timeout_s`.
    """
    there = _pools(connection).get(name)
    if there is not None and (there.pg_num, there.size) != (pg_num, size):
        raise UserError(
            f"pool {name!r} exists with {there.pg_num} PGs and size {there.size}, not "
            f"{pg_num} and {size}",
            do="delete it first",
        )
    if there is None:
        connection.mon(
            "osd pool create",
            pool=name,
            pg_num=pg_num,
            pgp_num=pg_num,
            pool_type="replicated",
            autoscale_mode="off",
        ).checked(f"osd pool create {name}")
    for key, value in (("size", size), ("min_size", min_size)):
        connection.mon(
            "osd pool set", pool=name, var=key, val=str(value), yes_i_really_mean_it=True
        ).checked(f"osd pool set {name} {key} {value}")
    connection.mon("osd pool application enable", pool=name, app="rados").checked(
        f"osd pool application enable {name}"
    )
    wait_for(
        lambda: _pool_clean(connection, name),
        timeout_s,
        f"the PGs of pool {name!r} were not active+clean",
    )


def delete_pool(connection: Connection, name: str, *, timeout_s: float) -> bool:
    """Remove a pool and wait until the OSDs have removed its PGs.

    Return False if there was no such pool. Raises StoreError if Ceph refuses or on time-out.
    """
    if name not in _pools(connection):
        return False
    remove_pool(connection, name)
    wait_removed(connection, name, timeout_s)
    return True


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


def _pools(connection: Connection) -> Mapping[str, Any]:
    dump = connection.mon("osd dump").checked("osd dump")
    return parse_osd_map(dump, {"nodes": []}).pools


def _pool_clean(connection: Connection, name: str) -> bool:
    # Ask the PGs: the manager's statistics show a new pool up to 7 s late.
    pools = _pools(connection)
    if name not in pools:
        return False
    states = pg_states(connection, pools[name].pgids())
    return set(states) == {CLEAN}
