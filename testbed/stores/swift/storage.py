"""Adding and removing storage nodes and disks under load, and passes of the replicators."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from schemas.errors import RemoteError, StoreError, UserError
from testbed.agent.reach import every, reach
from testbed.ssh import Shell
from testbed.stores.contract import Effect
from testbed.stores.swift.cluster import SwiftState
from testbed.stores.swift.confs import DEVICES, ETC, USER, VENV
from testbed.stores.swift.store import SwiftStore

# ----------------------------------------------------------------------------------------------
# Passes of Swift's replicators and updaters on a storage node. Each pass has a time limit. Success
# is judged by what the node still holds, not by how the passes end.
#
# A pass of the object replicator asks for every partition of its node. Object servers receive the
# data within their microstore's share, in parallel with the tenants' requests. On a small share
# under load, a pass takes minutes. An interrupted pass keeps its progress: a partition leaves its
# node as soon as all nodes that should have it do.

MOVED_BY: Mapping[str, str] = MappingProxyType(
    {
        "objects": "object-replicator",
        "containers": "container-replicator",
        "accounts": "account-replicator",
        "async_pending": "object-updater",
    }
)
"""Folders of a disk, and the daemon that moves the files of each folder."""
ALL = (*MOVED_BY.values(), "container-updater")
_LOGS = "/run/hotbed-swift"
_COUNT_S = 60.0  # limit for counting on a node's disks, against a hang; not measured
_SPARE_S = 20.0  # beyond the daemons' limits: for ssh, and 5 s to end killed daemons
_COUNT = f"""
for disk in "$@"; do
    mountpoint -q {DEVICES}/$disk || {{ echo "disk $disk is not mounted" >&2; exit 1; }}
done
for kind in {" ".join(MOVED_BY)}; do
    for disk in "$@"; do
        for folder in {DEVICES}/$disk/$kind {DEVICES}/$disk/$kind-[0-9]*; do
            [ ! -d "$folder" ] || find "$folder" -type f \\( -name '*.data' -o -name '*.ts' \\
                -o -name '*.meta' -o -name '*.db' -o -path '*/async_pending*' \\) 2> /dev/null
        done
    done | echo $kind $(wc -l)
done
"""
_RUN = f"""
limit=$1; store=$2; shift 2
mkdir -p {_LOGS} && chown {USER}: {_LOGS}
export EVENTLET_NO_GREENDNS=yes
failed=
for daemon in "$@"; do
    log={_LOGS}/$daemon.log
    timeout -k 5 "$limit" {VENV}/bin/python -s {VENV}/bin/swift-$daemon \\
        {ETC}/${{daemon%-*}}-$store.conf once -v > $log 2>&1
    case $? in
        0) ;;
        124|137) failed="$failed, $daemon did not end within $limit s" ;;
        *) failed="$failed, $daemon failed ($(tail -n 1 $log))" ;;
    esac
done
[ -z "$failed" ] || {{ echo "${{failed#, }}; see {_LOGS}" >&2; exit 1; }}
"""


class Passes:
    """Passes on nodes; `shell_to` reaches a node by its name."""

    def __init__(self, shell_to: Callable[[str], Shell]) -> None:
        self._shell = shell_to

    def held(self, node: str, disks: Sequence[str]) -> dict[str, int]:
        """Count files of objects, databases and waiting updates on `disks` of a node, by folder.
        StoreError: a disk is not mounted, so the count is unknown."""
        argv = ["sh", "-c", _COUNT, "held", *disks]
        try:
            text = self._shell(node).run(argv, timeout_s=_COUNT_S).text
            return {kind: int(count) for kind, count in map(str.split, text.splitlines())}
        except RemoteError as error:
            raise StoreError(f"the files on node {node} cannot be counted: {error}") from error

    def run(
        self, node: str, microstore: str, daemons: Sequence[str] = ALL, *, limit_s: float
    ) -> None:
        """Run a pass of each daemon with the configuration of a microstore's servers. `limit_s`:
        time limit of each daemon, in seconds. RemoteError: a daemon failed or exceeded its limit;
        its progress stays."""
        argv = ["sh", "-c", _RUN, "run", f"{limit_s:g}", microstore, *daemons]
        self._shell(node).run(argv, timeout_s=len(daemons) * (limit_s + 5) + _SPARE_S)


# Limits of a removal; none was chosen by measuring shorter or longer ones.
_PASS_S = 120.0
"""Limit of a daemon's pass on a leaving node. An interrupted pass keeps its progress. The limit
ends a hanging pass, and lets the rest be counted every few minutes."""
_WHOLE_PASS_S = 240.0
"""Limit of a daemon's pass on every node of a set: it moves what a ring change needs."""
_IDLE_PASSES = 3
"""Passes without progress after which the removal fails. One or two passes may move nothing because
the receiving nodes are busy or answer too late for Swift."""
_EMPTY_S = 420.0
"""Limit of all passes of a removal: three of the longest and a minute. A repeat resumes."""
_RELOAD_S = 16.0
"""Time until every process has read the new ring's file: Swift checks every 15 s."""
_SLOW_S = 60.0


