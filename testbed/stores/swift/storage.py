"""Adding and removing storage nodes and disks while tenants work, and passes of the replicators."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from schemas.errors import RemoteError, StoreError, UserError
from testbed.agent.reach import every, reach
from testbed.ssh import Shell
from testbed.stores.contract import Effect
from testbed.stores.swift.cluster import State
from testbed.stores.swift.passes import MOVED_BY, Passes
from testbed.stores.swift.store import SwiftStore

# Limits of a removal; none was chosen by measuring what a shorter or longer one does.
_PASS_S = 120.0
"""Of a daemon's pass on a leaving node. Cut off it has moved what it has moved: the limit is for
one that hangs, and so that what is left is counted every few minutes."""
_WHOLE_PASS_S = 240.0
"""Of a daemon's pass on every node of a set: no removal, it moves what a ring change asks for."""
_IDLE_PASSES = 3
"""Passes without progress after which none is expected: one or two may bring nothing away because
the nodes that should take it are busy, or answer too late for Swift."""
_EMPTY_S = 420.0
"""For all passes of a removal: three of the longest and a minute. The same command goes on then."""
_RELOAD_S = 16.0
"""After so long every process has read the new ring's file: Swift looks every 15 s."""
_SLOW_S = 60.0


class StorageChanges:
    """Changes of the rings of one store; `shell_to` reaches a node by its name."""

    def __init__(
        self,
        store: SwiftStore,
        shell_to: Callable[[str], Shell] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store, self._clock, self._sleep = store, clock, sleep
        self._passes = Passes(shell_to or (lambda node: reach(store.config, node)))

    def add(self, node: str, microstore: str, disks: Sequence[str] | None = None) -> Effect:
        """Give a storage node, or more of its disks, to the microstores that share `microstore`'s
        storage. Partitions that it gets follow by a pass of the replicators; until then a reader
        finds them where they were."""

        def work() -> str:
            storage, now = self._set(microstore), self._store.state()
            self._is_storage(node)
            have = self._disks(node)
            given = tuple(disks or have)
            unknown = [disk for disk in given if disk not in have]
            if unknown:
                there = ", ".join(have)
                raise UserError(f"node {node} has no disk {unknown[0]!r}; it has {there}.")
            other = [one for one, nodes in now.members.items() if node in nodes and one != storage]
            if other:
                raise UserError(f"node {node} stores for {other[0]}: remove it there first.")
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
        """Empty a storage node, or some of its disks, and take it out of the rings. It goes on
        serving what it holds until that is elsewhere.

        The effect fails, and the disks stay in the rings without partitions, when they are not
        empty in time; asked for once more, it goes on where it was.
        """

        def work() -> str:
            now = self._store.state()
            storage = next((one for one, nodes in now.members.items() if node in nodes), "")
            if not storage:
                raise UserError(f"node {node} is in no ring.")
            left = {name: held for name, held in now.members[storage].items() if name != node}
            have = now.members[storage][node]
            unknown = [disk for disk in disks or () if disk not in have]
            if unknown:
                raise UserError(
                    f"disk {unknown[0]!r} of node {node} is in no ring; {', '.join(have)} are."
                )
            if disks:
                rest = tuple(disk for disk in have if disk not in disks)
                if rest:
                    left = {**now.members[storage], node: rest}
            if len(left) < self._store.cluster.replicas:
                raise UserError(
                    f"without {node} there are {len(left)} storage nodes for "
                    f"{self._store.cluster.replicas} replicas: add another one first."
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
        """Passes on a node until some of its disks, which have no partitions, hold nothing.

        Only this node's daemons run, and of them those that have something to bring away. The disks
        are empty when that is so after every proxy must have read the new rings: until then one
        may still write there.

        Raises:
            StoreError: they still hold something, and passes change nothing, or time is up.
        """
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
            except RemoteError as error:  # what is left decides
                said = str(error)

    def replicate(self, state: State, storage: str) -> float:
        """A pass of all replicators and updaters on every node of a set; seconds.

        Raises:
            RemoteError: one failed or took too long.
        """
        began, first = self._clock(), self._first(storage)
        every(
            state.members[storage],
            lambda node: self._passes.run(node, first, limit_s=_WHOLE_PASS_S),
        )
        return self._clock() - began

    def replicated(self) -> Effect:
        """`replicate` for everything, as an effect."""

        def work() -> str:
            state = self._store.state()
            for storage in state.members:
                self.replicate(state, storage)
            return "every replicator has made a pass"

        return self._store.timed(work)

    def put_rings(
        self, state: State, storage: str, emptied: Sequence[tuple[str, str]] = ()
    ) -> Mapping[str, Any]:
        """Build a set's rings and bring them to every server, storage nodes first."""
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
        """A microstore of a set of storage nodes: all of them see the same objects."""
        return next(
            name
            for name in self._store.cluster.microstores
            if self._store.cluster.set_of(name) == storage
        )

    def _set(self, microstore: str) -> str:
        if microstore not in self._store.cluster.microstores:
            there = ", ".join(self._store.cluster.microstores)
            raise UserError(f"there is no microstore {microstore!r}; there are {there}.")
        return self._store.cluster.set_of(microstore)

    def _is_storage(self, node: str) -> None:
        names = [one.name for one in self._store.config.nodes if "storage" in one.roles]
        if node not in names:
            raise UserError(f"node {node!r} is no storage node; there are {', '.join(names)}.")

    def _disks(self, node: str) -> tuple[str, ...]:
        return self._store.cluster.disks[node]


def _stuck(
    node: str, disks: Sequence[str], held: Mapping[str, int], seconds: float, said: str
) -> str:
    what = ", ".join(f"{count} in {kind}" for kind, count in held.items() if count)
    because = f" Last pass: {said}" if said else ""
    return (
        f"disks {', '.join(disks)} of node {node} are not empty after {seconds:.0f} s ({what}): "
        f"remove again to go on.{because}"
    )
