"""Verbs: the state in which every run begins, and empty caches.

Weights and affinities 1, no upmaps, balancer off, no options set by controllers, all PGs
active+clean, deletions finished, caches dropped. Every correction is reported: an unclean start
spoils a run unnoticed.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from schemas.errors import RemoteError, StoreError
from testbed.agent.contract import AgentConfig, osd_nodes
from testbed.agent.health import WAIT_S, opened, until_clean
from testbed.agent.reach import on_each, reach
from testbed.stores.ceph.connection import Connection
from testbed.stores.ceph.steps import balancer_differs, differences, pristine, restore
from testbed.stores.ceph.store import CephStore
from testbed.stores.contract import Effect
from testbed.stores.nfs.store import store_of as nfs_of
from testbed.stores.swift.cluster import initial
from testbed.stores.swift.store import SwiftStore
from testbed.stores.swift.store import store_of as swift_of

# Checked first: a sync reaches every file system of the machine, also those of other nodes.
_DROP = """\
[ -w /proc/sys/vm/drop_caches ] || exec python3 -c "$1"
sync; echo 3 > /proc/sys/vm/drop_caches
"""
# FileStore reads through the page cache. A container may drop the pages of its own files.
_FORGET = """
import glob, os
folders = glob.glob("/var/lib/ceph/osd/*/current")
for folder in folders:
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                file = os.open(os.path.join(path, name), os.O_RDONLY)
            except OSError:  # removed meanwhile
                continue
            os.fdatasync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)
raise SystemExit(not folders)
"""
_BALANCER_TRIES = 2  # a plan that the balancer had begun may arrive after it was switched off


def clean(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Clean the store: {timeout_s?, caches?: true} -> {put_right, settled_s, caches}.

    `put_right` lists the corrections in words. `settled_s` is the time that the store took to
    settle. For `caches` see the verb `caches`. Raises an error if the store does not settle.
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
    """List changes that controllers made and did not restore, in words. Changes nothing.

    Ceph: the corrections that `clean` would make; Swift: the spec's layout; NFS: the network."""
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
    changes = differences(store.connection, osd_map, wanted)
    return off + [change.words for change in changes]


def off_layout(store: SwiftStore) -> list[str]:
    """Return the spec's layout, in words, if another layout or other shares are in force."""
    now, wanted = store.state(), initial(store.cluster)
    steered = operator.attrgetter("shares", "tenants", "workers", "overrides", "scale")
    return [] if steered(now) == steered(wanted) else [f"layout {wanted.layout}"]


def put_right(store: CephStore) -> list[str]:
    """Set weights, affinities, upmaps, balancer and options to their initial state; return
    corrections.

    Raises StoreError if something cannot be restored.
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
    """Empty the caches: {} -> {osds, failed, nodes, not_permitted}.

    `osds` dropped their own cache (BlueStore keeps data and metadata there), `nodes` their page
    cache, or in a container the pages of FileStore's objects. `not_permitted` are the other
    containers (their OSDs and fio use direct I/O, past the page cache). `failed` maps a failed OSD
    or node to the reason."""
    with opened(config) as store:
        return drop(config, store.connection)


def drop(config: AgentConfig, connection: Connection) -> dict[str, Any]:
    """Drop the caches; see `caches`."""
    plain = filestores(connection)  # they have no cache of their own, and refuse
    osds = sorted(osd for node in config.nodes for osd in node.osds if osd not in plain)
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


def filestores(connection: Connection) -> frozenset[int]:
    """Return the OSDs that keep their objects as files."""
    found = connection.mon("osd metadata").checked("osd metadata")
    return frozenset(int(one["id"]) for one in found if one.get("osd_objectstore") == "filestore")


def drop_page_cache(config: AgentConfig, node: str) -> bool:
    """Write back and drop `node`'s page cache, or the pages of its FileStore; return False if its
    kernel forbids the first and it has none."""
    argv = ["sh", "-c", _DROP, "sh", _FORGET]
    done = reach(config, node).run(argv, check=False, timeout_s=60.0)
    return done.returncode == 0