class StorageChanges:
    """Changes of the rings of one store."""

    def __init__(
        self,
        store: SwiftStore,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store, self._clock, self._sleep = store, clock, sleep
        self._passes = Passes(partial(reach, store.config))

    def add(self, node: str, microstore: str, disks: Sequence[str] | None = None) -> Effect:
        """Give a storage node, or more of its disks, to the microstores that share `microstore`'s
        storage. A pass of the replicators moves its partitions; until then readers find them in
        their old places."""

        def work() -> str:
            cluster, now = self._store.cluster, self._store.state()
            known_microstore(self._store, microstore)
            storage = cluster.set_of(microstore)
            if node not in cluster.disks:
                there = ", ".join(cluster.disks)
                raise UserError(f"node {node!r} is no storage node", allowed=there)
            have = cluster.disks[node]
            given = tuple(disks or have)
            unknown = [disk for disk in given if disk not in have]
            if unknown:
                there = ", ".join(have)
                raise UserError(f"has no disk {unknown[0]!r}", where=f"node {node}", allowed=there)
            other = [one for one, nodes in now.members.items() if node in nodes and one != storage]
            if other:
                raise UserError(f"node {node} stores for {other[0]}", do="remove it there first")
            members = dict(now.members[storage])
            members[node] = tuple(dict.fromkeys([*members.get(node, ()), *given]))
            after = replace(now, members={**now.members, storage: members})
            self._store.nodes.ask(self._store.changes.configure(after, [node]), _SLOW_S)
            changed = self.put_rings(after, storage)
            self._store.nodes.ask({node: {"op": "start"}}, _SLOW_S)
            self._store.share(now, after)
            return f"{node} stores for {microstore}: {changed['moved']} replicas of partitions move"

        with self._store.locked():
            return self._store.timed(work)

    def remove(self, node: str, disks: Sequence[str] | None = None) -> Effect:
        """Empty a storage node, or `disks` of it, and remove it from the rings. The node serves
        what it holds until other nodes hold it.

        The effect fails if the disks are not empty in time; they stay in the rings without
        partitions. A repeated removal resumes where it stopped.
        """

        def work() -> str:
            now = self._store.state()
            storage = next((one for one, nodes in now.members.items() if node in nodes), "")
            if not storage:
                raise UserError("is in no ring", where=f"node {node}")
            left = {name: held for name, held in now.members[storage].items() if name != node}
            have = now.members[storage][node]
            unknown = [disk for disk in disks or () if disk not in have]
            if unknown:
                raise UserError(
                    f"disk {unknown[0]!r} of node {node} is in no ring; {', '.join(have)} are"
                )
            if disks:
                rest = tuple(disk for disk in have if disk not in disks)
                if rest:
                    left = {**now.members[storage], node: rest}
            if len(left) < self._store.cluster.replicas:
                raise UserError(
                    f"without {node} there are {len(left)} storage nodes for "
                    f"{self._store.cluster.replicas} replicas",
                    do="add another one first",
                )
            going = [disk for disk in have if disk not in left.get(node, ())]
            self.put_rings(now, storage, emptied=[(node, disk) for disk in going])
            self.empty(storage, node, going)
            after = replace(now, members={**now.members, storage: left})
            self.put_rings(after, storage)
            self._store.share(now, after)
            if node not in left:
                return f"{node} is out of the rings"
            return f"{', '.join(going)} of {node} out of the rings"

        with self._store.locked():
            return self._store.timed(work)

    def empty(self, storage: str, node: str, disks: Sequence[str]) -> None:
        """Run passes on a node until `disks`, which have no partitions, hold nothing.

        Only this node's daemons run, and only those with data to move. The disks count as empty
        only after every proxy must have read the new rings: until then, a proxy may still write
        there. StoreError: the disks still hold data after idle passes or the time limit."""
        began = self._clock()
        least, idle, said = math.inf, 0, ""
        while True:
            held = self._passes.held(node, disks)
            left, now = sum(held.values()), self._clock()
            settled = began + _RELOAD_S
            if not left and now >= settled:
                return
            if not left:
                self._sleep(settled - now)
                continue
            idle = 0 if left < least or now < settled else idle + 1
            least = min(least, left)
            if idle >= _IDLE_PASSES or now >= began + _EMPTY_S:
                raise StoreError(_stuck(node, disks, held, now - began, said))
            daemons = [MOVED_BY[kind] for kind, count in held.items() if count]
            try:
                said = ""
                self._passes.run(node, self._first(storage), daemons, limit_s=_PASS_S)
            except RemoteError as error:  # the remaining data decide
                said = str(error)

    def replicate(self, state: SwiftState, storage: str) -> float:
        """Run a pass of all replicators and updaters on every node of a set; return seconds.
        RemoteError: a daemon failed or took too long."""
        began, first = self._clock(), self._first(storage)
        every(
            state.members[storage],
            lambda node: self._passes.run(node, first, limit_s=_WHOLE_PASS_S),
        )
        return self._clock() - began

    def replicated(self) -> Effect:
        """Run `replicate` for everything; return an effect."""

        def work() -> str:
            state = self._store.state()
            for storage in state.members:
                self.replicate(state, storage)
            return "every replicator has made a pass"

        return self._store.timed(work)

    def put_rings(
        self, state: SwiftState, storage: str, emptied: Sequence[tuple[str, str]] = ()
    ) -> Mapping[str, Any]:
        """Build a set's rings and send them to every server, storage nodes first."""
        changes, store = self._store.changes, self._store
        built = changes.build_rings(state, storage, emptied)
        changed: list[str] = []
        for requests in changes.ring_requests(state, built["rings"]):
            for answer in store.nodes.ask(requests).values():
                changed += answer["changed"]
        if built["changed"] or changed:
            state = replace(state, rings=state.rings + 1)
        store.write(state)
        return {"changed": changed, "moved": built["moved"], "balance": built["balance"]}

    # -- inside ---------------------------------------------------------------------------------

    def _first(self, storage: str) -> str:
        """Return a microstore of a storage node set: all its microstores see the same objects."""
        return next(
            name
            for name in self._store.cluster.microstores
            if self._store.cluster.set_of(name) == storage
        )


def known_microstore(store: SwiftStore, name: str) -> None:
    """Raise UserError if the store has no microstore of this name."""
    if name not in store.cluster.microstores:
        there = ", ".join(store.cluster.microstores)
        raise UserError(f"there is no microstore {name!r}", allowed=there)


def _stuck(
    node: str, disks: Sequence[str], held: Mapping[str, int], seconds: float, said: str
) -> str:
    what = ", ".join(f"{count} in {kind}" for kind, count in held.items() if count)
    because = f" Last pass: {said}" if said else ""
    return (
        f"disks {', '.join(disks)} of node {node} are not empty after {seconds:.0f} s ({what}): "
        f"remove again to go on.{because}"
    )
