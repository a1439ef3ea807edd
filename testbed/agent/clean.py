"""Verbs: the state in which every run begins, and empty caches.

Weights and affinities 1, no upmaps, balancer off, all PGs active+clean, deletions finished,
caches dropped. What was put right is told: an unclean start spoils a run unnoticed.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from schemas.errors import RemoteError, StoreError
from testbed.agent.config import osd_nodes
from testbed.agent.contract import AgentConfig
from testbed.agent.health import WAIT_S, opened, until_clean
from testbed.agent.reach import on_each, reach
from testbed.stores.ceph.connection import Connection
from testbed.stores.ceph.saved import balancer_differs, differences, pristine, restore
from testbed.stores.ceph.store import CephStore
from testbed.stores.contract import Effect
from testbed.stores.nfs.store import store_of as nfs_of
from testbed.stores.swift.cluster import initial
from testbed.stores.swift.store import SwiftStore
from testbed.stores.swift.store import store_of as swift_of

# Looked at before: a sync reaches every file system of the machine, also the other nodes' ones.
_DROP = "[ -w /proc/sys/vm/drop_caches ] || exit 1; sync; echo 3 > /proc/sys/vm/drop_caches"
_BALANCER_TRIES = 2  # a plan that the balancer had begun may land after it was switched off


def clean(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Verb: {timeout_s?, caches?: true} -> {put_right, settled_s, caches}.

    `put_right` lists what was not as it should be, in words; `settled_s` is how long the store
    took to come to rest; `caches` see the verb `caches`. An error when it does not come to rest.
    """
    timeout_s = float(payload.get("timeout_s", WAIT_S))
    with opened(config) as store:
        done = put_right(store)
        settled = until_clean(store, timeout_s)
        dropped = None
        if payload.get("caches", True):
            dropped = drop(config, store.connection)
    return {"put_right": done, "settled_s": settled, "caches": dropped}


def unclean(config: AgentConfig, payload: Mapping[str, Any]) -> list[str]:
    """Verb: {} -> what steering has changed on the store and would have to be put back, in words.

    Ceph: what `clean` puts right; Swift: the spec's layout; NFS: the network. Changes nothing."""
    if config.store == "swift":
        with closing(swift_of(config)) as swift:
            return off_layout(swift)
    if config.store == "nfs":
        found = nfs_of(config).check({})
        return [f"network of {host}: {said[0]}" for host, said in found.items() if said]
    if config.store != "ceph":
        return []
    with opened(config) as store:
        return to_put_right(store)


def to_put_right(store: CephStore) -> list[str]:
    """Return what `put_right` would change, in words. Raises StoreError."""
    osd_map = store.reader.osd_map()
    wanted = pristine(osd_map)
    off = ["balancer off"] if balancer_differs(store.connection, wanted["balancer"]) else []
    return off + [change.words for change in differences(osd_map, wanted)]


def off_layout(store: SwiftStore) -> list[str]:
    """Return the spec's layout, in words, if another one or other shares are in force."""
    now, wanted = store.state(), initial(store.cluster)
    steered = operator.attrgetter("shares", "tenants", "workers", "overrides")
    return [] if steered(now) == steered(wanted) else [f"layout {wanted.layout}"]


def put_right(store: CephStore) -> list[str]:
    """Bring weights, affinities, upmaps and the balancer to the start of a run; what differed.

    Raises StoreError when something cannot be put right.
    """
    words: list[str] = []
    for _ in range(_BALANCER_TRIES):
        wanted = pristine(store.reader.osd_map())
        effects = restore(store.connection, store.reader, wanted)
        _check(effects)
        words += [effect.message for effect in effects]
    return words


def _check(effects: Sequence[Effect]) -> None:
    failed = [effect.message for effect in effects if not effect.ok]
    if failed:
        raise StoreError(f"the store cannot be cleaned: {failed[0]} ({len(failed)} in all).")


def caches(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Verb: {} -> {osds, failed, nodes, not_permitted}: empties the caches.

    `osds` dropped their own cache (BlueStore keeps data and metadata there), `nodes` their page
    cache; `not_permitted` are nodes whose kernel does not let us (containers: their OSDs and fio
    read with direct I/O, past the page cache); `failed` says which OSD did not and why."""
    with opened(config) as store:
        return drop(config, store.connection)


def drop(config: AgentConfig, connection: Connection) -> dict[str, Any]:
    """See `caches`."""
    osds = sorted(osd for node in config.nodes for osd in node.osds)
    replies = connection.together([partial(connection.osd, osd, "cache drop") for osd in osds])
    by_osd = dict(zip(osds, replies, strict=True))
    names = [node.name for node in osd_nodes(config)]
    dropped = on_each(names, lambda name: drop_page_cache(config, name))
    lost = {n: str(answer) for n, answer in dropped.items() if isinstance(answer, RemoteError)}
    return {
        "osds": [osd for osd, reply in by_osd.items() if reply.ok],
        "failed": {f"osd.{osd}": r.message for osd, r in by_osd.items() if not r.ok} | lost,
        "nodes": [name for name, answer in dropped.items() if answer is True],
        "not_permitted": [name for name, answer in dropped.items() if answer is False],
    }


def drop_page_cache(config: AgentConfig, node: str) -> bool:
    """Write back and drop `node`'s page cache; False where its kernel forbids that."""
    done = reach(config, node).run(["sh", "-c", _DROP], check=False, timeout_s=60.0)
    return done.returncode == 0
