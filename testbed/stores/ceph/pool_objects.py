"""The writer's access to a Ceph cluster: asynchronous writes of whole objects through librados."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from schemas.errors import StoreError, UserError
from testbed.agent.openloop.plan import BALLAST_BYTES, WritePlan, names_for, pg_of

CONF = "/etc/ceph/ceph.conf"
CONNECT_S = 15
RJENKINS = 2  # the pool's object_hash
PREFILL_AT_ONCE = 16
BALLAST_PREFIX = "hotbed-ballast"
PREFILL_STALL_S = 120.0
_ASKED = 3  # number of names to check against the cluster's placement


class PoolObjects:
    """A `Sender` to a `rados.Ioctx`: object `number` of a PG is one of its names, overwritten
    whole."""

    def __init__(
        self,
        ioctx: Any,
        names: Mapping[str, tuple[str, ...]],
        payload: bytes,
        ballast: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Keep the names; `ballast` holds, by PG, names of objects that only `fill` writes."""
        self._ioctx, self._names, self._payload = ioctx, names, payload
        self._ballast = ballast or {}

    def send(self, pgid: str, number: int, done: Callable[[int], None]) -> None:
        """See `Sender.send`."""
        self._write(self._names[pgid][number], self._payload, done)

    def _write(self, name: str, payload: bytes, done: Callable[[int], None]) -> None:
        try:
            self._ioctx.aio_write_full(name, payload, oncomplete=partial(_ended, done))
        except OSError as error:  # rados.Error is an OSError: the write was not even sent
            done(-abs(error.errno or 5))

    def fill(self) -> None:
        """Write every object once, the ballast's too. StoreError: an object cannot be written, or
        no write ends within two minutes."""
        room, codes = threading.Semaphore(PREFILL_AT_ONCE), list[int]()
        total = 0

        def done(code: int) -> None:
            codes.append(code)
            room.release()

        def take() -> None:
            if not room.acquire(timeout=PREFILL_STALL_S):
                raise StoreError(
                    f"open-loop: no write of the prefill ended within {PREFILL_STALL_S:g} s after "
                    f"{len(codes)} objects: are all OSDs up?"
                )

        heavy = os.urandom(BALLAST_BYTES) if self._ballast else b""
        for objects, payload in ((self._names, self._payload), (self._ballast, heavy)):
            for name in (name for names in objects.values() for name in names):
                take()
                self._write(name, payload, done)
                total += 1
        for _ in range(PREFILL_AT_ONCE):
            take()
        wrong = [code for code in codes if code < 0]
        if wrong or len(codes) != total:
            raise StoreError(
                f"open-loop: {len(wrong)} of {total} objects cannot be written "
                f"(errno {-wrong[0] if wrong else 0}: {os.strerror(-wrong[0]) if wrong else ''})."
            )


def _ended(done: Callable[[int], None], completion: Any) -> None:
    done(int(completion.get_return_value()))


def pool_of(dump: Mapping[str, Any], name: str) -> tuple[int, int]:
    """Return the number and pg_num of a pool in an ``osd dump``. UserError: there is no such pool,
    or another hash places its objects."""
    pools = {pool["pool_name"]: pool for pool in dump["pools"]}
    if name not in pools:
        there = ", ".join(sorted(pools)) or "none"
        raise UserError(f"there is no pool {name!r}", where="open-loop", allowed=there)
    pool = pools[name]
    if pool.get("object_hash", RJENKINS) != RJENKINS:
        raise UserError(f"pool {name!r} does not place objects by rjenkins", where="open-loop")
    return int(pool["pool"]), int(pool["pg_num"])


def object_names(plan: WritePlan, pool: int, pg_num: int) -> Mapping[str, tuple[str, ...]]:
    """Return the objects of every PG of the plan; raise UserError if a PG is not in the pool."""
    try:
        return names_for(plan.rates, pool, pg_num, plan.objects_per_pg)
    except ValueError as error:
        raise UserError(error, where="open-loop") from error


def ballast_names(plan: WritePlan, pool: int, pg_num: int) -> Mapping[str, tuple[str, ...]]:
    """Return the ballast objects of every PG of the plan, which `object_names` has checked."""
    if not (plan.prefill and plan.ballast_per_pg):
        return {}
    return names_for(plan.rates, pool, pg_num, plan.ballast_per_pg, BALLAST_PREFIX)


def confirm(ask: Callable[..., Any], pool: str, names: Iterable[str], number: int, n: int) -> None:
    """Ask the cluster where a few objects are; raise StoreError if our placement differs."""
    for name in list(names)[:_ASKED]:
        said = ask("osd map", pool=pool, object=name)["pgid"]
        if said != pg_of(name, number, n):
            raise StoreError(
                f"open-loop: Ceph places object {name!r} in PG {said}, not {pg_of(name, number, n)}"
                ": this release hashes names in another way."
            )


def open_pool(plan: WritePlan) -> tuple[PoolObjects, int, int]:
    """Connect; return the plan's objects, and the pool's number and pg_num. UserError: the pool or
    a PG does not exist. StoreError: no librados, no cluster."""
    try:
        import rados
    except ImportError as error:
        raise StoreError(
            "open-loop: librados is missing: run it on a node with the role client."
        ) from error
    options = {
        "client_mount_timeout": str(CONNECT_S),
        # librados blocks a sender beyond these limits, which must never happen.
        "objecter_inflight_ops": str(2 * plan.max_in_flight + 64),
        "objecter_inflight_op_bytes": str(2**32),
    }
    try:
        cluster = rados.Rados(conffile=CONF, name="client.admin", conf=options)
        cluster.connect(timeout=CONNECT_S)
    except rados.Error as error:
        raise StoreError(f"open-loop: cannot connect to the cluster of {CONF}: {error}.") from error

    def ask(prefix: str, **arguments: Any) -> Any:
        command = json.dumps({"prefix": prefix, "format": "json", **arguments})
        code, output, message = cluster.mon_command(command, b"", timeout=CONNECT_S)
        if code != 0:
            raise StoreError(f"open-loop: Ceph refused {prefix!r}: {message or code}")
        return json.loads(output)

    number, pg_num = pool_of(ask("osd dump"), plan.pool)
    names = object_names(plan, number, pg_num)
    confirm(ask, plan.pool, (each[0] for each in names.values()), number, pg_num)
    ioctx = cluster.open_ioctx(plan.pool)
    ballast = ballast_names(plan, number, pg_num)
    return PoolObjects(ioctx, names, os.urandom(plan.object_bytes), ballast), number, pg_num
